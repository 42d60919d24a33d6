"""Runs of the computer tool, under the OpenAI client's module path.

The classes are those of the `openai` package (extra ``computer``), which take this package's clients: they
call ``client.responses.create`` and a driver of the user's.
"""

try:
    from openai.lib.computer import (
        AsyncComputerDriver,
        AsyncComputerToolset,
        ComputerActionInput,
        ComputerDriver,
        ComputerToolset,
        ComputerUseError,
        Screenshot,
    )
except ImportError as error:
    raise ImportError(
        "the computer toolset is the `openai` package's, which is missing or too old; "
        "pip install 'specclient[computer]'"
    ) from error

__all__ = [
    "AsyncComputerDriver",
    "AsyncComputerToolset",
    "ComputerActionInput",
    "ComputerDriver",
    "ComputerToolset",
    "ComputerUseError",
    "Screenshot",
]
