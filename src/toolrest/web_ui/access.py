"""Who may use the page: this machine's browser, opened with the one-time link.

A browser shows any page the user visits, and sends cookies of 127.0.0.1 to every port there: to a
server that a model's command started, too. So a request must name a host that is ours, must not
come from another page, and must carry both the cookie and a key that only our page's origin keeps.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final

from msgspec import MsgspecError, Struct, field, json
from starlette.responses import JSONResponse

from toolrest.private_files import make_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

API: Final = "/api/"
LOGIN: Final = "/api/login"
KEY_HEADER: Final = b"x-toolrest-key"
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


class Login(Struct):
    """One browser that opened a link: hashes of its cookie and key, and when it was last seen."""

    cookie: str
    key: str
    used: float


class Logins(Struct):
    """The links that were given out and the browsers that opened one.

    With a `file`, browsers stay logged in when the server is started again; it holds only hashes.
    """

    idle_seconds: float
    clock: Callable[[], float] = time.time
    file: str | None = None
    _links: dict[str, float] = field(default_factory=dict)
    _logins: list[Login] | None = None
    _failed: list[float] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Logins({self.file!r})"  # without the links

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
            self._failed.append(now)
            return None
        del self._links[found[0]]
        cookie, key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        login = Login(_hash(cookie), _hash(key), self.clock())
        self._keep([*self._current()[-_MOST_LOGINS:], login])
        return cookie, key

    def is_slowed(self) -> bool:
        """Whether there were too many wrong tokens in the last minute."""
        now = self.clock()
        self._failed = [at for at in self._failed if now - at < _IN]
        return len(self._failed) >= _TRIES

    def allows(self, cookie: str, key: str) -> bool:
        """Whether these belong to a login that was used lately, which counts as a use."""
        now, wanted = self.clock(), (_hash(cookie), _hash(key))
        for login in self._current():
            if (login.cookie, login.key) == wanted:
                is_old = now - login.used > _IN
                login.used = now
                if is_old:
                    self._keep(self._current())
                return True
        return False

    def forget(self, cookie: str) -> None:
        """End a login."""
        self._keep([login for login in self._current() if login.cookie != _hash(cookie)])

    def _current(self) -> list[Login]:
        """The logins that were used lately."""
        if self._logins is None:
            self._logins = _read(self.file)
        now = self.clock()
        self._logins = [one for one in self._logins if 0 <= now - one.used < self.idle_seconds]
        return self._logins

    def _keep(self, logins: list[Login]) -> None:
        self._logins = logins
        if self.file is not None:
            draft = f"{self.file}.{secrets.token_hex(8)}"
            make_private(os.path.dirname(self.file))
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(json.encode(logins))
            os.replace(draft, self.file)


def _read(path: str | None) -> list[Login]:
    if path is None:
        return []
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            return json.decode(file.read(), type=list[Login])
    except (OSError, MsgspecError):
        return []  # a new link is always to be had


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


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
            await send(message)

        if scope["type"] == "http" and (refused := self._refusal(scope)) is not None:
            status, reason = refused
            await JSONResponse({"error": reason}, status)(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        if _only(scope, b"host") not in self._hosts:
            return 421, "this host name is not served here"
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
        key = (_only(scope, KEY_HEADER) or b"").decode("latin-1")
        if not self._logins.allows(cookie_of(scope), key):
            return 401, "open the page with a new link: it is printed where toolrest web runs"
        return None


def cookie_name(scope: Scope) -> str:
    """The cookie's name: pages on other ports of this machine have others."""
    return f"toolrest_{(scope.get('server') or ('', 0))[1]}"


def cookie_of(scope: Scope) -> str:
    """The value of our cookie, or nothing."""
    try:
        jar = SimpleCookie((_only(scope, b"cookie") or b"").decode("latin-1"))
    except CookieError:
        return ""
    morsel = jar.get(cookie_name(scope))
    return "" if morsel is None else morsel.value


def _all(scope: Scope, name: bytes) -> list[bytes]:
    return [value for header, value in scope["headers"] if header.lower() == name]


def _only(scope: Scope, name: bytes) -> bytes | None:
    """A header that must not be given twice."""
    values = _all(scope, name)
    if not values:
        return None
    return values[0] if len(values) == 1 else b"\0"
