# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Without a compiler the build ends with what to install."""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLCHAIN = ("g++", "as", "ld", "ar", "ranlib")
NVIDIA_SMI = "#!/bin/sh\nprintf '9.0\\n9.0\\n12.0\\n'\n"


@pytest.fixture
def configure(tmp_path):
    """Returns a function that runs CMake with a few programs on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in ("cmake", "ninja"):
        found = shutil.which(
            program, path=f"{Path(sys.executable).parent}:{os.defpath}"
        )
        if found is None:
            pytest.skip(f"{program} is not installed")
        (folder / program).symlink_to(found)

    def configure(*programs, path="", **options):
        for program in programs:
            (folder / program).symlink_to(shutil.which(program) or pytest.skip(program))
        command = [folder / "cmake", "-S", ROOT, "-B", tmp_path / "build", "-GNinja"]
        command += [f"-D{name}={value}" for name, value in options.items()]
        environment = {"PATH": f"{folder}:{path}", "HOME": str(tmp_path)}
        ran = subprocess.run(command, env=environment, capture_output=True, text=True)
        return " ".join((ran.stdout + ran.stderr).split())

    return functools.partial(configure, DYNEMB_PYTHON="OFF")


def test_no_compiler(configure):
    told = configure()
    assert "no C++ compiler was found. Install g++ (apt install g++;" in told
    assert "Build files have been written" in configure(*TOOLCHAIN)


def test_no_nvcc(configure):
    told = configure(*TOOLCHAIN, DYNEMB_CUDA="ON")
    assert "DYNEMB_CUDA=ON needs nvcc of CUDA 12 or 13, and none was found" in told


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_kernels_for_the_gpus_of_the_machine(configure, tmp_path):
    smi = tmp_path / "bin/nvidia-smi"
    smi.write_text(NVIDIA_SMI)
    smi.chmod(0o755)
    told = configure(path=os.environ["PATH"], DYNEMB_CUDA="ON")
    assert "architectures 90-real;120-real" in told
