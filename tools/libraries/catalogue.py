"""The libraries that are checked, one row each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class CheckedLibrary:
    """A library and how it is installed and run.

    Attributes:
        name: the name in the table, and of its script, ``scripts/with_NAME.py`` with ``_`` for ``-``.
        requirements: what is installed; the first names the package whose version is reported.
        node: whether it is an npm package.
    """

    name: str
    requirements: tuple[str, ...]
    node: bool = False

    @property
    def package(self) -> str:
        """The name of the package whose version is reported."""
        return self.requirements[0].split("[")[0].split(">")[0]

    @property
    def script(self) -> str:
        """The file name of its script."""
        return "with_" + self.name.replace("-", "_") + (".mjs" if self.node else ".py")


_OTEL: Final = ("openai", "opentelemetry-sdk")

LIBRARIES: Final = (
    CheckedLibrary("ai", ("ai", "@ai-sdk/openai", "zod"), node=True),
    CheckedLibrary("autogen-ext", ("autogen-ext[openai]",)),
    CheckedLibrary("crewai", ("crewai",)),
    CheckedLibrary("dspy", ("dspy",)),
    CheckedLibrary("guidance", ("guidance", "openai")),
    CheckedLibrary("haystack", ("haystack-ai",)),
    CheckedLibrary("instructor", ("instructor",)),
    CheckedLibrary("langchain-openai", ("langchain-openai",)),
    CheckedLibrary("langfuse", ("langfuse", "openai")),
    CheckedLibrary("langsmith", ("langsmith", "openai")),
    CheckedLibrary("litellm", ("litellm",)),
    CheckedLibrary("llama-index", ("llama-index-llms-openai", "llama-index-llms-openai-like")),
    CheckedLibrary("llm", ("llm",)),
    CheckedLibrary("logfire", ("logfire", *_OTEL)),
    CheckedLibrary("magentic", ("magentic",)),
    CheckedLibrary("mirascope", ("mirascope[openai]",)),
    CheckedLibrary("openai-agents", ("openai-agents",)),
    CheckedLibrary("openai-node", ("openai", "zod"), node=True),
    CheckedLibrary("openinference", ("openinference-instrumentation-openai", *_OTEL)),
    CheckedLibrary("outlines", ("outlines", "openai")),
    CheckedLibrary("pydantic-ai", ("pydantic-ai-slim[openai]",)),
    CheckedLibrary("semantic-kernel", ("semantic-kernel>=1.40",)),
    CheckedLibrary("smolagents", ("smolagents[openai]",)),
    CheckedLibrary("traceloop", ("opentelemetry-instrumentation-openai", *_OTEL)),
)
