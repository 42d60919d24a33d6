"""The objects that calls take and return, under the module paths of the OpenAI client."""

from specclient.types.call import Call
from specclient.types.completion import Completion, CompletionChoice
from specclient.types.model import Model
from specclient.types.route import Candidate, Decision, Policy
from specclient.types.usage import CompletionUsage, Cost, Speculation, Usage

__all__ = [
    "Call",
    "Candidate",
    "Completion",
    "CompletionChoice",
    "CompletionUsage",
    "Cost",
    "Decision",
    "Model",
    "Policy",
    "Speculation",
    "Usage",
]
