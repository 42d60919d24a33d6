"""The modules of ``tools/sync_openai.py``: they read the installed `openai` package and write tables."""
