"""The wire dialect of Amazon Bedrock's Converse API.

https://docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference.html
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from specclient.errors import NotFoundError
from specclient.providers.bedrock.params import converse_body
from specclient.providers.bedrock.regions import control_url
from specclient.providers.bedrock.response import completion_of
from specclient.providers.bedrock.stream import ConverseStreamReader
from specclient.providers.dialects import EventReader
from specclient.providers.encoding import json_of
from specclient.providers.endpoint import Endpoint
from specclient.providers.errors import embedded_error_of, invalid_response_error
from specclient.providers.openai.dialect import OpenAIDialect
from specclient.providers.usage import usage_of
from specclient.types.api_method import ApiMethod
from specclient.types.chat import ChatCompletion
from specclient.types.model import Model
from specclient.types.request import PerCallOptions, Request
from specclient.types.usage import Usage
from specclient.types.wire import FRAMES_TYPE, WireRequest, WireResponse

_CHAT = "chat.completions.create"
_CONVERSE = ApiMethod(name="converse.create", verb="POST", path="/model")
_LISTED = ApiMethod(name="models.list", verb="GET", path="/foundation-models")
_RETRIEVED = replace(_LISTED, name="models.retrieve", path="/foundation-models/{model}")
_MODELS = {"models.list": _LISTED, "models.retrieve": _RETRIEVED}


class BedrockDialect:
    """The wire dialect of Bedrock's Converse API; see :class:`specclient.providers.Dialect`.

    It supports chats and the list of foundation models. A call by path
    (``client.post("/model/MODEL/count-tokens", …)``) and its response are not translated.

    Args:
        clock: returns Unix seconds, for ``created``; the answers have no creation time.
        new_id: returns an id for an answer, which has none.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: f"chatcmpl-{uuid.uuid4().hex}",
    ) -> None:
        self._clock = clock
        self._new_id = new_id
        self._http = OpenAIDialect()  # for URLs, keys and all methods except chat

    def encode(self, request: Request, endpoint: Endpoint, model: str) -> WireRequest:
        method = request.method
        if method.name == _CHAT:
            return self._converse(request, endpoint, model)
        if method.name in _MODELS:
            places = {"model": str(request.path_params.get("model", ""))}
            request = replace(request, method=_MODELS[method.name], path_params=places)
            endpoint = replace(endpoint, base_url=control_url(endpoint.base_url))
        elif "." in method.name:  # a call by path has none
            raise NotFoundError(
                f"provider {endpoint.name!r} speaks Bedrock's Converse API, which serves "
                f"chat.completions.create and models alone, not {method.name}; name another provider's model "
                "for it"
            )
        return self._http.encode(request, endpoint, model)

    def _converse(self, request: Request, endpoint: Endpoint, model: str) -> WireRequest:
        # As in botocore: colons and slashes of a model's name are escaped, which the signature covers.
        path = f"/model/{quote(model, safe='~')}/converse{'-stream' if request.stream else ''}"
        wire = self._http.encode(
            replace(
                request,
                method=replace(_CONVERSE, path=path),
                stream=False,  # the path states it
                params={},
                path_params={},
                content=json_of(converse_body(request, endpoint, model)),
                options=replace(request.options, body={}),
            ),
            endpoint,
            model,
        )
        if not request.stream:
            return wire
        return replace(wire, headers={**wire.headers, "accept": FRAMES_TYPE})

    def decode(self, method: ApiMethod, reply: WireResponse) -> Any:
        kind = method.response_type
        if method.name == _CHAT and isinstance(kind, type) and issubclass(kind, ChatCompletion):
            return self._completion(kind, reply)
        if method.name in _MODELS:
            return self._http.decode(method, replace(reply, content=_as_models(reply.content)))
        return self._http.decode(method, reply)

    def events(self, method: ApiMethod) -> EventReader:
        if method.name == _CHAT:
            return ConverseStreamReader(int(self._clock()), self._new_id())
        return self._http.events(method)

    def usage(self, answer: Any) -> Usage | None:
        return usage_of(answer)

    def encode_models(self, endpoint: Endpoint) -> WireRequest:
        return self.encode(Request(_LISTED, options=PerCallOptions()), endpoint, "")

    def decode_models(self, reply: WireResponse) -> list[Model]:
        return self._http.decode_models(replace(reply, content=_as_models(reply.content)))

    def _completion(self, kind: type[ChatCompletion], reply: WireResponse) -> ChatCompletion:
        """Decode an answer into a chat completion.

        Raises:
            APIResponseValidationError: the response is not an answer.
            APIError: the response is an error.
        """
        try:
            fields = completion_of(json.loads(reply.content), int(self._clock()), self._new_id())
            return kind.with_defaults(**fields)
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
            reason = f"{type(error).__name__}, where an answer with a message of content blocks belongs"
        # Raised outside the except block, so that its __context__ is not the error that holds the response.
        failure = embedded_error_of(reply.content) or invalid_response_error(
            reply.content, reply.status, reason
        )
        reply.secrets().clean(failure)
        failure.attempts = reply.attempts
        raise failure


def _as_models(content: bytes) -> bytes:
    """Return Bedrock's model, or list of models, as OpenAI's."""
    try:
        body = json.loads(content)
        if "modelDetails" in body:
            return json_of(_as_model(body["modelDetails"]))
        return json_of({"object": "list", "data": [_as_model(row) for row in body["modelSummaries"]]})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return content  # not a list of models, or an error: reported by the decoder


def _as_model(row: Mapping[str, Any]) -> dict[str, Any]:
    owner = row.get("providerName") or "bedrock"
    return {**row, "id": row["modelId"], "object": "model", "created": 0, "owned_by": owner}
