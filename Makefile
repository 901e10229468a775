# Each target builds its own .venv on a machine that has only Python >= 3.11, make and git.
PYTHON ?= python3
CONFORMANCE ?=
VENV := .venv
BIN := $(VENV)/bin

PEERS := $(VENV)/peers
PI := @mariozechner/pi-coding-agent
PI_VERSION := 0.66.1

.PHONY: demo test check conformance interop bench kill defences soak load engines canaries trees clean

$(VENV)/.base: pyproject.toml
	$(PYTHON) -c "import sys; assert sys.version_info >= (3, 11), 'perdure needs Python 3.11 or newer'"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.test: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --group test --group check
	touch $@

$(VENV)/.bench: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --group bench
	touch $@

demo: $(VENV)/.base  ## host 200 sessions through seven virtual days
	$(BIN)/perdure demo

check: $(VENV)/.test  ## lint, strict types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check  ## the checks and the whole suite, on all cores
	$(BIN)/python -m pytest -n auto --dist worksteal

conformance: $(VENV)/.test  ## ours against the reference's vectors; CONFORMANCE=DIR runs another folder of them
	PYTHONPATH=tests $(BIN)/python -m conformance "$(CONFORMANCE)"

interop: $(VENV)/.test  ## the session format both ways with the reference program (needs node and npm)
	@if [ -d $(PEERS)/node_modules/$(PI) ] || ! command -v npm >/dev/null; then exit 0; fi; \
	mkdir -p $(PEERS) && npm install --prefix $(PEERS) --no-audit --no-fund --ignore-scripts $(PI)@$(PI_VERSION)
	$(BIN)/python -m pytest tests/interop

bench: $(VENV)/.bench  ## ratios against peers and floors, measured in one run
	$(BIN)/python -m benchmarks

kill: $(VENV)/.test  ## SIGKILL a host at 50 random points, a server under load 100 times; crash, tear, refuse or cut the power at every disk call
	PERDURE_KILLS=50 $(BIN)/python -m pytest tests/host/test_killed.py
	PERDURE_HTTP_KILLS=100 $(BIN)/python -m pytest -s -o faulthandler_timeout=0 tests/server/test_killed_over_http.py
	PERDURE_CRASH_POINTS=all $(BIN)/python -m pytest -n auto tests/host/test_crash_points.py

defences: $(VENV)/.test  ## 10,000 compactions by faulty summarisers, 200 sessions of 30 by a hostile one
	PERDURE_DEFENCES=full $(BIN)/python -m pytest tests/defences -s

soak: $(VENV)/.bench  ## 10,000 sessions through a week in one process; SOAK_SESSIONS, SOAK_DAYS, SOAK_TURNS, SOAK_OUT
	$(BIN)/python -m benchmarks.soak

load: $(VENV)/.bench  ## a thousand clients over loopback, some slow, some vanishing; LOAD_MINUTES, LOAD_RUNS, LOAD_CLIENTS, LOAD_LOOP
	$(BIN)/python -m benchmarks.load

trees: $(VENV)/.test  ## random trees of 500 subagents with failures, compactions, sleeps and kills of the host
	PERDURE_TREES=full $(BIN)/python -m pytest -o faulthandler_timeout=0 tests/host/test_subagent_trees.py

engines: $(VENV)/.bench  ## the same sessions under every context engine, with planted facts; PERDURE_SESSIONS=DIR
	$(BIN)/python -m benchmarks --only engines

laws: $(VENV)/.test  ## every engine that ships against every law of engines
	PERDURE_LAWS=full $(BIN)/python -m pytest tests/plugins/engines/test_shipped_keep_the_laws.py

canaries: $(VENV)/.test  ## a million random requests of a thousand tenants; none sees what is another's
	PERDURE_CANARIES=full $(BIN)/python -m pytest tests/server/test_isolation.py -n 2 -o faulthandler_timeout=0 \
		--durations=3 $(if $(wildcard /dev/shm/.),--basetemp=/dev/shm/perdure-canaries.$$$$)

clean:
	rm -rf $(VENV) dist build
