"""The stages of ``gpu.py``, for one model and one plan."""

from __future__ import annotations

import statistics
import time

import torch
from gpu_heads import eagle_speculator
from gpu_measures import Plan, Results, Row, bandwidth, machine, theory, timed, wait
from gpu_pages import page_rows
from specclient_local.decoding.device_speculate import DeviceSpeculator
from specclient_local.decoding.round_entry import RoundResult
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.loading.device_calibration import DeviceCalibration
from specclient_local.model.cuda_graphs.static_runner import StaticRunner
from specclient_local.model.pass_input import SlotInput
from specclient_local.request.params import Method, SamplingParams
from specclient_local.request.sequence import PredictionProgress, RandomStream, SpeculationCounts
from specclient_local.request.sequence import Sequence as Request
from synthetic import LLAMA_8B, TINY, Pair, Peer, random_weights, requantized, runner, size_in_bytes

from specclient.errors import ConfigurationError

LOW_ACCEPTANCE = 0.3
"""An acceptance rate at which drafts hardly pay off, beside those of the plan."""

EAGLE_ACCEPTANCE = 0.75
"""The acceptance rate at which the speed-up by an EAGLE-3 head is stated."""


class Bench:
    """The stages, for one model and one plan.

    Attributes:
        settings: sampling parameters of all requests, beside the temperature.
    """

    def __init__(self, plan: Plan, results: Results, *, tiny: bool) -> None:
        self.plan, self.results = plan, results
        self.config = TINY if tiny else LLAMA_8B
        results.figures["machine"] = machine(plan)
        self.weights = random_weights(self.config, plan.dtype, plan.device)
        slots, context = max(plan.batches), plan.context
        self.pair = Pair(self.config, self.weights, plan.lower, slots=slots, context=context)
        generator = torch.Generator().manual_seed(0)
        drawn = torch.randint(self.config.vocab_size, (slots, plan.prompt), generator=generator)
        self.prompts: list[list[int]] = drawn.tolist()
        drafter = DraftModel(self.pair.draft, self.config.vocab_size)
        self.speculator = DeviceSpeculator(self.pair.target, {"draft": drafter})
        self.settings: Row = {}

    def plain(self) -> None:
        """Time batch size 1 without drafts: whole rounds, and passes of the device alone."""
        memory = bandwidth(self.plan)
        figures = self.decode(1, 0, temperature=0.0)
        alone = self.seconds_a_pass(self.pair.target, 1)
        read = size_in_bytes(self.weights) + self._cache_bytes()
        self.results.add(
            "plain",
            {
                "memory_bytes_per_s": memory,
                "bytes_a_token": read,
                "tokens_per_s": figures["tokens_per_s"],
                "share_of_memory": read / figures["seconds_a_round"] / memory,
                "share_of_memory_on_device": read / alone / memory,
            },
        )

    def free(self) -> None:
        """Time rounds with known draft tokens, which show the additional cost of verification."""
        base = self.decode(1, 0, temperature=0.0)
        longest = (self.plan.rounds + self.plan.warm) * (max(self.plan.depths) + 1)
        answer = self.answer(longest)
        for depth in self.plan.depths:
            taken = self.decode(1, depth, temperature=0.0, known=answer)
            self.results.add(
                "free",
                {
                    "depth": depth,
                    "overhead": taken["seconds_a_round"] / base["seconds_a_round"] - 1.0,
                    "tokens_a_round": taken["tokens"] / taken["rounds"],
                    "tokens_per_s": taken["tokens_per_s"],
                    "speed_up": taken["tokens_per_s"] / base["tokens_per_s"],
                },
            )

    def batches(self) -> None:
        """Time plain greedy rounds by batch size."""
        for batch in self.plan.batches:
            taken = self.decode(batch, 0, temperature=0.0)
            row = {"batch": batch, "tokens_per_s": taken["tokens_per_s"]}
            row |= {"host_share": 1.0 - self.replay_seconds() / taken["seconds_a_round"]}
            self.results.add("batches", row)

    def eagle(self) -> None:
        """Time rounds of an EAGLE-3 head, for one request and for several."""
        slots = self.plan.batches[min(1, len(self.plan.batches) - 1)]
        own = eagle_speculator(self.config, self.weights, slots=slots, context=self.plan.context)
        for batch in (1, slots):
            base = self.decode(batch, 0, temperature=0.0, speculator=own)["seconds_a_round"]
            for depth in self.plan.depths:
                taken = self.decode(batch, depth, temperature=0.0, speculator=own, method="eagle")
                ratio = taken["seconds_a_round"] / base
                self.results.add(
                    "eagle",
                    {
                        "batch": batch,
                        "depth": depth,
                        "round_ms": 1e3 * taken["seconds_a_round"],
                        "step_cost": (ratio - 1.0) / depth,
                        "speed_up_at_0.75": theory(EAGLE_ACCEPTANCE, depth, 0.0) / ratio,
                    },
                )

    def pages(self) -> None:
        """Time rounds and prompts over pages, relative to a contiguous cache, in turns."""
        for row in page_rows(self):
            self.results.add("pages", row)

    def grid(self) -> None:
        """Time pairs with several acceptance rates, by draft length and batch size."""
        for wanted in self.plan.acceptances:
            if self.results.time_is_up:
                self.results.figures["grid"]["not_run"] = f"from acceptance {wanted} on: no time was left"
                return
            share = self.calibrate(wanted)
            for batch in self.plan.batches:
                cost = self.seconds_a_pass(self.pair.draft, batch) / self.seconds_a_pass(
                    self.pair.target, batch
                )
                base = self.decode(batch, 0)["tokens_per_s"]
                for depth in self.plan.depths:
                    if self.results.time_is_up:
                        break
                    taken = self.decode(batch, depth)
                    alpha, speed_up = _acceptance(taken), taken["tokens_per_s"] / base
                    form = theory(alpha, depth, cost)
                    row = {
                        "wanted": wanted,
                        "share": share,
                        "batch": batch,
                        "depth": depth,
                        "acceptance": alpha,
                        "cost": cost,
                        "tokens_a_round": taken["tokens"] / taken["rounds"] / batch,
                        "tokens_per_s": taken["tokens_per_s"],
                        "speed_up": speed_up,
                        "closed_form": form,
                        "of_closed_form": speed_up / form,
                    }
                    self.results.add("grid", row)

    def policy(self) -> None:
        """Time draft lengths that follow measured costs and acceptance, relative to plain rounds."""
        slots = max(self.plan.batches)
        self.decode(slots, 1, forget=True)  # frees all slots, which the calibration uses
        costs = DeviceCalibration(self.pair.target, slots).draft(self.pair.draft)
        drafter = DraftModel(self.pair.draft, self.config.vocab_size)
        own = DeviceSpeculator(self.pair.target, {"draft": drafter}, {"draft": costs})
        for wanted in (LOW_ACCEPTANCE, *self.plan.acceptances):
            if self.results.time_is_up:
                self.results.figures["policy"]["not_run"] = f"from acceptance {wanted} on: no time was left"
                return
            self.calibrate(wanted)
            for batch in self.plan.batches:
                self.decode(batch, None, speculator=own)  # records the lengths that occur
                base, taken = self.decode(batch, 0), self.decode(batch, None, speculator=own)
                speed_up = taken["tokens"] / taken["seconds"] / (base["tokens"] / base["seconds"])
                row = {"acceptance": wanted, "batch": batch, "speed_up": speed_up}
                row |= {"tokens_a_round": taken["tokens"] / taken["rounds"] / batch}
                self.results.add(
                    "policy", row | {"drafted_a_round": taken["drafted"] / taken["rounds"] / batch}
                )

    def peer(self) -> None:
        """Time transformers on the same pairs, one request."""
        peer = Peer(self.config, self.weights, self.plan.lower)
        for wanted in self.plan.acceptances:
            share = self.calibrate(wanted)
            for depth in (0, 4):
                if self.results.time_is_up:
                    self.results.figures["peer"]["not_run"] = f"from acceptance {wanted} on: no time was left"
                    return
                peer.generate(self.prompts[0], 8, depth)
                wait(self.plan)
                begun = time.perf_counter()
                tokens = peer.generate(self.prompts[0], self.plan.new, depth)
                wait(self.plan)
                row = {"wanted": wanted, "share": share, "depth": depth}
                self.results.add("peer", row | {"tokens_per_s": tokens / (time.perf_counter() - begun)})

    def quantized(self) -> None:
        """Time the plain target with quantized weights, without a draft and with a separate cache."""
        for kind in ("fp8", "int8", "int4"):
            if kind != "int8" and self.plan.device == "cpu":
                continue
            try:
                weights = requantized(self.weights, kind)
            except ConfigurationError as error:  # no torchao
                self.results.add("quantized", {"kind": kind, "not_run": str(error)})
                continue
            target = runner(self.config, weights, 1, self.plan.context)
            taken = self.decode(1, 0, temperature=0.0, speculator=DeviceSpeculator(target))
            bytes_read = size_in_bytes(weights) + self._cache_bytes()
            row = {"kind": kind, "bytes_a_token": bytes_read, "tokens_per_s": taken["tokens_per_s"]}
            self.results.add("quantized", row | {"bytes_per_s": bytes_read / taken["seconds_a_round"]})

    def decode(
        self,
        batch: int,
        depth: int | None,
        *,
        temperature: float = 1.0,
        known: list[int] | None = None,
        speculator: DeviceSpeculator | None = None,
        method: Method = "draft",
        forget: bool = False,
    ) -> Row:
        """Time rounds of a batch after its prefill.

        Args:
            batch: number of requests; they use the first prompts.
            depth: drafted tokens per round; None for the policy of the speculator.
            temperature: sampling temperature of all requests.
            known: the draft tokens, instead of those of the draft model.
            speculator: the speculator of another target.
            method: the method of requests that draft.
            forget: whether to drop the cached prompts afterwards.
        """
        speculator = speculator or self.speculator
        requests = [self.request(slot, depth, temperature, known, method) for slot in range(batch)]
        for request in requests:
            while not speculator.prefill(request):
                pass
        seconds: list[float] = []
        tokens = 0
        for turn in range(self.plan.warm + self.plan.rounds):
            if turn == self.plan.warm:
                tokens = 0
                for request in requests:
                    request.counts = SpeculationCounts()
            begun = time.perf_counter()
            outcomes = speculator.round(requests)
            seconds.append(time.perf_counter() - begun)
            for request, outcome in zip(requests, outcomes, strict=True):
                if not isinstance(outcome, RoundResult):
                    raise outcome
                tokens += len(outcome.tokens)
                for token in outcome.tokens:
                    request.take(token)
        for request in requests:
            speculator.end(request, broken=forget)
        timed = seconds[self.plan.warm :]
        return {
            "rounds": len(timed),
            "tokens": tokens,
            "seconds": sum(timed),
            "seconds_a_round": statistics.median(timed),
            "tokens_per_s": tokens / len(timed) / statistics.median(timed),
            "accepted": sum(request.counts.accepted for request in requests),
            "drafted": sum(request.counts.drafted for request in requests),
            # All drafts have the same length: a round accepts its last draft token or rejects one.
            "refused": sum(r.counts.reached[-1] - r.counts.kept[-1] for r in requests if depth),
        }

    def replay_seconds(self, count: int = 20) -> float:
        """Return the device's seconds per run of the last round's recording, without the host's work."""
        latest = self.speculator.device_rounds.latest
        assert latest is not None
        return timed(torch.inference_mode()(latest), count, self.plan)

    def request(
        self,
        slot: int,
        depth: int | None,
        temperature: float,
        known: list[int] | None,
        drafts: Method = "draft",
    ) -> Request:
        """Return a request of the benchmark; it uses the prompt of its slot."""
        settings = {"temperature": temperature, **self.settings}
        params = SamplingParams(**settings, max_tokens=None, draft_length=depth)
        method: Method = "prediction" if known is not None else "plain" if depth == 0 else drafts
        return Request(
            id=slot,
            tokens=list(self.prompts[slot]),
            prompt_tokens=self.plan.prompt,
            params=params,
            method=method,
            limit=self.plan.context - self.plan.prompt,
            eos=frozenset(),
            random=RandomStream(slot),
            prediction=None if known is None else PredictionProgress(list(known)),
            slot=slot,
        )

    def prefill_seconds(self, target: StaticRunner, tokens: int) -> float:
        """Return the seconds of reading a prompt, the least of three."""
        seconds: list[float] = []
        for _ in range(3):
            target.truncate(0, 0)
            wait(self.plan)
            begun = time.perf_counter()
            target.prefill(0, [1] * tokens)
            wait(self.plan)
            seconds.append(time.perf_counter() - begun)
        target.truncate(0, 0)
        return min(seconds)

    def answer(self, count: int) -> list[int]:
        """Return the first prompt's greedy answer."""
        request = self.request(0, 0, 0.0, None)
        while not self.speculator.prefill(request):
            pass
        while len(request.new_tokens) < min(count, request.limit):
            (outcome,) = self.speculator.round([request])
            assert isinstance(outcome, RoundResult)
            request.take(outcome.tokens[0])
        self.speculator.end(request)
        return request.new_tokens

    def calibrate(self, wanted: float) -> float:
        """Set the scale of the upper layers that gives an acceptance rate, by bisection; return it."""
        low, high = 0.0, 1.0
        for _ in range(self.plan.steps):
            middle = (low + high) / 2
            self.pair.scale_upper_layers(middle)
            measured = _acceptance(self.decode(self.plan.sampled, 1, forget=True))
            low, high = (middle, high) if measured > wanted else (low, middle)
        self.pair.scale_upper_layers((low + high) / 2)
        return (low + high) / 2

    def _cache_bytes(self) -> int:
        """Return the bytes of keys and values that a row reads: all positions of its bucket."""
        c, length = self.config, self.pair.target.attended(self.plan.prompt)
        return 2 * c.layers * c.kv_heads * c.head_dim * length * self.weights.embedding.element_size()

    def seconds_a_pass(self, model: StaticRunner, batch: int, count: int = 40) -> float:
        """Return the device's seconds per pass with one row per request."""
        parts = [SlotInput(slot, [0]) for slot in range(batch)]

        def run() -> None:
            for slot in range(batch):
                model.assume_length(slot, self.plan.prompt - 1)
            model.score_all(parts)

        return timed(run, count, self.plan)


def _acceptance(taken: Row) -> float:
    """Return the probability that a draft token is accepted if all before it were."""
    tries = taken["accepted"] + taken["refused"]
    return float(taken["accepted"] / tries) if tries else 0.0
