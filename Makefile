# make demo   sets up an environment with the runtimes and measures inception_v3 in them
# make test   sets up what tests need and runs all of them
# make check  ruff and mypy;  make wheel-test  the wheel, in an environment of its own;  make bench, make bench-explain  what README claims, measured
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml README.md $(shell find memprof runners reports -name '*.py' -o -name '*.h' -o -name '*.c' -o -name '*.js' -o -name '*.css' -o -name '*.html')

.PHONY: demo test check wheel-test bench bench-explain clean

demo: $(VENV)/.installed
	PATH="$(CURDIR)/$(BIN):$$PATH" bash ci/demo

test: $(VENV)/.for-tests $(VENV)/.installed
	bash ci/system-tools
	$(BIN)/pytest

check: $(VENV)/.for-tests $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/mypy --config-file ci/mypy-runners.ini

wheel-test: $(VENV)/.for-tests
	PYTHON="$(CURDIR)/$(BIN)/python" bash ci/wheel-test

bench: $(VENV)/.for-tests $(VENV)/.installed
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python ci/bench.py

# PART=copies (or speed, waterfall, cases) runs one part of it.
bench-explain: $(VENV)/.for-tests $(VENV)/.installed
	$(BIN)/python ci/bench/explain.py $(PART)

# The runtimes, once; then memprof itself whenever it changed, installed as a user has it (an editable install would put files of its own
# into every measured child).
$(VENV)/.runtimes: pyproject.toml
	PYTHON="$(PYTHON)" VENV="$(VENV)" bash ci/make-venv
	touch $@

$(VENV)/.for-tests: $(VENV)/.runtimes
	$(BIN)/python -m pip install --quiet '.[dev]'
	touch $@

$(VENV)/.installed: $(VENV)/.runtimes $(SOURCES)
	rm -rf build
	$(BIN)/python -m pip install --quiet --no-deps --force-reinstall .
	rm -rf build
	touch $@

clean:
	rm -rf $(VENV) build dist demo *.egg-info
