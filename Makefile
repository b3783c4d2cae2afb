# make demo   sets up an environment with the runtimes and measures inception_v3 in them
# make test   sets up what tests need and runs all of them;  make quick  those that start no process, with fewer examples
# make check  ruff, mypy and the style of texts (make words);  make wheel-test  the wheel, in a fresh environment;  make docs  the manual as a site;
# make bench, and bench-NAME for explain, fleet, gate, growth, plan, runtimes, scale  the claims of README, measured and written into the manual
# make attack, fuzz  kills, odd surroundings, hostile and damaged files, trees of processes, counted; the counts are written into the manual
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml README.md $(shell find memprof runners reports -name '*.py' -o -name '*.h' -o -name '*.c' -o -name '*.sh' -o -name '*.js' -o -name '*.css' -o -name '*.html')

# Workers of pytest-xdist, which take test after test in one order: those that take long first. What measures also waits, so there are three more
# than CPUs, but no more than eight: what the tests measure takes memory.
CPUS := $(shell nproc)
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest# so that workers share what they compile, wherever this is set
BESIDE := --dist loadgroup --no-loadscope-reorder --maxprocesses 8 --numprocesses

.PHONY: demo test quick check words crossings docs wheel-test image-test gate clean bench bench-gate bench-plan bench-explain bench-growth bench-scale
.PHONY: atlas bench-runtimes bench-fleet fuzz attack attack-kills attack-faults attack-hostile attack-trees attack-buffers attack-fuzz

demo: $(VENV)/.installed
	PATH="$(CURDIR)/$(BIN):$$PATH" bash ci/demo

test: $(VENV)/.for-tests $(VENV)/.installed
	bash ci/system-tools
	@# pytest rewrites the assertions of each module, and keeps the result. Without this each of the workers would do it.
	@$(PYTEST) --collect-only -qq tests/unit > /dev/null & $(PYTEST) --collect-only -qq tests/process tests/board > /dev/null; wait
	$(PYTEST) $(BESIDE) $$(( $(CPUS) + 3 ))

quick: $(VENV)/.for-tests $(VENV)/.installed
	$(PYTEST) tests/unit --hypothesis-profile=quick -r fE $(BESIDE) $$(( $(CPUS) + 1 ))

check: $(VENV)/.for-tests $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/mypy --config-file ci/mypy-runners.ini
	$(BIN)/python ci/words.py

# proselint and the phrases of ci/words.toml, on README, docs/, CONTRIBUTING, CHANGELOG and every --help; the phrases in messages, docstrings and comments too.
words: $(VENV)/.for-tests $(VENV)/.installed
	$(BIN)/python ci/words.py

# What each question says of each subject at each place, into docs/crossings.md.
crossings: $(VENV)/.for-tests $(VENV)/.installed
	MEMPROF_WRITES_CROSSINGS=1 $(PYTEST) -q tests/process/test_crossings.py -k every_crossing

# Into site/; a link that leads nowhere, or any other warning, is an error. The page of commands is made here, and is not in git.
docs: $(VENV)/.for-tests $(VENV)/.installed
	$(BIN)/python ci/commands_page.py
	$(BIN)/zensical build --clean --strict

# Makes ci/image's OCI image, and runs its memprof beside a process; needs root, mmdebstrap and umoci.
image-test: $(VENV)/.for-tests $(VENV)/.installed
	MEMPROF_MAKES_IMAGE=1 $(PYTEST) -p no:xdist tests/process/test_image.py

wheel-test: $(VENV)/.for-tests
	PYTHON="$(CURDIR)/$(BIN)/python" bash ci/wheel-test

# How exact peaks are beside mprof and psrecord, and what the two recorders cost.
bench: $(VENV)/.for-tests $(VENV)/.installed
	$(BIN)/python ci/bench/ladder.py
	$(BIN)/python ci/bench/recorder.py

# Orders and arenas: how often the optimum is proven, and in what time; PARTS="models random pack" for some of it.
bench-plan: $(VENV)/.for-tests $(VENV)/.installed
	$(BIN)/python ci/bench/plan.py $(PARTS)

