"""The objects that calls take and return, for type checkers; what is not listed is an open object."""

from typing import Any

from specclient.types.call import (
    Call as Call,
)
from specclient.types.completion import (
    Completion as Completion,
)
from specclient.types.completion import (
    CompletionChoice as CompletionChoice,
)
from specclient.types.completion_usage import (
    CompletionUsage as CompletionUsage,
)
from specclient.types.embedding import (
    CreateEmbeddingResponse as CreateEmbeddingResponse,
)
from specclient.types.embedding import (
    Embedding as Embedding,
)
from specclient.types.embedding import (
    EmbeddingModel as EmbeddingModel,
)
from specclient.types.model import (
    Model as Model,
)
from specclient.types.model import (
    ModelDeleted as ModelDeleted,
)
from specclient.types.moderation import (
    Moderation as Moderation,
)
from specclient.types.moderation import (
    ModerationCreateResponse as ModerationCreateResponse,
)
from specclient.types.moderation import (
    ModerationModel as ModerationModel,
)
from specclient.types.route import (
    Candidate as Candidate,
)
from specclient.types.route import (
    Policy as Policy,
)
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
from specclient.types.usage import (
    Cost as Cost,
)
from specclient.types.usage import (
    Speculation as Speculation,
)
from specclient.types.usage import (
    Usage as Usage,
)

def __getattr__(name: str) -> Any: ...
