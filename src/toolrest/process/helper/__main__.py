"""Entry point of the owner process: make this folder a package of its own, then serve."""

from __future__ import annotations

import sys


def start() -> None:
    """Import the sibling modules without importing Toolrest itself."""
    package = type(sys)("owner")
    package.__path__ = [__file__.rpartition("/")[0]]
    sys.modules["owner"] = package
    __import__("owner.serve", fromlist=["main"]).main(int(sys.argv[1]), *sys.argv[2:])


if __name__ == "__main__":
    start()
