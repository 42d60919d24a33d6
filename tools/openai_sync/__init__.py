"""The modules of ``tools/sync_openai.py``, which read the `openai` package and generate types and tables."""
