"""Entry point of the agent and of the client: make this folder a package of its own, then run."""

from __future__ import annotations

import sys


def start() -> None:
    """Import the sibling modules without importing Toolrest itself."""
    package = type(sys)("machine")
    package.__path__ = [__file__.rpartition("/")[0]]
    sys.modules["machine"] = package
    name, *words = sys.argv[1:]
    sys.exit(__import__(f"machine.{name}", fromlist=["main"]).main(*words))


if __name__ == "__main__":
    start()
