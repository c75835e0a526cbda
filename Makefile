# Every target does its own set-up. uv is used when it is there, else venv + pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
DEV := $(VENV)/.stamp-dev
# uv and pip both read dependency groups from pyproject.toml; pip only since 25.1.
UV := $(shell command -v uv 2>/dev/null)

.PHONY: install demo test test-full lint bench clean

install: $(STAMP)

$(BIN)/python:
	@if [ -n "$(UV)" ]; then $(UV) venv -q --python $(PYTHON) $(VENV); \
	else $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install -q --upgrade 'pip>=25.1'; fi

$(STAMP): pyproject.toml | $(BIN)/python
	@if [ -n "$(UV)" ]; then $(UV) pip install -q --python $(BIN)/python -e '.[all]'; \
	else $(BIN)/python -m pip install -q -e '.[all]'; fi
	@touch $@

$(DEV): $(STAMP)
	@if [ -n "$(UV)" ]; then $(UV) pip install -q --python $(BIN)/python --group dev; \
	else $(BIN)/python -m pip install -q --group dev; fi
	@touch $@

demo: $(STAMP)
	@$(BIN)/toolrest demo

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: $(DEV) lint
	$(BIN)/pytest -q -n 2 --dist worksteal

test-full: $(DEV) lint
	TOOLREST_TEST_FULL=1 $(BIN)/pytest -q -n 2 --dist worksteal

bench: $(STAMP)
	$(BIN)/python bench/run.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
