"""Keys, pastes, resizes and events at random while a model works and asks: nothing breaks, nothing
is approved that was not meant to be, and what was sent reaches the model once.

A hypothesis state machine over the pty. Its rules are a person at the keyboard, a window that
changes its size, and a model that says, runs and asks; its invariants are what a person relies on.
"""

from __future__ import annotations

import json
import os
import queue
import random
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from tests.chat.test_approvals import outside, quiet
from tests.chat.test_questions import DROP, asks
from tests.screen import Screen

from toolrest.testing import Call, Say

pytestmark = [pytest.mark.needs("sandbox"), pytest.mark.full]
FULL = os.environ.get("TOOLREST_TEST_FULL") == "1"
START = int(os.environ.get("TOOLREST_FUZZ_SEED", "0"))
KEYS = (
    *("\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D", "\x1b[H", "\x1b[F", "\x1b[3~", "\x1b[5~", "\x1bb"),
    *("\x1b[Z", "\x7f", "\x01", "\x05", "\x0b", "\x15", "\x17", "\x0c", "\n", "\x1b\r", "\x00"),
    *("\x12", "\x07", "\x0f", "\x1f", "\x18", "\x1b[200~", "\x1b[1;5C", "x\x03"),
)
"""Everything but what leaves or stops the chat (Ctrl-C on an empty line, Ctrl-D, Ctrl-Z)."""
UP = KEYS[0]
RECALLS = (UP, "\x1b[B", "\x1b[5~", "\x12")
"""Keys that bring an earlier message back into the line, from where Enter sends it again."""
WORDS = ("yes", "ya", "sy", "nn", "a long message", "@a", "日本", "\\\r", "go on\r", "y\ry")
COMMANDS = ("/status\r", "/mcp\r", "/diff\r")
SIZES = ((24, 80), (5, 20), (3, 10), (30, 120), (12, 40))
BROKEN = ("Traceback", "error in Toolrest", "Exception")
EVENTS = ("text", "long text", "command", "approval", "two approvals", "question")
ASKED = re.compile(r"^  \$ touch \.\./ran(\d+)$", re.MULTILINE)
POSED = "The model asks"
OPEN = ("Enter or 1-", "Enter · Esc", "Esc declines", "Esc goes back", "one moment")
"""What the screen says while a question has the keys, or the line."""


