"""The specclient.toml that ``specclient config init`` writes: every setting, commented out and explained."""

TEMPLATE = """\
# Configuration of specclient. Arguments and environment variables override it. `specclient config show`
# prints the settings in effect and their sources; `specclient config check` reports mistakes. Lines that
# begin with "# " are explanations. To set a value, remove the "#" of a line that begins with "#name".

# Provider of model names without a prefix: "gpt-4.1" means "openai/gpt-4.1".
#default_provider = "openai"

# Model of the command line when none is named (SPECCLIENT_MODEL overrides it).
#default_model = "local/demo"

# Models that model = "auto" chooses among, in order of preference.
#candidates = ["local/demo", "local/demo-target", "openai/gpt-4.1-nano", "openai/gpt-4.1-mini"]

# true: drop parameters that an endpoint does not support; false: raise an error before sending.
#drop_params = false

# Ledger of calls: a path, a database URL, or "off" (SPECCLIENT_LEDGER overrides it).
#ledger = "~/specclient-ledger.sqlite3"

# "batch": calls return without waiting, and their rows are written within half a second; "sync": calls return
# once their row is on the disk. SPECCLIENT_LEDGER_DURABILITY overrides it.
#ledger_durability = "batch"
#pacing = true                   # false: calls do not wait for limits that responses report

# "aiohttp", or "httpx" for tests that mock httpx (SPECCLIENT_TRANSPORT overrides it).
#transport = "aiohttp"

# Largest number of open connections of a client; further requests wait. Each connection needs an open file.
#connections = 1000

# Other names of models, for programs that cannot change theirs: a name or a pattern (*, ?, [...]), and the
# "provider/model" or "auto" that serves it. An exact name precedes patterns, a longer pattern a shorter one.
#[aliases]
#"gpt-4o" = "local/demo"
#"gpt-4*" = "openai/gpt-4o-mini"

# A custom provider, used as "mine/MODEL": any server with OpenAI's, Anthropic's or Gemini's API (dialect =
# "openai", "anthropic", "gemini"), Vertex AI ("vertex") or Amazon Bedrock ("bedrock"). A table with the name
# of a known provider (`specclient models`) changes that provider. Keep keys in the environment; key_header =
# "x-api-key" sends the key in that header.
#[providers.mine]
#base_url = "http://127.0.0.1:8000/v1"
#dialect = "openai"
#api_key_env = "MINE_API_KEY"
#key_header = "authorization"
#models = ["llama"]
#stream_usage = true
#metrics = false                                  # true: read its Prometheus counters around each call
#template = "Qwen/Qwen3-8B"                       # chat template for strategy "remote": hub id or file
#project = "my-project"                           # Vertex AI's project; by default from the environment
#location = "global"                              # Vertex AI's location, or Bedrock's region
#credentials = "key.json"                         # Vertex AI's file of credentials, or Bedrock's profile

# Speculation features of the provider, if known; `specclient models probe mine/llama` tests them. prefill is
# "assistant", "prefix", "continue_final_message", "completions" or false; verification is "prompt_logprobs",
# "echo", "echo_last", "sglang", "tgi" or false.
#[providers.mine.capabilities]
#prediction = true
#prefill = "continue_final_message"
#verification = "prompt_logprobs"

# Custom prices, in US dollars per million tokens; they override the catalogue. "mine/*" applies to all models
# without a table. Kinds of tokens without a price cost as much as the kind that includes them: cached and
# written tokens as input, reasoning tokens and rejected tokens of a prediction as output. per_call (dollars
# per call) and per_gpu_second (dollars per second of work) are added to the cost of tokens, or replace it if
# there are no token prices. `specclient cost prices` shows the prices in effect.
#[prices."mine/llama"]
#input = 0.10
#output = 0.40
#cached_input = 0.05
#cache_write = 0.125
#cache_write_1h = 0.20
#reasoning = 0.40
#rejected_prediction = 0.40
#per_call = 0.001
#per_gpu_second = 0.0006
# Dollars per unit of what is not billed by tokens, where the catalogue has no price or another one: page,
# annotated_page, search_unit (of reranking), web_search, file_search, code_container or "code_container 4g",
# code_execution, audio_second, character, trained_token, storage_gb_day. A table with nothing else leaves
# the prices of tokens to the catalogue.
#units = {page = 0.001, "code_container 4g" = 0.12}
# Prices of service tiers (flex, priority, batch). Calls of a tier without one have the price above, marked as
# an estimate; a table with nothing but tiers leaves the standard tier to the catalogue.
#tiers.flex = {input = 0.05, output = 0.20}
# The currency of this table.
#currency = "CNY"

# The rate of a currency in which prices are given: dollars for one, and the date of the rate. Costs are in
# dollars.
#[currencies.CNY]
#usd = 0.1405
#on = 2026-11-01

# Rate limits of a deployment that does not report them in its headers; calls wait in order.
#[limits."mine/llama"]
#requests_per_minute = 60
#tokens_per_minute = 100000
#concurrent = 8

# Responses and conversations of local models are stored in the ledger's database; the oldest go first.
#[stored]
#enabled = true
#max_age_days = 30
#max_bytes = 1073741824
#max_bytes_per_key = 134217728

# Answers of earlier calls that ask the same, for calls with cache=True or the header x-specclient-cache;
# enabled = true: for all calls. store is the path of a file or the URL of a PostgreSQL or Redis server
# (SPECCLIENT_CACHE overrides it). random: also for calls whose sampling is random; shared: the keys of a
# server share their answers; across_processes: equal calls of several processes at the same time are made
# once, too. The least recently used go first.
#[cache]
#enabled = false
#store = "~/specclient-cache.sqlite3"
#random = false
#shared = false
#across_processes = false
#max_age_s = 604800
#max_entries = 100000
#max_bytes = 268435456

# Limits on responses; a longer one raises ResponseTooLargeError. Bytes are counted after decompression:
# max_body_bytes those of a whole body or of all events of a stream, max_event_bytes those of one event or
# line. The ratio of decompressed to received bytes is checked from 16 MiB on. inf disables a limit.
#[response_limits]
#max_body_bytes = 536870912
#max_event_bytes = 67108864
#max_compression_ratio = 200

# Circuit breaker: after this many consecutive failures over at least lasting_s seconds, a deployment receives
# no requests for up to rest_s seconds. circuit = false (at the top of the file) disables it.
#[circuit]
#failures = 5
#lasting_s = 10
#rest_s = 30

# Named policies: --policy fast, or policy="fast". minimize is "cost", "latency", or the weights of a dollar
# and a second: { cost = 1, latency = 0.002 }. Time limits apply to the given percentile of calls.
#[policies.fast]
#minimize = "latency"
#max_cost_usd = 0.01
#max_latency_s = 10
#max_ttft_s = 1
#percentile = 0.95
#percentile_per = "policy"          # or "task", "length": the promise holds for each kind of call
#min_quality = 0.5
#limits = {}                        # limits on custom criteria: { max_co2_g = 0.5 }
#allow = ["local/", "openai/gpt-4.1"]
#deny = ["openai/gpt-4.1-mini"]
#local_only = false
#task = "auto"
#deadline_s = 30
#fallbacks = true
#hedge = 0.05
#explore = 0.05
#strategy = "auto"
#draft = "local/demo"
#depth = 8

# Budgets: limits on the cost (usd) or tokens of calls, in total or by "day" or "month" in UTC. They apply to
# all calls, or to those that match provider, model ("openai/gpt-4.1", "openai/*"), tag and session; "team=*"
# and "*" give each value a limit of its own. A "hard" budget rejects a call that may exceed it before the
# call is sent; a "soft" one warns at 50, 80 and 100 %. unpriced = "refuse" rejects models without a price;
# "allow" counts their cost as 0. All processes that share the ledger share its budgets; `specclient cost
# budget` shows them.
#[budgets.team]
#usd = 5
#period = "month"
#provider = "openai"
#model = "openai/gpt-4.1*"
#tag = "team=search"
#session = "*"
#judge = false                   # true: only calls of the [judge]
#mode = "hard"
#unpriced = "allow"
#[budgets.everything]
#tokens = 10_000_000
#period = "day"

# `specclient serve`: Redis for the rate limits of keys when several workers, on one machine or many, share
# them (SPECCLIENT_REDIS_URL overrides it); needs the extra `redis`.
#[server]
#bodies_bytes = 1073741824       # of all request bodies that a process holds; beyond it status 429
#grace_s = 30                    # for running requests to end when the server stops
#head_s = 10.0                   # for the head of a request to arrive
#idle_s = 75                     # that a connection without a request stays open
#json_values = 400000            # in the JSON body of a request; more get status 400
#sockets = 200                   # open WebSockets of a process; more get status 429
#redis_url = "redis://127.0.0.1:6379/0"

# Limits of one request to the engine in this process, with a server or without; beyond one, status 400.
#[server.requests]
#choices = 1024                  # prompts x n
#prompt_logprobs = 250000        # prompt tokens x choices x alternatives, in one response
#embedding_inputs = 2048         # texts in one request for embeddings
#embedding_tokens = 300000       # tokens of all of them, and 32 times as many characters
#grammar_bytes = 131072
#grammar_rules = 1000            # or places that the "$ref" of a schema name
#grammar_nesting = 64            # brackets within each other
#grammar_chain = 256             # rules, or "$ref", each of which refers to the next
#grammar_alternatives = 2000     # of a rule, anyOf, enum, guided_choice, ...
#grammar_repetitions = 100000    # {m,n}, maxItems, ...; those within each other are multiplied
#grammar_s = 2.0                 # processor time to compile a grammar
#grammar_memory_bytes = 1073741824  # of the process that tries grammars out

# Draft and target models of specclient.speculative_decode(pair="mine"). The names "cost", "quality" and
# "balanced" replace the built-in pairs.
#[pairs.mine]
#draft = "deepseek/deepseek-chat"
#target = "anthropic/claude-sonnet-4-0"
#acceptance = 0.5      # measured, or by task: { code = 0.7 }; initial value of `auto`, as is cost_ratio

# Quality of models from 0 to 1, for min_quality: by route, or by prefix of the route.
#[quality]
#"openai/gpt-4.1-mini" = 0.7
#"local/" = 0.2

# A model that scores a sample of the answers to routed calls, in the background, as feedback for min_quality.
# It gets their prompts and answers, unless the call's policy excludes it. Its calls have the tag
# quality_judge=1; a call that may exceed the dollars of the day (UTC) is not made. rubric is its instruction.
#[judge]
#model = "openai/gpt-4.1-mini"
#share = 0.05
#usd_per_day = 1
#weight = 0.5                    # of a score; a caller's counts as 1
#max_tokens = 512                # of its answer
#rubric = "Grade the answer. End with a whole number from 0 to 10."

# The engine in this process. Its time costs device_cost_per_hour dollars (0.10 is assumed if unset), and its
# power, if watts is set, electricity_cost_per_kwh.
#[local]
#device_cost_per_hour = 0.10
#watts = 300
#electricity_cost_per_kwh = 0.30
#threads = 2
#slots = 4

# A local model, used as "local/big": checkpoint folders or hub ids; heads are Medusa, EAGLE or P-EAGLE heads.
# method is "auto", "plain", "draft", "ngram", "suffix", "layer_skip", "union", "medusa", "eagle", "peagle" or
# "mtp".
#[local.models.big]
#kind = "chat"
#path = "path-or-hub-id"
#draft = "path-or-hub-id"
#heads = "path-or-hub-id"
#method = "auto"
#dtype = "float32"
# Keys and values in pages, for many requests of different lengths on a CUDA device.
#kv_cache = "paged"
#cache_tokens = 100000
# LoRA adapters, used as "local/big:poems".
#adapters = { poems = "path-or-hub-id" }

# A model that a server on this machine serves, used as "local/served". engine is "vllm", "sglang",
# "llama.cpp" or "transformers", of the environment whose interpreter python names; with command, the kind of
# that server. It is started by the first call, stopped after keep_alive seconds without one, and shared by
# all programs.
#[local.models.served]
#kind = "chat"
#path = "path-or-hub-id"
#draft = "path-or-hub-id"
#method = "draft"
#dtype = "bfloat16"
#engine = "vllm"
#python = "~/envs/vllm/bin/python"
#arguments = ["--gpu-memory-utilization", "0.8"]
#env = { CUDA_VISIBLE_DEVICES = "0" }
#keep_alive = 600
#start_s = 1200
#served_name = "served"

# An embedding model, used as client.embeddings.create(model="local/mini"): a sentence-transformers
# checkpoint. prompt_name is the prompt of requests that name none; truncate cuts texts beyond the context.
#[local.models.mini]
#kind = "embedding"
#path = "path-or-hub-id"
#dtype = "float32"
#device = "auto"
#threads = 2
#context = 512
#prompt_name = "query"
#truncate = false

# A pair of models on several replicas of vLLM, used as "big/auto": specclient fleet deploy big. Replicas are
# a number, or the least and the greatest one; pools have different draft lengths, and a call goes to the
# fastest one. With accelerator, a replica has tp times pp GPUs; without, cpus processors.
#[fleets.big]
#path = "path-or-hub-id"
#draft = "path-or-hub-id"
#method = "auto"
#draft_length = 4
#context = 8192
#dtype = "bfloat16"
#slots = 64
#arguments = { gpu_memory_utilization = 0.8 }
#replicas = 1
#target_requests = 32
#tp = 1
#pp = 1
#cpus = 1
#gpus = 1
#accelerator = "H100"
#memory = "80GiB"
#device_cost_per_hour = 2.5
#python = "~/envs/vllm/bin/python"
#address = "local"
#url = "http://127.0.0.1:8000"
#metrics = []
#status = "http://head:8265/api/serve/applications/"
#prefix_blocks = 200000
#api_key_env = "FLEET_KEY"
#image = "vllm/vllm-openai"
#env = {}
#start_s = 1200
#prefixes = false
#[fleets.big.pools.short]
#draft_length = 0
#replicas = 2
#url = "http://short:8000/v1"
#each_address = false
#[fleets.big.pools.long]
#draft_length = 5
#replicas = [1, 4]
#urls = ["http://long-1:8000/v1", "http://long-2:8000/v1"]
#[fleets.big.pools.by-load]
#draft_lengths = { 1 = 5, 9 = 2, 33 = 0 }
"""
