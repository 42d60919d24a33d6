"""Speech, transcriptions and translations."""

from pathlib import Path

from openai import OpenAI
from openai.types.audio import Transcription, TranscriptionVerbose

client = OpenAI()
speech = client.audio.speech.create(
    model="gpt-4o-mini-tts", voice="alloy", input="Hello", response_format="mp3", instructions="calm"
)
speech.write_to_file("hello.mp3")
with client.audio.speech.with_streaming_response.create(
    model="tts-1", voice="nova", input="Hello"
) as streamed:
    streamed.stream_to_file(Path("hello.mp3"))
with Path("hello.mp3").open("rb") as sound:
    plain: Transcription = client.audio.transcriptions.create(model="whisper-1", file=sound)
    verbose: TranscriptionVerbose = client.audio.transcriptions.create(
        model="whisper-1", file=sound, response_format="verbose_json", timestamp_granularities=["word"]
    )
    subtitles: str = client.audio.transcriptions.create(model="whisper-1", file=sound, response_format="srt")
print(plain.text, verbose.duration, [word.start for word in verbose.words or []], subtitles)
for event in client.audio.transcriptions.create(
    model="gpt-4o-transcribe", file=("hello.mp3", b"mp3"), stream=True
):
    if event.type == "transcript.text.delta":
        print(event.delta)
