# One file for every chore; `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help venv demo format check test test-all soak bench coverage clean

PYTHON ?= python3
BIN := .venv/bin
# Arguments for pytest: make test ARGS="-k lease -x"
ARGS ?=

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## *' '{printf "  %-10s %s\n", $$1, $$2}'

venv: .venv/.installed  ## create .venv with qo and every development tool

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[dev]' --constraint constraints.txt
	@touch $@

# The same for one more Python: `make .venv-3.13/.installed INTERPRETER=…`, called by test-all.
.venv-%/.installed: pyproject.toml constraints.txt
	$(INTERPRETER) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --editable '.[dev]' --constraint constraints.txt
	@touch $@

demo: venv  ## watch a queue at work until Ctrl-C (ONCE=1: run the examples, check them, end)
	@$(BIN)/qo demo $(if $(ONCE),--once) $(ARGS)

format: venv  ## put the code into the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: venv  ## the gate: format, lint, types, imports, fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/pytest -q -m "not soak and not slow" tests/unit

test: venv  ## every test except the soak tests (ARGS="-k name" to choose)
	$(BIN)/pytest $(ARGS)

# A pyenv shim may exist and not run, so each candidate is asked to import what a venv needs.
test-all:  ## the tests on every Python from 3.11 that is found
	@set -euo pipefail; \
	for version in 3.11 3.12 3.13 3.14 3.15; do \
	  for candidate in python$$version $$HOME/.pyenv/versions/$$version.*/bin/python; do \
	    "$$candidate" -c 'import ensurepip' >/dev/null 2>&1 || continue; \
	    echo "== Python $$version"; \
	    $(MAKE) --no-print-directory .venv-$$version/.installed INTERPRETER="$$candidate"; \
	    .venv-$$version/bin/pytest -q $(ARGS); \
	    break; \
	  done; \
	done

soak: venv  ## the tests that run for minutes
	$(BIN)/pytest -m soak --timeout 3600 $(ARGS)

bench: venv  ## measure the core and the worker, beside Huey; writes docs/benchmarks (about 15 minutes)
	$(BIN)/python -m bench.core --out docs/benchmarks/core.md
	$(BIN)/python -m bench.worker --out docs/benchmarks/worker.md

coverage: venv  ## which lines the tests do not reach
	$(BIN)/coverage run -m pytest -q $(ARGS)
	$(BIN)/coverage report

clean:  ## remove everything that can be made again
	rm -rf .venv .venv-* build dist htmlcov .coverage .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
