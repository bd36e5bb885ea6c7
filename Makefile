# Two commands: `make demo` grades an example class, `make test` checks everything.
# Each makes its own environment in .venv the first time; after that both work offline.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt

BENCH := .venv-bench/bin/python

.PHONY: help demo test bench bench-thousand bench-killed clean
.DELETE_ON_ERROR:

help:
	@echo "make demo   grade the example class; ends with a table and the reports in build/demo"
	@echo "make test   lint, types, tests, and the proof that the labs' tests reject every known mistake"
	@echo "make bench  compare this grader with others on the same assignment (in an environment of its own)"
	@echo "make clean  remove the environments and build"

demo: .venv/course
	@echo "== grading the example class (examples/class)"
	@$(BIN)/grader grade examples/class --lab 02 --class-seed 2026 --out build/demo -j 2

# Nothing that could change the outcome is newer than the last run that passed: say so, and stop.
test: .venv/dev
	@if [ -f .venv/tested ] && [ -z "$$(find . -mindepth 1 \( -name .venv -o -name .venv-bench -o -name .git -o -name build \
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
	@$(BIN)/mypy grader tests bench
	@for file in labs/*/exercise.py solutions/*/*.py curriculum/*.py; do echo "$$file"; \
	    $(BIN)/mypy --no-error-summary "$$file" || exit 1; done
	@for file in labs/*/test_*.py; do echo "$$file"; \
	    $(BIN)/mypy --allow-untyped-defs --allow-untyped-calls --disable-error-code misc --no-error-summary "$$file" || exit 1; done
	@echo "== the labs: generated files, solutions, mistakes (grader verify)"
	@$(BIN)/grader verify
	@echo "== tests (pytest)"
	@rm -f .venv/tested
	@$(BIN)/python -m pytest labs --impl solution -q
	@$(BIN)/python -m pytest tests -n 2 --dist loadgroup --junitxml=.venv/junit.xml
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

bench: .venv-bench/ready
	@$(BENCH) -m bench.compare
	@$(BENCH) -m bench.lab02
	@$(BENCH) -m bench.cold

# A class of a thousand submissions of lab 02: rate, memory, what is left.
bench-thousand: .venv-bench/ready
	@$(BENCH) -m bench.thousand

# The same class, with `kill -9` in between: what is left, and what is run twice.
bench-killed: .venv-bench/ready
	@$(BENCH) -m bench.killed

.venv-bench/ready: pyproject.toml constraints.txt bench/requirements.txt
	@echo "== making .venv-bench: the course and the graders it is compared with (once)"
	@$(PYTHON) -m venv .venv-bench
	@$(BENCH) -m pip install --disable-pip-version-check -c constraints.txt -e .
	@sed 's/ *#.*//' bench/requirements.txt | grep . | while read each; do \
	    $(BENCH) -m pip install --disable-pip-version-check -c constraints.txt "$$each" \
	    || echo "$$each can't be installed here and is left out"; done
	@touch $@

clean:
	rm -rf .venv .venv-bench build
