"""The ``options`` and the ``format`` of a request as parameters of a chat completion.

Options: https://github.com/ollama/ollama/blob/main/docs/modelfile.mdx#valid-parameters-and-values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from specclient.openai_http.errors import bad_request, shown
from specclient.types.inference_methods import CHAT, COMPLETION

__all__ = ["extra_fields", "format_params", "option_params"]

#: Options with the same meaning in a chat completion, by their names there.
_SAME = {
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}
#: Options that engines and many servers know beyond OpenAI's parameters.
_EXTRA = {
    "top_k": "top_k",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "repeat_penalty": "repetition_penalty",
}
#: How a model is loaded, and samplers that no destination has: accepted without effect.
_IDLE = frozenset(
    {"draft_num_predict", "embedding_only", "f16_kv", "logits_all", "low_vram", "main_gpu", "mirostat",
     "mirostat_eta", "mirostat_tau", "num_batch", "num_ctx", "num_gpu", "num_keep", "num_thread", "numa",
     "penalize_newline", "repeat_last_n", "tfs_z", "use_mlock", "use_mmap", "vocab_only"}
)  # fmt: skip
_KNOWN = frozenset({"num_predict", "stop", *_SAME, *_EXTRA, *_IDLE})
#: Names that have a meaning in OpenAI's API, and so would change the translated request.
_RESERVED = CHAT.params | COMPLETION.params


def option_params(options: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters of a chat completion, and its extra fields.

    Args:
        options: the value of ``options``; None without one.

    Further options, such as the engine's own (``draft_length``), are extra fields.

    Raises:
        ServingError: 400; the message names the option and what is allowed.
    """
    if options is None:
        return {}, {}
    if not isinstance(options, Mapping):
        raise bad_request("options", f"options is {shown(options)}; it must be an object")
    given = {name: value for name, value in options.items() if value is not None}
    unknown = extra_fields({name: given[name] for name in given if name not in _KNOWN}, _KNOWN)
    params = {_SAME[name]: given[name] for name in given if name in _SAME}
    if "num_predict" in given:
        params |= _longest(given["num_predict"])
    if "stop" in given:
        params |= _stop(given["stop"])
    return params, {_EXTRA[name]: given[name] for name in given if name in _EXTRA} | unknown


def extra_fields(unknown: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return names that Ollama's API does not have, which the engine or the provider gets as they are.

    Args:
        unknown: the names and their values.
        known: the names that the API has, for errors.

    Raises:
        ServingError: 400, a name has a meaning in OpenAI's API.
    """
    for name in unknown:
        if name in _RESERVED:
            raise bad_request(
                name, f"{name} is a field of OpenAI's API; allowed here are {', '.join(sorted(known))}"
            )
    return dict(unknown)


def format_params(form: object) -> dict[str, Any]:
    """Return the response format of a chat completion.

    Args:
        form: the value of ``format``: ``json``, a JSON schema, or nothing.

    Raises:
        ServingError: 400, it is anything else.
    """
    if form is None or form == "":
        return {}
    if form == "json":
        return {"response_format": {"type": "json_object"}}
    if isinstance(form, dict):
        named = {"name": "output", "schema": form}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    raise bad_request("format", f"format is {shown(form)}; it must be 'json' or a JSON schema")


def _longest(most: object) -> dict[str, Any]:
    """Return the maximum length of the answer; negative numbers stand for no maximum."""
    if isinstance(most, bool) or not isinstance(most, int):
        raise bad_request(
            "options.num_predict",
            f"option 'num_predict' is {shown(most)}; it must be the maximum number of tokens to generate",
        )
    return {"max_tokens": most} if most >= 0 else {}


def _stop(stop: object) -> dict[str, Any]:
    found = [stop] if isinstance(stop, str) else stop
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise bad_request("options.stop", f"option 'stop' is {shown(stop)}; it must be a string or an array")
    return {"stop": found} if found else {}
