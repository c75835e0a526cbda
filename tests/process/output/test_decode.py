"""Bytes to text: UTF-8 across chunks, a few legacy charsets, and U+FFFD for the rest."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolrest.process.output.decode import (
    Deltas,
    binary_note,
    decode,
    decode_piece,
    split_incomplete,
)
from toolrest.process.output.head_tail import HeadTail, Piece

TEXTS = {
    "cp1252": "Déjà vu : l'été dernier, à Orléans, la façade du musée était fermée – «très» bien. ",
    "shift_jis": "これは日本語のテキストです。文字コードの判定を試しています。",
    "gb18030": "这是一个中文文本,用来测试字符编码的检测功能。文件没有找到,请检查路径是否正确。",
    "euc_kr": "이것은 한국어 텍스트입니다. 문자 인코딩 감지를 시험합니다. ",
    "utf-16": "Der Bericht wurde geschrieben, aber niemand hat ihn gelesen: schade, größtenteils.",
}


@pytest.mark.parametrize("charset", TEXTS)
def test_legacy_charsets(charset: str) -> None:
    text = TEXTS[charset] * 2
    data = text.encode(charset)
    assert len(data) >= 64
    assert decode(data) == text.removeprefix("\ufeff")


@pytest.mark.parametrize("charset", TEXTS)
def test_short_output_is_not_guessed(charset: str) -> None:
    data = TEXTS[charset].encode(charset)[:63]
    assert decode(data) == data.decode("utf-8", "replace")


def test_broken_utf8_is_still_utf8() -> None:
    data = ("grüße, señor, naïve café " * 10).encode() + b"\xff" + "ü".encode()
    assert decode(data) == "grüße, señor, naïve café " * 10 + "\ufffdü"


@pytest.mark.parametrize("data", [bytes(range(256)) * 4, os.urandom(4096), b"\x00\xff" * 100])
def test_binary_data_is_replaced_not_guessed(data: bytes) -> None:
    assert decode(data) == data.decode("utf-8", "replace")


@given(st.text(max_size=60), st.data())
def test_deltas_join_to_the_text_whatever_the_chunks(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    pieces: list[str] = []
    deltas = Deltas(pieces.append)
    while raw:
        size = data.draw(st.integers(1, len(raw)))
        deltas.add(raw[:size])
        raw = raw[size:]
    assert "".join(pieces) == text


@given(st.text(max_size=30), st.integers(0, 120))
def test_splitting_never_cuts_a_character(text: str, at: int) -> None:
    raw = text.encode()[:at]
    whole, rest = split_incomplete(raw)
    assert whole + rest == raw
    assert len(rest) <= 3
    assert whole.decode("utf-8") == raw.decode("utf-8", "ignore")


@given(st.binary(max_size=20))
@example(b"\xed\xa0")
def test_splitting_holds_back_only_what_can_still_become_valid(data: bytes) -> None:
    whole, rest = split_incomplete(data)
    assert whole + rest == data
    if rest:
        assert any(_completes(rest, more) for more in (1, 2, 3))


def _completes(start: bytes, count: int) -> bool:
    for tail in (b"\x80", b"\x9f", b"\xa0", b"\xbf", b"\x90", b"\x8f"):
        try:
            (start + tail * count).decode("utf-8")
        except UnicodeDecodeError:
            continue
        return True
    return False


def test_at_most_ten_thousand_deltas_of_eight_kibibytes() -> None:
    sizes: list[int] = []
    deltas = Deltas(lambda text: sizes.append(len(text)))
    deltas.add(b"x" * 20_000)
    assert sizes == [8192, 8192, 3616]
    for _ in range(10_100):
        deltas.add(b"y")
    assert len(sizes) == 10_000


def test_the_gap_is_a_line_of_its_own() -> None:
    buffer = HeadTail(10)
    buffer.add(b"0123456789ab")
    assert decode_piece(buffer.piece()) == "01234\n... 2 bytes omitted ...\n789ab"


@given(st.text(min_size=1, max_size=60), st.integers(1, 40))
def test_the_gap_never_splits_a_character(text: str, limit: int) -> None:
    raw = text.encode()
    buffer = HeadTail(limit)
    buffer.add(raw)
    piece = buffer.piece()
    shown = decode_piece(piece)
    assert shown.count("\ufffd") == raw.decode().count("\ufffd") or piece.omitted
    if piece.omitted:
        head, _, rest = shown.partition("\n... ")
        number, _, tail = rest.partition(" bytes omitted ...\n")
        assert len(head.encode()) + int(number) + len(tail.encode()) == len(raw)


def test_binary_output_is_described() -> None:
    png = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
    note = binary_note(Piece(png))
    assert note is not None
    assert note.startswith("[binary output: PNG image, 264 bytes, SHA-256 ")
    assert binary_note(Piece(png, png, 7)) == "[binary output: PNG image, 535 bytes]"
    assert binary_note(Piece(b"text \xe9 only")) is None
    assert binary_note(Piece(b"one/file\0another/file\0")) is None
    assert binary_note(Piece("größe".encode("utf-16"))) is None
    assert binary_note(Piece()) is None
