# Everything a newcomer runs. `make` alone shows this list.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.factfold-ready
UV ?= $(firstword $(wildcard $(VENV)/bin/uv) uv)

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-flights test check docs pictures bench faults faults-full lock

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Make .venv with the locked packages and this project in it

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "error: Factfold needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1 | head -n 1)" >&2; \
	  echo "  remedy: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12, or whichever newer one there is" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "error: '$(PYTHON)' cannot make virtual environments" >&2; \
	  echo "  remedy: install its venv package (Debian: apt-get install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --disable-pip-version-check --require-hashes -r requirements.lock
	$(PY) -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e .
	@touch $@

demo: setup ## The shop end to end on real servers; facts in build/demo.json
	$(PY) -m sample_app.demo

demo-flights: setup ## A year of flights the same way (FLIGHTS=20000 for fewer); facts in build/flights.json
	$(PY) -m sample_app.flights.demo $(if $(FLIGHTS),--flights $(FLIGHTS))

# make check starts Spark for the project of `factfold new`, fault tests start it again and again.
CLASSES := $(VENV)/share/factfold/.prepared

$(CLASSES): $(READY)
	$(VENV)/bin/factfold prepare
	@touch $@

test: setup $(CLASSES) ## Every test, with the real servers (ARGS="tests/unit -x" for some)
	$(PY) -m pytest $(or $(ARGS),--numprocesses 3 --dist loadgroup --max-worker-restart 1)

check: setup $(CLASSES) ## Lint, format, types, plain English, import contracts, rules of the architecture, the wheel, the tutorial
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m docs.language
	$(VENV)/bin/lint-imports --no-logo
	$(PY) -m pytest -q -m 'not faults' tests/architecture \
	  tests/end_to_end/test_installed_package.py tests/end_to_end/test_tutorial.py

# The site's packages are no part of .venv: a machine that only tests never fetches them.
SITE := build/site-venv

$(SITE)/.ready: requirements-docs.lock
	$(PYTHON) -m venv --clear $(SITE)
	$(SITE)/bin/python -m pip install --disable-pip-version-check --quiet --require-hashes -r requirements-docs.lock
	@touch $@

docs: setup $(SITE)/.ready ## The site of docs/ in build/site; a dead link or an unknown name stops it
	$(PY) -m docs.commands_page
	PYTHONPATH=. $(SITE)/bin/zensical build --clean --strict
	@! grep -rl '<p>```' build/site || { echo "error: a fence of these pages is no code" >&2; exit 1; }

pictures: setup $(CLASSES) ## The console's pages on the running shop, for docs/pictures/console; needs chromium
	$(PY) -m docs.console_pictures

bench: setup ## Every benchmark, then its claims as one table (ARGS=rebuild for one program)
	$(PY) -m benchmarks $(ARGS)

FAULTS := -m 'faults or kills'
EXAMPLES := FACTFOLD_EXAMPLES=$${FACTFOLD_EXAMPLES:-200}

faults: setup $(CLASSES) ## Servers and runners killed on purpose
	FACTFOLD_KILLS=$${FACTFOLD_KILLS:-5} $(EXAMPLES) $(PY) -m pytest $(FAULTS) -o faulthandler_timeout=3600 $(ARGS)

# 52 parts of 6,000 flights with three events each are nearly a million; what says nothing of its time has four hours.
# About seven hours in all, an estimate: docs/how-to/run-the-suite.md has it by test.
faults-full: setup $(CLASSES) ## The same at full size, for hours: FACTFOLD_KILLS=50, FACTFOLD_FLIGHTS=6000 between two of them
	FACTFOLD_KILLS=$${FACTFOLD_KILLS:-50} FACTFOLD_FLIGHTS=$${FACTFOLD_FLIGHTS:-6000} $(EXAMPLES) \
	  $(PY) -m pytest $(FAULTS) --timeout 14400 -o faulthandler_timeout=20000 $(ARGS)

LOCK := $(UV) pip compile --universal --generate-hashes --no-emit-index-url --no-emit-find-links \
  --custom-compile-command "make lock" --quiet

lock: ## Bring the lock files in line with pyproject.toml (ARGS=--upgrade for newer versions; needs uv)
	@command -v $(UV) >/dev/null || { \
	  echo "error: uv is not here" >&2; echo "  remedy: pip install uv, or make lock UV=/path/to/uv" >&2; exit 1; }
	$(LOCK) pyproject.toml --extra dev $(ARGS) -o requirements.lock
	$(LOCK) --group docs --python-version 3.11 $(ARGS) -o requirements-docs.lock
