"""The routes whose bodies are read: one record for each, and the readers of those that came after chat."""