class FuzzedChat(RuleBasedStateMachine):
    """One chat, from its first line to its end."""

    def __init__(
        self,
        chat: Callable[..., Screen],
        desk: Any,
        serve: Any,
        numbers: Iterator[int],
        approved: set[int],
    ) -> None:
        super().__init__()
        self.desk, self.serve, self.numbers = desk, serve, numbers
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.approved = approved
        """Numbers of the commands that could be read when a key that may approve was pressed.

        Examples share a folder."""
        self.sent: list[str] = []
        self.replies: list[str] = []
        self.drafts: set[str] = set()
        """Texts that were pasted, and not followed by a key that sends."""
        self.withdrawn: set[str] = set()
        """Messages that the person may have taken back before the model saw them."""
        self.repeated: set[str] = set()
        """Messages that the person may have sent again, from the history."""
        self.escapes = self.recalls = 0
        self.looked_at = 0
        self.seen: set[str] = set()
        self.is_sound = True
        self._chat = chat

    @initialize(first=st.sampled_from(EVENTS))
    def begins(self, first: str) -> None:
        (self.desk.workspace / "a.txt").touch()
        self.model(first)
        self.screen = self._chat(self.script(), EDITOR="true", VISUAL="true")
        self.server = self.serve.servers[-1]
        self.says(queued=False)

    def script(self) -> Iterator[Any]:
        """What the rules let the model do, one event a request; else it ends its turn."""

        def step(_: Any) -> Any:
            try:
                return self.events.get(timeout=0.2)
            except queue.Empty:
                return "nothing more"

        while True:
            yield step

    # The model

    @rule(kind=st.sampled_from(EVENTS))
    def model(self, kind: str) -> None:
        """The model says, runs or asks something: now, or in its next turn."""
        self.events.put(self.event(kind))

    def event(self, kind: str) -> Any:
        lines = "for i in 1 2 3; do seq 9; sleep 0.1; done"
        command = Call("exec_command", {"cmd": lines, "login": False})
        match kind:
            case "text":
                return "# an answer\n" * 5
            case "long text":
                return Say("word `code` **bold** 日本\n\n" * 40, chunks=20, seconds=0.5)
            case "command":
                return command
            case "approval":
                return [command, self.approval()]
            case "two approvals":
                return [self.approval(), self.approval()]
        return asks({**DROP, "id": f"q{next(self.numbers)}"})

    def approval(self) -> Call:
        return outside(f"touch ../ran{next(self.numbers)}")

    # The person

    @rule(text=st.sampled_from(WORDS + COMMANDS))
    def types(self, text: str) -> None:
        """Type something; a key that could approve never comes alone, as an answer would."""
        self.press(text)

    @rule(key=st.sampled_from(KEYS))
    def presses(self, key: str) -> None:
        if key == UP:  # takes what is queued back into the line
            self.withdrawn |= self.unseen
        self.recalls += key in RECALLS
        self.press(key)

    @rule(key=st.sampled_from(("\r", "\t")))
    def enters(self, key: str) -> None:
        self.press(key)

    @rule()
    def escapes_once(self) -> None:
        self.escapes += 1
        self.press("\x1b")

    def press(self, keys: str) -> None:
        if keys == "\r":  # it takes the marked answer of a question that the person can see
            self.approved |= {int(number) for number in ASKED.findall(self.screen.now)}
        if "\r" in keys or "\t" in keys:
            self.drafts.clear()
            if self.escapes > 1 or self.recalls:
                self.repeated |= set(self.sent)
            if self.escapes > 1:  # a list of earlier messages: going back drops later ones
                self.withdrawn |= self.unseen
        self.screen.types(keys)

    @rule(seconds=st.sampled_from((0.0, 0.1, 0.6)))
    def waits(self, seconds: float) -> None:
        self.screen.read(seconds)

    @rule(size=st.sampled_from(SIZES))
    def resizes(self, size: tuple[int, int]) -> None:
        self.screen.resizes(*size)

    @rule(text=st.text("ysn \r\n日\x1b", max_size=60), times=st.sampled_from((1, 1, 40)))
    def pastes(self, text: str, times: int) -> None:
        """Paste something, as terminals mark it: it is never sent, and never an answer."""
        mark = f"pasted{next(self.numbers)}x"
        self.drafts.add(mark)
        self.screen.pastes(f"{mark}\r" + text * times)

    @rule()
    def pastes_unmarked(self) -> None:
        """Paste several lines where the terminal does not mark it."""
        mark = f"pasted{next(self.numbers)}x"
        if self.writes(f"before{mark}"):
            self.drafts.add(mark)
            self.screen.types(f"{mark}\ry\ryes\rand then some more of it\r" * 2 + "y")
            self.screen.read(0.3)  # what comes at once after it would be more of it

    @rule(queued=st.booleans())
    def says(self, queued: bool) -> None:
        """Send a message, by Enter or (while the model works) by Tab."""
        self.message(queued=queued)

    @rule()
    def types_ahead(self) -> None:
        """Send a message that makes the model ask, and type on before it does."""
        self.model("approval")
        self.message(ahead="y")

    def message(self, *, queued: bool = False, ahead: str = "") -> None:
        text = f"message{next(self.numbers)}x"
        if self.is_open() or not self.writes(text):
            return
        self.screen.read(0.1)
        if self.is_open():
            return  # it stays in the line
        if queued:
            self.press("\t")
            self.screen.read(0.2)
        if f"› {text}" in self.screen.now and not self.is_open():
            self.press("\r" + ahead)
        self.sure(lambda: f"› {text}" not in self.screen.now or self.is_open(), text)
        self.screen.read(0.1)
        if f"› {text}" in self.screen.now:  # a question came first: the line stays
            self.drafts.discard(text)
        else:
            self.sent.append(text)

    def is_open(self) -> bool:
        """Whether a question has the keys, or the line."""
        return any(sign in self.screen.now for sign in OPEN)

    @rule(key=st.sampled_from("y1\rn"))
    def answers(self, key: str) -> None:
        """Answer the approval on the screen, after a look at it; the model is sent for one."""
        self.screen.types("\x1b[201~")  # in a paste that began, a key is no answer
        number = self.asked()
        if number is None:
            self.is_asked("approval", self.asked)
            number = self.asked()
        quiet(self.screen)
        if number is None or self.asked() != number:
            return
        marked = any(row.startswith("  › 1. Yes") for row in self.screen.rows)
        yes = key in "y1" or (key == "\r" and marked)
        if yes:
            self.approved.add(number)
        self.screen.types(key)
        note = "What should it do instead?"
        ends = (note, "one moment")
        self.sure(
            lambda: any(sign in self.screen.now for sign in ends) or self.asked() != number,
            "answered",
        )
        if note in self.screen.now:
            self.screen.types("\r")
            self.sure(lambda: note not in self.screen.now, "denied")
        elif "one moment" in self.screen.now:  # keys before it were read late: it was no answer
            self.approved.discard(number)
        elif yes:
            self.sure((self.desk.workspace.parent / f"ran{number}").exists, f"{number} runs")

    @rule(text=st.sampled_from(("yes", "ya", "sy")))
    def types_at_an_approval(self, text: str) -> None:
        """Write to the model while an approval waits: no letter of it is an answer."""
        if self.asked() is None:
            self.is_asked("approval", self.asked)
        self.press(text)

    def is_asked(self, kind: str, is_there: Callable[[], Any]) -> None:
        """Have the model ask something; it may be busy with something else."""
        self.model(kind)
        self.message()
        until = time.monotonic() + 3
        while time.monotonic() < until and not is_there():
            self.screen.read(0.1)

    def asked(self) -> int | None:
        """The approval that waits for a key; None if there is none, or a line is written."""
        self.screen.resizes(24, 80)
        self.screen.read(0.2)
        found = ASKED.findall(self.screen.now)
        is_free = "1. Yes" in self.screen.now and "Esc stops the turn" in self.screen.now
        return int(found[0]) if len(found) == 1 and is_free else None

    @rule()
    def replies_to_a_question(self) -> None:
        self.screen.types("\x1b[201~")
        self.screen.resizes(24, 80)
        self.screen.read(0.5)  # where no paste had begun, that is Esc
        if POSED not in self.screen.now:
            self.is_asked("question", lambda: POSED in self.screen.now)
        if POSED not in self.screen.now:
            return
        text = f"reply{next(self.numbers)}x"
        quiet(self.screen)
        if "Esc declines" not in self.screen.now:
            return
        self.screen.types("3")
        quiet(self.screen)
        if "Enter sends your answer" not in self.screen.now:
            return
        self.screen.types(f"\x15{text}")
        self.screen.read(0.2)
        if f"› {text}" not in self.screen.now or POSED not in self.screen.now:
            return
        self.replies.append(text)
        self.screen.types("\r")
        self.sure(lambda: f"› {text}" not in self.screen.now, text)

    def writes(self, text: str) -> bool:
        """Have just this in the line; False when there is none: a pager, a search."""
        if len(self.screen.rows) < 12:
            self.screen.resizes(24, 80)
        for leave in ("\x1b[201~", "qq", "\x07"):  # a paste, a pager, a search
            self.screen.types(leave)
            self.screen.read(0.05)
            self.screen.types("\x1b>" + "\x15\x7f" * 12)
            self.screen.read(0.05)
            self.drafts.clear()
            self.escapes = self.recalls = 0
            self.screen.types(text)
            until = time.monotonic() + 2
            while time.monotonic() < until:
                self.screen.read(0.05)
                if f"› {text}" in self.screen.rows:
                    return True
        return False

    def sure(self, holds: Callable[[], Any], what: str) -> None:
        self.is_sound = False
        self.screen.until(holds, what, 20)
        self.is_sound = True

    # What a person relies on

    @invariant()
    def nothing_is_wrong(self) -> None:
        if not hasattr(self, "screen"):
            return
        self.is_sound = False
        self.screen.read(0.0)
        assert self.screen.process.poll() is None, self.screen.text
        for sign in BROKEN:
            assert sign not in self.screen.text
        assert self.ran <= self.approved, "something ran that was not approved"
        self.look()
        assert not self.server.refused
        self.is_sound = True

    def look(self) -> None:
        """Read what the model was sent since the last look."""
        for request in self.server.requests[self.looked_at :]:
            self.looked_at += 1
            items = request.body["input"]
            said = [
                part["text"]
                for item in items
                if item.get("role") == "user"
                for part in item["content"]
            ]
            given = json.dumps([item for item in items if "output" in item])
            for text in self.sent:
                assert said.count(text) <= 1 or text in self.repeated, f"{text} was sent twice"
                assert text not in given, f"{text} was a message, and no answer"
            for text in self.replies:
                assert text not in said, f"{text} was an answer, and no message"
            for text in self.drafts:
                assert text not in given + "".join(said), f"{text} was never sent"
            self.seen |= {text for text in self.sent if text in said}

    @property
    def ran(self) -> set[int]:
        return {int(path.name[3:]) for path in self.desk.workspace.parent.glob("ran*")}

    @property
    def unseen(self) -> set[str]:
        """Messages that the model has not seen yet."""
        return set(self.sent) - self.seen - self.withdrawn

    def teardown(self) -> None:
        if not hasattr(self, "screen"):
            return
        try:
            if self.is_sound:
                self.everything_arrives()
            else:  # hypothesis may not get as far a second time, and then does not say why
                traceback.print_exc()
                sys.stderr.write(self.screen.text)
        finally:
            if self.screen.process.poll() is None:
                os.killpg(self.screen.process.pid, signal.SIGKILL)

    def everything_arrives(self) -> None:
        """Whatever happened, the chat goes on, and what waits goes with its next turn."""
        while not self.events.empty():
            self.events.get()
        until = time.monotonic() + 60
        while self.unseen or not self.sent:
            for _ in range(3):  # interrupt what runs, leave what is asked
                self.screen.types("\x1b")
                self.screen.read(0.3)
            self.message()
            self.screen.read(1.0)
            self.nothing_is_wrong()
            assert time.monotonic() < until, f"{self.unseen} never arrived\n{self.screen.text}"
        self.screen.process.terminate()
        assert self.screen.ends() == 143, self.screen.text
        assert self.ran <= self.approved


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(20 if FULL else 1))
@pytest.mark.timeout(900 if FULL else 120)
def test_nothing_breaks_nothing_is_approved_and_no_message_is_lost(
    chat: Any, desk: Any, serve: Any, round_: int
) -> None:
    numbers = count(100)
    approved: set[int] = set()
    run_state_machine_as_test(
        lambda: FuzzedChat(chat, desk, serve, numbers, approved),  # type: ignore[arg-type]
        settings=settings(
            max_examples=6 if FULL else 4,
            stateful_step_count=40 if FULL else 12,
            phases=[Phase.generate, Phase.shrink] if FULL else [Phase.generate],
        ),
    )


