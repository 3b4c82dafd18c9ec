# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""tools/check_floors.py finds planted violations, and none in this repository."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "check_floors.py"


def check(root: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(TOOL), str(root)], capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def plant(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_this_repository_keeps_its_floors():
    status, output = check(ROOT)
    assert status == 0, output


ALLOWED = {
    "core/find.h": '#include <cstdint>\n#include "core/hash.h"\n',
    "core/atomic.h": "#if defined(__CUDA_ARCH__)\n#include <cuda/atomic>\n#endif\n",
    "cpu/find.cc": '#include "core/find.h"\n#include "cpu/loops.h"\n',
    "cuda/find.cu": (
        '#include "cuda/launch.h"\n#include <cub/cub.cuh>\n#include <cuda_runtime.h>\n'
    ),
    "xla_ffi/find.cc": (
        '#include "cuda/launch.h"\n#include "xla/ffi/api/ffi.h"\n'
        "#include <nanobind/nanobind.h>\n"
    ),
    "jax_dynemb/__init__.py": "from ._src.table import Tables as Tables\n",
    "jax_dynemb/_src/table/table.py": "from ..ops import find\nfrom .. import config\n",
    "jax_dynemb/_src/config.py": "from jax_dynemb._src.optim.interface import sgd\n",
    "jax_dynemb/_src/nnx/l.py": "from flax import nnx\nfrom ..table import Tables\n",
    "tests/oracle/_table.py": "import numpy\nfrom ._hash import fmix64\n",
    "tests/oracle/test_all.py": "from jax_dynemb import nnx\nimport oracle\n",
}


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed(tmp_path, name):
    plant(tmp_path, name, ALLOWED[name])
    status, output = check(tmp_path)
    assert status == 0, output


# file, its text, a part of the message
VIOLATIONS = [
    ("core/find.h", '#include "cpu/loops.h"\n', "core/ may include"),
    ("core/find.h", '#include "find.h"\n', "core/ may include"),
    ("core/find.h", '#include "xla/ffi/api/ffi.h"\n', "core/ may include"),
    ("core/find.h", "#include <cuda_runtime.h>\n", "must never see it"),
    ("core/find.h", "#include <cooperative_groups.h>\n", "must never see it"),
    ("core/find.h", "  #  include <Python.h>\n", "must never see it"),
    ("core/atomic.h", "#include <cuda/atomic>\n", "put it inside"),
    (
        "core/atomic.h",
        "#ifdef __CUDA_ARCH__\n#else\n#include <cuda/atomic>\n#endif\n",
        "put it inside",
    ),
    ("core/find.h", "#include <cuda/atomic>\n", "must never see it"),
    ("cpu/find.cc", '#include "cuda/launch.h"\n', "cpu/ may include"),
    ("cpu/find.cc", '#include "xla_ffi/buffers.h"\n', "cpu/ may include"),
    ("cpu/find.cc", "#include <nanobind/nanobind.h>\n", "must never see it"),
    ("cuda/find.cu", '#include "xla/ffi/api/ffi.h"\n', "cuda/ may include"),
    ("cuda/find.cu", '#include "cpu/loops.h"\n', "cuda/ may include"),
    ("cuda/tile.cuh", "#include <Python.h>\n", "must never see it"),
    ("xla_ffi/find.cc", '#include "cuda/tile.cuh"\n', "xla_ffi/ may include"),
    ("xla_ffi/find.cc", '#include "xla_ffi/tile.cuh"\n', "cuda/launch.h only"),
    ("xla_ffi/find.cc", "#include <cub/cub.cuh>\n", "must never see it"),
    ("jax_dynemb/_src/ops/find.py", "from ..table import Tables\n", "floor 6"),
    ("jax_dynemb/_src/ops/find.py", "from .. import table\n", "floor 6"),
    ("jax_dynemb/_src/ops/find.py", "import jax_dynemb._src.table.state\n", "floor 6"),
    ("jax_dynemb/_src/ops/find.py", "from jax_dynemb._src import nnx\n", "floor 8"),
    ("jax_dynemb/_src/ops/find.py", "import jax_dynemb as jde\n", "it is for users"),
    ("jax_dynemb/_src/ops/find.py", "from jax_dynemb import nnx\n", "for users"),
    ("jax_dynemb/_src/nnx/x.py", "from ..ops.rows import find\n", "is private"),
    ("jax_dynemb/_src/nnx/x.py", "from ..ops import rows\n", "is private"),
    ("jax_dynemb/_src/ffi.py", "def f():\n    from .ops import find\n", "floor 4"),
    ("jax_dynemb/_src/table/x.py", "from ..lifecycle import Grower\n", "floor 7"),
    ("tests/oracle/_x.py", "from jax_dynemb.config import TableConfig\n", "the oracle"),
    ("jax_dynemb/_src/config.py", "from ..planner import Topology\n", "floor 7"),
    ("jax_dynemb/_src/optim/base.py", "from ..table import Tables\n", "floor 6"),
    ("jax_dynemb/_src/optim/x.py", "from flax import nnx\n", "floor 8 and above"),
    ("jax_dynemb/_src/basement.py", "import os\n", "has no floor yet"),
]


@pytest.mark.parametrize(("name", "text", "message"), VIOLATIONS)
def test_violation_is_found(tmp_path, name, text, message):
    plant(tmp_path, "jax_dynemb/_src/ops/rows.py", "def find(): ...\n")
    plant(tmp_path, name, text)
    status, output = check(tmp_path)
    assert status == 1, output
    assert f"{name}:" in output
    assert message in output


def test_the_line_is_named(tmp_path):
    plant(tmp_path, "core/find.h", "#pragma once\n\n#include <thrust/sort.h>\n")
    assert "core/find.h:3: #include of thrust/sort.h" in check(tmp_path)[1]


def test_a_circle_between_packages_of_one_floor_is_found(tmp_path):
    inside = "jax_dynemb/_src"
    plant(tmp_path, f"{inside}/nnx/a.py", "from jax_dynemb._src.files.live import x\n")
    plant(tmp_path, f"{inside}/files/live/b.py", "from jax_dynemb._src.tt import y\n")
    assert check(tmp_path)[0] == 0
    text = "from jax_dynemb._src.nnx import jit\n"
    plant(tmp_path, f"{inside}/files/live/b.py", text)
    status, output = check(tmp_path)
    assert status == 1
    assert "'files.live' and 'nnx' import each other" in output


def test_a_public_module_only_lists_names(tmp_path):
    text = "from jax_dynemb._src.nnx import jit as jit\n"
    plant(tmp_path, "jax_dynemb/nnx.py", text)
    assert check(tmp_path)[0] == 0
    plant(tmp_path, "jax_dynemb/nnx.py", "def jit(): ...\n")
    status, output = check(tmp_path)
    assert status == 1
    assert "jax_dynemb/nnx.py:1: jit: a public module lists names" in output


def test_a_circle_within_a_package_is_found(tmp_path):
    plant(tmp_path, "jax_dynemb/_src/nnx/a.py", "from .b import b\n")
    plant(tmp_path, "jax_dynemb/_src/nnx/b.py", "def b():\n    from .c import c\n")
    assert check(tmp_path)[0] == 0
    plant(tmp_path, "jax_dynemb/_src/nnx/c.py", "from jax_dynemb._src.nnx import a\n")
    status, output = check(tmp_path)
    assert status == 1
    assert "'nnx.a' and 'nnx.c' import each other" in output
