"""Where those types are that are written out: in which module here, and in which of the OpenAI client."""

from __future__ import annotations

from typing import Final

#: Where the types of a package are written out, in the order they are looked for, and the modules that the
#: OpenAI client has them in where it has others.
HOMES: Final[dict[str, dict[str, str]]] = {
    "": {
        "completion": ("completion_choice"),
        "completion_usage": (""),
        "embedding": ("create_embedding_response embedding_model"),
        "model": ("model_deleted"),
        "moderation": ("moderation_create_response moderation_model"),
        "shared.objects": "chat_model websocket_reconnection",
    },
    "chat": {
        "chat_completion": (""),
        "chat_completion_chunk": (""),
        "chat_completion_message": (
            "chat_completion_message_tool_call chat_completion_message_function_tool_call "
            "chat_completion_message_custom_tool_call chat_completion_audio"
        ),
        "logprobs": ("chat_completion_token_logprob"),
        "parsed_chat_completion": ("parsed_function_tool_call"),
        "stored": (
            "chat_completion_store_message chat_completion_deleted chat_completion_content_part_text "
            "chat_completion_content_part_image chat_completion_function_tool"
        ),
        "completion_params": ("completion_create_params completion_list_params completion_update_params"),
        "tool_params": (
            "chat_completion_function_tool_param chat_completion_tool_param "
            "chat_completion_tool_union_param chat_completion_custom_tool_param "
            "chat_completion_allowed_tools_param chat_completion_allowed_tool_choice_param "
            "chat_completion_named_tool_choice_param chat_completion_named_tool_choice_custom_param "
            "chat_completion_tool_choice_option_param chat_completion_function_call_option_param "
            "chat_completion_prediction_content_param chat_completion_stream_options_param "
            "chat_completion_audio_param chat_completion_modality chat_completion_reasoning_effort "
            "chat_completion_role"
        ),
        "message_params": (
            "chat_completion_message_param create_chat_completion_request_message_param "
            "chat_completion_developer_message_param chat_completion_system_message_param "
            "chat_completion_user_message_param chat_completion_assistant_message_param "
            "chat_completion_tool_message_param chat_completion_function_message_param "
            "chat_completion_content_part_param chat_completion_content_part_text_param "
            "chat_completion_content_part_refusal_param chat_completion_content_part_image_param "
            "chat_completion_content_part_input_audio_param chat_completion_message_tool_call_param "
            "chat_completion_message_tool_call_union_param "
            "chat_completion_message_function_tool_call_param "
            "chat_completion_message_custom_tool_call_param"
        ),
    },
    "responses": {
        "content": (
            "response_input_text response_input_image response_input_file response_output_text "
            "response_output_refusal response_output_message response_error response_reasoning_item"
        ),
        "tools": (
            "function_tool file_search_tool computer_tool computer_use_preview_tool web_search_tool "
            "web_search_preview_tool container_network_policy_domain_secret "
            "container_network_policy_disabled container_network_policy_allowlist skill_reference "
            "inline_skill_source inline_skill container_auto local_skill local_environment "
            "container_reference function_shell_tool custom_tool namespace_tool tool_search_tool "
            "apply_patch_tool tool"
        ),
        "tool_choices": (
            "tool_choice_allowed tool_choice_types tool_choice_function tool_choice_mcp "
            "tool_choice_custom tool_choice_apply_patch tool_choice_shell tool_choice_options"
        ),
        "calls": (
            "response_function_tool_call response_function_tool_call_output_item "
            "response_custom_tool_call response_custom_tool_call_output "
            "response_custom_tool_call_output_item response_file_search_tool_call "
            "response_function_web_search response_tool_search_call response_tool_search_output_item "
            "mcp_tool_call_error"
        ),
        "computer": (
            "computer_action computer_action_list response_computer_tool_call "
            "response_computer_tool_call_output_screenshot response_computer_tool_call_output_item"
        ),
        "shell": (
            "response_code_interpreter_tool_call response_container_reference response_local_environment "
            "response_function_shell_tool_call response_function_shell_tool_call_output "
            "response_apply_patch_tool_call response_apply_patch_tool_call_output"
        ),
        "items": ("response_compaction_item response_output_item"),
        "response": (
            "response_usage response_prompt response_format_text_json_schema_config "
            "response_format_text_config response_text_config response_status response_includable "
            "response"
        ),
        "parsed_response": (""),
        "text_events": (
            "response_text_delta_event response_text_done_event "
            "response_output_text_annotation_added_event response_refusal_delta_event "
            "response_refusal_done_event response_reasoning_summary_part_added_event "
            "response_reasoning_summary_part_done_event response_reasoning_summary_text_delta_event "
            "response_reasoning_summary_text_done_event response_reasoning_text_delta_event "
            "response_reasoning_text_done_event response_content_part_added_event "
            "response_content_part_done_event response_audio_delta_event response_audio_done_event "
            "response_audio_transcript_delta_event response_audio_transcript_done_event"
        ),
        "call_events": (
            "response_code_interpreter_call_code_delta_event "
            "response_code_interpreter_call_code_done_event "
            "response_code_interpreter_call_completed_event "
            "response_code_interpreter_call_in_progress_event "
            "response_code_interpreter_call_interpreting_event "
            "response_custom_tool_call_input_delta_event response_custom_tool_call_input_done_event "
            "response_file_search_call_completed_event response_file_search_call_in_progress_event "
            "response_file_search_call_searching_event response_function_call_arguments_delta_event "
            "response_function_call_arguments_done_event response_image_gen_call_completed_event "
            "response_image_gen_call_generating_event response_image_gen_call_in_progress_event "
            "response_image_gen_call_partial_image_event response_mcp_call_arguments_delta_event "
            "response_mcp_call_arguments_done_event response_mcp_call_completed_event "
            "response_mcp_call_failed_event response_mcp_call_in_progress_event "
            "response_mcp_list_tools_completed_event response_mcp_list_tools_failed_event "
            "response_mcp_list_tools_in_progress_event response_shell_call_command_added_event "
            "response_shell_call_command_delta_event response_shell_call_command_done_event "
            "response_shell_call_output_content_delta_event response_shell_call_output_content_done_event "
            "response_web_search_call_completed_event response_web_search_call_in_progress_event "
            "response_web_search_call_searching_event"
        ),
        "events": (
            "response_created_event response_queued_event response_in_progress_event "
            "response_completed_event response_failed_event response_incomplete_event "
            "response_error_event response_output_item_added_event response_output_item_done_event "
            "response_compaction_compacting_event response_stream_event"
        ),
        "tool_params": (
            "function_tool_param file_search_tool_param web_search_tool_param "
            "computer_use_preview_tool_param computer_tool_param custom_tool_param "
            "tool_choice_allowed_param tool_choice_types_param tool_choice_function_param "
            "tool_choice_mcp_param tool_choice_custom_param response_format_text_json_schema_config_param "
            "response_format_text_config_param response_text_config_param tool_param"
        ),
        "input_params": (
            "response_input_text_param response_input_image_param response_input_file_param "
            "response_input_content_param response_input_message_content_list_param "
            "easy_input_message_param response_output_text_param response_output_refusal_param "
            "response_output_message_param response_reasoning_item_param "
            "response_function_tool_call_param response_custom_tool_call_param response_prompt_param "
            "response_input_item_param response_input_param"
        ),
    },
    "shared": {
        "objects": (
            "all_models chat_model comparison_filter compound_filter custom_tool_input_format "
            "decision_input_json decision_question_input_image decision_question_input_part "
            "decision_question_input_text error_object function_definition function_parameters metadata "
            "oauth_error_code reasoning reasoning_effort response_format_json_object "
            "response_format_json_schema response_format_text response_format_text_grammar "
            "response_format_text_python responses_model"
        ),
    },
    "shared_params": {
        "objects": (
            "all_models chat_model comparison_filter compound_filter custom_tool_input_format "
            "decision_input_json decision_question_input_image decision_question_input_part "
            "decision_question_input_text error_object function_definition function_parameters metadata "
            "oauth_error_code reasoning reasoning_effort response_format_json_object "
            "response_format_json_schema response_format_text response_format_text_grammar "
            "response_format_text_python responses_model"
        ),
    },
}

