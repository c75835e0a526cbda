"""`python -m toolrest` is the `toolrest` command."""

from toolrest.cli.entry import main

main()
