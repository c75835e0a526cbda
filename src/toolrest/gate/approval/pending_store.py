"""The store of pending approvals (`on_ask = "defer"`): answered by any process, used once.

A pending approval is three files that are each created once and never changed: the request,
`ID.answer` with the first answer, and `ID.taken`; the process that creates `ID.taken` may act.
If it then dies, the answer is used up: at most once, not at least once.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from toolrest.errors import Rejected
from toolrest.events import ApprovalDeferred
from toolrest.gate.approval.pending import ApprovalScope, PendingApproval, PendingError, shown_of
from toolrest.gate.approval.request import ANSWERS, ApprovalRequest, Review, ReviewDecision
from toolrest.gate.bus import Bus
from toolrest.items import JSONObject
from toolrest.private_files import private_file, private_folder, reason, regular_file, write_all

State: TypeAlias = Literal["waiting", "answered", "taken", "expired"]

FOLDER = "approvals"
_KEY = "key"
_MOST_BYTES = 16 << 20
_LONGEST = 1 << 20
_MOST_OPEN = 200
_KEPT_AFTER = 7 * 86_400


class PendingStore(Struct):
    """The pending approvals of one user, in a folder that no tool can reach."""

    home: str
    _mac_key: bytes = b""

    def __repr__(self) -> str:
        return f"PendingStore(home={self.home!r})"  # without the key, which is secret

    # Asking

    def add(
        self, request: ApprovalRequest, around: ApprovalScope, seconds: float, reuse: bool = True
    ) -> PendingApproval:
        """Store a request; with `reuse`, one with the same pin that still waits is taken."""
        pin, exact = around.pin(request), request.exact
        if exact is None:
            raise PendingError("an approval request that is not about a call cannot wait")
        if len(exact.text) > _LONGEST:
            raise PendingError("a call with arguments this long cannot wait for an answer")
        if reuse and (known := next(iter(self.waiting(pin=pin)), None)) is not None:
            return known
        count = len(self.waiting(session_id=around.session_id))
        if count >= _MOST_OPEN:
            raise PendingError(
                f"{count} approvals wait already in this session; answer some "
                "(`toolrest approvals list`)"
            )
        self._forget_old()
        now = time.time()
        pending = PendingApproval(
            secrets.token_hex(6),
            pin,
            request.tool,
            exact.text,
            exact.freeform,
            around.workspace,
            around.approval_policy,
            around.sandbox_mode,
            now,
            now + seconds,
            around.session_id,
            request.call_id,
            shown_of(request),
        )
        pending = replace(pending, mac=self._mac(asdict(pending)))
        self._create(f"{pending.id}.json", pending.to_json())
        return pending

    # Looking

    def listed(self) -> list[PendingApproval]:
        """Every genuine pending approval, oldest first."""
        found = [pending for name in self._names(".json") if (pending := self._load(name[:-5]))]
        return sorted(found, key=lambda pending: (pending.created, pending.id))

    def waiting(self, **having: str) -> list[PendingApproval]:
        """Every genuine pending approval that can still be used, oldest first.

        `having` are fields with their values, such as `call_id`; others are not looked at closely.
        """
        names = set(self._names(""))
        ids = (n[:-5] for n in names if n.endswith(".json") and f"{n[:-5]}.taken" not in names)
        parts = [json.dumps(value).encode() for value in having.values()]
        found = [pending for identity in ids if (pending := self._load(identity, parts))]
        usable = [
            pending
            for pending in found
            if self.state(pending) in ("waiting", "answered")
            and all(getattr(pending, name) == value for name, value in having.items())
        ]
        return sorted(usable, key=lambda pending: (pending.created, pending.id))

    def get(self, identity: str) -> PendingApproval:
        """One pending approval by its id, or by a unique start of it."""
        matching = [pending for pending in self.listed() if pending.id.startswith(identity)]
        if len(matching) != 1 or not identity:
            problem = "no pending approval has" if not matching else "several approvals have"
            raise PendingError(
                f"{problem} the id {identity}", hints=("`toolrest approvals list` has them all.",)
            )
        return matching[0]

    def state(self, pending: PendingApproval) -> State:
        """The state: waiting, answered, taken (used) or expired."""
        if self._exists(f"{pending.id}.taken"):
            return "taken"
        if time.time() >= pending.expires:
            return "expired"
        return "answered" if self._exists(f"{pending.id}.answer") else "waiting"

    def answer_to(self, pending: PendingApproval) -> Review | None:
        """The answer, if there is one; PendingError when Toolrest did not write it."""
        text = self._read(f"{pending.id}.answer")
        if text is None:
            return None
        try:
            data = json.loads(text)
            mac = data.pop("mac")
            genuine = hmac.compare_digest(str(mac), self._mac(data))
        except (ValueError, TypeError, KeyError, AttributeError):
            genuine = False
        if not genuine or data.get("id") != pending.id or data.get("pin") != pending.pin:
            raise PendingError(f"Toolrest did not write the answer to {pending.id}")
        return Review(data["answer"], data["note"])

    # Answering

    def answer(self, pending: PendingApproval, answer: ReviewDecision, note: str = "") -> Review:
        """Record an answer. The first one counts: giving another one is an error."""
        self.check(pending)
        if answer not in ANSWERS:
            raise PendingError(f"{answer!r} is not one of {', '.join(ANSWERS)}")
        data: JSONObject = {
            "id": pending.id,
            "pin": pending.pin,
            "answer": answer,
            "note": note,
            "time": time.time(),
        }
        try:
            self._create(f"{pending.id}.answer", json.dumps({**data, "mac": self._mac(data)}))
        except FileExistsError:
            given = self.answer_to(pending)
            if given is None or given.answer != answer:
                first = given.answer if given else "something else"
                raise PendingError(f"{pending.id} was already answered: {first}") from None
            return given
        return Review(answer, note)

    def take(self, pending: PendingApproval) -> None:
        """Claim the right to act on the answer; PendingError when another process has it.

        It is on disk before this returns, so not even a crash makes it happen twice.
        """
        self.check(pending)
        try:
            self._create(f"{pending.id}.taken", str(os.getpid()))
        except FileExistsError:
            raise PendingError(f"{pending.id} was already used; an answer counts once") from None

    def withdraw(self, pending: PendingApproval, note: str = "") -> bool:
        """Use an approval up without its call; False when that cannot be, as when it was used."""
        try:
            with suppress(PendingError):  # it may have an answer, which is then used up
                self.answer(pending, "denied", note)
            self.take(pending)
        except PendingError:
            return self.state(pending) != "taken"
        except OSError:
            return False
        return True

    def check(self, pending: PendingApproval) -> None:
        """Raise PendingError unless it is genuine, known here, unused and not expired."""
        if not self._is_genuine(pending):
            raise PendingError(f"{pending.id}: this was changed, or is not from this TOOLREST_HOME")
        if not self._exists(f"{pending.id}.json"):
            raise PendingError(f"{pending.id} is not known here any more")
        state = self.state(pending)
        if state == "taken":
            raise PendingError(f"{pending.id} was already used; an answer counts once")
        if state == "expired":
            raise PendingError(f"{pending.id} has expired; make the call again")

    # Files

    def _load(self, identity: str, parts: Iterable[bytes] = ()) -> PendingApproval | None:
        """A pending approval of the folder; None for one that is torn, not genuine or without
        these parts: to look for them is far quicker than to read and check it.
        """
        text = self._read(f"{identity}.json")
        if text is None or not all(part in text for part in parts):
            return None
        try:
            pending = PendingApproval.from_json(text)
        except PendingError:
            return None
        return pending if self._is_genuine(pending) and pending.id == identity else None

    def _is_genuine(self, pending: PendingApproval) -> bool:
        return hmac.compare_digest(pending.mac, self._mac({**asdict(pending), "mac": ""}))

    def _forget_old(self) -> None:
        """Delete what expired long ago; its expiry is part of it, so it cannot come back."""
        for name in list(self._names(".json")):
            pending = self._load(name[:-5]) if self._is_old(name) else None
            if pending is not None and time.time() > pending.expires + _KEPT_AFTER:
                for ending in (".answer", ".json", ".taken"):
                    with suppress(OSError):
                        os.unlink(self._path(pending.id + ending))

    def _is_old(self, name: str) -> bool:
        """Whether a file is old enough to be forgotten; only then is it worth reading."""
        try:
            return os.stat(self._path(name)).st_mtime < time.time() - _KEPT_AFTER
        except OSError:
            return False

    def _path(self, name: str) -> str:
        return os.path.join(self.home, FOLDER, name)

    def _names(self, ending: str) -> Iterator[str]:
        with suppress(FileNotFoundError):
            yield from (n for n in os.listdir(self._path("")) if n.endswith(ending))

    def _exists(self, name: str) -> bool:
        return os.path.lexists(self._path(name))

    def _read(self, name: str) -> bytes | None:
        try:
            with open(self._path(name), "rb", opener=regular_file) as stream:
                return stream.read(_MOST_BYTES)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EISDIR, errno.EINVAL):
                return None  # there is none, or what is there is no file
            raise

    def _create(self, name: str, text: str) -> None:
        """Create a whole file at once, on disk; FileExistsError when there is one."""
        folder = private_folder(self.home, FOLDER)
        try:
            temporary = f".{secrets.token_hex(8)}"
            descriptor = private_file(folder, temporary)
            try:
                write_all(descriptor, text.encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            try:
                os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                os.unlink(temporary, dir_fd=folder)
            os.fsync(folder)
        finally:
            os.close(folder)

    def _mac(self, data: Mapping[str, Any]) -> str:
        text = json.dumps(data, sort_keys=True).encode()
        return hmac.new(self._secret(), text, "sha256").hexdigest()

    def _secret(self) -> bytes:
        if not self._mac_key:
            if not self._exists(_KEY):
                with suppress(FileExistsError):
                    self._create(_KEY, secrets.token_hex(32))
            self._mac_key = self._read(_KEY) or b""
            if len(self._mac_key) < 64:
                raise PendingError(f"{self._path(_KEY)} is damaged; remove it to start anew")
        return self._mac_key


_LOOK_EVERY = 0.2


class FileApprovals(Struct):
    """Approvals through files, which another process answers, now or later."""

    store: PendingStore
    around: ApprovalScope
    bus: Bus
    wait: float = 0.0
    expire: float = 86_400.0
    reuses: bool = True
    """Whether the same call, made again, waits for the same approval."""

    def ask_for_each(self) -> None:
        """Have each call wait for its own approval from now on."""
        self.reuses = False

    async def ask(self, request: ApprovalRequest) -> Review:
        """The answer, if one comes in time; this call uses it up. Otherwise Rejected."""
        try:
            pending = await asyncio.to_thread(
                self.store.add, request, self.around, self.expire, self.reuses
            )
            review = await self._answer(pending, request)
            if review is not None:
                await asyncio.to_thread(self.store.take, pending)
                return review
        except PendingError as error:
            raise Rejected(f"not run: {error}", kind="approval_denied") from None
        except OSError as error:
            message = f"not run: cannot use the folder of approvals: {reason(error)}"
            raise Rejected(message, kind="approval_denied") from None
        raise Rejected(_waits(pending, request), kind="approval_denied")

    async def _answer(self, pending: PendingApproval, request: ApprovalRequest) -> Review | None:
        review = self.store.answer_to(pending)
        if review is not None:
            return review
        self.bus.emit(
            ApprovalDeferred(
                call_id=request.call_id,
                approval_id=pending.id,
                tool=request.tool,
                reason=request.reason,
                expires=pending.expires,
                turn_id=request.turn_id,
            )
        )
        loop = asyncio.get_running_loop()
        until = loop.time() + self.wait
        while review is None and loop.time() < until:
            await asyncio.sleep(min(_LOOK_EVERY, max(until - loop.time(), 0)))
            review = self.store.answer_to(pending)
        return review


def _waits(pending: PendingApproval, request: ApprovalRequest) -> str:
    return (
        f"not run yet: {request.tool} needs approval ({request.reason}), which is pending as "
        f"{pending.id}. The user can answer it: `toolrest approvals approve {pending.id}`, or "
        "`deny`. Once it is approved, the same call, made again, runs once."
    )
