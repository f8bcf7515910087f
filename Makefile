# `make demo` and `make test` set up what they need: Debian packages (as root or by sudo) and a virtual environment.

PYTHON ?= /usr/bin/python3
VENV := .venv
BIN := $(VENV)/bin
MACHINE_PACKAGES := lab/debian-packages.txt
OPENSTACK_PACKAGES := lab/debian-packages-openstack.txt
BACKEND_PACKAGES := lab/debian-packages-backends.txt
TEST_PACKAGES := tests/debian-packages.txt
EVALUATION_PACKAGES := lab/workloads/debian-packages.txt
EVALUATION_FOLDER ?= evaluation-results
BACK_ENDS_FOLDER ?= back-end-results
# Several processes run tests: further threads of NumPy in each would mostly wait for each other, and not idly.
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest
# Three processes run tests with daemons, which mostly wait (tests/conftest.py), two the others.
TEST_PROCESSES := -n 5 --dist loadgroup --no-loadscope-reorder
# Tests on an OpenStack mostly wait, so two labs run in parallel. A lab that is already up is used alone.
OPENSTACK_LABS := $(if $(CEPHFIT_TEST_OPENSTACK_LAB),1,2)
RELEASES ?= reef tentacle
# Programs of other Python versions, such as python3.14.
PYTHONS ?= python3
# The contract of targets on a lab, and what else asks only a lab's cluster.
LAB_TESTS := tests/targets/test_targets.py tests/lab/test_lab_live.py tests/lab/test_lab_target.py \
    tests/ceph/admin/test_admins.py tests/ceph/pools/test_pools_on_lab.py tests/sweep/test_sweep_on_lab.py
INSTALL_NEWEST := from cephfit.core.protocols import NullProgress; from cephfit.lab.daemons.ceph_programs import SUITES, \
    ensure_root; ensure_root([*SUITES][-1], NullProgress())
OPENSTACK_OUTPUT := --verbose --durations=25 -p no:warnings
# Tests start hundreds of Python programs, and pytest rewrites all assertions: without bytecode, each time from the text.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help newest-release docs docs-reference docs-pictures demo evaluate evaluation-packages back-ends test test-all test-releases test-pythons test-openstack test-openstack-core check setup setup-openstack packages packages-backends packages-openstack setup-backends test-packages clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: packages $(VENV)/ready ## the whole loop on this machine, from nothing to a verified recommendation
	$(BIN)/cephfit demo $(DEMO_OPTIONS)

evaluate: packages evaluation-packages $(VENV)/ready ## real workloads on every configuration of the sweep `evaluation`; about two hours
	lab/evaluate.sh $(EVALUATION_FOLDER) $(BIN)/cephfit $(EVALUATION_WORKLOADS)

back-ends: packages packages-backends evaluation-packages $(VENV)/ready ## real workloads on all back ends of a lab, against the advice; hours (minutes with BACK_ENDS_OPTIONS=--brief)
	benchmarks/back_ends.sh $(BACK_ENDS_FOLDER) $(BIN) $(BACK_ENDS_OPTIONS)

evaluation-packages:
	@lab/ensure_packages.sh $(EVALUATION_PACKAGES)

test: packages test-packages $(VENV)/ready-dev ## all tests except the slow ones and those on OpenStack
	$(PYTEST) -m "not slow" $(TEST_PROCESSES) $(PYTEST_OPTIONS)

test-all: packages test-packages $(VENV)/ready-dev ## all tests, also the slow ones
	$(PYTEST) $(PYTEST_OPTIONS)

newest-release: packages $(VENV)/ready ## install the newest Ceph release for labs, which one test of `make test` needs; the system's Ceph stays
	$(BIN)/python -c "$(INSTALL_NEWEST)"

test-releases: packages test-packages $(VENV)/ready-dev ## the tests of the lab on Ceph 18.2 and 20.2, which are installed first
	for release in $(RELEASES); do $(PYTEST) -m "ceph and not slow" --release $$release $(LAB_TESTS) $(PYTEST_OPTIONS) || exit 1; done

test-pythons: ## the tests that need no daemons on other Python versions: PYTHONS="python3.13 python3.14"
	for python in $(PYTHONS); do \
	    other=$(VENV)/pythons/$$(basename $$python) && $$python -m venv $$other && \
	    $$other/bin/python -m pip install -qq --editable '.[dev]' && \
	    $$other/bin/python -m pytest -m "not ceph and not openstack and not backends and not slow and not root and not postgres and not browser" \
	        -n 2 --dist loadgroup --no-loadscope-reorder $(PYTEST_OPTIONS) || exit 1; done

test-openstack: packages packages-openstack test-packages $(VENV)/ready-dev ## the tests on a real OpenStack, which they start; without the longest
	$(PYTEST) -m "openstack and not cloud_image and not cloud_whole" -n $(OPENSTACK_LABS) --dist loadgroup --no-loadscope-reorder \
	    $(OPENSTACK_OUTPUT) $(PYTEST_OPTIONS)

test-openstack-core: packages packages-openstack test-packages $(VENV)/ready-dev ## the few most useful tests on a real OpenStack, in minutes
	$(PYTEST) -m "openstack and core" $(OPENSTACK_OUTPUT) $(PYTEST_OPTIONS)

check: $(VENV)/ready-dev ## ruff, and mypy --strict on the built package and the benchmarks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	tests/check_types.sh $(BIN)

docs: $(VENV)/ready-docs ## the documentation as a site, in the folder site
	$(BIN)/python -m mkdocs build --strict

docs-reference: $(VENV)/ready ## write the pages that come from the program: commands, Python API, tables of the store
	$(BIN)/python docs/make_commands.py
	$(BIN)/python docs/make_reference.py

docs-pictures: packages test-packages $(VENV)/ready-dev ## the pictures of the documents, from real runs on the lab; about an hour
	$(BIN)/python docs/make_pictures.py $(PICTURE_OPTIONS)

setup: packages $(VENV)/ready ## install what `cephfit` and the lab need

packages: ## the Debian packages of the lab
	@lab/ensure_packages.sh $(MACHINE_PACKAGES)

setup-openstack: packages packages-openstack $(VENV)/ready-openstack ## install what `cephfit lab up --openstack` also needs

packages-openstack:
	@lab/ensure_packages.sh $(OPENSTACK_PACKAGES)

setup-backends: setup packages-backends ## install what `cephfit lab up --with iscsi,nfs,swift` also needs

packages-backends:
	@lab/ensure_packages.sh $(BACKEND_PACKAGES)

test-packages: packages-backends evaluation-packages
	@lab/ensure_packages.sh $(TEST_PACKAGES)

# Debian's Python and its site packages, because the bindings of librados come from Debian, not from PyPI.
$(VENV)/bin/python:
	$(PYTHON) -m venv --system-site-packages $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip 'setuptools>=68' wheel

$(VENV)/ready: setup.cfg pyproject.toml | packages $(VENV)/bin/python
	$(BIN)/python -m pip install -qq --editable .
	@touch $@

$(VENV)/ready-openstack: $(VENV)/ready | packages-openstack
	$(BIN)/python -m pip install -qq --editable '.[openstack]'
	@touch $@

$(VENV)/ready-docs: $(VENV)/ready
	$(BIN)/python -m pip install -qq --editable '.[docs]'
	@touch $@

$(VENV)/ready-dev: $(VENV)/ready
	$(BIN)/python -m pip install -qq --editable '.[dev]'
	@touch $@

clean: ## remove the virtual environment and build files
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
