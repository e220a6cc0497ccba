# `make help` lists the targets. Everything runs in .venv, which is made on first use from python3 and pip alone.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# Bytecode is kept: tests start processes by the thousand.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
# More processes than cores: many tests wait (tests/lanes.py). What takes longest begins first (tests/conftest.py).
PYTEST := python -m pytest --lanes 6
# A stamp for this folder and this PYTHON: a copied tree must not run the code of the tree it was copied from.
STAMP := $(VENV)/ready-$(shell printf '%s' "$(CURDIR) $(PYTHON)" | cksum | cut -d ' ' -f 1)

.PHONY: demo test check prove soak bench fmt clean help browser

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
		while IFS='|' read -r target purpose; do printf '  make %-6s %s\n' "$$target" "$$purpose"; done

demo: $(STAMP) ## See an agent killed and going on where it was
	@$(BIN)/holdfast demo

test: check browser ## Everything a change must pass: the checks, then the tests
	@$(BIN)/$(PYTEST)

# mypy gives up (2) when its workers are not there within 3 seconds, as on a busy machine: it does without them then.
check: $(STAMP) ## Lint, format, types, layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { $(BIN)/ruff format --check .; exit 1; }
	@$(BIN)/python -m mypy || { [ $$? = 2 ] && $(BIN)/python -m mypy --num-workers 0; }
	@$(BIN)/lint-imports --no-logo

prove: $(STAMP) browser ## Long sweeps over crash points, interleavings and damage, with progress
	@$(BIN)/python -m pytest -m prove --timeout=0 -v -o log_cli=true -o log_cli_level=INFO

# The console is tested in the system's Chromium. Where there is none it is installed if that needs no password; tests
# that need it are skipped otherwise, and say so.
browser:
	@for name in chromium chromium-browser google-chrome chrome; do \
		if command -v "$$name" >/dev/null; then exit 0; fi; \
	done; \
	if [ -z "$${HOLDFAST_CHROMIUM:-}" ] && [ ! -e $(VENV)/no-browser ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		touch $(VENV)/no-browser; \
		echo "Installing Chromium for the tests of the console (once) ..."; \
		timeout 300 apt-get install -qq -y --no-install-recommends chromium >/dev/null 2>&1 </dev/null || true; \
	fi

# TESTS="node ids": these alone, loaded each time.
soak: N ?= 5
soak: LOADED ?= $(if $(TESTS),$(N),2)
soak: $(STAMP) ## Run the tests N times, the last LOADED of them on a busy machine; TESTS="node ids" for some of them
	@$(BIN)/python -m tests.soak --times $(N) --loaded $(LOADED) -- $(BIN)/$(if $(TESTS),python -m pytest $(TESTS),$(PYTEST))

bench: $(STAMP) ## Measure speed on this machine
	@$(BIN)/python bench/run.py

fmt: $(STAMP) ## Format and fix what can be fixed
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

clean: ## Remove the environment, caches and builds
	@rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .soak
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Output goes to a log that is shown when something fails. Where the system's venv comes without pip (Debian without
# python3-venv), the system's pip fills it. The wheels of claude-agent-sdk contain 160 MB of a program that no test starts; its
# source is 400 kB. google-adk holds websockets and opentelemetry back: asked for together with the rest, pip tries out versions
# for minutes; behind it, it replaces two packages. When only pyproject.toml changed, the environment is kept and brought up to date.
$(STAMP): pyproject.toml
	@set -euo pipefail; \
	usable() { "$$1" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }; \
	python=; \
	for candidate in $(if $(PYTHON),"$(PYTHON)",python3.13 python3.12 python3.11 python3); do \
		if usable "$$candidate"; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "Holdfast needs Python 3.11 or newer with its venv module; tried:" \
			"$(if $(PYTHON),$(PYTHON),python3.13 python3.12 python3.11 python3). Name one with: make PYTHON=/path/to/python3" >&2; \
		exit 1; \
	fi; \
	echo "Setting up $(VENV) with $$("$$python" --version) (once, under a minute) ..."; \
	log=$$(mktemp); \
	trap 'status=$$?; if [ $$status -ne 0 ]; then tail -n 30 "$$log" >&2; echo "Setting up $(VENV) failed." >&2; fi; rm -f "$$log"' EXIT; \
	export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_USER=0 PIP_NO_BINARY=claude-agent-sdk; \
	if [ -e $@ ]; then :; elif ! "$$python" -m venv --clear $(VENV) >>"$$log" 2>&1; then \
		"$$python" -m venv --clear --without-pip $(VENV) >>"$$log" 2>&1; \
		"$$python" -m pip --python $(BIN)/python install --quiet pip >>"$$log" 2>&1; \
	fi; \
	$(BIN)/python -m pip install --quiet --editable '.[dev]' >>"$$log" 2>&1 </dev/null; \
	$(BIN)/python -m pip install --quiet --editable '.[adk]' >>"$$log" 2>&1 </dev/null; \
	touch $@
