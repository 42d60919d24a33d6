"""The specclient.toml that ``specclient config init`` writes: every setting, explained, commented out."""

TEMPLATE = """\
# specclient's configuration. Arguments and environment variables stand over it; `specclient config show`
# tells what holds and where it comes from, `specclient config check` what is wrong.
# A line that begins with "# " is explanation; take the "#" off a line that begins with "#name" to set it.

# Whose a bare model name is: "gpt-4.1" means "openai/gpt-4.1".
#default_provider = "openai"

# What the command line asks where no model is named (SPECCLIENT_MODEL stands over it).
#default_model = "local/demo"

# What model = "auto" chooses among, in order of preference.
#candidates = ["local/demo", "local/demo-target", "openai/gpt-4.1-nano", "openai/gpt-4.1-mini"]

# Whether parameters that an endpoint cannot express are left out; otherwise they are refused before sending.
#drop_params = false

# Where calls are recorded: a path, a database URL, or "off" (SPECCLIENT_LEDGER stands over it).
#ledger = "~/specclient-ledger.sqlite3"

# "batch": calls do not wait for the ledger, which is written within half a second; "sync": they return when
# their row is on the disk. SPECCLIENT_LEDGER_DURABILITY stands over it.
#ledger_durability = "batch"

# "aiohttp", or "httpx" for tests that mock httpx (SPECCLIENT_TRANSPORT stands over it).
#transport = "aiohttp"

# The most connections that a client may hold at once; further requests wait for one. Each needs an open file.
#connections = 1000

# A provider of your own, used as "mine/MODEL": anything that speaks OpenAI's API, Anthropic's or Gemini's
# (dialect = "anthropic", "gemini"). The same table with the name of a known provider (`specclient models`)
# changes that one. Keys are best left in the environment; key_header = "x-api-key" sends one by itself.
#[providers.mine]
#base_url = "http://127.0.0.1:8000/v1"
#dialect = "openai"
#api_key_env = "MINE_API_KEY"
#key_header = "authorization"
#models = ["llama"]
#stream_usage = true
#metrics = false                                  # true reads its Prometheus counters around each call

# What it exposes of speculation, as far as you know; `specclient models probe mine/llama` finds out more.
# prefill is "assistant", "prefix", "continue_final_message", "completions" or false; verification is
# "prompt_logprobs", "echo", "echo_last", "sglang", "tgi" or false.
#[providers.mine.capabilities]
#prediction = true
#prefill = "continue_final_message"
#verification = "prompt_logprobs"

# Your own prices, in US dollars per million tokens; they stand over the catalogue. "mine/*" is for all
# models without a table. A part without a price costs what its whole does: cached and written tokens as
# input, reasoning and a prediction's rejected tokens as output. per_call, and per_gpu_second for each second
# of work, are dollars, beside tokens or in their place. `specclient cost prices` shows what holds.
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

# What a deployment takes, where its own headers do not tell; callers wait in order.
#[limits."mine/llama"]
#requests_per_minute = 60
#tokens_per_minute = 100000
#concurrent = 8

# A deployment that fails so many tries in a row, for so long, is left alone for up to rest_s seconds.
# circuit = false (at the top of the file) sends on all the same.
#[circuit]
#failures = 5
#lasting_s = 10
#rest_s = 30

# Policies by name: --policy fast, or policy="fast". minimize is "cost", "latency", or what a dollar and a
# second weigh: { cost = 1, latency = 0.002 }. Limits of time are kept by the percentile of calls.
#[policies.fast]
#minimize = "latency"
#max_cost_usd = 0.01
#max_latency_s = 10
#max_ttft_s = 1
#percentile = 0.95
#min_quality = 0.5
#limits = {}                        # on criteria that a program adds: { max_co2_g = 0.5 }
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

# What calls may cost (usd) or use (tokens), in all or by the "day" or "month" of UTC: of all calls, or of
# those that fit provider, model ("openai/gpt-4.1", "openai/*"), tag and session; "team=*" and "*" give each
# value the limit to itself. A "hard" budget refuses a call that may not fit, before it is sent; a "soft" one
# warns at 50, 80 and 100 %. unpriced = "refuse" refuses models without a price, which "allow" counts as
# nothing. Whatever shares the ledger shares them; `specclient cost budget` shows them.
#[budgets.team]
#usd = 5
#period = "month"
#provider = "openai"
#model = "openai/gpt-4.1*"
#tag = "team=search"
#session = "*"
#mode = "hard"
#unpriced = "allow"
#[budgets.everything]
#tokens = 10_000_000
#period = "day"

# `specclient serve`: where several workers, on one machine or many, share what keys use of their limits
# (SPECCLIENT_REDIS_URL stands over it); needs the extra `redis`.
#[server]
#redis_url = "redis://127.0.0.1:6379/0"

# Models that work together in specclient.speculative_decode(pair="mine"), or in the place of a pair of its
# own: "cost", "quality" or "balanced".
#[pairs.mine]
#draft = "deepseek/deepseek-chat"
#target = "anthropic/claude-sonnet-4-0"
#acceptance = 0.5      # measured, or by task: { code = 0.7 }; `auto` begins with it, as with cost_ratio

# How good models are, from 0 to 1, for min_quality: by route, or by what it begins with.
#[quality]
#"openai/gpt-4.1-mini" = 0.7
#"local/" = 0.2

# The engine in this process. Its time is priced at device_cost_per_hour (an assumed 0.10 until you set it),
# and what it draws meanwhile, if you tell, at your price of electricity.
#[local]
#device_cost_per_hour = 0.10
#watts = 300
#electricity_cost_per_kwh = 0.30
#threads = 2
#slots = 4

# A local model, used as "local/big": checkpoint folders or hub ids; heads are Medusa's or EAGLE's. method is
# "auto", "draft" or "plain".
#[local.models.big]
#path = "path-or-hub-id"
#draft = "path-or-hub-id"
#heads = "path-or-hub-id"
#method = "auto"
#dtype = "float32"
"""
