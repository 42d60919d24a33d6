"""Client-side speculation: predicted outputs, committed prefixes, and remote verification of drafts."""
