# Two commands for a newcomer: `make demo` and `make test`. Both make .venv first, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test quick check format sync-openai docs soak compat wheel-check bundled-pair bundled-heads help

help:
	@echo "make demo          plain and speculative decoding side by side, routing, and what it cost"
	@echo "make test          linters, type checks and the whole test suite"
	@echo "make quick         a test or two of every room, in under a minute"
	@echo "make check         linters and type checks alone"
	@echo "make format        let ruff rewrite what it can"
	@echo "make sync-openai   write OpenAI's names, types and endpoints anew, from the installed openai package"
	@echo "make docs          the documentation site, in build/docs"
	@echo "make soak          the long runs"
	@echo "make compat        langchain and llm, installed beside, against a served process"
	@echo "make wheel-check   build the wheel and import it in an empty environment"
	@echo "make bundled-pair  train the bundled draft/target pair again (a good hour)"
	@echo "make bundled-heads train its EAGLE-3 and Medusa heads again (a quarter of an hour each)"

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Python 3.11 or newer is needed; {sys.executable} is {v.major}.{v.minor}. Try: make PYTHON=python3.11 $(MAKECMDGOALS)")'
	$(PYTHON) -m venv $(VENV)
	# torch first and by its exact pin: whatever else asks for it then takes the one that is there.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)
	@$(BIN)/specclient demo

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# With a newer openai package installed, this shows what it brought. Pin that one in pyproject.toml then.
sync-openai: $(READY)
	$(BIN)/python tools/sync_openai.py
	git --no-pager diff --stat -- specclient/openai_api specclient/types

# One thread a worker: workers with two threads each would fight over two cores. Three of them, since tests that
# start programs wait for those.
test: check
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 3 -m "not soak" --cov --cov-report=term

docs: $(READY)
	$(BIN)/mkdocs build --strict --quiet

soak: $(READY)
	$(BIN)/pytest -m soak --timeout=3600

compat: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,compat]'
	$(BIN)/pytest tests/sdk/serving/test_other_clients.py

wheel-check: $(READY)
	rm -rf build/wheel
	$(BIN)/python -m build --quiet --wheel --outdir build/wheel
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/python -m pip install --quiet --disable-pip-version-check build/wheel/*.whl
	cd build/wheel && venv/bin/python -c "import specclient, sys; print('specclient', specclient.__version__); sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
	cd build/wheel && venv/bin/specclient --version

bundled-pair: $(READY)
	$(BIN)/python -m specclient_local.training.recipe

bundled-heads: $(READY)
	for kind in eagle3 medusa; do \
	  $(BIN)/specclient local train heads --kind $$kind --threads 1 \
	    --out local/specclient_local/bundled/$$kind --work build/bundled-$$kind || exit; \
	done
