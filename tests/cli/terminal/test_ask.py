"""The person's side of an approval, on a real terminal."""

from __future__ import annotations

import asyncio
import fcntl
import io
import os
import pty
import struct
import termios
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest import ApprovalRequest, Risk
from toolrest.cli.terminal.approve import TerminalApprover
from toolrest.cli.terminal.notices import ask_folder
from toolrest.cli.terminal.terminal import Terminal
from toolrest.config.loader import load
from toolrest.config.trust import trust_of
from toolrest.gate.approval.request import Choice, Review
from toolrest.gate.approval.user_questions import UserOption, UserQuestion, UserQuestions
from toolrest.policy.grants.key import GrantKey
from toolrest.timeline.approval import describe


class Person:
    """Sits at the other end of a terminal and types when the prompt comes."""

    def __init__(self, quiet: float = 0.01) -> None:
        self.master, self.slave = pty.openpty()
        self.out = io.StringIO()
        self.terminal = Terminal(self.slave, self.out, quiet)

    async def types(self, *answers: str, prompt: str = "? ") -> None:
        """Type each answer once a prompt stands there that was not answered yet."""
        for number, answer in enumerate(answers, 1):
            while self.out.getvalue().count(prompt) < number:
                await asyncio.sleep(0.005)
            os.write(self.master, answer.encode())

    async def asked(self, request: ApprovalRequest, *answers: str) -> Review:
        typing = asyncio.create_task(self.types(*answers, prompt="Answer: "))
        try:
            return await asyncio.wait_for(TerminalApprover(self.terminal)(request), 60)
        finally:
            typing.cancel()

    @property
    def saw(self) -> str:
        return self.out.getvalue()


@pytest.fixture
def person() -> Iterator[Person]:
    someone = Person()
    yield someone
    os.close(someone.master)
    os.close(someone.slave)


KEY = GrantKey("run", ("uv", "run", "pytest"), root="/ws")
CHOICES = (
    Choice("once", "this call only"),
    Choice("session", f"until this session ends: {KEY.sentence()}", (KEY,)),
    Choice("project", f"in this project: {KEY.sentence()}", (KEY,)),
    Choice("user", f"everywhere: {KEY.sentence()}", (KEY,)),
    Choice("rule", 'the rule ["uv"]', prefix=("uv",)),
)


def question(**more: object) -> ApprovalRequest:
    fields: dict[str, object] = {
        "command": ("/bin/bash", "-lc", "uv run pytest -q"),
        "cwd": "/ws",
        "choices": CHOICES,
        "keys": ("run:bash -lc uv run pytest -q", "connect:pypi.org"),
    }
    made = ApprovalRequest("c", "exec_command", "{}", "it runs a program", Risk.EXECUTE)
    for name, value in (fields | more).items():
        setattr(made, name, value)
    return made


async def test_everything_is_shown(person: Person) -> None:
    request = question(
        leaves=True, retry_reason="blocked", diff="--- a\n+++ b\n-x\n+y\n", purpose="to see it"
    )
    await person.asked(request, "n\n")
    for part in (
        "Run this command again, outside the sandbox?\n",
        "  The model says: to see it\n",
        "  The sandbox stopped it the first time.\n",
        "  Connects to pypi.org.\n",
        "  In /ws.\n",
        "  | uv run pytest -q\n",
        "  | +y\n",
        "  2. Yes, for this session: `uv run pytest …` in this folder\n",
        "  3. Yes, always in this project: `uv run pytest …`\n",
        "  5. No, and say what to do instead\n",
    ):
        assert part in person.saw
    for machine in ("SANDBOX", "exec_command", '["uv"', "a. Yes", "/bin/bash"):
        assert machine not in person.saw


async def test_exactly_what_is_stored_is_one_key_away(person: Person) -> None:
    assert (await person.asked(question(), "a\n")).answer == "denied", "it was not shown"
    other = Person()
    review = await other.asked(question(), "e\n", "a\n")
    assert review.answer == "approved_for_user"
    for part in (
        f"  [s] until this session ends: {KEY.sentence()}\n",
        f"  [a] everywhere: {KEY.sentence()}\n",
        "  Started as: /bin/bash -lc 'uv run pytest -q'\n",
        "  a. Yes, always in every project: `uv run pytest …`\n",
    ):
        assert part in other.saw, other.saw


