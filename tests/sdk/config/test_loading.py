"""Settings: the precedence of their sources, and the error messages for wrong files, keys and values."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from specclient import ConfigurationError, Policy
from specclient.config import DEFAULT_DEVICE_COST_PER_HOUR, FILE_NAME, Settings, load, search_path
from specclient.config.price_settings import PriceSettings
from specclient.prices.media_prices import MEDIA_PRICES
from specclient.prices.tool_prices import TOOL_PRICES

GOOD = """
default_model = "mine/llama"
candidates = ["mine/llama"]
[providers.mine]
base_url = "http://127.0.0.1:9/v1"
api_key = "sk-secret"
[prices."mine/llama"]
input = 0.1
output = "0.4"
[policies.fast]
minimize = "latency"
max_latency_s = 2
[local]
device_cost_per_hour = 0.5
[local.models.big]
path = "somewhere"
draft = ["one", "other"]
quantize = "int8"
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / FILE_NAME
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_need_no_file(tmp_path: Path) -> None:
    settings = load(cwd=tmp_path, env={})
    assert settings == Settings()
    assert settings.source is None
    assert settings.local.device_cost_per_hour is None
    assert DEFAULT_DEVICE_COST_PER_HOUR > 0


def test_arguments_override_the_environment_the_file_and_defaults_in_this_order(tmp_path: Path) -> None:
    _write(tmp_path, GOOD + "")
    env = {"SPECCLIENT_MODEL": "from/env", "SPECCLIENT_LEDGER": "off"}
    assert load(cwd=tmp_path, env={}).default_model == "mine/llama"
    assert load(cwd=tmp_path, env=env).default_model == "from/env"
    settings = load(cwd=tmp_path, env=env, default_model="from/argument", ledger=None)
    assert (settings.default_model, settings.ledger) == ("from/argument", "off")
    assert settings.default_provider == "openai"


def test_every_table_of_the_file_is_loaded_and_keys_are_hidden(tmp_path: Path) -> None:
    path = _write(tmp_path, GOOD)
    settings = load(path, env={})
    assert settings.source == path
    assert settings.prices["mine/llama"].output == Decimal("0.4")
    assert settings.policy_named("fast") == Policy(minimize="latency", max_latency_s=2)
    big = settings.local.models["big"]
    assert (big.path, big.draft) == ("somewhere", ("one", "other"))
    assert big.model_dump()["quantize"] == "int8", "options that the engine checks are passed to it unchanged"
    assert "sk-secret" not in repr(settings)
    assert "sk-secret" not in settings.model_dump_json()


@pytest.mark.parametrize("text", ["", 'default_model = "local/demo"\n', "[local]\nslots = 2\n"])
def test_settings_name_the_file_that_was_loaded(tmp_path: Path, text: str) -> None:
    file = tmp_path / "specclient.toml"
    file.write_text(text)
    assert load(file, env={}).source == file
    assert load(env={}, cwd=tmp_path / "elsewhere").source is None


