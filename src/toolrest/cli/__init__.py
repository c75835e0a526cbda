"""The `toolrest` command: it parses, asks and prints, and decides nothing.

`app` imports a command when it runs, and a command's module imports what it runs. Two exceptions
import inside functions: `exec`, `call` and their `options` (their help, and a run without
terminal, need little), and commands that need an optional package (`mcp`, `acp`).
"""
