"""The demo's broken project, and what its scripted model says and calls to repair it."""

from __future__ import annotations

import os
from typing import Any

from toolrest.testing.script import Call, Freeform, Say, Script

PROMPT = "The tests of this project fail. Find out why and repair it."
SECRET = "sk-demo-4f9a1c7be2d84e55"  # noqa: S105 - made up, to show that it does not get out

_CART = '''\
"""What is in the basket, and what it costs."""


class Cart:
    def __init__(self):
        self.lines = []

    def add(self, name, price, count=1):
        self.lines.append((name, price, count))

    def total(self, discount=0):
        """The sum in cents; `discount` is in percent."""
        total = 0
        for name, price, count in self.lines:
            total += price
        return total - discount
'''

_TEST = """\
import unittest

from cart import Cart


class CartTest(unittest.TestCase):
    def setUp(self):
        self.cart = Cart()
        self.cart.add("tea", 450, 2)
        self.cart.add("cup", 1200)

    def test_total_counts_every_piece(self):
        self.assertEqual(self.cart.total(), 2100)

    def test_discount_is_in_percent(self):
        self.assertEqual(self.cart.total(discount=10), 1890)


if __name__ == "__main__":
    unittest.main()
"""

_PATCH = """\
*** Begin Patch
*** Update File: cart.py
@@ def total(self, discount=0):
         for name, price, count in self.lines:
-            total += price
-        return total - discount
+            total += price * count
+        return total * (100 - discount) // 100
*** End Patch
"""

_FILES = {
    "cart.py": _CART,
    "test_cart.py": _TEST,
    "README.md": "# Tea shop\n\nRun the tests with `python3 -m unittest`.\n",
    ".env": f"SHOP_API_KEY={SECRET}\n",
}
_TESTS = "python3 -m unittest -q"


def write_project(folder: str) -> str:
    """Make the project; returns its folder."""
    project = os.path.join(folder, "tea-shop")
    os.makedirs(project)
    for name, text in _FILES.items():
        with open(os.path.join(project, name), "w", encoding="utf-8") as file:
            file.write(text)
    return project


def _plan(done: int) -> dict[str, Any]:
    steps = ("see the tests fail", "repair cart.py", "see them pass")
    state = ["completed"] * done + ["in_progress"] + ["pending"] * 3
    return {"plan": [{"step": step, "status": state[n]} for n, step in enumerate(steps)]}


def _run(line: str, **more: str) -> Call:
    # A script cannot poll a command that takes longer, as in a virtual machine on a busy host.
    return Call("exec_command", {"cmd": line, "login": False, "yield_time_ms": 30_000, **more})


_HIDDEN = "No, and I cannot write outside. Now the tests again."
_REDACTED = (
    "Nothing hides .env from commands on this machine, but the key was taken out before I saw it;"
    " and a system file I may not write without approval. Now the tests again."
)


def script(*, hides: bool = True) -> Script:
    """The replies, one for each request; `hides` is whether commands cannot read `.env`."""
    escalated = {
        "sandbox_permissions": "require_escalated",
        "justification": "May I install pytest from the internet?",
    }
    return [
        [
            Say("I look around first."),
            Call("update_plan", _plan(0)),
            Call("list_dir", {"dir_path": "."}),
            Call("read_file", {"file_path": "test_cart.py", "offset": 6, "limit": 12}),
        ],
        [
            Say("pytest would be nice to have. I ask for it."),
            _run("pip install pytest", **escalated),
        ],
        [
            Say("Not allowed, and not needed: the tests are plain unittest."),
            _run(_TESTS),
            Call("read_file", {"file_path": "cart.py", "offset": 11}),
        ],
        [
            Say("Two mistakes: the count is ignored, and the discount is no percentage."),
            Freeform("apply_patch", _PATCH),
            Call("update_plan", _plan(2)),
        ],
        [
            Say("Does the key of the shop leak into what I can see?"),
            _run("echo key=$SHOP_API_KEY; grep -rs SHOP_API_KEY= ."),
            _run("echo '# tidy' >> /etc/hosts"),
        ],
        [Say(_HIDDEN if hides else _REDACTED), _run(_TESTS)],
        [Call("update_plan", _plan(3))],
        "Repaired: `Cart.total` in cart.py multiplied nothing by the count and subtracted the "
        "discount as if it were cents. Both tests pass now. pytest could not be installed "
        "(there was no approver) and was not needed.",
    ]
