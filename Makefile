# Everything on a fresh machine with Python 3.11 or later and nothing else.
# make demo     install, run the main job, show the result: about a minute on two cores
# make test     install, run the tests, all but the slow ones: about two minutes on two cores
# make slow     the slow tests: whole public traces (skipped where ../shared/traces is absent)
# make compiled the compiled engine beside the Python one; installs Numba, compiles for a minute
# make verify   random worlds on vLLM's own classes and on ours, for DURATION=3600 s; installs vLLM
# make ci       the stages of .ci/stages.py, each within its time budget
# make lint     ruff: lint and format, no changes made
# make clean    remove the environment and everything that was built

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO := configs/scenarios/gemma_3_27b_multi_turn.yaml

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test slow compiled verify lint ci clean

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'Python 3.11 or later is needed: make PYTHON=python3.11 ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/kvsim layout google--gemma-3-27b-it --kv-cache-memory 20GiB
	$(BIN)/kvsim run $(DEMO)

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 -m 'not slow and not compiled'

slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 -m 'slow and not compiled'

compiled: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --editable '.[fast]'
	NUMBA_DISABLE_JIT=0 $(BIN)/python -m pytest -m compiled

DURATION ?= 3600
SEED ?= 0

verify:
	$(PYTHON) .ci/verify.py --seconds $(DURATION) --seed $(SEED) --json runs/verify.json

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

ci:
	$(PYTHON) .ci/stages.py

clean:
	rm -rf $(VENV) .venv-oracle build dist runs .pytest_cache .ruff_cache .mypy_cache .hypothesis
