"""Tokens of texts, chats, tools and images: counted where they can be, else estimated and marked so."""

from specclient.tokens.chat import count_messages, count_prompt
from specclient.tokens.text import Count, Encode, count_text, estimate

__all__ = ["Count", "Encode", "count_messages", "count_prompt", "count_text", "estimate"]
