"""The wire dialect of Google's Gemini API."""
