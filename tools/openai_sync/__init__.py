"""The parts of ``tools/sync_openai.py``, which read the installed `openai` package and write our tables."""
