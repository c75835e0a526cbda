"""The data about models that comes with the package: windows, prices, names.

`make model-data` writes `models.json` from genai-prices. It is read at the first question, and of
it only the rows of the provider that is asked about.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Final

import msgspec
from msgspec import Raw, Struct

from toolrest.wire.prices import Price, Rates

_SUFFIX: Final = re.compile(r"([-@](20\d{6}|20\d\d-\d\d-\d\d)|-latest)$")
_REGION: Final = re.compile(r"^(us|eu|apac|jp|au|ca|us-gov)\.")
_SIZE: Final = re.compile(r"(\d{1,3})b(?![\w.])")
_VERSION: Final = re.compile(r"(?<![\w.])(\d{1,2})(?:[.-](\d{1,2}))?(?![\w.])")
_SPECIAL: Final = re.compile(r"cyber|rosalind|multi-agent|preview|build|safeguard|oss|-exp")
"""Words of models that are not for everybody or not for every task."""


class _Long(Struct, frozen=True, array_like=True):
    above: int
    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None


class _Dated(Struct, frozen=True, array_like=True):
    """The price from a day on; `long` is that of requests with more input tokens."""

    since: str
    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None
    long: _Long | None = None

    def price(self) -> Price:
        rates = (self.input, self.output, self.cached_input, self.cache_write)
        if self.long is None:
            return Price(*rates)
        long = self.long
        dear = Rates(long.input, long.output, long.cached_input, long.cache_write)
        return Price(*rates, long.above, dear)


class _Row(Struct, frozen=True, array_like=True):
    window: int | None = None
    prices: tuple[_Dated, ...] = ()


class _File(Struct, frozen=True):
    version: str
    date: str
    notice: str
    providers: dict[str, Raw]


class KnownModel(Struct, frozen=True):
    """A model of the data: its window in tokens and its price today, where they are known."""

    window: int | None
    price: Price | None


def bare_name(name: str) -> str:
    """A model's name in lower case without a date or `-latest`, nor Google's `models/`."""
    return _SUFFIX.sub("", name.strip().lower().removeprefix("models/"))


def data_version() -> str:
    """The name and version of the source, and the day on which it was taken over."""
    file = _file()
    return f"genai-prices {file.version}, {file.date}"


def known_model(provider: str, name: str) -> KnownModel | None:
    """What the data has about a model of a provider; None for one that it does not have."""
    rows = _rows(provider)
    bare = bare_name(name)
    row = rows.get(bare) or rows.get(_REGION.sub("regional.", bare))
    row = row or rows.get(bare.rpartition("/")[2])  # as Vertex names them: google/…
    if isinstance(row, str):  # another name of it
        row = rows.get(row)
    if not isinstance(row, _Row):
        return None
    today = datetime.now(UTC).date().isoformat()
    prices = [dated.price() for dated in row.prices if dated.since <= today]
    return KnownModel(row.window, prices[-1] if prices else None)


def known_names(provider: str) -> list[str]:
    """The names of a provider's models, one for each."""
    return [name for name, row in _rows(provider).items() if isinstance(row, _Row)]


def newest_general(provider: str, line: str, offered: Collection[str] = ()) -> str | None:
    """The name of a provider's newest general model; of several that of the middle price.

    `line` is how the names of its general models begin. `offered`, if not empty, are the names
    that the provider lists. A name that adds a word to another (`gpt-5.5-pro`) is not general.
    """
    bare = {bare_name(name): name for name in offered}
    versions = {
        name: version
        for name, row in _rows(provider).items()
        if isinstance(row, _Row)
        and name.startswith(line)
        and (version := _version(name.removeprefix(line))) is not None
    }
    general = {
        name: version
        for name, version in versions.items()
        if not _SPECIAL.search(name.removeprefix(line))
        and not any(name.startswith(f"{base}-") for base in versions if versions[base] == version)
        and (not bare or name in bare)
    }
    newest = max(general.values(), default=None)
    same = [name for name, version in general.items() if version == newest]
    same.sort(key=lambda name: _price_of_input(provider, name))
    return bare.get(same[len(same) // 2], same[len(same) // 2]) if same else None


def _price_of_input(provider: str, name: str) -> float:
    known = known_model(provider, name)
    return known.price.input if known and known.price else 0.0


def _version(rest: str) -> float | None:
    """The version in the rest of a model's name: 5.5 of `sonnet-5-5`, 6.1 of `6.1-sol`.

    Where there is only a size (`120b`), that tells one from another.
    """
    if re.search(r"20\d\d", rest):  # a date
        return None
    if found := _VERSION.search(rest):
        return float(f"{found[1]}.{found[2] or 0}")
    size = _SIZE.match(rest)
    return int(size[1]) / 1000 if size else None


@cache
def _file() -> _File:
    with open(os.path.join(os.path.dirname(__file__), "models.json"), "rb") as file:
        return msgspec.json.decode(file.read(), type=_File)


@cache
def _rows(provider: str) -> Mapping[str, _Row | str]:
    raw = _file().providers.get(provider)
    return {} if raw is None else msgspec.json.decode(raw, type=dict[str, _Row | str])
