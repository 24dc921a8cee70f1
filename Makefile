# Every target sets itself up: it needs git, make and Python >= 3.11, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORES ?= 2

.PHONY: help demo test test-long lint bench bench-long clean
.DEFAULT_GOAL := help

help:  ## say what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "jaxdyn needs Python >= 3.11; set PYTHON=... to one"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: pyproject.toml | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/.core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

$(VENV)/.plot: pyproject.toml | $(VENV)/.core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[plot]'
	@touch $@

demo: $(VENV)/.plot  ## a robot, its poses, a swing and gradients, in a minute
	@$(BIN)/python examples/00_demo.py

test: $(VENV)/.test  ## the default test suite
	@$(BIN)/python -m pytest -n $(CORES) --dist loadfile

$(VENV)/.robots: pyproject.toml | $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,robots]'
	@touch $@

test-long: $(VENV)/.robots  ## every test, long sweeps included
	@$(BIN)/python -m pytest -n $(CORES) --dist worksteal --long

lint: $(VENV)/.dev  ## style and types
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

# If the libraries to compare with do not install together, those that do alone are taken.
$(VENV)/.bench: pyproject.toml | $(VENV)/.core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]' || { \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]' mpmath && \
	  for peer in mujoco-mjx brax frax; do \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check $$peer || \
	      echo "$$peer does not install; it is left out"; \
	  done; }
	@touch $@

bench: $(VENV)/.bench  ## measure beside other libraries on one core, in ten minutes
	@$(BIN)/python -m benchmarks --short

bench-long: $(VENV)/.bench  ## the same at every size, and the papers' claims; hours
	@$(BIN)/python -m benchmarks

clean:  ## remove what the targets made
	rm -rf $(VENV) .venv-smoke .pytest_cache .ruff_cache .mypy_cache
