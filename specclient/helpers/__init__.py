"""Sound of the default devices: a microphone and a player, under the OpenAI client's module path."""

from specclient.helpers.local_audio_player import LocalAudioPlayer
from specclient.helpers.microphone import Microphone

__all__ = ["LocalAudioPlayer", "Microphone"]
