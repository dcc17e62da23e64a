# Every target sets up what it needs: the first one makes .venv, later ones find it ready.

# The first of these names that is Python 3.11 or newer; make PYTHON=... takes another.
NAMES  := python3 python3.13 python3.12 python3.11 python3.14 python
RECENT := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
ifeq ($(origin PYTHON), undefined)
PYTHON := $(firstword $(foreach name,$(NAMES),$(shell $(name) $(RECENT) 2> /dev/null && echo $(name))))
endif
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Two pytest workers share two cores, and threads that wait for one another cost a busy machine minutes.
THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
PYTEST := $(THREAD) $(BIN)/python -m pytest -n 2

.DEFAULT_GOAL := help
.PHONY: help demo test check test-shuffled test-data dist test-slow test-kernels lock lint docs site-report bench bench-gpu bench-page bench-check clean

help: ## list the targets
	@awk -F ':[^#]*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMP) ## the paper's experiments on scikit-learn's digits, in two minutes; open out/demo/report.html
	$(BIN)/mlpoly paper --data digits --hidden 64 --steps 4096 --samples 5000 --paper-steps 50 --no-figures --out out/demo

test: lint ## lint, then every test that is not slow; what is absent is skipped, and listed with its reason
	$(PYTEST) -q -rs -m "not slow"

check: test docs dist ## everything: test, the documentation, the distributions

SEED ?= $(shell date +%s)
test-shuffled: $(STAMP) ## the quick tests in a random order, which SEED decides
	$(PYTEST) -q -m "not slow and not process" --shuffle $(SEED)

test-data: $(STAMP) ## the tests that need data, from MLPOLY_DATA
	$(PYTEST) -q -rs -m "data and not slow"

test-slow: $(STAMP) ## the slow tests
	$(PYTEST) -m slow

test-kernels: $(STAMP) ## the numerical tests under every set of matrix kernels this processor has, with their margins
	$(BIN)/python tools/test_kernels.py

lock: ## constraints.txt: the newest versions of everything, from a fresh environment
	rm -rf out/lock
	$(PYTHON) -m venv out/lock
	out/lock/bin/python -m pip install -qq --disable-pip-version-check '.[all,dev,bench]'
	{ sed -n '/^#/p' constraints.txt; out/lock/bin/python -m pip freeze --exclude mlpoly | sed 's/+[a-z0-9.]*$$//'; } > out/lock.txt
	mv out/lock.txt constraints.txt

lint: $(STAMP) ## ruff, mypy and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

docs: $(STAMP) ## the documentation as a site; open out/site/index.html
	$(THREAD) $(BIN)/properdocs build --strict --quiet -f mkdocs.yml
	$(BIN)/python tools/check_site.py out/site

site-report: $(STAMP) ## docs/reports/mnist.html, the report on the site, from MNIST in MLPOLY_DATA or the user's cache
	$(BIN)/python tools/site_report.py

dist: $(STAMP) ## wheel and source distribution in out/dist, checked as PyPI would
	rm -rf out/dist
	$(BIN)/python -m build --no-isolation --outdir out/dist > /dev/null
	$(BIN)/twine check --strict out/dist/*

bench: $(STAMP) ## benchmarks on the CPU
	$(BIN)/python -m benchmarks

bench-gpu: $(STAMP) ## benchmarks on a GPU
	$(BIN)/python -m benchmarks --gpu

bench-page: $(STAMP) ## docs/benchmarks.md from the results of the benchmarks
	$(BIN)/python -m benchmarks.page --keep

bench-check: $(STAMP) ## count what the work consists of, and compare all ratios of the last runs with those that are kept
	$(THREAD) $(BIN)/python -m benchmarks counts
	$(BIN)/python -m benchmarks.check

clean: ## remove the environment, caches, builds and results
	rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -name '*.egg-info' -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" && $(PYTHON) $(RECENT) || { \
	  echo "mlpoly needs Python 3.11 or newer: none of $(NAMES) is, or PYTHON='$(PYTHON)' is not;" \
	       "name one that is: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@echo "Setting up $(VENV): about 2 GB of packages, two or three minutes, once"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[all,dev,bench]' -c constraints.txt
	@touch $@