# Seconds for each reader and way of fuzzing; from 180 on, the counts go into the manual: make fuzz FUZZ_SECONDS=180
FUZZ_SECONDS ?= 30
fuzz: $(VENV)/.for-tests $(VENV)/.installed
	$(BIN)/python -m pip install --quiet '.[fuzz]' || echo "no atheris for this Python: hypothesis alone" >&2
	$(BIN)/python ci/fuzz/heap.py --seconds $(FUZZ_SECONDS)
	$(BIN)/python ci/fuzz/models.py --seconds $(FUZZ_SECONDS)
	$(BIN)/python ci/fuzz/runs.py --seconds $(FUZZ_SECONDS)

# All that attacks memprof, briefly: some ten minutes on two idle CPUs, and `make attack-kills` for one of it. -k goes on after a failure.
# ATTACK_REPEATS of each kill and each tree; ATTACK_SECONDS for each reader and way of fuzzing; PARTS="--only scale" for the cases with that word.
ATTACK_REPEATS ?= 1
ATTACK_SECONDS ?= 1
attack: attack-kills attack-faults attack-hostile attack-trees attack-buffers attack-fuzz

attack-kills attack-faults attack-hostile attack-trees attack-buffers: $(VENV)/.for-tests $(VENV)/.installed
	$(BIN)/python ci/attack.py $(@:attack-%=%) --repeats $(ATTACK_REPEATS) $(PARTS)

attack-fuzz: $(VENV)/.for-tests $(VENV)/.installed
	bad=0; for reader in heap models runs; do $(BIN)/python ci/fuzz/$$reader.py --seconds $(ATTACK_SECONDS) || bad=1; done; exit $$bad

# What a job costs on a fleet of eight workers in network namespaces (as root).
bench-fleet: $(VENV)/.for-tests $(VENV)/.installed
	$(BIN)/python ci/bench/fleet.py

# Copies, waterfall and findings; PARTS="copies speed waterfall cases" for some of it.
bench-explain: $(VENV)/.for-tests $(VENV)/.installed
	$(BIN)/python ci/bench/explain.py $(PARTS)

# How often memprof grow is wrong, on real processes; about half an hour on an idle machine; PARTS="real meter --cases 20" for some of it.
bench-growth: $(VENV)/.for-tests $(VENV)/.installed
	$(BIN)/python ci/bench/growth.py --docs $(PARTS)

# One net in every runtime, and what each knob does; PARTS="nets" or PARTS="knobs" for one of it.
bench-runtimes: $(VENV)/.for-tests $(VENV)/.installed
	$(BIN)/python ci/bench/knobs.py $(PARTS)

# What releases of runtimes cost in memory: docs/evidence/atlas.md and a page in the cache. Half an hour or more, and 10 GiB of environments;
# PARTS="onnxruntime ncnn" for some runtimes, PARTS=--no-measure to write again from what is measured.
atlas: $(VENV)/.for-tests $(VENV)/.installed
	cd ci && ../$(BIN)/python -m atlas.main $(PARTS)

# Laws of `memprof scale`: known ones, and held-out places of real models; about an hour; PARTS="simulated --count 20" for some of it.
bench-scale: $(VENV)/.for-tests $(VENV)/.installed
	$(BIN)/python ci/bench/laws.py $(PARTS)

# This project's own peaks against ci/baseline.json; ci/gate-self --update writes it again.
gate: $(VENV)/.installed
	PATH="$(CURDIR)/$(BIN):$$PATH" bash ci/gate-self

# How often the gate is wrong, on real processes; about an hour on an idle machine; PARTS="synthetic onnxruntime one-thread one-arena table" for some of it.
bench-gate: $(VENV)/.installed
	$(BIN)/python ci/bench/gate.py $(PARTS)

# The runtimes, once; then memprof itself whenever it changed, installed as a user has it (an editable install would put files of its own
# into every measured child).
$(VENV)/.runtimes: pyproject.toml
	PYTHON="$(PYTHON)" VENV="$(VENV)" bash ci/make-venv
	touch $@

$(VENV)/.for-tests: $(VENV)/.runtimes pyproject.toml
	$(BIN)/python -m pip install --quiet '.[dev]'
	touch $@

$(VENV)/.installed: $(VENV)/.runtimes $(SOURCES)
	rm -rf build
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --force-reinstall .
	rm -rf build
	touch $@

clean:
	rm -rf $(VENV) build dist demo gate *.egg-info site .cache
