# Every target sets up what it needs: a machine with Python 3.11+ and pip is enough.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
BESIDE := -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder  # tests run in a process per core, one thread each

.DEFAULT_GOAL := help
.PHONY: help setup quickstart federation test test-slow lint audit types coverage mutants schema reproduction leaderboard docs package bench clean

help: ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check torch
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(STAMP)

setup: $(STAMP) ## Create .venv and install fedrec with pinned versions (does nothing the second time)

quickstart: $(STAMP) ## Get MovieLens-100K, run the main job, print a table
	@$(BIN)/fedrec quickstart

federation: $(STAMP) ## Start a server and three sites on this machine, train with them, compare, stop them
	@$(BIN)/fedrec federation demo

test: lint types ## Run ruff, mypy (strict) and the tests
	$(BIN)/python -m pytest $(BESIDE)

test-slow: $(STAMP) ## Run the long checks
	$(BIN)/python -m pytest -m slow

lint: $(STAMP) ## Run ruff, check that imports point one way, audit dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	@$(BIN)/python tests/audit_dependencies.py

audit: $(STAMP) ## Ask the package index for known vulnerabilities of dependencies (part of lint)
	@$(BIN)/python tests/audit_dependencies.py

types: $(STAMP) ## Run mypy, strict on src
	$(BIN)/mypy

coverage: $(STAMP) ## Run the tests and show what they do not reach (branches too; no GPU files)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

mutants: $(STAMP) ## Change the code in thousands of places and count what the tests notice (PACKAGE=evaluation: only there)
	nice $(BIN)/python tests/mutants.py $(PACKAGE)

schema: $(STAMP) ## Write docs/result.schema.json anew
	$(BIN)/python -c "from fedrec.federation.result import result_schema as s; print(s(), end='')" > docs/result.schema.json

reproduction: $(STAMP) ## Write docs/reproduction.md anew from the stored results of studies
	$(BIN)/python -m fedrec.report.reproduction

docs: $(STAMP) ## Build the documentation site into build/site (strict; nothing is fetched)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

leaderboard: $(STAMP) ## Write docs/leaderboard.md and the README's table anew from stored results
	$(BIN)/python -m fedrec.report.leaderboard

package: $(STAMP) ## Build wheel and sdist into dist/, install the wheel in a fresh environment, try it
	$(BIN)/python -m pytest -m slow tests/test_package.py
	rm -rf build src/*.egg-info/SOURCES.txt
	$(BIN)/python -m build --no-isolation --outdir dist

bench: $(STAMP) ## Measure speed
	$(BIN)/fedrec bench

clean: ## Remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* build dist src/*.egg-info
