# make setup      build .venv, with everything in it
# make demo       set up, then run the main job: predict, train, compare (results in out/)
# make test       set up, then every check with reduced grids
# make test-all   set up, then the full grids
# make fuzz       set up, then the property tests on EXAMPLES=1000 new random examples each (TESTS=tests/ir for a part)
# make format     rewrite the code in the project's format
# make clean      remove .venv, out/ (checkpoints in it too), caches and builds
# PYTHON=...      which Python 3.11, 3.12 or 3.13 to build .venv with

PACKAGES := schedir simulator executor plots
WORKERS ?= 2
EXAMPLES ?= 1000
TESTS ?= tests
STAMP := .venv/.set-up
# Run as modules: where .venv shares the packages of the user's own Python, not every tool has a script in .venv/bin.
RUN := .venv/bin/python -m
PYTEST := $(RUN) pytest -n $(WORKERS)
LINT_IMPORTS := .venv/bin/python -c "from importlinter.cli import lint_imports_command; lint_imports_command()"

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all fuzz format clean

help:
	@sed -n '/^# \(make\|PYTHON\)/s/^# //p' Makefile

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt tools/setup.sh
	@PYTHON="$(PYTHON)" bash tools/setup.sh
	@touch $@

demo: $(STAMP)
	@.venv/bin/schedir demo

test: $(STAMP)
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy
	$(LINT_IMPORTS) --no-logo
	$(PYTEST) -m "not slow and not gpu" --durations 5

# pytest ends with 5 where no test is marked slow.
test-all: $(STAMP)
	HYPOTHESIS_PROFILE=full $(PYTEST) -m "(slow or law) and not gpu" --durations 10 || test $$? -eq 5

# A failure ends with the line that reproduces it: @reproduce_failure(...).
fuzz: $(STAMP)
	HYPOTHESIS_PROFILE=fuzz EXAMPLES=$(EXAMPLES) $(PYTEST) -m "hypothesis and not gpu" $(TESTS)

format: $(STAMP)
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

clean:
	rm -rf .venv out dist build .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(PACKAGES) tests -name __pycache__ -type d -prune -exec rm -rf {} +
