"""The requests of a file's lines, as the batch jobs of their providers have them."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import NamedTuple

from pydantic_core import from_json, to_json

from specclient.batch.jobs.vendor_apis import JobLine, VendorApi, api_of
from specclient.batch.lines import METHODS, BatchLine
from specclient.budgets.late_charges import JobBounds, LateCharges, LineBound
from specclient.call.answer_limit import limited_request
from specclient.client.core import ClientCore
from specclient.errors import ConfigurationError
from specclient.providers import Endpoint, dialect_of
from specclient.runtime.event_loop import run_in_thread

__all__ = ["LineGroup", "LineRequests", "PlacedLine"]

_URLS = {method.name: url for url, (method, _) in METHODS.items()}


class PlacedLine(NamedTuple):
    """A line with its place in a job.

    Attributes:
        key: the same for lines that may share a job.
        api: the batch API of its provider.
        provider: the name of the provider.
        request: as the job has it.
        bound: what budgets reserve for it; None if no hard budget counts it.
    """

    key: tuple[str, ...]
    api: VendorApi
    provider: str
    request: JobLine
    bound: LineBound | None


@dataclass(slots=True)
class LineGroup:
    """Lines that will be one job: requests, their bytes, their estimated dollars, the bounds of budgets."""

    api: VendorApi
    provider: str
    lines: list[BatchLine] = field(default_factory=list)
    requests: list[JobLine] = field(default_factory=list)
    size: int = 0
    reserved: Decimal = Decimal(0)
    bounds: JobBounds = field(default_factory=lambda: JobBounds({}))

    def is_full_for(self, placed: PlacedLine) -> bool:
        """Return whether a line would exceed the provider's limits of a job."""
        size = self.size + len(placed.request.body)
        return len(self.lines) >= self.api.most_lines or size > self.api.most_bytes

    def add(self, line: BatchLine, placed: PlacedLine, estimate: Decimal) -> None:
        """Add a line."""
        self.lines.append(line)
        self.requests.append(placed.request)
        self.reserved += estimate
        self.size += len(placed.request.body) + 256  # the line around it
        if placed.bound is not None:
            self.bounds.add(placed.bound)


@dataclass(frozen=True, slots=True)
class LineRequests:
    """Makes the requests of one client.

    Attributes:
        core: of the client.
        late: its budgets; None without any.
    """

    core: ClientCore
    late: LateCharges | None

    async def placed(self, line: BatchLine) -> PlacedLine:
        """Return the request of a line, with the limit of the answer that a hard budget reserves.

        Raises:
            ConfigurationError: the line's model is chosen by a policy, or its provider has no batch API.
        """
        request, pipeline = line.request, self.core.pipeline
        assert request is not None
        route = pipeline.router.named(request)
        if route is None:
            raise ConfigurationError(
                f"line {line.number} is routed ({request.model}), and a batch job needs a named model; pass "
                "-m provider/model"
            )
        api = api_of(self.core, route.provider)
        endpoint = pipeline.destinations.of_model(route.provider, route.model)
        assert isinstance(endpoint, Endpoint)
        url = _URLS[request.method.name]
        if not api.uniform and url != _URLS["chat.completions.create"]:
            raise ConfigurationError(f"line {line.number}: {route.provider} has no batch jobs for {url}")
        bound = None
        if self.late is not None:
            find = partial(self.late.line_bound, request, route, endpoint.price_provider)
            bound = await run_in_thread(find)
        if bound is not None:
            request = limited_request(request, bound.bound.limit, route.model)
        wire = dialect_of(endpoint).encode(request, endpoint, route.model)
        body = from_json(wire.content or b"{}")
        body.pop("stream", None)
        key = (route.provider, url, route.model) if api.uniform else (route.provider,)
        return PlacedLine(key, api, route.provider, JobLine(url, to_json(body)), bound)
