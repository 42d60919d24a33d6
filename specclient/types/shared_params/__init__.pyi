"""What several calls take, for type checkers; what is not listed is an open object."""

from typing import Any

from specclient.types.shared_params.objects import (
    ChatModel as ChatModel,
)
from specclient.types.shared_params.objects import (
    ComparisonFilter as ComparisonFilter,
)
from specclient.types.shared_params.objects import (
    CompoundFilter as CompoundFilter,
)
from specclient.types.shared_params.objects import (
    CustomToolInputFormat as CustomToolInputFormat,
)
from specclient.types.shared_params.objects import (
    DecisionInputJSON as DecisionInputJSON,
)
from specclient.types.shared_params.objects import (
    DecisionQuestionInputImage as DecisionQuestionInputImage,
)
from specclient.types.shared_params.objects import (
    DecisionQuestionInputPart as DecisionQuestionInputPart,
)
from specclient.types.shared_params.objects import (
    DecisionQuestionInputText as DecisionQuestionInputText,
)
from specclient.types.shared_params.objects import (
    FunctionDefinition as FunctionDefinition,
)
from specclient.types.shared_params.objects import (
    FunctionParameters as FunctionParameters,
)
from specclient.types.shared_params.objects import (
    Metadata as Metadata,
)
from specclient.types.shared_params.objects import (
    OAuthErrorCode as OAuthErrorCode,
)
from specclient.types.shared_params.objects import (
    Reasoning as Reasoning,
)
from specclient.types.shared_params.objects import (
    ReasoningEffort as ReasoningEffort,
)
from specclient.types.shared_params.objects import (
    ResponseFormatJSONObject as ResponseFormatJSONObject,
)
from specclient.types.shared_params.objects import (
    ResponseFormatJSONSchema as ResponseFormatJSONSchema,
)
from specclient.types.shared_params.objects import (
    ResponseFormatText as ResponseFormatText,
)
from specclient.types.shared_params.objects import (
    ResponsesModel as ResponsesModel,
)

def __getattr__(name: str) -> Any: ...