@pytest.mark.parametrize(
    ("typed", "answer", "note"),
    [
        ("y\n", "approved", ""),
        ("YES\n", "approved", ""),
        ("s\n", "approved_for_session", ""),
        ("session\n", "approved_for_session", ""),
        ("p\n", "approved_for_project", ""),
        ("1\n", "approved", ""),
        ("2\n", "approved_for_session", ""),
        ("4\n", "approved_with_rule", ""),
        ("5\n", "denied", ""),
        ("6\n", "denied", ""),
        ("r\n", "approved_with_rule", ""),
        ("n\n", "denied", ""),
        ("n use the other branch\n", "denied", "use the other branch"),
        ("q\n", "abort", ""),
        ("\n", "denied", ""),
        ("x\n", "denied", ""),
        ("y but only once\n", "denied", ""),
        ("ye\n", "denied", ""),
        ("\x04", "abort", ""),
    ],
)
async def test_answers(person: Person, typed: str, answer: str, note: str) -> None:
    review = await person.asked(question(), typed)
    assert (review.answer, review.note) == (answer, note)


async def test_only_what_is_offered_can_be_chosen(person: Person) -> None:
    review = await person.asked(question(choices=()), "s\n")
    assert review.answer == "denied"


async def test_what_is_critical_wants_a_whole_word(person: Person) -> None:
    request = question(risk=Risk.CRITICAL, choices=CHOICES[:1])
    assert (await person.asked(request, "y\n")).answer == "denied"
    assert (await Person().asked(request, "yes\n")).answer == "approved"


async def test_what_was_typed_before_the_question_is_no_answer(person: Person) -> None:
    os.write(person.master, b"y\ny\n")
    assert (await person.asked(question(), "n\n")).answer == "denied"


async def test_what_is_cut_cannot_be_approved_unseen(person: Person) -> None:
    long = question(command=("/bin/bash", "-c", "true\n" * 100 + "rm -rf ~"))
    assert (await person.asked(long, "y\n")).answer == "denied"
    assert "rm -rf" not in person.saw
    other = Person()
    assert (await other.asked(long, "e\n", "y\n")).answer == "approved"
    assert "  | rm -rf ~\n" in other.saw
    wide = question(command=("/bin/bash", "-c", "true " + "x" * 5000 + "; rm -rf ~"))
    other = Person()
    assert (await other.asked(wide, "y\n")).answer == "denied"


async def test_a_question_mark_is_help_and_no_answer(person: Person) -> None:
    review = await person.asked(question(command=("one",)), "?\n", "?\n", "y\n")
    assert review.answer == "approved"
    assert person.saw.count("  [y] this call only") == 2


async def test_two_questions_do_not_mix(person: Person) -> None:
    approver = TerminalApprover(person.terminal)
    typing = asyncio.create_task(person.types("y\n", "n\n", prompt="Answer: "))
    first, second = await asyncio.gather(
        approver(question(command=("one",))), approver(question(command=("two",)))
    )
    await typing
    assert (first.answer, second.answer) == ("approved", "denied")
    assert person.saw.index("| one") < person.saw.index("Answer:") < person.saw.index("| two")


async def test_a_question_can_be_taken_back(person: Person) -> None:
    approver = TerminalApprover(person.terminal)
    waiting = asyncio.create_task(approver(question()))
    while "Answer:" not in person.saw:
        await asyncio.sleep(0.005)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await asyncio.wait_for(person_says(person, "y\n"), 60)).answer == "approved"


async def person_says(person: Person, typed: str) -> Review:
    person.out.truncate(0)
    person.out.seek(0)
    return await person.asked(question(), typed)


async def test_the_beginning_of_a_secret_is_no_message(person: Person) -> None:
    """The question is answered elsewhere while the person types."""
    secret = asyncio.create_task(person.terminal.line("password: ", secret=True))
    # Control-S and Control-Q report themselves in packet mode: what came before has arrived.
    fcntl.ioctl(person.master, termios.TIOCPKT, struct.pack("i", 1))
    await person.types("hunt\x13\x11", prompt="password: ")
    while not os.read(person.master, 100)[0] & termios.TIOCPKT_START:
        pass
    fcntl.ioctl(person.master, termios.TIOCPKT, struct.pack("i", 0))
    secret.cancel()
    await asyncio.wait({secret})
    typing = asyncio.create_task(person.types("hello\n", prompt="you: "))
    assert await person.terminal.line("you: ", early=True) == "hello"
    await typing


async def test_a_secret_is_not_echoed(person: Person) -> None:
    typing = asyncio.create_task(person.types("hunter22\n", prompt="password: "))
    assert await person.terminal.line("password: ", secret=True) == "hunter22"
    await typing
    os.set_blocking(person.master, False)
    with pytest.raises(BlockingIOError):
        os.read(person.master, 100)
    assert termios.tcgetattr(person.slave)[3] & termios.ECHO, "echo is back on"


