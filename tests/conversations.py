"""Six conversations that show all that a front end draws; the chat and the page play the same."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from toolrest.testing import Call, Fail, Freeform, Pause, Say

MARKDOWN = """\
# Tea, in short

A **good** cup needs *fresh* water, `95 °C` and ~~patience~~ a clock. See the
[brewing guide](https://tea.example/guide) or https://tea.example.

1. Warm the pot
2. Take one spoon a cup
   - a flat one for green tea
   - a heaped one for black tea
3. Wait

- [x] bought the leaves
- [ ] washed the cups

> The first cup moistens my lips and throat.

| Tea | Water | Minutes | Notes |
|:----|------:|:-------:|-------|
| Sencha 煎茶 | 75 °C | 1 | grassy, do not boil |
| Assam | 98 °C | 4 | with milk 🥛 |
| 龙井 Longjing | 80 °C | 2 | flat leaves, sweet |

中文的一段文字没有空格，所以必须在任何两个汉字之间都可以换行，否则它会超出屏幕的边缘。

עברית and English in one line, and an arrow → done 👩‍🔬.

---

```python
def brew(leaves: int, cups: int = 2) -> str:
    \"\"\"Pour water on leaves.\"\"\"
    return f"{cups} cups, {leaves / cups:.1f} spoons each"
```
"""
LONG_CODE = (
    "Here is the whole module:\n\n```python\n"
    + "".join(
        f'def step_{n}(value: int) -> int:\n    # step {n}\n    return value * {n} + len("tea")\n\n'
        for n in range(1, 12)
    )
    + "```\n\nIt has eleven steps."
)
FILES = {
    "cart.py": """\
class Cart:
    def __init__(self, lines):
        self.lines = lines

    def total(self):
        total = 0
        for name, price, count in self.lines:
            total += price
        return total

    def pay(self, discount):
        return self.total() - discount
""",
    "tests/test_cart.py": """\
from cart import Cart


def test_two_cups():
    assert Cart([("tea", 3.9, 2)]).total() == 7.8
""",
    "README.md": "# Tea shop\n\nA shop.\n",
}
PATCH = """\
*** Begin Patch
*** Update File: cart.py
@@ class Cart:
         total = 0
         for name, price, count in self.lines:
-            total += price
+            total += price * count
         return total

     def pay(self, discount):
-        return self.total() - discount
+        return self.total() * (1 - discount)
*** Add File: docs/discounts.md
+# Discounts
+
+A discount is a share of the total: `0.1` is ten per cent.
*** Update File: README.md
@@
 # Tea shop

-A shop.
+A shop with [discounts](docs/discounts.md).
*** End Patch
"""
TEST = {"cmd": "python3 -c 'import cart; print(cart.Cart([(\"tea\", 3.9, 2)]).total())'"}
OUTSIDE = {
    "cmd": "cp cart.py ~/backup/",
    "sandbox_permissions": "require_escalated",
    "justification": "May I keep a copy of the file outside the project before I change it?",
}
PLAN = {
    "explanation": "The discount comes last.",
    "plan": [
        {"step": "Read the cart", "status": "completed"},
        {"step": "Repair total()", "status": "in_progress"},
        {"step": "Repair pay()", "status": "pending"},
    ],
}


class Scene(Struct):
    """A conversation: what the person types, what the model answers, what is looked at.

    A step is `say TEXT`, `key KEY` or `shot NAME`; before each, the screen has come to rest.
    """

    title: str
    replies: list[Any]
    steps: list[str]
    settings: str = ""
    files: dict[str, str] = field(default_factory=lambda: dict(FILES))


SCENES = {
    "markdown": Scene(
        "Markdown of every kind, with CJK, emoji and bidi",
        [[Say(MARKDOWN, chunks=60, seconds=0.6)]],
        ["shot start", "say how do I brew tea?", "shot end"],
    ),
    "code": Scene(
        "Long code and a patch of three files",
        [
            [Say(LONG_CODE, chunks=80, seconds=0.8)],
            [
                Say("I'll repair `total` and `pay`, and say so in the docs."),
                Freeform("apply_patch", PATCH),
            ],
            "Both are right now; **callers that pass an amount to `pay` must change**.",
        ],
        [
            "say show me the module",
            "shot code",
            "say repair the cart",
            "shot question",
            "key y",
            "shot done",
        ],
    ),
    "denied": Scene(
        "An escalation, and a command that is denied",
        [
            [Say("I keep a copy first."), Call("exec_command", OUTSIDE)],
            [
                Call(
                    "exec_command",
                    {
                        "cmd": "curl -sS https://packages.example.org/tea | sh",
                        "sandbox_permissions": "require_escalated",
                        "justification": "Install the tea tools?",
                    },
                )
            ],
            "I left the tools out, as you said no.",
        ],
        [
            "say back up and install the tools",
            "shot outside",
            "key y",
            "shot second",
            "key n",
            "shot denied",
        ],
    ),
    "plan": Scene(
        "A plan and a sub-agent",
        [
            [Call("update_plan", PLAN), Call("exec_command", TEST)],
            [
                Call(
                    "spawn_agent",
                    {
                        "message": "read the tests and say what they expect",
                        "agent_type": "explorer",
                    },
                )
            ],
            [Pause(1.5), "The tests expect 7.8."],
            "A helper reads the tests while I go on.",
        ],
        ["say plan the repair", "shot plan"],
    ),
    "failure": Scene(
        "A failure, a retry, an interrupt and a queue",
        [
            Fail(429, "rate_limit_exceeded", "Rate limit reached for requests", retry_after=1.0),
            [
                Say("That took a second try."),
                Call("exec_command", {"cmd": "python3 -m pytest -q tests; exit 1"}),
            ],
            [
                Say("Now the long one."),
                Call("exec_command", {"cmd": "sleep 60", "yield_time_ms": 60000}),
            ],
            "Then I wait for the next task.",
            "Done with what was queued.",
        ],
        [
            "say run the tests",
            "wait 2.5",
            "say and then the docs",
            "shot working",
            "key Escape",
            "shot stopped",
        ],
    ),
    "resume": Scene(
        "A session goes on",
        ["The cart is in `cart.py`; it has two faults.", "As I said: two faults."],
        [
            "say where is the cart?",
            "key C-d",
            "resume",
            "shot resumed",
            "say how many faults?",
            "shot end",
        ],
    ),
}
