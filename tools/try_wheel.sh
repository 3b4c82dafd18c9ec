#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs jax-dynemb from a folder of wheels into a fresh environment where no compiler is on the PATH, and trains:
#
#     tools/try_wheel.sh FOLDER
#
# Environment: PYTHON (default python3). Prints the minutes and megabytes that a user's first hour has in it.

set -euo pipefail
dist=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$root/jax_dynemb/_version.py")
venv=$(mktemp -d)/venv
"${PYTHON:-python3}" -m venv "$venv"
cd "$(dirname "$venv")"
export PATH=$venv/bin
SECONDS=0

pip install -q --only-binary=:all: --find-links "$dist" "jax-dynemb[examples]==$version"
echo "installed in $SECONDS s"
python -m jax_dynemb --version
python -m jax_dynemb info
SECONDS=0
python "$root/examples/train_ctr.py"
echo "trained in $SECONDS s"
python - <<'END'
import pathlib
import sysconfig

site = pathlib.Path(sysconfig.get_path("purelib"))
for folder in (site / "jax_dynemb", site):
    size = sum(path.lstat().st_size for path in folder.rglob("*"))
    print(f"{folder.name}: {size / 1e6:.0f} MB")
END
