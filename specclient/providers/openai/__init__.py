"""The wire dialect of OpenAI's API and of servers that imitate it."""
