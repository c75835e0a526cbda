"""The hash chain of an audit log: how a line is sealed, and how the head file records the end.

A line is one JSON object. `n` counts lines from 1, `prev` is the hash of the line before, and
`hash`, always last, is the SHA-256 of the line without it. The head file holds the count and
the last hash, so that a log cut at its end does not pass for a shorter one.
"""

from __future__ import annotations

import errno
import json
import json.encoder
import os
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from msgspec import Struct

from toolrest.items import JSONObject

GENESIS = "0" * 64
HEAD_SUFFIX = ".head"
_SEAL = b',"hash":"'
_END = b'"}\n'
_SEAL_SIZE = len(_SEAL) + 64 + len(_END)


def _encoder() -> Callable[[JSONObject], str]:
    """A compact JSON encoder, made once and not once a line: half of what it costs."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return json.JSONEncoder(check_circular=False, separators=(",", ":"), default=str).encode
    quote = json.encoder.encode_basestring_ascii
    scan = make(None, str, quote, None, ":", ",", False, False, True)
    return lambda record: "".join(scan(record, 0))


_encode = _encoder()


class SealedLine(Struct):
    """A line as it was read: its number, its predecessor's hash, its own, and its content."""

    number: int
    prev: str
    hash: str
    record: JSONObject


def seal(number: int, prev: str, record: JSONObject) -> tuple[bytes, str]:
    """Turn a record into a line and the hash that the next one will name."""
    rest = _encode(record).encode("ascii")
    body = b'{"n":%d,"prev":"%b",%b' % (number, prev.encode("ascii"), rest[1:-1])
    digest = sha256(body + b"}").hexdigest()
    return b'%b,"hash":"%b"}\n' % (body, digest.encode("ascii")), digest


def unseal(line: bytes) -> SealedLine | None:
    """Read a line back; None when it is not exactly what was once sealed."""
    body, seal_text = line[:-_SEAL_SIZE] + b"}", line[-_SEAL_SIZE:]
    if not (seal_text.startswith(_SEAL) and seal_text.endswith(_END)):
        return None
    digest = seal_text[len(_SEAL) : -len(_END)].decode("ascii", "replace")
    if sha256(body).hexdigest() != digest:
        return None
    record = parsed(body)
    number, prev = record.get("n"), record.get("prev")
    if not isinstance(number, int) or not isinstance(prev, str):
        return None
    return SealedLine(number, prev, digest, record)


def parsed(line: bytes) -> JSONObject:
    """Decode a line as a JSON object; anything else gives an empty one."""
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def head_record(count: int, digest: str) -> bytes:
    """Build the head file: always the same length, so one write replaces it in place."""
    return b'{"count":%12d,"hash":"%b"}\n' % (count, digest.encode("ascii"))


def parse_head(data: bytes) -> tuple[int, str] | None:
    """Read the head file back; None when it is damaged."""
    value = parsed(data)
    count, digest = value.get("count"), value.get("hash")
    if type(count) is int and isinstance(digest, str):
        return count, digest
    return None


def end_of_log(log: int, head: int) -> tuple[int, str, int]:
    """Count, last hash and size of a log that other sessions write to as well; hold its lock.

    A line that its writer died over is cut off. A head that is ahead of the log counts, so that
    lines that were removed are missed; one that is behind does not.
    """
    size, window = os.fstat(log).st_size, 16_384
    while True:
        start = max(0, size - window)
        data = os.pread(log, size - start, start)
        whole = data[: data.rfind(b"\n") + 1]
        if start == 0 or b"\n" in whole[:-1]:
            break
        window *= 8
    if start + len(whole) < size:
        os.ftruncate(log, start + len(whole))
    end = unseal(whole[whole[:-1].rfind(b"\n") + 1 :])
    known = parse_head(os.pread(head, 4096, 0))
    if known is None and end is None and size:
        raise OSError(errno.EINVAL, "a file of that name is no audit log")
    count, last = known or (0, GENESIS)
    if end is not None and end.number > count:
        count, last = end.number, end.hash
    return count, last, start + len(whole)
