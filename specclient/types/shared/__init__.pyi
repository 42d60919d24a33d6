"""What several answers hold, for type checkers; what is not listed is an open object."""

from typing import Any

from specclient.types.shared.objects import (
    AllModels as AllModels,
)
from specclient.types.shared.objects import (
    ChatModel as ChatModel,
)
from specclient.types.shared.objects import (
    ComparisonFilter as ComparisonFilter,
)
from specclient.types.shared.objects import (
    CompoundFilter as CompoundFilter,
)
from specclient.types.shared.objects import (
    CustomToolInputFormat as CustomToolInputFormat,
)
from specclient.types.shared.objects import (
    DecisionInputJSON as DecisionInputJSON,
)
from specclient.types.shared.objects import (
    DecisionQuestionInputImage as DecisionQuestionInputImage,
)
from specclient.types.shared.objects import (
    DecisionQuestionInputPart as DecisionQuestionInputPart,
)
from specclient.types.shared.objects import (
    DecisionQuestionInputText as DecisionQuestionInputText,
)
from specclient.types.shared.objects import (
    ErrorObject as ErrorObject,
)
from specclient.types.shared.objects import (
    FunctionDefinition as FunctionDefinition,
)
from specclient.types.shared.objects import (
    FunctionParameters as FunctionParameters,
)
from specclient.types.shared.objects import (
    Metadata as Metadata,
)
from specclient.types.shared.objects import (
    OAuthErrorCode as OAuthErrorCode,
)
from specclient.types.shared.objects import (
    Reasoning as Reasoning,
)
from specclient.types.shared.objects import (
    ReasoningEffort as ReasoningEffort,
)
from specclient.types.shared.objects import (
    ResponseFormatJSONObject as ResponseFormatJSONObject,
)
from specclient.types.shared.objects import (
    ResponseFormatJSONSchema as ResponseFormatJSONSchema,
)
from specclient.types.shared.objects import (
    ResponseFormatText as ResponseFormatText,
)
from specclient.types.shared.objects import (
    ResponseFormatTextGrammar as ResponseFormatTextGrammar,
)
from specclient.types.shared.objects import (
    ResponseFormatTextPython as ResponseFormatTextPython,
)
from specclient.types.shared.objects import (
    ResponsesModel as ResponsesModel,
)

def __getattr__(name: str) -> Any: ...
