"""How models write chats: templates that render conversations, and the texts of tool calls."""
