from __future__ import annotations

from typing import Any

import pytest

from toolrest.policy.fingerprint import canonical, fingerprint

VECTORS: list[tuple[str, Any, str]] = [
    ("t", {}, "14b5e6951226399e"),
    ("t", None, "c7a698c66deefa47"),
    ("t", "x", "131a9fadd25c4431"),
    ("exec_command", {"cmd": "echo hi"}, "fd236d8d1459d687"),
    (
        "apply_patch",
        {"old_string": "a", "file_path": "/tmp/a.txt", "new_string": "b"},
        "373149a285b78b5e",
    ),
    ("apply_patch", {"b": 1, "a": [1, "x", None, {"z": True, "y": 1.5}]}, "eee50bbcd1df896b"),
    ("t", [1, [2, {"k": False}]], "2533b4253cdb8537"),
    ("t", {"z1": 3, "z_1": 2, "b": [], "A": 1, "a": {}}, "230ab315fce45c6b"),
]


@pytest.mark.parametrize(("tool", "arguments", "expected"), VECTORS)
def test_vectors(tool: str, arguments: Any, expected: str) -> None:
    assert fingerprint(tool, arguments) == expected


def test_key_order_does_not_matter_but_values_do() -> None:
    assert fingerprint("t", {"a": 1, "b": 2}) == fingerprint("t", {"b": 2, "a": 1})
    assert fingerprint("t", {"a": 1, "b": 2}) != fingerprint("t", {"a": 2, "b": 1})
    assert fingerprint("t", {"a": [1, 2]}) != fingerprint("t", {"a": [2, 1]})


def test_canonical_text() -> None:
    assert canonical({"b": 2.0, "a": "ü"}) == '{"a":"ü","b":2}'


def test_a_lone_surrogate_is_no_crash() -> None:
    assert len(fingerprint("t", "\ud800")) == 16
