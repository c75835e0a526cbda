"""The chat: a session with a model at a terminal.

Inline: what is finished becomes ordinary text of the terminal, and only the live part below it is
drawn again. prompt_toolkit (the extra `chat`) is imported by `screen` and what is above it.
"""
