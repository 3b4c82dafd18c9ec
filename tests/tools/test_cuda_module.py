# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which plugin wheel the CUDA module comes from, and what is said without one."""

import sys
from importlib.metadata import EntryPoints, distributions

import pytest

import jax_dynemb as jde
from jax_dynemb._src import cuda_module, ffi


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Returns a function that installs distributions as pip does: files and metadata.

    Those that the machine has are not seen.
    """

    def entry_points(group):
        installed = distributions(path=[str(tmp_path)])
        found = (point for each in installed for point in each.entry_points)
        return EntryPoints(found).select(group=group)

    monkeypatch.setattr(cuda_module, "entry_points", entry_points)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, f"jax_dynemb.{cuda_module.NAME}", None)

    def install(project, version, group, name, target):
        package = target.partition(".")[0]
        monkeypatch.delitem(sys.modules, target, raising=False)
        (tmp_path / package).mkdir()
        (tmp_path / f"{target.replace('.', '/')}.py").write_text("")
        metadata = tmp_path / f"{project.replace('-', '_')}-{version}.dist-info"
        metadata.mkdir()
        text = f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n"
        (metadata / "METADATA").write_text(text)
        entry_points = f"[{group}]\n{name} = {target}\n"
        (metadata / "entry_points.txt").write_text(entry_points)

    return install


@pytest.fixture
def install_plugin(install):
    def install_plugin(cuda, version=jde.__version__):
        target = f"jax_dynemb_{cuda}._dynemb_cuda"
        install(f"jax-dynemb-{cuda}", version, "jax_dynemb.cuda", cuda, target)

    return install_plugin


@pytest.fixture
def install_jax_plugin(install):
    def install_jax_plugin(cuda):
        target = f"jax_plugins_of_{cuda}.plugin"
        install(f"jax-{cuda}-pjrt", "0.10.2", "jax_plugins", f"xla_{cuda}", target)

    return install_jax_plugin


def test_a_plugin_is_found(install_plugin):
    install_plugin("cuda13")
    assert cuda_module.load().__name__ == "jax_dynemb_cuda13._dynemb_cuda"


def test_the_plugin_for_the_cuda_of_jax(install_plugin, install_jax_plugin):
    install_plugin("cuda12")
    install_plugin("cuda13")
    install_jax_plugin("cuda12")
    assert cuda_module.load().__name__ == "jax_dynemb_cuda12._dynemb_cuda"


def test_no_plugin(install_jax_plugin):
    install_jax_plugin("cuda12")
    command = rf'pip install "jax-dynemb\[cuda12\]=={jde.__version__}"'
    with pytest.raises(ModuleNotFoundError, match=command):
        cuda_module.load()


def test_a_plugin_for_another_cuda(install_plugin, install_jax_plugin):
    install_plugin("cuda12")
    install_jax_plugin("cuda13")
    command = f"only jax-dynemb-cuda12. .* jax-dynemb-cuda13=={jde.__version__}"
    with pytest.raises(ImportError, match=command):
        cuda_module.load()


def test_a_plugin_of_another_version(install_plugin):
    install_plugin("cuda13", "0.0.9")
    command = rf"version 0\.0\.9 .* pip install jax-dynemb-cuda13=={jde.__version__}"
    with pytest.raises(ImportError, match=command):
        cuda_module.load()


def test_a_table_on_a_gpu_tells_the_problem(monkeypatch):
    monkeypatch.setattr(ffi, "cuda_problem", lambda: "no kernels. Run pip install x.")
    monkeypatch.setattr(ffi.jax, "devices", lambda: ["gpu"])
    with pytest.raises(
        RuntimeError, match=r"on gpu: no kernels\. Run .* JAX_PLATFORMS"
    ):
        ffi.check_platform()
