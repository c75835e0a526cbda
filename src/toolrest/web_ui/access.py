"""Who may use the page: this machine's browser, opened with the one-time link.

A browser shows any page the user visits, and sends cookies of 127.0.0.1 to every port there: to a
server that a model's command started, too. So a request must name a host that is ours, must not
come from another page, and must carry both the cookie and a key that only our page's origin keeps.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from json import dumps
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field
from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

API: Final = "/api/"
LOGIN: Final = "/api/login"
KEY_HEADER: Final = b"x-toolrest-key"
_IDLE_HEADER: Final = b"x-toolrest-idle"
"""The header of requests that the page makes by itself: they do not postpone the idle log-out."""
_TRIES, _IN = 5, 60.0
_MOST_LOGINS = 50
_LINK_SECONDS = 3600.0
HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"interest-cohort=()"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


class Json(JSONResponse):
    """JSON in ASCII: the name of a file or a folder may have bytes that are no UTF-8."""

    def render(self, content: Any) -> bytes:
        """The answer's bytes."""
        return dumps(content, allow_nan=False, separators=(",", ":")).encode()


class Login(Struct):
    """One browser that opened a link: hashes of its cookie and key, and when it was last seen."""

    cookie: str
    key: str
    used: float


class Logins(Struct):
    """The links that were given out and the browsers that opened one.

    They end with the server: a program that takes its port then gets the cookies and keys that
    open tabs send.
    """

    idle_seconds: float
    clock: Callable[[], float] = time.time
    _links: dict[str, float] = field(default_factory=dict)
    _logins: list[Login] = field(default_factory=list)
    _failed: list[float] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Logins({self.idle_seconds!r})"  # without the links

    def link(self) -> str:
        """A new one-time token."""
        token = secrets.token_urlsafe(32)
        self._links[_hash(token)] = self.clock()
        return token

    def open(self, token: str) -> tuple[str, str] | None:
        """The cookie and key of a browser that has a token, which is used up; None without."""
        now = self.clock()
        self._links = {one: at for one, at in self._links.items() if now - at < _LINK_SECONDS}
        found = [link for link in self._links if hmac.compare_digest(link, _hash(token))]
        if not found:
            if not self.is_slowed():
                self._failed.append(now)
            return None
        del self._links[found[0]]
        cookie, key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        login = Login(_hash(cookie), _hash(key), self.clock())
        self._logins = [*self._current()[-_MOST_LOGINS:], login]
        return cookie, key

    def is_slowed(self) -> bool:
        """Whether there were too many wrong tokens in the last minute."""
        now = self.clock()
        self._failed = [at for at in self._failed if now - at < _IN]
        return len(self._failed) >= _TRIES

    def allows(self, cookies: Iterable[str], key: str, *, is_use: bool = True) -> bool:
        """Whether these belong to a login that was used lately; with `is_use` this is a use."""
        now, hashes, wanted = self.clock(), set(map(_hash, cookies)), _hash(key)
        for login in self._current():
            if login.cookie in hashes and login.key == wanted:
                login.used = now if is_use else login.used
                return True
        return False

    def forget(self, cookies: Iterable[str]) -> None:
        """End a login."""
        hashes = set(map(_hash, cookies))
        self._logins = [login for login in self._current() if login.cookie not in hashes]

    def _current(self) -> list[Login]:
        """The logins that were used lately."""
        now = self.clock()
        self._logins = [one for one in self._logins if 0 <= now - one.used < self.idle_seconds]
        return self._logins


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


class CriticalCode:
    """The code for approvals of critical calls, which is printed where the server runs."""

    def __init__(self, code: str) -> None:
        self._code = code
        self._wrong = 0

    def check(self, given: object) -> None:
        """Raise PermissionError for a wrong code, and for any code after five wrong ones."""
        if self._wrong >= 5:
            raise PermissionError("too many wrong codes: answer this one at the terminal")
        if not self._code or given != self._code:
            self._wrong += 1
            raise PermissionError("a critical call needs the code printed where toolrest web runs")
        self._wrong = 0


class _LoggedOut(Exception):
    """A stream whose login has ended."""


class Access:
    """Answers 421, 403 or 401 to what is not allowed; nothing behind it sees such a request."""

    def __init__(
        self, app: ASGIApp, logins: Logins, hosts: Iterable[str], scheme: str, csp: str
    ) -> None:
        self._app = app
        self._logins = logins
        self._hosts = {host.encode() for host in hosts}
        self._origins = {f"{scheme}://{host}".encode() for host in hosts}
        self._headers = (*HEADERS, (b"content-security-policy", csp.encode()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in self._headers}
                kept = [pair for pair in message["headers"] if pair[0].lower() not in own]
                message = {**message, "headers": [*kept, *self._headers]}
            elif message.get("more_body") and not self._logins.allows(*proof, is_use=False):
                raise _LoggedOut
            await send(message)

        proof = _proof(scope) if scope["type"] == "http" else ([], "")
        if scope["type"] == "http" and (refused := self._refusal(scope, proof)) is not None:
            status, reason = refused
            await Json({"error": reason}, status)(scope, receive, guarded)
            return
        try:
            await self._app(scope, receive, guarded)
        except _LoggedOut:
            await send({"type": "http.response.body", "body": b""})

    def _refusal(self, scope: Scope, proof: tuple[list[str], str]) -> tuple[int, str] | None:
        if _only(scope, b"host") not in self._hosts:
            return 421, "this host name is not served here"
        if _all(scope, b"service-worker"):
            return 403, "there is no service worker here: one could read the page and its key"
        origin = _all(scope, b"origin")
        if origin and (len(origin) > 1 or origin[0] not in self._origins):
            return 403, "requests from other pages are refused"
        site = _only(scope, b"sec-fetch-site")
        if site not in (None, b"same-origin", b"none"):
            return 403, "requests from other pages are refused"
        if not scope["path"].startswith(API):
            return None
        if scope["method"] != "GET" and not origin:
            return 403, "a request that changes something must say its origin"
        if scope["path"] == LOGIN:
            return None
        if not self._logins.allows(*proof, is_use=not _all(scope, _IDLE_HEADER)):
            return 401, "open the page with a new link: it is printed where toolrest web runs"
        return None


def _proof(scope: Scope) -> tuple[list[str], str]:
    """The cookies and the key of a request."""
    return cookies_of(scope), (_only(scope, KEY_HEADER) or b"").decode("latin-1")


def cookie_name(scope: Scope) -> str:
    """The cookie's name: pages on other ports of this machine have others."""
    return f"toolrest_{(scope.get('server') or ('', 0))[1]}"


def cookies_of(scope: Scope) -> list[str]:
    """The values of every cookie with our name.

    Servers on other ports of this machine set cookies, too: of any form, and with our name for
    another path. Neither may log anyone out.
    """
    given = (_only(scope, b"cookie") or b"").decode("latin-1").split(";")
    pairs = (one.strip().partition("=") for one in given)
    return [value for name, _, value in pairs if name == cookie_name(scope)]


def _all(scope: Scope, name: bytes) -> list[bytes]:
    return [value for header, value in scope["headers"] if header.lower() == name]


def _only(scope: Scope, name: bytes) -> bytes | None:
    """A header that must not be given twice."""
    values = _all(scope, name)
    if not values:
        return None
    return values[0] if len(values) == 1 else b"\0"
