"""The names that the OpenAI client's packages of types have."""

from __future__ import annotations

from typing import Final

#: Every public name of a package beneath ``specclient.types``. Parameters, which end in ``Param`` or
#: ``Params`` and are mappings, are only listed for the packages that are written out.
PACKAGES: Final[dict[str, str]] = {
    "": (
        "AllModels AudioModel AudioResponseFormat Batch BatchError BatchRequestCounts BatchUsage "
        "ChatModel ComparisonFilter Completion CompletionChoice CompletionUsage CompoundFilter "
        "ContainerCreateResponse ContainerListResponse ContainerRetrieveResponse ContentProvenanceCheck "
        "CreateEmbeddingResponse CustomToolInputFormat Decision DecisionInputJSON "
        "DecisionQuestionInputImage DecisionQuestionInputPart DecisionQuestionInputText DeletedSkill "
        "Embedding EmbeddingModel ErrorObject EvalCreateResponse EvalCustomDataSourceConfig "
        "EvalDeleteResponse EvalListResponse EvalRetrieveResponse EvalStoredCompletionsDataSourceConfig "
        "EvalUpdateResponse FileChunkingStrategy FileContent FileDeleted FileObject FilePurpose "
        "FunctionDefinition FunctionParameters Image ImageEditCompletedEvent ImageEditPartialImageEvent "
        "ImageEditStreamEvent ImageGenCompletedEvent ImageGenPartialImageEvent ImageGenStreamEvent "
        "ImageModel ImagesResponse Metadata Model ModelDeleted Moderation ModerationCreateResponse "
        "ModerationModel OAuthErrorCode OtherFileChunkingStrategyObject Reasoning ReasoningEffort "
        "ReconnectingEvent ReconnectingOverrides ResponseFormatJSONObject ResponseFormatJSONSchema "
        "ResponseFormatText ResponseFormatTextGrammar ResponseFormatTextPython ResponsesModel Skill "
        "SkillList StaticFileChunkingStrategy StaticFileChunkingStrategyObject "
        "SyncWebSocketConnectionOptions Upload VectorStore VectorStoreDeleted VectorStoreSearchResponse "
        "Video VideoCreateCharacterResponse VideoCreateError VideoDeleteResponse "
        "VideoGetCharacterResponse VideoModel VideoSeconds VideoSize WebSocketConnectionOptions "
        "WebsocketConnectionOptions"
    ),
    "admin": "",
    "admin.organization": (
        "AdminAPIKey AdminAPIKeyCreateResponse AdminAPIKeyDeleteResponse AuditLogListResponse "
        "AwsExternalStorageProvider AzureExternalStorageProvider Certificate CertificateActivateResponse "
        "CertificateDeactivateResponse CertificateDeleteResponse CertificateListResponse CostQuantityUnit "
        "ExternalKey ExternalKeyValidateResponse ExternalStorageConfiguration ExternalStorageDeleted "
        "GcpExternalStorageProvider Group GroupDeleteResponse GroupUpdateResponse Invite "
        "InviteDeleteResponse OciExternalStorageProvider OrganizationDataRetention OrganizationSpendAlert "
        "OrganizationSpendAlertDeleted OrganizationSpendLimit OrganizationSpendLimitDeleted "
        "OrganizationUser Project ProjectResidency Role RoleDeleteResponse UsageAudioSpeechesResponse "
        "UsageAudioTranscriptionsResponse UsageCodeInterpreterSessionsResponse UsageCompletionsResponse "
        "UsageCostsResponse UsageDecisionsResponse UsageEmbeddingsResponse UsageFileSearchCallsResponse "
        "UsageImagesResponse UsageModerationsResponse UsageVectorStoresResponse "
        "UsageWebSearchCallsResponse UserDeleteResponse WorkloadIdentityProvider "
        "WorkloadIdentityProviderDeleted"
    ),
    "admin.organization.groups": (
        "OrganizationGroupUser RoleCreateResponse RoleDeleteResponse RoleListResponse "
        "RoleRetrieveResponse UserCreateResponse UserDeleteResponse UserRetrieveResponse"
    ),
    "admin.organization.projects": (
        "APIKeyDeleteResponse CertificateActivateResponse CertificateDeactivateResponse "
        "CertificateListResponse GroupDeleteResponse ProjectAPIKey ProjectDataRetention ProjectGroup "
        "ProjectHostedToolPermissions ProjectModelPermissions ProjectModelPermissionsDeleted "
        "ProjectOptionalServiceTier ProjectRateLimit ProjectServiceAccount ProjectServiceTierSettings "
        "ProjectSpendAlert ProjectSpendAlertDeleted ProjectSpendLimit ProjectSpendLimitDeleted "
        "ProjectUser RoleDeleteResponse ServiceAccountCreateResponse ServiceAccountDeleteResponse "
        "UserDeleteResponse"
    ),
    "admin.organization.projects.groups": (
        "RoleCreateResponse RoleDeleteResponse RoleListResponse RoleRetrieveResponse"
    ),
    "admin.organization.projects.service_accounts": ("APIKeyCreateResponse"),
    "admin.organization.projects.users": (
        "RoleCreateResponse RoleDeleteResponse RoleListResponse RoleRetrieveResponse"
    ),
    "admin.organization.users": (
        "RoleCreateResponse RoleDeleteResponse RoleListResponse RoleRetrieveResponse"
    ),
    "admin.organization.workload_identity_providers": ("FederationRule FederationRuleDeleted"),
    "audio": (
        "SpeechModel Transcription TranscriptionCreateResponse TranscriptionDiarized "
        "TranscriptionDiarizedSegment TranscriptionInclude TranscriptionLanguage TranscriptionSegment "
        "TranscriptionStreamEvent TranscriptionTextDeltaEvent TranscriptionTextDoneEvent "
        "TranscriptionTextSegmentEvent TranscriptionVerbose TranscriptionWord Translation "
        "TranslationCreateResponse TranslationVerbose Voice VoiceConsent VoiceConsentDeleted VoiceDeleted"
    ),
    "beta": (
        "Agent AgentCloseSubagentCallItem AgentCommandExecutionItem AgentContent "
        "AgentCreateSubagentCallItem AgentDeleted AgentFunctionCallItem AgentFunctionCallOutput "
        "AgentFunctionCallStatus AgentInterruptSubagentCallItem AgentMcpCallItem "
        "AgentOutputCommandExecutionOutputDeltaEvent AgentOutputItem AgentOutputItemStatus AgentReasoning "
        "AgentReasoningItem AgentResumeSubagentCallItem AgentSendSubagentInputCallItem AgentSession "
        "AgentSessionAssistantMessage AgentSessionCreatedEvent AgentSessionDeleted "
        "AgentSessionEnvironmentConnectedEvent AgentSessionEnvironmentDisconnectedEvent "
        "AgentSessionEnvironmentExpiredEvent AgentSessionEnvironmentFailedEvent "
        "AgentSessionEnvironmentPendingEvent AgentSessionEnvironmentReadyEvent "
        "AgentSessionEnvironmentResetEvent AgentSessionEnvironmentState "
        "AgentSessionEnvironmentSuspendedEvent AgentSessionErrorEvent AgentSessionEvent "
        "AgentSessionFailedEvent AgentSessionIdleEvent AgentSessionInProgressEvent AgentSessionItem "
        "AgentSessionMessage AgentSessionMessageContent AgentSessionRequiresActionEvent "
        "AgentSessionSubagentActiveEvent AgentSessionSubagentClosedEvent AgentSessionSubagentCreatedEvent "
        "AgentSessionTurnCancelledEvent AgentSessionTurnCompletedEvent "
        "AgentSessionTurnContentPartAddedEvent AgentSessionTurnContentPartDoneEvent "
        "AgentSessionTurnCreatedEvent AgentSessionTurnFailedEvent AgentSessionTurnInProgressEvent "
        "AgentSessionTurnItemAddedEvent AgentSessionTurnItemDoneEvent "
        "AgentSessionTurnOutputTextDeltaEvent AgentSessionTurnOutputTextDoneEvent "
        "AgentSessionTurnReasoningSummaryPartAddedEvent AgentSessionTurnReasoningSummaryPartDoneEvent "
        "AgentSessionTurnReasoningSummaryTextDeltaEvent AgentSessionTurnReasoningSummaryTextDoneEvent "
        "AgentText AgentTool AgentWaitForSubagentsCallItem AgentWebSearchCallItem Assistant "
        "AssistantDeleted AssistantResponseFormatOption AssistantStreamEvent AssistantTool "
        "AssistantToolChoice AssistantToolChoiceFunction AssistantToolChoiceOption BetaApplyPatchTool "
        "BetaCompactedResponse BetaComputerAction BetaComputerActionList BetaComputerTool "
        "BetaComputerUsePreviewTool BetaContainerAuto BetaContainerNetworkPolicyAllowlist "
        "BetaContainerNetworkPolicyDisabled BetaContainerNetworkPolicyDomainSecret BetaContainerReference "
        "BetaCustomTool BetaEasyInputMessage BetaFileSearchTool BetaFunctionShellTool BetaFunctionTool "
        "BetaImageDetail BetaInlineSkill BetaInlineSkillSource BetaLocalEnvironment BetaLocalSkill "
        "BetaMcpToolCallError BetaNamespaceTool BetaResponse BetaResponseApplyPatchToolCall "
        "BetaResponseApplyPatchToolCallOutput BetaResponseAudioDeltaEvent BetaResponseAudioDoneEvent "
        "BetaResponseAudioTranscriptDeltaEvent BetaResponseAudioTranscriptDoneEvent "
        "BetaResponseCodeInterpreterCallCodeDeltaEvent BetaResponseCodeInterpreterCallCodeDoneEvent "
        "BetaResponseCodeInterpreterCallCompletedEvent BetaResponseCodeInterpreterCallInProgressEvent "
        "BetaResponseCodeInterpreterCallInterpretingEvent BetaResponseCodeInterpreterToolCall "
        "BetaResponseCompactionCompactingEvent BetaResponseCompactionItem BetaResponseCompactionItemParam "
        "BetaResponseCompletedEvent BetaResponseComputerToolCall BetaResponseComputerToolCallOutputItem "
        "BetaResponseComputerToolCallOutputScreenshot BetaResponseConfigurationUpdateItem "
        "BetaResponseConfigurationUpdateItemParam BetaResponseContainerReference "
        "BetaResponseContentPartAddedEvent BetaResponseContentPartDoneEvent BetaResponseConversationParam "
        "BetaResponseCreatedEvent BetaResponseCustomToolCall BetaResponseCustomToolCallInputDeltaEvent "
        "BetaResponseCustomToolCallInputDoneEvent BetaResponseCustomToolCallItem "
        "BetaResponseCustomToolCallOutput BetaResponseCustomToolCallOutputItem BetaResponseError "
        "BetaResponseErrorEvent BetaResponseFailedEvent BetaResponseFileSearchCallCompletedEvent "
        "BetaResponseFileSearchCallInProgressEvent BetaResponseFileSearchCallSearchingEvent "
        "BetaResponseFileSearchToolCall BetaResponseFormatTextConfig "
        "BetaResponseFormatTextJSONSchemaConfig BetaResponseFunctionCallArgumentsDeltaEvent "
        "BetaResponseFunctionCallArgumentsDoneEvent BetaResponseFunctionCallOutputItem "
        "BetaResponseFunctionCallOutputItemList BetaResponseFunctionShellCallOutputContent "
        "BetaResponseFunctionShellToolCall BetaResponseFunctionShellToolCallOutput "
        "BetaResponseFunctionToolCall BetaResponseFunctionToolCallItem "
        "BetaResponseFunctionToolCallOutputItem BetaResponseFunctionWebSearch "
        "BetaResponseImageGenCallCompletedEvent BetaResponseImageGenCallGeneratingEvent "
        "BetaResponseImageGenCallInProgressEvent BetaResponseImageGenCallPartialImageEvent "
        "BetaResponseInProgressEvent BetaResponseIncludable BetaResponseIncompleteEvent "
        "BetaResponseInjectCreatedEvent BetaResponseInjectEvent BetaResponseInjectFailedEvent "
        "BetaResponseInput BetaResponseInputContent BetaResponseInputFile BetaResponseInputFileContent "
        "BetaResponseInputImage BetaResponseInputImageContent BetaResponseInputItem "
        "BetaResponseInputMessageContentList BetaResponseInputMessageItem BetaResponseInputText "
        "BetaResponseInputTextContent BetaResponseItem BetaResponseLocalEnvironment "
        "BetaResponseMcpCallArgumentsDeltaEvent BetaResponseMcpCallArgumentsDoneEvent "
        "BetaResponseMcpCallCompletedEvent BetaResponseMcpCallFailedEvent "
        "BetaResponseMcpCallInProgressEvent BetaResponseMcpListToolsCompletedEvent "
        "BetaResponseMcpListToolsFailedEvent BetaResponseMcpListToolsInProgressEvent "
        "BetaResponseOutputItem BetaResponseOutputItemAddedEvent BetaResponseOutputItemDoneEvent "
        "BetaResponseOutputMessage BetaResponseOutputRefusal BetaResponseOutputText "
        "BetaResponseOutputTextAnnotationAddedEvent BetaResponsePrompt BetaResponseQueuedEvent "
        "BetaResponseReasoningItem BetaResponseReasoningSummaryPartAddedEvent "
        "BetaResponseReasoningSummaryPartDoneEvent BetaResponseReasoningSummaryTextDeltaEvent "
        "BetaResponseReasoningSummaryTextDoneEvent BetaResponseReasoningTextDeltaEvent "
        "BetaResponseReasoningTextDoneEvent BetaResponseRefusalDeltaEvent BetaResponseRefusalDoneEvent "
        "BetaResponseShellCallCommandAddedEvent BetaResponseShellCallCommandDeltaEvent "
        "BetaResponseShellCallCommandDoneEvent BetaResponseShellCallOutputContentDeltaEvent "
        "BetaResponseShellCallOutputContentDoneEvent BetaResponseStatus BetaResponseSteerAcceptedEvent "
        "BetaResponseSteerErrorCode BetaResponseSteerEvent BetaResponseSteerFailedEvent "
        "BetaResponseSteerInput BetaResponseSteerInputContent BetaResponseSteerPendingEvent "
        "BetaResponseSteerPendingReason BetaResponseSteerRequiredInput BetaResponseStreamEvent "
        "BetaResponseTextConfig BetaResponseTextDeltaEvent BetaResponseTextDoneEvent "
        "BetaResponseToolSearchCall BetaResponseToolSearchOutputItem "
        "BetaResponseToolSearchOutputItemParam BetaResponseUsage BetaResponseWebSearchCallCompletedEvent "
        "BetaResponseWebSearchCallInProgressEvent BetaResponseWebSearchCallSearchingEvent "
        "BetaResponsesClientEvent BetaResponsesServerEvent BetaServiceTier BetaSkillReference BetaTool "
        "BetaToolChoiceAllowed BetaToolChoiceApplyPatch BetaToolChoiceCustom BetaToolChoiceFunction "
        "BetaToolChoiceMcp BetaToolChoiceOptions BetaToolChoiceShell BetaToolChoiceTypes "
        "BetaToolSearchOutputNamespaceTool BetaToolSearchTool BetaWebSearchPreviewTool BetaWebSearchTool "
        "ChatKitWorkflow CodeInterpreterTool Environment FileSearchTool FunctionTool "
        "HostedEnvironmentFile HostedEnvironmentFileID HostedPlugin HostedSkill HostedSkillReference "
        "InputContent McpTransport MultiAgentConfig OutputText PersistedAgentTool PersistedMcpTransport "
        "SessionError SessionTurnError Subagent SummaryText TextFormat Thread ThreadDeleted TokenUsage "
        "WebSearchAction"
    ),
    "beta.agents": (
        "Automation AutomationAgentConfig AutomationCreatedBy AutomationDeleted AutomationEnvironment "
        "AutomationTarget EnvironmentInfo OneTimeAutomation PeriodicAutomation Vault VaultDeleted "
        "VaultStatus"
    ),
    "beta.agents.automations": ("AutomationInvocation AutomationInvocationSource"),
    "beta.agents.environments": ("EnvironmentFile EnvironmentTemplate EnvironmentTemplateDeleted"),
    "beta.agents.sessions": ("SessionArtifact SessionArtifactDeleted SessionTrace Turn"),
    "beta.agents.sessions.subagents": "",
    "beta.agents.sessions.subagents.turns": "",
    "beta.agents.sessions.turns": "",
    "beta.agents.vaults": (
        "Credential CredentialAuth CredentialDeleted CredentialNetworking McpOauthTokenEndpointAuth"
    ),
    "beta.chat": "",
    "beta.chatkit": (
        "ChatKitAttachment ChatKitResponseOutputText ChatKitThread ChatKitThreadAssistantMessageItem "
        "ChatKitThreadItemList ChatKitThreadUserMessageItem ChatKitWidgetItem ChatSession "
        "ChatSessionAutomaticThreadTitling ChatSessionChatKitConfiguration ChatSessionFileUpload "
        "ChatSessionHistory ChatSessionRateLimits ChatSessionStatus ThreadDeleteResponse"
    ),
    "beta.realtime": (
        "ConversationCreatedEvent ConversationItem ConversationItemContent ConversationItemCreateEvent "
        "ConversationItemCreatedEvent ConversationItemDeleteEvent ConversationItemDeletedEvent "
        "ConversationItemInputAudioTranscriptionCompletedEvent "
        "ConversationItemInputAudioTranscriptionDeltaEvent "
        "ConversationItemInputAudioTranscriptionFailedEvent ConversationItemRetrieveEvent "
        "ConversationItemTruncateEvent ConversationItemTruncatedEvent ConversationItemWithReference "
        "ErrorEvent InputAudioBufferAppendEvent InputAudioBufferClearEvent InputAudioBufferClearedEvent "
        "InputAudioBufferCommitEvent InputAudioBufferCommittedEvent InputAudioBufferSpeechStartedEvent "
        "InputAudioBufferSpeechStoppedEvent RateLimitsUpdatedEvent RealtimeClientEvent RealtimeResponse "
        "RealtimeResponseStatus RealtimeResponseUsage RealtimeServerEvent ResponseAudioDeltaEvent "
        "ResponseAudioDoneEvent ResponseAudioTranscriptDeltaEvent ResponseAudioTranscriptDoneEvent "
        "ResponseCancelEvent ResponseContentPartAddedEvent ResponseContentPartDoneEvent "
        "ResponseCreateEvent ResponseCreatedEvent ResponseDoneEvent "
        "ResponseFunctionCallArgumentsDeltaEvent ResponseFunctionCallArgumentsDoneEvent "
        "ResponseOutputItemAddedEvent ResponseOutputItemDoneEvent ResponseTextDeltaEvent "
        "ResponseTextDoneEvent Session SessionCreateResponse SessionCreatedEvent SessionUpdateEvent "
        "SessionUpdatedEvent TranscriptionSession TranscriptionSessionUpdate "
        "TranscriptionSessionUpdatedEvent"
    ),
    "beta.responses": ("BetaResponseItemList InputTokenCountResponse"),
    "beta.threads": (
        "Annotation AnnotationDelta FileCitationAnnotation FileCitationDeltaAnnotation FilePathAnnotation "
        "FilePathDeltaAnnotation ImageFile ImageFileContentBlock ImageFileDelta ImageFileDeltaBlock "
        "ImageURL ImageURLContentBlock ImageURLDelta ImageURLDeltaBlock Message MessageContent "
        "MessageContentDelta MessageDeleted MessageDelta MessageDeltaEvent RefusalContentBlock "
        "RefusalDeltaBlock RequiredActionFunctionToolCall Run RunStatus Text TextContentBlock TextDelta "
        "TextDeltaBlock"
    ),
    "beta.threads.runs": (
        "CodeInterpreterLogs CodeInterpreterOutputImage CodeInterpreterToolCall "
        "CodeInterpreterToolCallDelta FileSearchToolCall FileSearchToolCallDelta FunctionToolCall "
        "FunctionToolCallDelta MessageCreationStepDetails RunStep RunStepDelta RunStepDeltaEvent "
        "RunStepDeltaMessageDelta RunStepInclude ToolCall ToolCallDelta ToolCallDeltaObject "
        "ToolCallsStepDetails"
    ),
    "chat": (
        "ChatCompletion ChatCompletionAllowedToolChoiceParam ChatCompletionAllowedToolsParam "
        "ChatCompletionAssistantMessageParam ChatCompletionAudio ChatCompletionAudioParam "
        "ChatCompletionChunk ChatCompletionContentPartImage ChatCompletionContentPartImageParam "
        "ChatCompletionContentPartInputAudioParam ChatCompletionContentPartParam "
        "ChatCompletionContentPartRefusalParam ChatCompletionContentPartText "
        "ChatCompletionContentPartTextParam ChatCompletionCustomToolParam ChatCompletionDeleted "
        "ChatCompletionDeveloperMessageParam ChatCompletionFunctionCallOptionParam "
        "ChatCompletionFunctionMessageParam ChatCompletionFunctionTool ChatCompletionFunctionToolParam "
        "ChatCompletionMessage ChatCompletionMessageCustomToolCall "
        "ChatCompletionMessageCustomToolCallParam ChatCompletionMessageFunctionToolCall "
        "ChatCompletionMessageFunctionToolCallParam ChatCompletionMessageParam "
        "ChatCompletionMessageToolCall ChatCompletionMessageToolCallParam "
        "ChatCompletionMessageToolCallUnion ChatCompletionMessageToolCallUnionParam "
        "ChatCompletionModality ChatCompletionNamedToolChoiceCustomParam "
        "ChatCompletionNamedToolChoiceParam ChatCompletionPredictionContentParam "
        "ChatCompletionReasoningEffort ChatCompletionRole ChatCompletionStoreMessage "
        "ChatCompletionStreamOptionsParam ChatCompletionSystemMessageParam ChatCompletionTokenLogprob "
        "ChatCompletionToolChoiceOptionParam ChatCompletionToolMessageParam ChatCompletionToolParam "
        "ChatCompletionToolUnionParam ChatCompletionUserMessageParam CompletionCreateParams "
        "CompletionListParams CompletionUpdateParams CreateChatCompletionRequestMessageParam "
        "ParsedChatCompletion ParsedChatCompletionMessage ParsedChoice ParsedFunction "
        "ParsedFunctionToolCall"
    ),
    "chat.completions": "",
    "containers": ("FileCreateResponse FileListResponse FileRetrieveResponse"),
    "containers.files": "",
    "conversations": (
        "ComputerScreenshotContent Conversation ConversationDeletedResource ConversationItem "
        "ConversationItemList InputFileContent InputImageContent InputTextContent Message "
        "OutputTextContent RefusalContent SummaryTextContent TextContent"
    ),
    "evals": (
        "CreateEvalCompletionsRunDataSource CreateEvalJSONLRunDataSource EvalAPIError RunCancelResponse "
        "RunCreateResponse RunDeleteResponse RunListResponse RunRetrieveResponse"
    ),
    "evals.runs": ("OutputItemListResponse OutputItemRetrieveResponse"),
    "fine_tuning": (
        "DpoHyperparameters DpoMethod FineTuningJob FineTuningJobEvent FineTuningJobIntegration "
        "FineTuningJobWandbIntegration FineTuningJobWandbIntegrationObject ReinforcementHyperparameters "
        "ReinforcementMethod SupervisedHyperparameters SupervisedMethod"
    ),
    "fine_tuning.alpha": ("GraderRunResponse GraderValidateResponse"),
    "fine_tuning.checkpoints": (
        "PermissionCreateResponse PermissionDeleteResponse PermissionListResponse PermissionRetrieveResponse"
    ),
    "fine_tuning.jobs": ("FineTuningJobCheckpoint"),
    "graders": (
        "GraderInputs LabelModelGrader MultiGrader PythonGrader ScoreModelGrader StringCheckGrader "
        "TextSimilarityGrader"
    ),
    "live": (
        "AudioFormat BuiltInVoice ClientConfig ClientDelegation ClientEvent CommentaryAppendEvent "
        "CommentaryAppendedEvent ConnectClientEvent ConnectServerEvent CustomVoice DataChannelConfig "
        "DecisionAssistantMessage DecisionChoiceOption DecisionCreateEvent DecisionDeveloperMessage "
        "DecisionEvent DecisionInputText DecisionItemCreateEvent DecisionItemCreatedEvent "
        "DecisionItemDeleteEvent DecisionItemDeletedEvent DecisionJSONObject DecisionQuestion "
        "DecisionStoredAssistantMessage DecisionStoredDeveloperMessage DecisionStoredSystemMessage "
        "DecisionStoredUserMessage DecisionSystemMessage DecisionTrigger DecisionUserMessage "
        "DecisionsDelegationConfig DecisionsDelegationUpdateConfig DelegationCreatedEvent Error "
        "ErrorEvent ForkClientEvent ForkServerEvent ForkSessionConfig ForkSessionStartEvent FunctionTool "
        "InfoEvent InitialItem InputAudioAppendEvent InputAudioMuteEvent InputAudioMutedEvent "
        "InputAudioUnmuteEvent InputAudioUnmutedEvent InputTranscriptDeltaEvent InstructionsAppendEvent "
        "InstructionsAppendedEvent LiveCreateResponse OutputAudioDeltaEvent OutputAudioFixturePlayEvent "
        "OutputAudioFixturePlayedEvent OutputAudioFixturePlayingEvent OutputTranscriptDeltaEvent "
        "ResponseCreateEvent ResponseEvent ResponseItemCreateEvent ResponsesDelegationConfig "
        "ResponsesDelegationUpdateConfig ServerEvent ServerEventSelector SessionCloseEvent "
        "SessionClosedEvent SessionConfig SessionForkResponse SessionResource SessionStartEvent "
        "SessionStartedEvent SessionUpdateConfig SessionUpdateEvent SessionUpdatedEvent SessionUsage "
        "SessionUsageUpdatedEvent ThinkingAppendEvent ThinkingAppendedEvent"
    ),
    "realtime": (
        "AudioTranscription ClientSecretCreateResponse ConversationCreatedEvent ConversationItem "
        "ConversationItemAdded ConversationItemCreateEvent ConversationItemCreatedEvent "
        "ConversationItemDeleteEvent ConversationItemDeletedEvent ConversationItemDone "
        "ConversationItemInputAudioTranscriptionCompletedEvent "
        "ConversationItemInputAudioTranscriptionDeltaEvent "
        "ConversationItemInputAudioTranscriptionFailedEvent "
        "ConversationItemInputAudioTranscriptionSegment ConversationItemRetrieveEvent "
        "ConversationItemTruncateEvent ConversationItemTruncatedEvent InputAudioBufferAppendEvent "
        "InputAudioBufferClearEvent InputAudioBufferClearedEvent InputAudioBufferCommitEvent "
        "InputAudioBufferCommittedEvent InputAudioBufferDtmfEventReceivedEvent "
        "InputAudioBufferSpeechStartedEvent InputAudioBufferSpeechStoppedEvent "
        "InputAudioBufferTimeoutTriggered LogProbProperties McpListToolsCompleted McpListToolsFailed "
        "McpListToolsInProgress NoiseReductionType OutputAudioBufferClearEvent RateLimitsUpdatedEvent "
        "RealtimeAudioConfig RealtimeAudioConfigInput RealtimeAudioConfigOutput RealtimeAudioFormats "
        "RealtimeAudioInputTurnDetection RealtimeClientEvent RealtimeConversationItemAssistantMessage "
        "RealtimeConversationItemFunctionCall RealtimeConversationItemFunctionCallOutput "
        "RealtimeConversationItemSystemMessage RealtimeConversationItemUserMessage RealtimeError "
        "RealtimeErrorEvent RealtimeFunctionTool RealtimeMcpApprovalRequest RealtimeMcpApprovalResponse "
        "RealtimeMcpListTools RealtimeMcpProtocolError RealtimeMcpToolCall RealtimeMcpToolExecutionError "
        "RealtimeMcphttpError RealtimeReasoning RealtimeReasoningEffort RealtimeResponse "
        "RealtimeResponseCreateAudioOutput RealtimeResponseCreateMcpTool RealtimeResponseCreateParams "
        "RealtimeResponseStatus RealtimeResponseUsage RealtimeResponseUsageInputTokenDetails "
        "RealtimeResponseUsageOutputTokenDetails RealtimeServerEvent RealtimeSessionCreateRequest "
        "RealtimeSessionCreateResponse RealtimeToolChoiceConfig RealtimeToolsConfig "
        "RealtimeToolsConfigUnion RealtimeTracingConfig RealtimeTranscriptionSessionAudio "
        "RealtimeTranscriptionSessionAudioInput RealtimeTranscriptionSessionAudioInputTurnDetection "
        "RealtimeTranscriptionSessionCreateRequest RealtimeTranscriptionSessionCreateResponse "
        "RealtimeTranscriptionSessionTurnDetection RealtimeTranslationClientEvent "
        "RealtimeTranslationClientSecretCreateResponse RealtimeTranslationInputAudioBufferAppendEvent "
        "RealtimeTranslationInputTranscriptDeltaEvent RealtimeTranslationOutputAudioDeltaEvent "
        "RealtimeTranslationOutputTranscriptDeltaEvent RealtimeTranslationServerEvent "
        "RealtimeTranslationSession RealtimeTranslationSessionCloseEvent "
        "RealtimeTranslationSessionClosedEvent RealtimeTranslationSessionCreatedEvent "
        "RealtimeTranslationSessionUpdateEvent RealtimeTranslationSessionUpdateRequest "
        "RealtimeTranslationSessionUpdatedEvent RealtimeTruncation RealtimeTruncationRetentionRatio "
        "ResponseAudioDeltaEvent ResponseAudioDoneEvent ResponseAudioTranscriptDeltaEvent "
        "ResponseAudioTranscriptDoneEvent ResponseCancelEvent ResponseContentPartAddedEvent "
        "ResponseContentPartDoneEvent ResponseCreateEvent ResponseCreatedEvent ResponseDoneEvent "
        "ResponseFunctionCallArgumentsDeltaEvent ResponseFunctionCallArgumentsDoneEvent "
        "ResponseItemReference ResponseMcpCallArgumentsDelta ResponseMcpCallArgumentsDone "
        "ResponseMcpCallCompleted ResponseMcpCallFailed ResponseMcpCallInProgress "
        "ResponseOutputItemAddedEvent ResponseOutputItemDoneEvent ResponseTextDeltaEvent "
        "ResponseTextDoneEvent SessionCreatedEvent SessionUpdateEvent SessionUpdatedEvent"
    ),
    "realtime.translations": "",
    "responses": (
        "ApplyPatchTool ApplyPatchToolParam CompactedResponse ComputerAction ComputerActionList "
        "ComputerActionListParam ComputerActionParam ComputerTool ComputerToolParam "
        "ComputerUsePreviewTool ComputerUsePreviewToolParam ContainerAuto ContainerAutoParam "
        "ContainerNetworkPolicyAllowlist ContainerNetworkPolicyAllowlistParam "
        "ContainerNetworkPolicyDisabled ContainerNetworkPolicyDisabledParam "
        "ContainerNetworkPolicyDomainSecret ContainerNetworkPolicyDomainSecretParam ContainerReference "
        "ContainerReferenceParam CustomTool CustomToolParam EasyInputMessage EasyInputMessageParam "
        "FileSearchTool FileSearchToolParam FunctionShellTool FunctionShellToolParam FunctionTool "
        "FunctionToolParam ImageDetail InlineSkill InlineSkillParam InlineSkillSource "
        "InlineSkillSourceParam InputItemListParams InputTokenCountParams InputTokenCountResponse "
        "LocalEnvironment LocalEnvironmentParam LocalSkill LocalSkillParam McpToolCallError "
        "McpToolCallErrorParam NamespaceTool NamespaceToolParam ParsedContent ParsedResponse "
        "ParsedResponseFunctionToolCall ParsedResponseOutputItem ParsedResponseOutputMessage "
        "ParsedResponseOutputText Response ResponseApplyPatchToolCall ResponseApplyPatchToolCallOutput "
        "ResponseAudioDeltaEvent ResponseAudioDoneEvent ResponseAudioTranscriptDeltaEvent "
        "ResponseAudioTranscriptDoneEvent ResponseCodeInterpreterCallCodeDeltaEvent "
        "ResponseCodeInterpreterCallCodeDoneEvent ResponseCodeInterpreterCallCompletedEvent "
        "ResponseCodeInterpreterCallInProgressEvent ResponseCodeInterpreterCallInterpretingEvent "
        "ResponseCodeInterpreterToolCall ResponseCodeInterpreterToolCallParam ResponseCompactParams "
        "ResponseCompactionCompactingEvent ResponseCompactionItem ResponseCompactionItemParam "
        "ResponseCompactionItemParamParam ResponseCompletedEvent ResponseComputerToolCall "
        "ResponseComputerToolCallOutputItem ResponseComputerToolCallOutputScreenshot "
        "ResponseComputerToolCallOutputScreenshotParam ResponseComputerToolCallParam "
        "ResponseConfigurationUpdateItem ResponseConfigurationUpdateItemParam "
        "ResponseConfigurationUpdateItemParamParam ResponseContainerReference "
        "ResponseContentPartAddedEvent ResponseContentPartDoneEvent ResponseConversationParam "
        "ResponseConversationParamParam ResponseCreateParams ResponseCreatedEvent ResponseCustomToolCall "
        "ResponseCustomToolCallInputDeltaEvent ResponseCustomToolCallInputDoneEvent "
        "ResponseCustomToolCallItem ResponseCustomToolCallOutput ResponseCustomToolCallOutputItem "
        "ResponseCustomToolCallOutputParam ResponseCustomToolCallParam ResponseError ResponseErrorEvent "
        "ResponseFailedEvent ResponseFileSearchCallCompletedEvent ResponseFileSearchCallInProgressEvent "
        "ResponseFileSearchCallSearchingEvent ResponseFileSearchToolCall ResponseFileSearchToolCallParam "
        "ResponseFormatTextConfig ResponseFormatTextConfigParam ResponseFormatTextJSONSchemaConfig "
        "ResponseFormatTextJSONSchemaConfigParam ResponseFunctionCallArgumentsDeltaEvent "
        "ResponseFunctionCallArgumentsDoneEvent ResponseFunctionCallOutputItem "
        "ResponseFunctionCallOutputItemList ResponseFunctionCallOutputItemListParam "
        "ResponseFunctionCallOutputItemParam ResponseFunctionShellCallOutputContent "
        "ResponseFunctionShellCallOutputContentParam ResponseFunctionShellToolCall "
        "ResponseFunctionShellToolCallOutput ResponseFunctionToolCall ResponseFunctionToolCallItem "
        "ResponseFunctionToolCallOutputItem ResponseFunctionToolCallParam ResponseFunctionWebSearch "
        "ResponseFunctionWebSearchParam ResponseImageGenCallCompletedEvent "
        "ResponseImageGenCallGeneratingEvent ResponseImageGenCallInProgressEvent "
        "ResponseImageGenCallPartialImageEvent ResponseInProgressEvent ResponseIncludable "
        "ResponseIncompleteEvent ResponseInput ResponseInputAudio ResponseInputAudioParam "
        "ResponseInputContent ResponseInputContentParam ResponseInputFile ResponseInputFileContent "
        "ResponseInputFileContentParam ResponseInputFileParam ResponseInputImage "
        "ResponseInputImageContent ResponseInputImageContentParam ResponseInputImageParam "
        "ResponseInputItem ResponseInputItemParam ResponseInputMessageContentList "
        "ResponseInputMessageContentListParam ResponseInputMessageItem ResponseInputParam "
        "ResponseInputText ResponseInputTextContent ResponseInputTextContentParam ResponseInputTextParam "
        "ResponseItem ResponseItemList ResponseLocalEnvironment ResponseMcpCallArgumentsDeltaEvent "
        "ResponseMcpCallArgumentsDoneEvent ResponseMcpCallCompletedEvent ResponseMcpCallFailedEvent "
        "ResponseMcpCallInProgressEvent ResponseMcpListToolsCompletedEvent "
        "ResponseMcpListToolsFailedEvent ResponseMcpListToolsInProgressEvent ResponseOutputItem "
        "ResponseOutputItemAddedEvent ResponseOutputItemDoneEvent ResponseOutputMessage "
        "ResponseOutputMessageParam ResponseOutputRefusal ResponseOutputRefusalParam ResponseOutputText "
        "ResponseOutputTextAnnotationAddedEvent ResponseOutputTextParam ResponsePrompt "
        "ResponsePromptParam ResponseQueuedEvent ResponseReasoningItem ResponseReasoningItemParam "
        "ResponseReasoningSummaryPartAddedEvent ResponseReasoningSummaryPartDoneEvent "
        "ResponseReasoningSummaryTextDeltaEvent ResponseReasoningSummaryTextDoneEvent "
        "ResponseReasoningTextDeltaEvent ResponseReasoningTextDoneEvent ResponseRefusalDeltaEvent "
        "ResponseRefusalDoneEvent ResponseRetrieveParams ResponseShellCallCommandAddedEvent "
        "ResponseShellCallCommandDeltaEvent ResponseShellCallCommandDoneEvent "
        "ResponseShellCallOutputContentDeltaEvent ResponseShellCallOutputContentDoneEvent ResponseStatus "
        "ResponseSteerAcceptedEvent ResponseSteerErrorCode ResponseSteerEvent ResponseSteerEventParam "
        "ResponseSteerFailedEvent ResponseSteerInput ResponseSteerInputContent "
        "ResponseSteerInputContentParam ResponseSteerInputParam ResponseSteerPendingEvent "
        "ResponseSteerPendingReason ResponseSteerRequiredInput ResponseStreamEvent ResponseTextConfig "
        "ResponseTextConfigParam ResponseTextDeltaEvent ResponseTextDoneEvent ResponseToolSearchCall "
        "ResponseToolSearchOutputItem ResponseToolSearchOutputItemParam "
        "ResponseToolSearchOutputItemParamParam ResponseUsage ResponseWebSearchCallCompletedEvent "
        "ResponseWebSearchCallInProgressEvent ResponseWebSearchCallSearchingEvent ResponsesClientEvent "
        "ResponsesClientEventParam ResponsesServerEvent ServiceTier SkillReference SkillReferenceParam "
        "Tool ToolChoiceAllowed ToolChoiceAllowedParam ToolChoiceApplyPatch ToolChoiceApplyPatchParam "
        "ToolChoiceCustom ToolChoiceCustomParam ToolChoiceFunction ToolChoiceFunctionParam ToolChoiceMcp "
        "ToolChoiceMcpParam ToolChoiceOptions ToolChoiceShell ToolChoiceShellParam ToolChoiceTypes "
        "ToolChoiceTypesParam ToolParam ToolSearchOutputNamespaceTool ToolSearchOutputNamespaceToolParam "
        "ToolSearchTool ToolSearchToolParam WebSearchPreviewTool WebSearchPreviewToolParam WebSearchTool "
        "WebSearchToolParam"
    ),
    "safety": ("SafetyAlert SafetyCase"),
    "shared": (
        "AllModels ChatModel ComparisonFilter CompoundFilter CustomToolInputFormat DecisionInputJSON "
        "DecisionQuestionInputImage DecisionQuestionInputPart DecisionQuestionInputText ErrorObject "
        "FunctionDefinition FunctionParameters Metadata OAuthErrorCode Reasoning ReasoningEffort "
        "ResponseFormatJSONObject ResponseFormatJSONSchema ResponseFormatText ResponseFormatTextGrammar "
        "ResponseFormatTextPython ResponsesModel"
    ),
    "shared_params": (
        "ChatModel ComparisonFilter CompoundFilter CustomToolInputFormat DecisionInputJSON "
        "DecisionQuestionInputImage DecisionQuestionInputPart DecisionQuestionInputText "
        "FunctionDefinition FunctionParameters Metadata OAuthErrorCode Reasoning ReasoningEffort "
        "ResponseFormatJSONObject ResponseFormatJSONSchema ResponseFormatText ResponsesModel"
    ),
    "skills": ("DeletedSkillVersion SkillVersion SkillVersionList"),
    "skills.versions": "",
    "uploads": ("UploadPart"),
    "vector_stores": ("FileContentResponse VectorStoreFile VectorStoreFileBatch VectorStoreFileDeleted"),
    "webhooks": (
        "AgentEnvironmentExpiredWebhookEvent AgentEnvironmentFailedWebhookEvent "
        "AgentEnvironmentReadyWebhookEvent AgentEnvironmentSuspendedWebhookEvent "
        "AgentSessionActionRequiredWebhookEvent AgentSessionCreatedWebhookEvent "
        "AgentSessionFailedWebhookEvent AgentSessionIdleWebhookEvent AgentSessionInProgressWebhookEvent "
        "BatchCancelledWebhookEvent BatchCompletedWebhookEvent BatchExpiredWebhookEvent "
        "BatchFailedWebhookEvent DeletedWebhookEndpoint EvalRunCanceledWebhookEvent "
        "EvalRunFailedWebhookEvent EvalRunSucceededWebhookEvent FineTuningJobCancelledWebhookEvent "
        "FineTuningJobFailedWebhookEvent FineTuningJobSucceededWebhookEvent LiveCallIncomingWebhookEvent "
        "LiveTransportConnectedWebhookEvent LiveTransportIncomingWebhookEvent "
        "RealtimeCallIncomingWebhookEvent ResponseCancelledWebhookEvent ResponseCompletedWebhookEvent "
        "ResponseFailedWebhookEvent ResponseIncompleteWebhookEvent SafetyAlertCreatedWebhookEvent "
        "SafetyDeactivationIssuedWebhookEvent SafetyIdentifierBlockedWebhookEvent "
        "SafetyOrgAlertCreatedWebhookEvent SafetyWarningIssuedWebhookEvent UnwrapWebhookEvent "
        "WebhookEndpoint WebhookEndpointList WebhookEndpointTestResult WebhookEndpointWithSecret "
        "WebhookEventTypeList"
    ),
}

