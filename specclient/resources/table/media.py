"""The rows of sound, images, videos and live conversations."""

from __future__ import annotations

from specclient.resources.table.rows import Row, group, row

_TEXTS = {"text": "str", "srt": "str", "vtt": "str"}
_BY_FORMAT = (
    "response_format",
    {**_TEXTS, "verbose_json": "audio.TranscriptionVerbose", "diarized_json": "audio.TranscriptionDiarized"},
)

ROWS: tuple[Row, ...] = (
    *group(
        "audio.speech",
        "/audio/speech",
        row(
            "create",
            "POST",
            "input! model! voice! instructions response_format speed stream_format",
            "bytes",
            accept="application/octet-stream",
            metered=True,
        ),
    ),
    *group(
        "audio.transcriptions",
        "/audio/transcriptions",
        row(
            "create",
            "POST",
            "file! model! chunking_strategy include keywords known_speaker_names "
            "known_speaker_references language languages prompt response_format stream "
            "temperature timestamp_granularities",
            "Transcription",
            gives_by=_BY_FORMAT,
            files="file",
            event="audio.TranscriptionStreamEvent",
            metered=True,
        ),
        types="audio",
    ),
    *group(
        "audio.translations",
        "/audio/translations",
        row(
            "create",
            "POST",
            "file! model! prompt response_format temperature",
            "Translation",
            gives_by=("response_format", {**_TEXTS, "verbose_json": "audio.TranslationVerbose"}),
            files="file",
            deprecated="deprecated",
            metered=True,
        ),
        types="audio",
    ),
    *group(
        "audio.voice_consents",
        "/audio/voice_consents",
        row("create", "POST", "language! name! recording!", "VoiceConsent", files="recording"),
        row("retrieve", "GET /{consent_id}", "", "VoiceConsent"),
        row("update", "POST /{consent_id}", "name!", "VoiceConsent"),
        row("list", "GET", "after limit", "CursorPage[VoiceConsent]"),
        row("delete", "DELETE /{consent_id}", "", "VoiceConsentDeleted"),
        types="audio",
    ),
    *group(
        "audio.voices",
        "/audio/voices",
        row("delete", "DELETE /{voice_id}", "", "VoiceDeleted"),
        row(
            "create",
            "POST",
            "audio_sample consent name! type prompt model script_hint",
            "Voice",
            files="audio_sample",
            either=("audio_sample consent", "prompt type"),
        ),
        types="audio",
    ),
    *group(
        "images",
        "/images",
        row(
            "edit",
            "POST /edits",
            "image! prompt! background complexity frame_count frame_duration_ms input_fidelity "
            "markup mask model n output_compression output_format partial_images quality "
            "response_format safety_identifier size stream svg user",
            "ImagesResponse",
            files="image markup mask",
            event="ImageEditStreamEvent",
            metered=True,
        ),
        row(
            "generate",
            "POST /generations",
            "prompt! background complexity frame_count frame_duration_ms model moderation n "
            "output_compression output_format partial_images quality response_format "
            "safety_identifier size stream style svg user",
            "ImagesResponse",
            event="ImageGenStreamEvent",
            metered=True,
        ),
        row(
            "create_variation",
            "POST /variations",
            "image! model n response_format size user",
            "ImagesResponse",
            files="image",
            deprecated="deprecated",
            metered=True,
        ),
    ),
    *group(
        "live",
        "/live/sessions",
        row("create", "POST", "session! transport!", "LiveCreateResponse"),
        types="live",
    ),
    *group(
        "live.sessions",
        "/live/sessions/{session_id}",
        row("accept", "POST /accept", "session!", ""),
        row("download_recording", "GET /content", "", "bytes"),
        row("fork", "POST /fork", "transport! session", "SessionForkResponse"),
        row("hangup", "POST /hangup", "", ""),
        row("refer", "POST /refer", "target_uri!", ""),
        row("reject", "POST /reject", "status_code!", ""),
        types="live",
    ),
    *group(
        "realtime.calls",
        "/realtime/calls",
        row("create", "POST", "sdp! session", "bytes", accept="application/sdp"),
        row(
            "accept",
            "POST /{call_id}/accept",
            "type! audio include instructions max_output_tokens model output_modalities "
            "parallel_tool_calls prompt reasoning tool_choice tools tracing truncation",
            "",
        ),
        row("hangup", "POST /{call_id}/hangup", "", ""),
        row("refer", "POST /{call_id}/refer", "target_uri!", ""),
        row("reject", "POST /{call_id}/reject", "status_code", ""),
    ),
    *group(
        "realtime.client_secrets",
        "/realtime/client_secrets",
        row("create", "POST", "expires_after session", "ClientSecretCreateResponse"),
        types="realtime",
    ),
    *group(
        "realtime.translations.client_secrets",
        "/realtime/translations/client_secrets",
        row("create", "POST", "session! expires_after", "RealtimeTranslationClientSecretCreateResponse"),
        types="realtime",
    ),
    *group(
        "videos",
        "/videos",
        row(
            "create",
            "POST",
            "prompt! input_reference model seconds size",
            "Video",
            files="input_reference",
            metered=True,
        ),
        row(
            "create_character",
            "POST /characters",
            "name! video!",
            "VideoCreateCharacterResponse",
            files="video",
        ),
        row("delete", "DELETE /{video_id}", "", "VideoDeleteResponse"),
        row("download_content", "GET /{video_id}/content", "variant", "bytes"),
        row("edit", "POST /edits", "prompt! video!", "Video", files="video", metered=True),
        row("extend", "POST /extensions", "prompt! seconds! video!", "Video", files="video", metered=True),
        row("get_character", "GET /characters/{character_id}", "", "VideoGetCharacterResponse"),
        row("list", "GET", "after limit order", "ConversationCursorPage[Video]"),
        row("remix", "POST /{video_id}/remix", "prompt!", "Video", metered=True),
        row("retrieve", "GET /{video_id}", "", "Video"),
        deprecated="The Sora API is scheduled to permanently shut down on September 24, 2026.",
    ),
)
