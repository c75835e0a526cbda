"""Keys that were typed: in the system's keyring where there is one, else in a private file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from toolrest.secret import Secret
from toolrest.wire import stored_keys as module
from toolrest.wire.stored_keys import store_key, stored_keys

KEY = "sk-typed-0123456789"


class Ring(ModuleType):
    """The package `keyring` with a keyring of this priority."""

    def __init__(self, priority: float) -> None:
        super().__init__("keyring")
        self.priority = priority
        self.kept: dict[tuple[str, str], str] = {}
        self.is_locked = False

    def get_keyring(self) -> Any:
        return self

    def get_password(self, service: str, user: str) -> str | None:
        if self.is_locked:
            raise RuntimeError("locked")
        return self.kept.get((service, user))

    def set_password(self, service: str, user: str, key: str) -> None:
        if self.is_locked:
            raise RuntimeError("locked")
        self.kept[service, user] = key


@pytest.fixture
def home(tmp_path: Path) -> str:
    module._from_keyring.cache_clear()
    return str(tmp_path)


def _ring(monkeypatch: pytest.MonkeyPatch, priority: float) -> Ring:
    ring = Ring(priority)
    monkeypatch.setitem(sys.modules, "keyring", ring)
    return ring


def test_a_keyring_takes_the_key_and_the_file_only_names_it(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    path = Path(store_key(home, "openai", "an older key"))
    ring = _ring(monkeypatch, 5)
    assert store_key(home, "openai", KEY) == "the system's keyring"
    assert list(ring.kept.values()) == [KEY]
    assert json.loads(path.read_text()) == {"version": 1, "keys": {}, "keyring": ["openai"]}
    assert path.stat().st_mode & 0o777 == 0o600
    assert stored_keys(home) == {"openai": Secret(KEY)}
    ring.is_locked = True
    module._from_keyring.cache_clear()
    assert stored_keys(home) == {}


@pytest.mark.parametrize("kind", ["missing", "plain text", "locked"])
def test_without_a_keyring_that_is_one_the_file_takes_it(
    home: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "missing":
        monkeypatch.setitem(sys.modules, "keyring", None)
    else:
        _ring(monkeypatch, 0.5 if kind == "plain text" else 5).is_locked = kind == "locked"
    path = store_key(home, "openai", KEY)
    assert json.loads(Path(path).read_text()) == {"version": 1, "keys": {"openai": KEY}}
    assert stored_keys(home) == {"openai": Secret(KEY)}
