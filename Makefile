# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
#
#   make demo     watch a model with dynamic embedding tables learn
#   make test     the Python tests that are quick, and the C++ tests
#   make test-all the slow tests too
#
# Both make what they need: a virtual environment in .venv with this package installed in it.
# On a machine with a CUDA GPU and nvcc:  make test EXTRAS=test,cuda13
# Another interpreter:                    make test PYTHON=python3.12 VENV=.venv312

VENV ?= .venv
EXTRAS ?= test
CUDA ?= $(if $(findstring cuda,$(EXTRAS)),ON,OFF)
comma := ,
PYTEST_ARGS ?= -n auto --maxprocesses 8 --dist worksteal
DEMO_ARGS ?=

# The interpreter that makes the environment: the first that is new enough.
PYTHON ?= $(shell for p in python3 python3.12 python3.11 python3.13; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

# The interpreter of the developer's targets: any environment that has jax, nanobind, cmake and ninja.
PY ?= $(VENV)/bin/python
OWN_VENV := $(filter $(VENV)/bin/python,$(PY))
WITH_TOOLS = PATH="$(abspath $(dir $(PY))):$$PATH"

PACKAGE_FILES := pyproject.toml CMakeLists.txt README.md LICENSE $(shell find \
	core cpu cuda xla_ffi third_party jax_dynemb -type f ! -name '*.pyc' ! -name '*.so' 2>/dev/null)

.PHONY: demo test test-all nightly info install pytest torch-test torch-interop ctest-build ctest loops build cuda lint format docs clean help
.DEFAULT_GOAL := help

help: ## say what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 16

demo: install ## watch the example model learn, on the CPU
	$(VENV)/bin/python examples/train_ctr.py $(DEMO_ARGS)

test: PYTEST_ONLY = -m "not slow"
test: pytest ctest ## run the tests, but for those that take longer

test-all: pytest ctest ## run every test

info: install ## versions, devices, a self-test
	$(VENV)/bin/python -P -m jax_dynemb info

# -P keeps the checkout off sys.path: what is tested is what was installed.
pytest: install
	$(VENV)/bin/python -P -m pytest $(PYTEST_ARGS) $(PYTEST_ONLY)

# What takes hours: for a machine that has nothing else to do. SEED chooses other damage and other calls.
SEED ?= 0
DEPARTURES ?= 100000000
ALL_ISAS = portable;avx2;avx512
NIGHTLY_FUZZ = build/ctest-address-undefined/tests/fuzz/fuzz_handlers --calls 100000 --seed $(SEED)

nightly: install ## what takes hours: all instruction sets under sanitizers, long fuzzing, many examples
	$(MAKE) ctest SANITIZE=address,undefined ISAS="$(ALL_ISAS)"
	$(NIGHTLY_FUZZ)
	$(MAKE) ctest SANITIZE=thread ISAS="$(ALL_ISAS)"
	$(VENV)/bin/python tests/files/mutate.py --count 6500 --seed $(SEED)
	$(VENV)/bin/python tests/files/mutate.py --count 2000 --seed $(SEED) --unchecked
	DYNEMB_DEPARTURES=$(DEPARTURES) $(VENV)/bin/python -P -m pytest -q tests/stores/test_tables.py -k "nothing_is_lost and Log"
	DYNEMB_DEPARTURES=$(DEPARTURES) $(VENV)/bin/python -P -m pytest -q tests/tiers/test_prefetcher_departures.py -k Log
	$(VENV)/bin/python -m pip install -q "ray[train]" "jax-dynemb[recipes,serve,trackers]"
	HYPOTHESIS_PROFILE=nightly $(VENV)/bin/python -P -m pytest $(PYTEST_ARGS)
	for each in "--emulate-peers" "--emulate-hosts roomy" "--emulate-hosts tight --emulate-peers"; do \
		$(VENV)/bin/python -P -m pytest $(PYTEST_ARGS) tests/sharding $$each || exit 1; done

# ---- serving in PyTorch: an environment of its own, without JAX -----------------------------------

# PyTorch's wheel for Python 3.11 here is the small one for CPUs; TORCH names it.
TORCH ?= torch==2.13.0
TORCH_VENV ?= .venv-torch
TORCH_PYTHON ?= python3.11
TORCH_TEST_ARGS ?=

$(TORCH_VENV)/.installed: jax_dynemb_torch/pyproject.toml
	@command -v $(TORCH_PYTHON) > /dev/null || { echo "Tests of jax_dynemb_torch need Python 3.11: make torch-test TORCH_PYTHON=path"; exit 1; }
	$(TORCH_PYTHON) -m venv $(TORCH_VENV)
	$(TORCH_VENV)/bin/python -m pip install -q "$(TORCH)" -e "jax_dynemb_torch[test]"
	touch $@

torch-test: $(TORCH_VENV)/.installed ## the tests of jax_dynemb_torch, in an environment without JAX
	@! $(TORCH_VENV)/bin/python -c "import jax" 2>/dev/null || { echo "$(TORCH_VENV) has JAX; remove it: these tests must run without."; exit 1; }
	cd jax_dynemb_torch && $(abspath $(TORCH_VENV))/bin/python -m pytest -q $(TORCH_TEST_ARGS)

torch-interop: install ## the tests with PyTorch and the libraries of examples/recipes and examples/serve, in the environment that has JAX
	$(VENV)/bin/python -m pip install -q "$(TORCH)" "jax-dynemb[recipes,serve,trackers]"
	$(VENV)/bin/python -P -m pytest -q tests/torchrec/test_torch.py tests/nnx/test_tt_embedding_bag.py \
	  tests/publishing/test_torch_subscriber.py tests/examples/test_recipes.py tests/examples/test_serve.py

# ---- the environment ----------------------------------------------------------------------------

INSTALLED := $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))-cuda-$(CUDA)

