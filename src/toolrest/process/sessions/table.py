"""The table of command sessions: start, poll, type, interrupt, evict, close."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from toolrest.errors import RespondToModel
from toolrest.process.child import StartFailed
from toolrest.process.command import Command
from toolrest.process.output.decode import binary_note, decode_piece
from toolrest.process.owner import Owner
from toolrest.process.run import GRACE, State
from toolrest.process.sessions.session import CommandSession, SessionEnd

FIRST_ID, LAST_ID = 1000, 99_999
LIMIT, WARN_AT, PROTECTED = 64, 60, 8
YIELD_LEAST, YIELD_MOST, POLL_LEAST = 250, 30_000, 5_000
DEFAULT_EXEC_YIELD, DEFAULT_WRITE_YIELD = 10_000, 250
INTERRUPT = "\x03"


class UnknownSession(RespondToModel):
    """No session has this number (any more)."""

    def __init__(self, session_id: int) -> None:
        super().__init__(f"Unknown process id {session_id}", fields=("session_id",))


class StdinClosed(RespondToModel):
    """The session was started without a terminal, so nothing can be typed."""

    def __init__(self) -> None:
        super().__init__(
            "stdin is closed for this session; rerun exec_command with tty=true to keep stdin open"
        )


class StdinFailed(RespondToModel):
    """The terminal takes no more input: it is closed, or the program does not read it."""

    def __init__(self) -> None:
        super().__init__("failed to write to stdin")


class ExecResult(Struct, frozen=True):
    """The result of one call on a session.

    `session_id` is set while the command runs, `exit_code` once it has ended (128 + n for
    signal n). `text` is the output since the last call, before any cutting to a budget;
    `original_bytes` counts it with the `omitted` ones; `binary` is a note about binary output.
    """

    state: State
    chunk_id: str
    wall_time: float = 0.0
    text: str = ""
    original_bytes: int = 0
    omitted: int = 0
    exit_code: int | None = None
    signal: int | None = None
    session_id: int | None = None
    pid: int = 0
    waiting_for_input: bool = False
    background_pids: tuple[int, ...] = ()
    warning: str | None = None
    evicted: int | None = None
    error: str | None = None
    binary: str | None = None


class SessionInfo(Struct, frozen=True):
    """One row of the table."""

    session_id: int
    argv: tuple[str, ...]
    call_id: str
    tty: bool
    pid: int
    exit_code: int | None
    age: float
    idle: float


def clamp_exec(yield_ms: int) -> int:
    """Milliseconds that a start, or a call that types, waits at most."""
    return max(YIELD_LEAST, min(yield_ms, YIELD_MOST))


def clamp_poll(yield_ms: int, most: int = YIELD_MOST) -> int:
    """Milliseconds that a call that only polls waits at most."""
    return max(POLL_LEAST, min(max(yield_ms, YIELD_LEAST), most))


class Sessions:
    """Up to 64 commands that outlive a call; they end with `aclose()` at the latest."""

    def __init__(self, owner: Owner, *, ordered: bool = False, most_poll: int = YIELD_MOST) -> None:
        self._owner = owner
        self._ordered = ordered
        self._most_poll = most_poll
        self._reserved: set[int] = set()
        self._stored: dict[int, CommandSession] = {}

    def reserve(self) -> int:
        """Take a free number; `release` returns it when no session was started."""
        taken = self._reserved | self._stored.keys()
        if self._ordered:
            number = max(taken, default=FIRST_ID - 1) + 1
        else:
            number = _any_id()
            while number in taken:
                number = _any_id()
        self._reserved.add(number)
        return number

    def release(self, number: int) -> None:
        """Give a number back."""
        self._reserved.discard(number)

    async def exec(
        self,
        command: Command,
        *,
        yield_ms: int = DEFAULT_EXEC_YIELD,
        session_id: int | None = None,
        call_id: str = "",
        on_start: Callable[[int, int], None] | None = None,
        on_delta: Callable[[str], None] | None = None,
        on_bytes: Callable[[bytes], object] | None = None,
        on_end: Callable[[SessionEnd], None] | None = None,
    ) -> ExecResult:
        """Start a command and wait for its end, at most for the yield; then it goes on alone.

        `on_start` gets session number and pid once the program runs, `on_delta` the text that
        arrives during this call (10,000 pieces at most), `on_bytes` everything as long as the
        session lives, `on_end` its end, once, however late that comes. Cancelling the call kills
        the command's tree.
        """
        number = self.reserve() if session_id is None else session_id
        self._reserved.add(number)
        try:
            child = await self._owner.start(command, merge=True)
        except StartFailed as failure:
            self.release(number)
            return ExecResult("failed_to_start", _chunk_id(), error=str(failure))
        except BaseException:
            self.release(number)
            raise
        session = CommandSession(number, child, command.argv, call_id)
        session.on_end, session.on_bytes = on_end, on_bytes
        if on_start is not None:
            on_start(number, child.pid)
        try:
            result = await self._answer(session, clamp_exec(yield_ms), on_delta)
            if session.running.finished:
                session.running.leave()
                return result
            return await self._store(session, result)
        except BaseException:
            await session.running.kill(GRACE)
            session.running.close()
            raise
        finally:
            self.release(number)

    def call_of(self, number: int) -> str:
        """The id of the call that started a session; empty when there is no such session."""
        session = self._stored.get(number)
        return "" if session is None else session.call_id

    async def write(
        self,
        session_id: int,
        chars: str = "",
        *,
        yield_ms: int = DEFAULT_WRITE_YIELD,
        on_delta: Callable[[str], None] | None = None,
    ) -> ExecResult:
        """Type into a session, or with no characters poll it.

        Ctrl-C alone interrupts a session without a terminal too. Input for a command that has
        ended is dropped, and its end is the result. Cancelling leaves the session alone.
        """
        session = self._find(session_id)
        session.users += 1
        try:
            async with session.lock:
                if self._stored.get(session_id) is not session:
                    raise UnknownSession(session_id)
                session.last_used = self._now()
                if chars and session.exit_code is None:
                    self._type(session, chars)
                wait = clamp_exec(yield_ms) if chars else clamp_poll(yield_ms, self._most_poll)
                result = await self._answer(session, wait, on_delta)
                session.last_used = self._now()
                if session.running.finished:
                    del self._stored[session_id]
                    session.running.leave()
                    return result
                return replace(result, session_id=session_id)
        finally:
            session.users -= 1

    def watch(
        self, session_id: int, on_bytes: Callable[[bytes], object]
    ) -> tuple[str, Callable[[], None]]:
        """The output so far, and from now on what comes, until the function is called.

        Calls on the session get all of their output all the same.
        """
        session = self._find(session_id)
        session.watchers.append(on_bytes)
        text = decode_piece(session.transcript.piece())
        return text, lambda: session.watchers.remove(on_bytes)

    def type(self, session_id: int, chars: str) -> None:
        """Type into a session without waiting for what comes of it."""
        self._type(self._find(session_id), chars)

    def resize(self, session_id: int, rows: int, cols: int) -> None:
        """Change the size of a session's terminal."""
        terminal = self._find(session_id).running.terminal
        if terminal is not None:
            terminal.resize(rows, cols)

    def signal(self, session_id: int, number: int = signal.SIGINT) -> None:
        """Send a signal to the process group of a session's command."""
        self._find(session_id).running.child.signal(number)

    async def stop(self, session_id: int) -> ExecResult:
        """Kill a session's tree and return its last output."""
        session = self._find(session_id)
        async with session.lock:
            self._stored.pop(session_id, None)
            await session.running.kill(GRACE)
            result = await self._answer(session, 0, None)
            session.running.close()
        return result

    def list(self) -> tuple[SessionInfo, ...]:
        """The sessions that are open, oldest first."""
        now = self._now()
        return tuple(
            SessionInfo(
                session.id,
                session.argv,
                session.call_id,
                session.running.terminal is not None,
                session.running.child.pid,
                session.exit_code,
                now - session.running.started_at,
                now - session.last_used,
            )
            for session in self._stored.values()
        )

    async def aclose(self) -> None:
        """Kill every session's tree."""
        sessions = list(self._stored.values())
        self._stored.clear()
        await asyncio.gather(*(session.running.kill(GRACE) for session in sessions))
        for session in sessions:
            session.running.close()

    async def _answer(
        self, session: CommandSession, wait_ms: int, on_delta: Callable[[str], None] | None
    ) -> ExecResult:
        began = self._now()
        session.listen(on_delta)
        try:
            waiting = await session.collect(began + wait_ms / 1000)
        finally:
            session.listen(None)
        wall_time = self._now() - began
        child = session.running.child
        finished = session.running.finished
        piece = session.drain()
        text = decode_piece(piece)
        state: State = "still_running"
        if finished:
            state = "exited" if session.signal is None else "signaled"
        return ExecResult(
            state,
            _chunk_id(),
            wall_time,
            text,
            piece.total if piece.omitted else len(text.encode()),
            piece.omitted,
            session.exit_code if finished else None,
            session.signal if finished else None,
            None if finished else session.id,
            child.pid,
            waiting,
            child.descendants() if finished else (),
            binary=binary_note(piece),
        )

    async def _store(self, session: CommandSession, result: ExecResult) -> ExecResult:
        evicted = await self._make_room()
        self._stored[session.id] = session
        warning = None
        if len(self._stored) >= WARN_AT:
            warning = (
                f"{len(self._stored)} command sessions are open, and from {WARN_AT} on the oldest "
                f"may be ended to make room (at most {LIMIT}): use open ones again or end them"
            )
        return replace(result, warning=warning, evicted=evicted)

    async def _make_room(self) -> int | None:
        """End the session that is least likely to be needed when the table is full."""
        if len(self._stored) < LIMIT:
            return None
        by_use = sorted(self._stored.values(), key=lambda session: session.last_used)
        candidates = [session for session in by_use[:-PROTECTED] if not session.users]
        exited = [session for session in candidates if session.exit_code is not None]
        for session in (exited or candidates)[:1]:
            del self._stored[session.id]
            await session.running.kill(GRACE)
            session.running.close()
            return session.id
        return None

    def _type(self, session: CommandSession, chars: str) -> None:
        running = session.running
        if running.terminal is None:
            if chars != INTERRUPT:
                raise StdinClosed
            running.child.signal(signal.SIGINT)
        elif not running.terminal.type(chars.encode("utf-8", "surrogatepass")):
            raise StdinFailed

    def _find(self, session_id: int) -> CommandSession:
        session = self._stored.get(session_id)
        if session is None:
            raise UnknownSession(session_id)
        return session

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _any_id() -> int:
    return FIRST_ID + int.from_bytes(os.urandom(4), "little") % (LAST_ID - FIRST_ID + 1)


def _chunk_id() -> str:
    return os.urandom(3).hex()
