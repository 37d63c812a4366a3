# Needs Python >= 3.11 and make, nothing else. `make help` lists the targets.
#
#   PYTHON=python3.12 make test      another interpreter
#   VENV=/tmp/venv make check        another virtual environment
#   make test ARGS="tests/protocol"  arguments for pytest

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.conveyor-installed
PIP := "$(BIN)/python" -m pip --disable-pip-version-check --no-input -qq

MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help install demo test check types docs lock clean

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 18

# Installed again whenever the bounds or the pins change. The build backend is pinned too, hence no build isolation.
$(STAMP): pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Conveyor needs Python 3.11 or newer, and '$(PYTHON)' is not: $$("$(PYTHON)" --version 2>&1)" >&2; \
	  echo "Next step: make PYTHON=python3.11 (or the path of a newer one)." >&2; exit 1; }
	@"$(BIN)/python" -c 'import pip' 2>/dev/null || { \
	  echo "Creating $(VENV)"; \
	  "$(PYTHON)" -m venv --clear "$(VENV)" || { \
	    echo "Next step: install this Python's venv module (on Debian: apt install python3-venv)." >&2; exit 1; }; }
	@echo "Installing into $(VENV)"
	@$(PIP) install -c constraints.txt setuptools
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch "$(STAMP)"

install: $(STAMP) ## Create the virtual environment, with everything in it

demo: $(STAMP) ## Deliver a sweep of 128 jobs to 8 repositories of a local Hub, and read every byte back
	@mkdir -p conveyor-demo
	@command=$$(cd "$(BIN)" && pwd)/conveyor; cd conveyor-demo && exec "$$command" sweep --jobs 128 --repositories 8

test: $(STAMP) ## Run the whole test suite
	@"$(BIN)/python" tests/support/client_venvs.py
	"$(BIN)/python" -m pytest $(ARGS)

# One link per layer: type checkers and import-linter do not follow the import hooks of an editable install.
types:
	@mkdir -p build/types/conveyor
	@for layer in protocol actors runtime; do \
	  ln -sfn "../../../$$layer" "build/types/conveyor/$$layer" || exit 1; done

check: $(STAMP) types ## Lint, format, types, import rules, public names, spelling
	"$(BIN)/python" -m ruff check .
	"$(BIN)/python" -m ruff format --check .
	"$(BIN)/python" -m mypy -p conveyor.protocol -p conveyor.actors -p conveyor.runtime
	"$(BIN)/python" -m mypy tests .ci
	PYTHONPATH=build/types "$(BIN)/lint-imports" --no-cache --no-logo
	"$(BIN)/python" -m pytest -q tests/architecture tests/test_architecture.py
	"$(BIN)/codespell"

docs: $(STAMP) ## Write docs/settings.md from the declaration of the settings
	@"$(BIN)/python" .ci/settings_page.py > build/settings.md && mv build/settings.md docs/settings.md

lock: ## Write constraints.txt anew from the bounds in pyproject.toml
	@mkdir -p build/lock
	@"$(PYTHON)" -m venv build/lock/venv
	@build/lock/venv/bin/python -m pip --disable-pip-version-check -qq install --upgrade pip
	@build/lock/venv/bin/python -m pip --disable-pip-version-check -qq install \
	  --dry-run --ignore-installed --report build/lock/report.json setuptools '.[dev]'
	@build/lock/venv/bin/python .ci/lock.py build/lock/report.json > build/lock/constraints.txt
	@mv build/lock/constraints.txt constraints.txt
	@echo "constraints.txt: $$(grep -c == constraints.txt) packages"

clean: ## Remove what the other targets made
	rm -rf .venv build dist conveyor.egg-info conveyor-demo conveyor-sweep .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