install: $(INSTALLED) ## the virtual environment with the package in it

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer was found. Say where it is: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) could not make a virtual environment (on Debian and Ubuntu: apt install python3-venv)."; exit 1; }

# What pyproject.toml asks for to build, in the environment itself: an isolated build could not be resumed.
$(VENV)/.build-tools: pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'], sep='\n')" > $@.txt
	$(VENV)/bin/python -m pip install -q -r $@.txt cmake ninja
	touch $@

$(INSTALLED): $(VENV)/.build-tools $(PACKAGE_FILES)
	$(WITH_TOOLS) $(VENV)/bin/python -m pip install -q --no-build-isolation \
	  --config-settings=build-dir='build/$(notdir $(VENV))-{wheel_tag}' \
	  --config-settings=cmake.define.DYNEMB_CUDA=$(CUDA) ".[$(EXTRAS)]"
	rm -f $(VENV)/.installed-*
	touch $@

# ---- for developers: fast rebuilds in the checkout ------------------------------------------------
#
#   make build PY=/path/to/env/bin/python            _dynemb_cpu*.so into jax_dynemb/
#   make build PY=... CUDA=ON ARCHS=90               and _dynemb_cuda*.so
#   make cuda FAST_COMPILE=1                         do the kernels compile? they run slowly
#   make ctest PY=... SANITIZE=address,undefined     C++ tests under sanitizers (or SANITIZE=thread)
#
# FOLDERS='core;cuda;fuzz' names the folders of tests/ to build and run.
# Under sanitizers the CPU loops are compiled for the portable instruction set alone: the others take minutes each.

ARCHS ?=
FAST_COMPILE ?=
SANITIZE ?=
ISAS ?= $(if $(SANITIZE),portable)
FOLDERS ?= core;cuda;fuzz
TAG = $(shell $(PY) -c 'import sys; print(sys.implementation.cache_tag)')
CTEST_DIR = build/ctest$(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))

build: $(if $(OWN_VENV),$(VENV)/.build-tools) ## compile into the checkout (see Makefile)
	$(WITH_TOOLS) cmake -S . -B build/$(TAG) -G Ninja -DPython_EXECUTABLE="$(abspath $(PY))" \
	  -DDYNEMB_CUDA=$(CUDA) $(if $(ARCHS),"-DCMAKE_CUDA_ARCHITECTURES=$(ARCHS)") --log-level=WARNING
	$(WITH_TOOLS) cmake --build build/$(TAG)
	$(WITH_TOOLS) cmake --install build/$(TAG) --prefix . > /dev/null

