"""Keys, pastes and resizes at random while a model works and asks: nothing breaks, nothing is
approved that was not meant to be, and what was sent reaches the model."""

from __future__ import annotations

import json
import os
import random
import time
from typing import Any

import pytest
from tests.chat.test_approvals import outside, ran
from tests.screen import Screen

from toolrest.testing import Call
from toolrest.testing.server import ScriptedServer

pytestmark = [pytest.mark.needs("sandbox"), pytest.mark.full]
FULL = os.environ.get("TOOLREST_TEST_FULL") == "1"
ACTIONS = 60 if FULL else 30
START = int(os.environ.get("TOOLREST_FUZZ_SEED", "0"))
KEYS = (
    *("\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D", "\x1b[H", "\x1b[F", "\x1b[3~", "\x1b[5~", "\x1bb"),
    *("\t", "\x1b[Z", "\x7f", "\x01", "\x05", "\x0b", "\x15", "\x17", "\x0c", "\n", "\x1b\r"),
    *("\x12", "\x07x", "\x0f", "\x1f", "\x18", "\x1b[200~", "\x1b[1;5C", "\x00"),
)
WORDS = (
    "yes",
    "ya",
    "sy",
    "nn",
    "a long message",
    "/status\r",
    "@a",
    "日本",
    "!true\r",
    "y\ry",
    "\\\r",
)


def script(dice: random.Random) -> list[Any]:
    """Talk, commands and requests for approval, more than will be used."""
    plain = Call("exec_command", {"cmd": "seq 30", "login": False})
    steps: list[Any] = ["# an answer\n" * 5, [plain, outside()], outside(), [plain, plain], "short"]
    return [dice.choice(steps) for _ in range(300)]


def act(screen: Screen, dice: random.Random) -> None:
    """One random act. A key that could approve never comes alone, as an answer would."""
    match dice.randrange(8):
        case 0 | 1:
            screen.types(dice.choice(KEYS[:-8] + KEYS[-3:]) if dice.random() < 0.8 else "\x0f")
        case 2 | 3:
            screen.types(dice.choice(WORDS))
        case 4:
            screen.pastes("".join(dice.choices("ysn \r\n日\x1b", k=dice.choice((1, 5, 2000)))))
        case 5:
            screen.resizes(dice.randint(3, 30), dice.randint(10, 120))
        case 6:
            screen.types("go on\r")
        case _:
            screen.types("\x1b")
    screen.read(dice.choice((0.0, 0.01, 0.1, 0.6)))


def probe(screen: Screen, number: int) -> str:
    """Send a message of its own, at a person's speed; empty when the composer was not there."""
    text = f"probe{number}x"
    for keys in ("\x1b[201~", "\x1b>", "\x15\x7f" * 12):  # ends a paste, clears the lines
        screen.types(keys)
        screen.read(0.05)
    screen.types(text)
    until = time.monotonic() + 5
    while time.monotonic() < until and f"› {text}" not in screen.now:
        screen.read(0.05)
    if f"› {text}" not in screen.now:  # a pager, a search, several lines
        return ""
    screen.read(0.3)
    screen.types("\r")
    while time.monotonic() < until and f"› {text}" in screen.now:
        screen.read(0.05)
    return "" if f"› {text}" in screen.now else text


def said_to(server: ScriptedServer) -> str:
    """All that the model was ever sent."""
    return json.dumps([request.body for request in server.requests])


@pytest.mark.parametrize("seed", range(START, START + (100 if FULL else 1)))
def test_nothing_breaks_nothing_is_approved_and_no_message_is_lost(
    chat: Any, desk: Any, serve: Any, seed: int
) -> None:
    dice = random.Random(seed)
    (desk.workspace / "a.txt").touch()
    screen = chat(script(dice), EDITOR="true", VISUAL="true")
    sent = []
    for number in range(ACTIONS):
        act(screen, dice)
        if number % 12 == 11:
            sent.append(probe(screen, number))
        assert screen.process.poll() is None, screen.text
        for sign in ("Traceback", "error in Toolrest", "Exception"):
            assert sign not in screen.text
    assert not ran(desk), "nothing was approved"
    screen.resizes(24, 80)
    screen.types("\x1b[201~q")  # ends a paste, leaves a pager
    screen.read(0.3)
    goes_idle(screen)
    server = serve.servers[-1]
    for text in filter(None, sent):
        screen.until(lambda: text in said_to(server) or revive(screen), text)  # noqa: B023
    screen.types("\x15")
    screen.process.terminate()
    assert screen.ends() == 143, screen.text
    assert not ran(desk)


def goes_idle(screen: Screen) -> None:
    """Interrupt what runs and leave what is asked."""
    for _ in range(4):
        screen.types("\x1b")
        screen.read(0.4)


def revive(screen: Screen) -> bool:
    """Begin another turn: what waits goes with it."""
    goes_idle(screen)
    probe(screen, 999)
    screen.read(0.5)
    return False
