# `make help` says what there is. Every target does its own set-up: .venv, the locked packages, Redis where it can.
PYTHON ?= python3
TORCH ?=
TESTS ?= tests
UPGRADE ?=

PY := .venv/bin/python
# Only a Python that somebody named replaces a .venv that works.
NAMED := $(if $(filter file default undefined,$(origin PYTHON)),,--named)
PACKAGES := flash_wire flash_operator flash_router flash_worker flashfleet

.DEFAULT_GOAL := help
.PHONY: help demo chart test test-cluster cluster-tools lint format proto lock bench setup redis clean distclean
# Targets share .venv, caches and this machine's cores; -j would only mix their output.
.NOTPARALLEL:

help: ## say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "  PYTHON=python3.12   the Python that .venv is made with (3.11 or newer)"
	@echo "  TORCH=cpu|cuda      torch's build; else CPU where PIP_FIND_LINKS offers its wheel, CUDA otherwise (Linux)"
	@echo "  TESTS=tests/broker  which tests"

demo: setup ## run the fleet, ask both tiers a few prompts, show a summary
	@.venv/bin/flashfleet demo

test: setup redis ## run all tests
	@$(PY) -m pytest -rs --continue-on-collection-errors $(TESTS); code=$$?; sh tools/redis.sh left-out; exit $$code

test-cluster: setup redis cluster-tools ## run the tests on a real Kubernetes control plane
	@$(PY) -m pytest -rs -m cluster $(TESTS)

cluster-tools: setup ## have etcd, Kubernetes' programs, kwok and helm: KUBEBUILDER_ASSETS, else built with Go, once
	@$(PY) tests/cluster/tools/build.py

lint: setup ## check style, types, walls and generated files
	@failed=0; check() { echo "+ $$*"; "$$@" || failed=1; }; \
	check $(PY) -m ruff check .; \
	check $(PY) -m ruff format --check .; \
	check $(PY) -m mypy $(PACKAGES:%=-p %); \
	check .venv/bin/lint-imports --no-logo; \
	check $(PY) tools/lock.py --check; \
	check $(PY) tools/gen_proto.py --check; \
	check $(PY) tools/gen_crd.py --check; \
	check $(PY) tools/gen_reference.py --check; \
	check $(PY) tools/gen_chart_docs.py --check; \
	check $(PY) tools/gen_dashboard.py --check; \
	[ ! -f tools/train_prior.py ] || check $(PY) tools/train_prior.py --check; \
	exit $$failed

format: setup ## let ruff rewrite what it can
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

proto: setup ## write the Python stubs of proto/flash/v1
	$(PY) tools/gen_proto.py

chart: setup ## write what the chart holds of other sources: the CRD, its README, the dashboard
	$(PY) tools/gen_crd.py
	$(PY) tools/gen_chart_docs.py
	$(PY) tools/gen_dashboard.py

lock: setup ## write the lock files from pyproject.toml (UPGRADE=1: newest versions)
	$(PY) tools/lock.py $(if $(UPGRADE),--upgrade)

bench: setup ## measure continuous against static batching
	$(PY) bench/batching.py

setup: ## make .venv what the lock files say
	@$(PYTHON) tools/setup_env.py --torch "$(TORCH)" $(NAMED)

redis: ## install redis-server for the tests, where that is allowed
	@sh tools/redis.sh

clean: ## remove caches and build outputs
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name .venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove .venv too
	rm -rf .venv .venv.lock
