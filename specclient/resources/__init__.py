"""The attribute tree of a client: ``client.chat.completions.create`` and its siblings."""
