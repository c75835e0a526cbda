"""The judgement of a command line, and what it takes to run it."""