@given(st.text(), st.text(), st.text(), st.lists(st.text(), max_size=3))
def test_nothing_shown_can_act_on_the_terminal(
    command: str, reason: str, diff: str, keys: list[str]
) -> None:
    request = question(
        command=("/bin/bash", "-c", command),
        reason=reason,
        diff=diff,
        keys=tuple(keys),
        tool=reason,
    )
    for line in describe(request):
        assert line.isprintable(), repr(line)


@pytest.mark.parametrize("shell", ["/ws/.cache/bash", "bash", "/bin/../ws/bash", "/bin/python3"])
def test_only_a_shell_of_the_system_is_left_out(shell: str) -> None:
    text = "\n".join(describe(question(command=(shell, "-c", "git status"))))
    assert f"{shell} -c 'git status'" in text
    text = "\n".join(describe(question(command=("/usr/bin/zsh", "-lc", "git status"))))
    assert "zsh" not in text
    text = "\n".join(describe(question(command=("/bin/bash", "-ic", "git status"))))
    assert "/bin/bash -ic 'git status'" in text


@given(st.text(min_size=1), st.text(min_size=1))
def test_different_calls_look_different(one: str, other: str) -> None:
    shown = [list(describe(question(command=("/bin/bash", "-c", text)))) for text in (one, other)]
    assert (shown[0] == shown[1]) == (one == other)


# Trust


async def trusting(person: Person, folder: Path, *answers: str) -> None:
    """The question of a single call, which asks only where the folder brings something."""
    config = load(workspace=folder, surface="cli")
    typing = asyncio.create_task(person.types(*answers, prompt="Answer [1]: "))
    try:
        await asyncio.wait_for(ask_folder(person.terminal, config, always=False), 60)
    finally:
        typing.cancel()


@pytest.mark.parametrize(
    ("typed", "level"),
    [
        ("y\n", "trusted"), ("1\n", "trusted"), ("\n", "trusted"),
        ("n\n", "untrusted"), ("2\n", "untrusted"), ("3\n", None), ("\x04", None),
    ],
)  # fmt: skip
async def test_a_folder_is_trusted_only_by_a_person(
    person: Person, tmp_path: Path, typed: str, level: str | None
) -> None:
    await trusting(person, tmp_path)
    assert person.saw == "", "a folder that brings nothing is nothing to ask about"
    (tmp_path / ".toolrest").mkdir()
    (tmp_path / ".toolrest" / "config.toml").write_text('model = "m"\n')
    with pytest.raises(click.exceptions.Exit) if level is None else nullcontext():
        await trusting(person, tmp_path, typed)
    assert ".toolrest/config.toml here will count." in person.saw
    assert trust_of(tmp_path) == level
    before = person.saw
    if level is not None:
        await trusting(person, tmp_path)
        assert person.saw == before, "an answer is not asked for twice"


# A model's questions


BLUE_OR_RED = (UserOption("Blue", "like the sky"), UserOption("Red\x1b[2J", "like rust"))


async def answered(person: Person, *typed: str, **more: Any) -> Any:
    question = UserQuestion("colour", "Colour", "Which\none?", **{"options": BLUE_OR_RED} | more)
    typing = asyncio.create_task(person.types(*typed, prompt="Answer: "))
    asked = UserQuestions("c", "t", (question,))
    try:
        return await asyncio.wait_for(TerminalApprover(person.terminal).ask_user(asked), 60)
    finally:
        typing.cancel()


@pytest.mark.parametrize(
    ("typed", "answers"),
    [
        (["1\n"], ("Blue",)),
        (["2, 1\n"], ("Red\x1b[2J", "Blue")),
        (["3\n"], ("3",)),
        (["green, please\n"], ("green, please",)),
        (["\n", "1\n"], ("Blue",)),
        (["\n", "\n", "\n"], None),
        (["\x04"], None),
    ],
)
async def test_questions_are_answered(
    person: Person, typed: list[str], answers: tuple[str, ...] | None
) -> None:
    found = await answered(person, *typed)
    assert found == (None if answers is None else {"colour": answers})
    assert "  | Which\n  | one?\n" in person.saw
    assert "[2] Red⟨ESC⟩[2J: like rust" in person.saw


async def test_a_secret_answer_is_not_shown_and_not_too_short(person: Person) -> None:
    found = await answered(person, "1234\n", "hunter22\n", options=(), is_secret=True)
    assert found == {"colour": ("hunter22",)}
    assert "too short" in person.saw
    assert "hunter22" not in person.saw
    os.set_blocking(person.master, False)
    with pytest.raises(BlockingIOError):
        os.read(person.master, 100)