CELLS = 40


def step(dice: random.Random, number: int) -> list[Any]:
    """A message, and a command that prints and fails or is killed."""
    end = "kill -9 $$" if number % 3 == 0 else f"(exit {number % 7 + 1})"
    line = f"seq {dice.choice((0, 1, 4, 30))}; echo last{number}; {end}"
    command = {"cmd": line, "login": False, "yield_time_ms": 30_000}
    said = Say(f"saying{number}\n\nmore{number}", chunks=dice.choice((1, 5)))
    return [said, Call("exec_command", command)]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(START, START + 8))
def test_no_line_is_lost_on_a_slow_terminal_that_grows(chat: Any, seed: int) -> None:
    dice = random.Random(seed)
    rows, columns = dice.choice(((24, 80), (8, 60), (5, 40)))
    steps = [step(dice, number) for number in range(CELLS)]
    screen = chat([*steps, "the end of it"], size=(rows, columns))
    screen.types("go\r")
    screen.piece = dice.choice((1, 50, 300))
    until = time.monotonic() + 120
    while "the end of it" not in screen.text or "Worked for" not in screen.text:
        assert screen.read(0.1)
        assert time.monotonic() < until, screen.text
        if dice.random() < 0.05:
            rows, columns = min(40, rows + 1), min(120, columns + 3)
            screen.resizes(rows, columns)
        time.sleep(dice.choice((0, 0, 0.01)))  # a reader that is late, not a wait for something
    lines = [line.strip(" ●") for line in screen.text.splitlines()]
    for number in range(CELLS):
        for text in (f"saying{number}", f"more{number}", f"last{number}"):
            assert lines.count(text) == 1, (text, screen.text)
    ends = [line for line in lines if re.search(r"\bexit \d+( · [\d.]+ s)?$", line)]
    assert len(ends) == CELLS, screen.text
