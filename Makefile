# Two commands: `make demo` grades an example class, `make test` checks everything.
# Each makes its own environment in .venv the first time; after that both work offline.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt

.PHONY: help demo test clean
.DELETE_ON_ERROR:

help:
	@echo "make demo   grade the example class; ends with a table and the reports in build/demo"
	@echo "make test   lint, types, tests, and the proof that the labs' tests reject every known mistake"
	@echo "make clean  remove .venv and build"

demo: .venv/course
	@echo "== grading the example class (examples/class)"
	@$(BIN)/grader grade examples/class --lab 02 --class-seed 2026 --out build/demo -j 2

# Nothing that could change the outcome is newer than the last run that passed: say so, and stop.
test: .venv/dev
	@if [ -f .venv/tested ] && [ -z "$$(find . -mindepth 1 \( -name .venv -o -name .git -o -name build \
	    -o -name '*_cache' -o -name __pycache__ -o -name '*.egg-info' -o -name .grader \) -prune \
	    -o -newer .venv/tested -print)" ]; \
	then echo "nothing has changed since the last run that passed; to run it again: rm .venv/tested"; cat .venv/tested; \
	else $(MAKE) --no-print-directory check; fi

.PHONY: check
check:
	@echo "== lint and format (ruff)"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "== types (mypy)"
	@$(BIN)/mypy grader tests
	@for file in labs/*/exercise.py solutions/*/*.py curriculum/*.py; do echo "$$file"; \
	    $(BIN)/mypy --no-error-summary "$$file" || exit 1; done
	@for file in labs/*/test_*.py; do echo "$$file"; \
	    $(BIN)/mypy --allow-untyped-defs --allow-untyped-calls --disable-error-code misc --no-error-summary "$$file" || exit 1; done
	@echo "== the labs: generated files, solutions, mistakes (grader verify)"
	@$(BIN)/grader verify
	@echo "== tests (pytest)"
	@rm -f .venv/tested
	@$(BIN)/python -m pytest tests labs --impl solution --junitxml=.venv/junit.xml
	@$(BIN)/python -c "import xml.etree.ElementTree as e; s = e.parse('.venv/junit.xml').getroot()[0]; \
	    print('last run:', s.get('tests'), 'tests passed on', s.get('timestamp')[:16])" > .venv/tested

.venv/course: pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" \
	    || { echo "Python 3.11 or newer is needed; name it: make PYTHON=python3.12 ..."; exit 1; }
	@echo "== making .venv and installing the course (once; PyTorch is large)"
	@$(PYTHON) -m venv .venv
	@$(PIP) -e .
	@touch $@

.venv/dev: .venv/course
	@echo "== installing what tests, types and notebooks need (once)"
	@$(PIP) -e ".[dev]"
	@touch $@

clean:
	rm -rf .venv build
