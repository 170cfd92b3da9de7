# Each target does its own set-up: .venv is made from constraints.txt when it is missing or out of date.
# The first Python from 3.11 on that is found; PYTHON=… names another.
PYTHON ?= $(shell for each in python3 python3.13 python3.12 python3.11 python; do \
	$$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$each && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check mutants docs install clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -n "$(PYTHON)" || { echo "make: stepnet needs Python 3.11 or later: make PYTHON=/path/to/python" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: install
	$(BIN)/stepnet scheme lm
	$(BIN)/stepnet compare preact_resnet20 lm_resnet20 --data digits --seeds 3 --out runs/demo
	@echo "The same blocks under Euler and under LM. Three seeds on 1,797 digits show how to compare; they decide nothing."

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check
	$(BIN)/python -m pytest -n 2

# Changes important lines one at a time, in a copy, and prints those that no test notices.
mutants: install
	$(BIN)/python scripts/mutants.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

docs: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/mkdocs build --quiet
	@echo "wrote site/; see it with: $(BIN)/python -m http.server -d site"