#: Those that are words: names of models, states, formats.
WORDS: Final = (
    "AllModels AudioModel AudioResponseFormat ChatModel EmbeddingModel FileContent FilePurpose "
    "ImageModel ModerationModel OAuthErrorCode ReasoningEffort ResponsesModel VideoModel VideoSeconds "
    "VideoSize admin.organization.CostQuantityUnit admin.organization.ProjectResidency "
    "admin.organization.projects.ProjectOptionalServiceTier audio.SpeechModel "
    "audio.TranscriptionInclude beta.AgentFunctionCallStatus beta.AgentOutputItemStatus "
    "beta.BetaImageDetail beta.BetaResponseIncludable beta.BetaResponseStatus "
    "beta.BetaResponseSteerErrorCode beta.BetaResponseSteerPendingReason beta.BetaServiceTier "
    "beta.BetaToolChoiceOptions beta.agents.VaultStatus beta.chatkit.ChatSessionStatus "
    "beta.threads.RunStatus beta.threads.runs.RunStepInclude chat.ChatCompletionModality "
    "chat.ChatCompletionReasoningEffort chat.ChatCompletionRole live.BuiltInVoice "
    "realtime.NoiseReductionType realtime.RealtimeReasoningEffort responses.ImageDetail "
    "responses.ResponseIncludable responses.ResponseStatus responses.ResponseSteerErrorCode "
    "responses.ResponseSteerPendingReason responses.ServiceTier responses.ToolChoiceOptions"
)

#: Those that are lists of objects, or a text in the place of one.
LISTS: Final = (
    "beta.AgentFunctionCallOutput beta.BetaComputerActionList "
    "beta.BetaResponseFunctionCallOutputItemList beta.BetaResponseInput "
    "beta.BetaResponseInputMessageContentList beta.BetaResponseSteerInput graders.GraderInputs "
    "realtime.RealtimeToolsConfig responses.ComputerActionList "
    "responses.ResponseFunctionCallOutputItemList responses.ResponseInput "
    "responses.ResponseInputMessageContentList responses.ResponseSteerInput"
)

#: Parameters that are mappings, though not called so.
MAPPINGS: Final = (
    "ReconnectingOverrides SyncWebSocketConnectionOptions WebSocketConnectionOptions "
    "WebsocketConnectionOptions"
)
