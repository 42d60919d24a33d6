"""The rows of the rest of the beta: assistants, threads, ChatKit, realtime sessions and responses."""

from __future__ import annotations

from specclient.resources.table.rows import Row, group, row

ROWS: tuple[Row, ...] = (
    *group(
        "beta.assistants",
        "/assistants",
        row(
            "create",
            "POST",
            "model! description instructions metadata name reasoning_effort response_format "
            "temperature tool_resources tools top_p",
            "Assistant",
        ),
        row("delete", "DELETE /{assistant_id}", "", "AssistantDeleted"),
        row("list", "GET", "after before limit order", "CursorPage[Assistant]"),
        row("retrieve", "GET /{assistant_id}", "", "Assistant"),
        row(
            "update",
            "POST /{assistant_id}",
            "description instructions metadata model name reasoning_effort response_format "
            "temperature tool_resources tools top_p",
            "Assistant",
        ),
        types="beta",
        deprecated="deprecated",
        beta="assistants=v2",
    ),
    *group(
        "beta.chatkit.sessions",
        "/chatkit/sessions",
        row(
            "create", "POST", "user! workflow! chatkit_configuration expires_after rate_limits", "ChatSession"
        ),
        row("cancel", "POST /{session_id}/cancel", "", "ChatSession"),
        types="beta.chatkit",
        beta="chatkit_beta=v1",
    ),
    *group(
        "beta.chatkit.threads",
        "/chatkit/threads",
        row("retrieve", "GET /{thread_id}", "", "ChatKitThread"),
        row("list", "GET", "after before limit order user", "ConversationCursorPage[ChatKitThread]"),
        row("delete", "DELETE /{thread_id}", "", "ThreadDeleteResponse"),
        row(
            "list_items",
            "GET /{thread_id}/items",
            "after before limit order",
            "ConversationCursorPage[beta.chatkit.chatkit_thread_item_list.Data]",
        ),
        types="beta.chatkit",
        beta="chatkit_beta=v1",
    ),
    *group(
        "beta.realtime.sessions",
        "/realtime/sessions",
        row(
            "create",
            "POST",
            "client_secret input_audio_format input_audio_noise_reduction "
            "input_audio_transcription instructions max_response_output_tokens modalities "
            "model output_audio_format speed temperature tool_choice tools tracing "
            "turn_detection voice",
            "SessionCreateResponse",
        ),
        types="beta.realtime",
        beta="assistants=v2",
    ),
    *group(
        "beta.realtime.transcription_sessions",
        "/realtime/transcription_sessions",
        row(
            "create",
            "POST",
            "client_secret include input_audio_format input_audio_noise_reduction "
            "input_audio_transcription modalities turn_detection",
            "TranscriptionSession",
        ),
        types="beta.realtime",
        beta="assistants=v2",
    ),
    *group(
        "beta.responses",
        "",
        row(
            "create",
            "POST /responses?beta=true",
            "access_programs background context_management conversation image include input "
            "instructions max_output_tokens max_tool_calls metadata model moderation "
            "multi_agent parallel_tool_calls previous_response_id prompt prompt_cache_key "
            "prompt_cache_options prompt_cache_retention reasoning safety_identifier "
            "service_tier store stream stream_options temperature text tool_choice tools "
            "top_logprobs top_p truncation user betas",
            "BetaResponse",
            event="beta.BetaResponseStreamEvent",
            in_headers={"betas": "openai-beta"},
            metered=True,
        ),
        row(
            "retrieve",
            "GET /responses/{response_id}?beta=true",
            "include include_obfuscation starting_after stream betas",
            "BetaResponse",
            event="beta.BetaResponseStreamEvent",
            in_headers={"betas": "openai-beta"},
        ),
        row(
            "delete",
            "DELETE /responses/{response_id}?beta=true",
            "betas",
            "",
            in_headers={"betas": "openai-beta"},
        ),
        row(
            "cancel",
            "POST /responses/{response_id}/cancel?beta=true",
            "betas",
            "BetaResponse",
            in_headers={"betas": "openai-beta"},
        ),
        row(
            "compact",
            "POST /responses/compact?beta=true",
            "model! image input instructions previous_response_id prompt_cache_key "
            "prompt_cache_options prompt_cache_retention service_tier betas",
            "BetaCompactedResponse",
            in_headers={"betas": "openai-beta"},
            metered=True,
        ),
        types="beta",
    ),
    *group(
        "beta.responses.input_items",
        "/responses/{response_id}/input_items?beta=true",
        row(
            "list",
            "GET",
            "after include limit order betas",
            "CursorPage[BetaResponseItem]",
            in_headers={"betas": "openai-beta"},
        ),
        types="beta",
    ),
    *group(
        "beta.responses.input_tokens",
        "/responses/input_tokens?beta=true",
        row(
            "count",
            "POST",
            "conversation input instructions model parallel_tool_calls personality "
            "previous_response_id reasoning text tool_choice tools truncation betas",
            "InputTokenCountResponse",
            in_headers={"betas": "openai-beta"},
        ),
        types="beta.responses",
    ),
    *group(
        "beta.threads",
        "/threads",
        row("create", "POST", "messages metadata tool_resources", "Thread"),
        row(
            "create_and_run",
            "POST /runs",
            "assistant_id! instructions max_completion_tokens max_prompt_tokens metadata model "
            "parallel_tool_calls response_format stream temperature thread tool_choice "
            "tool_resources tools top_p truncation_strategy",
            "beta.threads.Run",
            event="beta.AssistantStreamEvent",
        ),
        row("delete", "DELETE /{thread_id}", "", "ThreadDeleted"),
        row("retrieve", "GET /{thread_id}", "", "Thread"),
        row("update", "POST /{thread_id}", "metadata tool_resources", "Thread"),
        types="beta",
        deprecated="The Assistants API is deprecated in favor of the Responses API",
        beta="assistants=v2",
    ),
    *group(
        "beta.threads.messages",
        "/threads/{thread_id}/messages",
        row("create", "POST", "content! role! attachments metadata", "Message"),
        row("delete", "DELETE /{message_id}", "", "MessageDeleted"),
        row("list", "GET", "after before limit order run_id", "CursorPage[Message]"),
        row("retrieve", "GET /{message_id}", "", "Message"),
        row("update", "POST /{message_id}", "metadata", "Message"),
        types="beta.threads",
        deprecated="The Assistants API is deprecated in favor of the Responses API",
        beta="assistants=v2",
    ),
    *group(
        "beta.threads.runs",
        "/threads/{thread_id}/runs",
        row("cancel", "POST /{run_id}/cancel", "", "Run"),
        row(
            "create",
            "POST",
            "assistant_id! include additional_instructions additional_messages instructions "
            "max_completion_tokens max_prompt_tokens metadata model parallel_tool_calls "
            "reasoning_effort response_format stream temperature tool_choice tools top_p "
            "truncation_strategy",
            "Run",
            query="include",
            event="beta.AssistantStreamEvent",
        ),
        row("list", "GET", "after before limit order", "CursorPage[Run]"),
        row("retrieve", "GET /{run_id}", "", "Run"),
        row(
            "submit_tool_outputs",
            "POST /{run_id}/submit_tool_outputs",
            "tool_outputs! stream",
            "Run",
            event="beta.AssistantStreamEvent",
        ),
        row("update", "POST /{run_id}", "metadata", "Run"),
        types="beta.threads",
        deprecated="The Assistants API is deprecated in favor of the Responses API",
        beta="assistants=v2",
    ),
    *group(
        "beta.threads.runs.steps",
        "/threads/{thread_id}/runs/{run_id}/steps",
        row("list", "GET", "after before include limit order", "CursorPage[RunStep]"),
        row("retrieve", "GET /{step_id}", "include", "RunStep"),
        types="beta.threads.runs",
        deprecated="The Assistants API is deprecated in favor of the Responses API",
        beta="assistants=v2",
    ),
)