CONFIGURE_CTEST = cmake -S . -B $(CTEST_DIR) -G Ninja -DDYNEMB_PYTHON=OFF -DDYNEMB_CUDA=OFF \
	-DDYNEMB_TESTS=ON "-DDYNEMB_TEST_FOLDERS=$(FOLDERS)" "-DDYNEMB_SANITIZE=$(SANITIZE)" $(if $(ISAS),"-DDYNEMB_ISAS=$(ISAS)") --log-level=WARNING

ctest-build: $(if $(OWN_VENV),$(VENV)/.build-tools) ## compile the C++ tests
	$(WITH_TOOLS) $(CONFIGURE_CTEST)
	$(WITH_TOOLS) cmake --build $(CTEST_DIR)

ctest: ctest-build ## the C++ tests of core/, and kernels on the host
	$(WITH_TOOLS) ctest --test-dir $(CTEST_DIR) --output-on-failure --parallel 2

loops: $(if $(OWN_VENV),$(VENV)/.build-tools) ## compile compare_loops, and the CPU loops for it
	$(WITH_TOOLS) $(CONFIGURE_CTEST)
	$(WITH_TOOLS) cmake --build $(CTEST_DIR) --target step_loops compare_loops

cuda: CUDA_DIR = build/cuda$(if $(FAST_COMPILE),-fast-compile)
cuda: $(if $(OWN_VENV),$(VENV)/.build-tools) ## compile the CUDA module and benchmarks of kernels, without installing them
	$(WITH_TOOLS) cmake -S . -B $(CUDA_DIR) -G Ninja -DPython_EXECUTABLE="$(abspath $(PY))" -DDYNEMB_CUDA=ON \
	  -DDYNEMB_FAST_COMPILE=$(if $(FAST_COMPILE),ON,OFF) $(if $(ARCHS),"-DCMAKE_CUDA_ARCHITECTURES=$(ARCHS)") "-DCUEMBED=$(CUEMBED)" --log-level=WARNING
	$(WITH_TOOLS) cmake --build $(CUDA_DIR) --target _dynemb_cuda step_kernels pooled_lookups

# ---- checks that run nothing: they need make install EXTRAS=dev, or EXTRAS=dev,docs --------------

CPP_FILES = $(shell find core cpu cuda xla_ffi tests/core tests/cuda tests/fuzz benchmarks -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh')

LINTERS := ruff-format ruff-check pyright clang-format floors changelog prose
.PHONY: $(LINTERS)

lint: $(LINTERS) ## formatters, linters, types, floors, changelog, prose; changes nothing

ruff-format:
	$(WITH_TOOLS) ruff format --check .

ruff-check:
	$(WITH_TOOLS) ruff check .

pyright:
	$(WITH_TOOLS) pyright --pythonpath $(PY)
	$(WITH_TOOLS) pyright --pythonpath $(PY) --project examples # strict

clang-format:
	$(WITH_TOOLS) clang-format --dry-run -Werror $(CPP_FILES)

floors:
	$(PY) tools/check_floors.py

changelog:
	$(PY) tools/check_changelog.py

# Tracked Markdown and the package, but for what PROSE_LATER names.
PROSE_LATER := tests/golden third_party

prose:
	git ls-files -z '*.md' 'jax_dynemb/*.py' $(PROSE_LATER:%=':!%') | xargs -0 $(PY) tools/check_prose.py

format: ## rewrite the sources in the house style
	$(WITH_TOOLS) ruff format .
	$(WITH_TOOLS) ruff check --fix .
	$(WITH_TOOLS) clang-format -i $(CPP_FILES)

docs: ## build the documentation into site/, strictly
	$(WITH_TOOLS) mkdocs build --strict

clean: ## remove what was built (the virtual environment stays)
	rm -rf build dist site jax_dynemb/*.so $(VENV)/.installed-*
