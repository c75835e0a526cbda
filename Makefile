# Every target does its own set-up. uv is used when it is there, else venv + pip.
# All that is made lies in VENV: `make test VENV=/elsewhere` leaves the checkout as it is.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CACHE := $(VENV)/cache
STAMP := $(VENV)/.stamp
DEV := $(VENV)/.stamp-dev
DOCS := $(VENV)/.stamp-docs
# uv and pip both read dependency groups from pyproject.toml; pip only since 25.1.
UV := $(shell command -v uv 2>/dev/null)
# The tests start Python many hundred times: it must not compile everything each time.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest -q -n 2 --dist worksteal -o cache_dir=$(CACHE)/pytest
CONTAINER := $(BIN)/python tests/plain_container.py
# What other rights than a machine's own change.
CONTAINED := tests/sandbox tests/process tests/running tests/tools/shell tests/adversarial \
	$(wildcard tests/first_hour)

.PHONY: install demo test check first-hour test-full test-system test-container mutants style types lint \
	bench model-data docs release clean

install: $(DEV)

$(BIN)/python:
	@mkdir -p $(VENV) || { echo "cannot write here; name a folder that can be written: make VENV=/some/folder $(MAKECMDGOALS)"; exit 1; }
	@echo "making $(VENV) and installing what is needed (half a minute, longer on a slow line)"
	@if [ -n "$(UV)" ]; then $(UV) venv -q --allow-existing --python $(PYTHON) $(VENV); \
	else $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install -q --upgrade 'pip>=25.1'; fi

$(STAMP): pyproject.toml binaries.lock | $(BIN)/python
	@if [ -n "$(UV)" ]; then $(UV) pip install -q --python $(BIN)/python --require-hashes --no-deps -r binaries.lock; \
	else $(BIN)/python -m pip install -q --require-hashes --no-deps -r binaries.lock; fi
	@if [ -n "$(UV)" ]; then $(UV) pip install -q --python $(BIN)/python -e '.[all]'; \
	else $(BIN)/python -m pip install -q -e '.[all]'; fi
	@touch $@

$(DEV): $(STAMP)
	@if [ -n "$(UV)" ]; then $(UV) pip install -q --python $(BIN)/python --group dev; \
	else $(BIN)/python -m pip install -q --group dev; fi
	@touch $@

$(DOCS): $(STAMP)
	@if [ -n "$(UV)" ]; then $(UV) pip install -q --python $(BIN)/python --group docs; \
	else $(BIN)/python -m pip install -q --group docs; fi
	@touch $@

demo: $(STAMP)
	@$(BIN)/toolrest demo

style: $(DEV)
	@echo "style: ruff, import-linter"
	@$(BIN)/ruff check -q --cache-dir $(CACHE)/ruff .
	@$(BIN)/ruff format -q --check --cache-dir $(CACHE)/ruff .
	@$(BIN)/lint-imports --no-logo --cache-dir $(CACHE)/imports

types: $(DEV)
	@echo "types: mypy (a minute the first time), basedpyright on the examples"
	@$(BIN)/mypy --cache-dir $(CACHE)/mypy
	@$(BIN)/basedpyright --pythonpath $(BIN)/python --level error

lint: style types

# The fast tests. What is listed as slow at the end has no marker yet.
test: style
	@$(PYTEST) -m 'not slow' --durations 10 --durations-min 1

# All tests; `make check TESTS=slow` is what `make test` leaves.
check: $(if $(TESTS),types,lint)
	@$(PYTEST) $(if $(TESTS),-m '$(TESTS)')

# What a new user meets, typed by hand into a shell on three machines; part of `make check`.
# SCREENS=folder keeps what there was to see.
first-hour: $(DEV)
	@$(if $(SCREENS),TOOLREST_TEST_SCREENS='$(abspath $(SCREENS))') $(PYTEST) tests/first_hour

test-full: $(DEV) $(DOCS) lint
	@TOOLREST_TEST_FULL=1 $(PYTEST)

# What needs Debian packages and root: the other kinds of sandbox, virtual machines, browsers.
test-system: $(DEV)
	@sh tests/system/install
	@$(BIN)/python -m tests.sandbox.kinds.kinds
	@if [ -n "$(UV)" ]; then $(UV) pip install -q --python $(BIN)/python --group system; \
	else $(BIN)/python -m pip install -q --group system; fi
	@TOOLREST_TEST_SYSTEM=1 $(PYTEST)

# The demo, and the tests of what runs programs, with the rights of a plain container, with and
# without Landlock.
test-container: $(DEV)
	@echo "plain container: no namespaces, no mounts, Landlock"
	@$(CONTAINER) -- $(BIN)/toolrest demo
	@$(CONTAINER) -- $(PYTEST) $(CONTAINED)
	@echo "plain container: no namespaces, no mounts, no Landlock"
	@$(CONTAINER) --no-landlock -- $(BIN)/toolrest demo
	@$(CONTAINER) --no-landlock -- $(PYTEST) $(CONTAINED)

# One change of the source for each row of docs/internals/mission.md: its test must fail.
mutants: $(DEV)
	@$(BIN)/python tests/mutants.py

# Windows and prices of models, from the pinned genai-prices; see src/toolrest/wire/model_data.py.
model-data: $(DEV)
	@$(BIN)/python release/make_model_data.py

bench: $(STAMP)
	$(BIN)/python bench/run.py

# The documentation as a site in build/docs/site, which works without a network.
docs: $(DOCS)
	@$(BIN)/python release/make_site.py

# Builds, checks as users install it, and says how to publish; publishes nothing.
release: $(DEV)
	@$(BIN)/python release/make_release.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
