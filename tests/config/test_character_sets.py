"""`legacy_encoding` takes character sets, not Python's other text encodings."""

from __future__ import annotations

import pytest

from toolrest.config import default_config
from toolrest.errors import ConfigError


@pytest.mark.parametrize("name", ["cp1252", "latin-1", "shift_jis", "gb18030", "koi8-r"])
def test_a_character_set_is_taken(name: str) -> None:
    assert default_config({"legacy_encoding": name}).value.legacy_encoding


@pytest.mark.parametrize(
    "name",
    ["idna", "punycode", "unicode_escape", "unicode-escape", "raw_unicode_escape", "utf-7", "U7"],
)
def test_a_notation_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="expected the name of a text encoding"):
        default_config({"legacy_encoding": name})