#: Names that a module of the OpenAI client has and ours has another for.
RENAMED: Final[dict[str, dict[str, str]]] = {
    "responses.response_reasoning_item": {"Content": "ReasoningContent"},
    "responses.web_search_tool": {"Filters": "WebSearchFilters"},
    "responses.web_search_preview_tool": {"UserLocation": "PreviewUserLocation"},
    "responses.response_function_shell_tool_call_output": {"Output": "ShellOutput"},
    "responses.response_shell_call_output_content_done_event": {"Output": "ShellOutput"},
    "responses.response_reasoning_summary_part_added_event": {"Part": "SummaryPart"},
    "responses.response_reasoning_summary_part_done_event": {"Part": "SummaryPart"},
    "responses.response_shell_call_output_content_delta_event": {"Delta": "ShellDelta"},
    "responses.response_function_shell_tool_call": {"Action": "ShellAction"},
    "responses.response_text_delta_event": {
        "Logprob": "DeltaLogprob",
        "LogprobTopLogprob": "DeltaTopLogprob",
    },
    "responses.response_text_done_event": {"Logprob": "DeltaLogprob", "LogprobTopLogprob": "DeltaTopLogprob"},
    "responses.response_computer_tool_call": {
        "ActionClick": "Click",
        "ActionDoubleClick": "DoubleClick",
        "ActionDrag": "Drag",
        "ActionDragPath": "DragPath",
        "ActionKeypress": "Keypress",
        "ActionMove": "Move",
        "ActionScreenshot": "Screenshot",
        "ActionScroll": "Scroll",
        "ActionType": "Type",
        "ActionWait": "Wait",
        "Action": "ComputerAction",
    },
    "responses.namespace_tool": {"Tool": "NamespacedTool"},
    "responses.response_reasoning_item_param": {"Content": "ReasoningContent"},
    "responses.web_search_tool_param": {"Filters": "WebSearchFilters"},
    "chat.chat_completion_message_custom_tool_call_param": {"Custom": "CustomCall"},
    "chat.chat_completion_named_tool_choice_param": {"Function": "NamedFunction"},
    "chat.chat_completion_named_tool_choice_custom_param": {"Custom": "NamedCustom"},
}