def test_the_search_path_is_the_variable_or_the_working_and_user_folders(tmp_path: Path) -> None:
    assert search_path({"SPECCLIENT_CONFIG": "/a/b.toml"}, tmp_path) == [Path("/a/b.toml")]
    here, user = search_path({}, tmp_path)
    assert here == tmp_path / FILE_NAME
    assert user.name == FILE_NAME
    user.parent.mkdir(parents=True)
    user.write_text('default_model = "user/m"')
    assert load(cwd=tmp_path, env={}).default_model == "user/m"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("default_model = ", "not valid TOML"),
        ("defalt_model = 'x'", "unknown setting 'defalt_model'"),
        ("candidates = 'x'", "candidates is 'x'"),
        ("transport = 'curl'", "transport is 'curl'.*'aiohttp' or 'httpx'"),
        ("[prices.'a/b']\ninput = -1\noutput = 1", "prices.a/b.input is -1.*greater than or equal to 0"),
        ("[prices.'a/b']\ninput = nan\noutput = 1", "prices.a/b.input"),
        ("[prices.'a/b']\ninput = 'cheap'\noutput = 1", "prices.a/b.input is 'cheap'"),
        ("[prices.'a/b']\ninput = 1", "prices.a/b.output is required: a price has input and output"),
        ("[prices.'a/b']\noutput = 1\nper_call = 1", "prices.a/b.input is required"),
        ("[prices.'a/b']\ncached_input = 1", "prices.a/b.input is required"),
        ("[prices.'a/b']\nper_call = 1\nreasoning = 1", "prices.a/b.input is required"),
        ("[prices.'a/b']", "prices.a/b.input is required"),
        ("[prices.'a/b']\nper_call = -1", "prices.a/b.per_call is -1"),
        ("[prices.'a/b']\nper_gpu_second = inf", "prices.a/b.per_gpu_second is inf"),
        ("[prices.'a/b']\nper_call = true", "prices.a/b.per_call is True"),
        ("[prices.'a/b']\nper_token = 1", "unknown setting 'prices.a/b.per_token'"),
        ("[prices.gpt]\nper_call = 1", "prices: 'gpt' is not a route; write 'provider/model'"),
        ("[prices.'a/*b']\nper_call = 1", r"prices: 'a/\*b' is not a route"),
        ("[prices.'a/']\nper_call = 1", "prices: 'a/' is not a route"),
        (
            "[prices.'a/*']\nunits = {pages = 1}",
            r"prices.a/\*.units: 'pages' is not a unit that is billed; allowed are annotated_page, .* page,",
        ),
        ("[judge]\nmodel = 'auto'", "judge.model: 'auto' is not a route; write 'provider/model'"),
        ("[judge]\nmodel = 'openai/'", "judge.model: 'openai/' is not a route"),
        ("[local]\nwatts = 300", "local.electricity_cost_per_kwh is required"),
        ("[local]\nelectricity_cost_per_kwh = 0.3", "local.watts is required"),
        ("[local]\nwatts = -1\nelectricity_cost_per_kwh = 0.3", "local.watts is -1"),
        ("[local]\nslots = 0", "local.slots is 0"),
        ("[local]\ndevice_cost_per_hour = -0.1", "device_cost_per_hour is -0.1"),
        ("[policies.p]\nminimize = 'risk'", "policy.minimize is 'risk'.*'cost', 'latency'"),
        ("[policies.p]\nmax_latency_s = -2", "policy.max_latency_s is -2"),
        ("[policies.p]\nmax_cost_usd = nan", "policy.max_cost_usd is nan"),
        ("[providers.x]\napi_key = 5\nbase_url='http://h'", "providers.x.api_key"),
    ],
)
def test_an_invalid_setting_raises_an_error_that_names_it(tmp_path: Path, text: str, message: str) -> None:
    path = _write(tmp_path, text)
    with pytest.raises(ConfigurationError, match=message) as caught:
        load(path, env={})
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value).strip() or "TOML" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "[providers.x]\nbase_url = 'http://h'\napi_key = ['sk-secret']",
        "[[providers.openai]]\napi_key = 'sk-secret'",
        "[providers]\nopenai = 'sk-secret'",
        "[providers.x]\nheaders = 'Bearer sk-secret'",
        "[providers.x]\nheaders = {Authorization = ['sk-secret']}",
        "ledger = ['postgresql://me:sk-secret@h/db']",
    ],
)
def test_error_messages_do_not_quote_secrets(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(_write(tmp_path, text), env={})
    assert "sk-secret" not in str(caught.value)
    assert "type" in str(caught.value)


def test_the_repr_of_settings_hides_secrets(tmp_path: Path) -> None:
    text = "ledger = 'postgresql://me:sk-secret@h/db'\n[providers.x]\nheaders = {Authorization = 'sk-secret'}"
    assert "sk-secret" not in repr(load(_write(tmp_path, text), env={}))


def test_missing_and_undecodable_files_raise_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no configuration file at .*gone\.toml.*config init"):
        load(tmp_path / "gone.toml", env={})
    with pytest.raises(ConfigurationError, match="no configuration file at"):
        load(env={"SPECCLIENT_CONFIG": str(tmp_path / "gone.toml")}, cwd=tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"default_model = '\xe9'")
    with pytest.raises(ConfigurationError, match=r"cannot read .*latin"):
        load(tmp_path / "latin.toml", env={})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"minimize": "risk"}, "minimize is 'risk'"),
        ({"max_latency_s": float("nan")}, "max_latency_s is nan"),
        ({"max_cost_usd": -1}, "max_cost_usd is -1"),
        ({"max_cost_usd": "1"}, "max_cost_usd is '1'"),
        ({"allow": "local/"}, "allow is 'local/'.*list"),
    ],
)
def test_a_policy_validates_its_fields(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Policy(**fields)  # type: ignore[arg-type]


def test_every_unit_that_has_a_price_can_be_configured() -> None:
    kinds = {kind for price in (*TOOL_PRICES, *MEDIA_PRICES) for kind in price.units}
    PriceSettings.model_validate({"units": dict.fromkeys(kinds, 1)})
    assert {kind.partition(" ")[0] for kind in kinds} > {"code_container", "image", "search_unit"}
