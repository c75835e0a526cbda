"""The three model APIs: Responses, Chat Completions, Anthropic Messages."""
