"""`view_image`, and `read_file` on images: what a model is sent, on every wire."""

from __future__ import annotations

import base64
import io
import os
import struct
import sys
import threading
import time
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image as Pillow

from toolrest import Toolrest
from toolrest.errors import RespondToModel
from toolrest.events import Event, ViewImageToolCall
from toolrest.items import Image, ToolOutput
from toolrest.tools.images import pictures
from toolrest.tools.images.pictures import MOST_PATCHES, MOST_SENT_BYTES, PixelBudget, fitted

Call = Callable[..., Awaitable[ToolOutput]]
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")


def picture(kind: str, size: tuple[int, int] = (40, 20), **options: Any) -> bytes:
    data = io.BytesIO()
    image = Pillow.new("RGB", size, "red")
    image.paste("blue", (0, 0, size[0] // 2, size[1]))
    image.save(data, kind, **options)
    return data.getvalue()


def sent(output: ToolOutput) -> tuple[str, bytes]:
    assert output.failure is None, output.text
    assert isinstance(output.content, list)
    (image,) = [part for part in output.content if isinstance(part, Image)]
    kind, data = image.url.removeprefix("data:image/").split(";base64,")
    return kind, base64.b64decode(data, validate=True)


@pytest.mark.parametrize("kind", FORMATS)
async def test_each_format_is_shown(work: Path, call: Call, kind: str) -> None:
    data = picture(kind)
    (work / "p").write_bytes(data)
    names = (("view_image", "path"), ("view_image", "image_path"), ("read_file", "file_path"))
    for name, argument in names:
        output = await call(name, **{argument: "p"})
        format_sent, shown = sent(output)
        assert format_sent == (kind.lower() if kind in ("PNG", "JPEG") else "png")
        if kind in ("PNG", "JPEG"):
            assert shown == data
        assert Pillow.open(io.BytesIO(shown)).size == (40, 20)
        assert (output.metadata["width"], output.metadata["height"]) == (40, 20)
        assert output.metadata["format"] == format_sent.upper()


@pytest.mark.parametrize("kind", FORMATS)
async def test_large_images_are_made_to_fit(work: Path, call: Call, kind: str) -> None:
    (work / "p").write_bytes(picture(kind, (4000, 1000)))
    output = await call("view_image", path=str(work / "p"))
    format_sent, shown = sent(output)
    image = Pillow.open(io.BytesIO(shown)).convert("RGB")
    assert image.size == (2048, 512)
    assert format_sent == ("jpeg" if kind == "JPEG" else "png")
    assert output.metadata == {
        "width": 2048,
        "height": 512,
        "format": format_sent.upper(),
        "original_width": 4000,
        "original_height": 1000,
        **({} if kind in ("PNG", "JPEG") else {"original_format": kind}),
    }
    assert "[toolrest] shown at 2048x512; the file is 4000x1000" in output.text
    left, right = image.getpixel((100, 100)), image.getpixel((1900, 100))
    assert isinstance(left, tuple)
    assert isinstance(right, tuple)
    assert left[2] > 240 > 20 > left[0]
    assert right[0] > 240 > 20 > right[2]


@given(st.integers(1, 60_000), st.integers(1, 60_000))
@example(1600, 1600)
@example(1601, 1600)
@example(2048, 2048)
@example(1, 60_000)
def test_the_size_fits_keeps_its_shape_and_never_grows(width: int, height: int) -> None:
    across, down = fitted(width, height)
    assert 1 <= across <= min(width, 2048)
    assert 1 <= down <= min(height, 2048)
    assert -(-across // 32) * -(-down // 32) <= MOST_PATCHES
    if width <= 1600 and height <= 1600:
        assert (across, down) == (width, height)
    if min(across, down) > 100:
        assert abs(across / down - width / height) < 0.02 * width / height
        # Not much smaller than it could be.
        patches = -(-across // 32) * -(-down // 32)
        whole = (across, down) == (width, height)
        assert whole or max(across, down) >= 2047 or patches > 0.9 * MOST_PATCHES


async def test_pictures_taken_sideways_are_turned(work: Path, call: Call) -> None:
    exif = Pillow.Exif()
    exif[0x0112] = 6
    (work / "p.jpg").write_bytes(picture("JPEG", (60, 20), exif=exif))
    output = await call("view_image", path="p.jpg")
    image = Pillow.open(io.BytesIO(sent(output)[1]))
    assert image.size == (20, 60)
    assert (output.metadata["width"], output.metadata["height"]) == (20, 60)
    assert "original_width" not in output.metadata
    top = image.convert("RGB").getpixel((10, 5))
    assert isinstance(top, tuple)
    assert top[2] > 200


async def test_transparency_and_palettes_survive(work: Path, call: Call) -> None:
    image = Pillow.new("RGBA", (3000, 30), (0, 255, 0, 0))
    image.save(work / "p.webp", lossless=True)
    shown = Pillow.open(io.BytesIO(sent(await call("view_image", path="p.webp"))[1]))
    assert shown.mode == "RGBA"
    assert shown.getchannel("A").getextrema() == (0, 0)
    image.convert("P").save(work / "p.gif")
    assert sent(await call("view_image", path="p.gif"))[0] == "png"


async def test_what_is_too_heavy_to_send_is_made_lighter(work: Path, call: Call) -> None:
    noise = Pillow.frombytes("RGB", (1500, 1500), os.urandom(3 * 1500 * 1500))
    noise.save(work / "p.png", compress_level=0)
    kind, data = sent(await call("view_image", path="p.png"))
    assert kind == "jpeg"
    assert len(data) <= MOST_SENT_BYTES


def bomb(width: int, height: int) -> bytes:
    """A PNG whose header promises much and whose body is next to nothing."""

    def chunk(name: bytes, body: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(name + body))
        return struct.pack(">I", len(body)) + name + body + check

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    body = zlib.compress(b"\0" * 1000)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )


async def test_bombs_are_refused_undecoded(work: Path, call: Call) -> None:
    for width, height in ((10_000, 10_000), (60_000, 60_000), (2**31 - 1, 2**31 - 1)):
        (work / "p.png").write_bytes(bomb(width, height))
        for name, argument in (("view_image", "path"), ("read_file", "file_path")):
            output = await call(name, **{argument: "p.png"})
            assert output.failure is not None
            assert output.text.startswith("unable to process image: ")


@pytest.mark.parametrize("kind", FORMATS)
async def test_damaged_images_are_refused(work: Path, call: Call, kind: str) -> None:
    whole = picture(kind, (300, 300))
    for cut in (12, 30, len(whole) // 2):
        (work / f"p{cut}").write_bytes(whole[:cut])
        output = await call("view_image", path=f"p{cut}")
        assert output.text == "unable to process image: invalid or unsupported image data", cut
        assert output.failure is not None


@given(st.sampled_from(FORMATS), st.data())
def test_no_bytes_crash_the_decoder(kind: str, data: st.DataObject) -> None:
    from toolrest.errors import RespondToModel
    from toolrest.tools.images.pictures import prepare

    whole = bytearray(picture(kind))
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        prepared = prepare(bytes(whole))
    except RespondToModel:
        return
    assert prepared.width <= 2048


async def test_a_picture_that_changes_is_no_loop(work: Path, call: Call) -> None:
    for number in range(1, 8):
        (work / "p.png").write_bytes(picture("PNG", (number, number)))
        output = await call("view_image", path="p.png")
        assert output.failure is None
        assert output.metadata["width"] == number
        assert "same result" not in output.text


async def test_documented_errors(work: Path, call: Call) -> None:
    (work / "folder").mkdir()
    (work / "text.png").write_text("no image at all")
    gone = await call("view_image", path="gone.png")
    assert gone.text == (
        f"unable to locate image at `{work}/gone.png`: No such file or directory (os error 2)"
    )
    folder = await call("view_image", path="folder")
    assert folder.text == f"image path `{work}/folder` is not a file"
    text = await call("view_image", path="text.png")
    assert text.text == "unable to process image: invalid or unsupported image data"


async def test_hidden_pictures_are_not_shown(work: Path) -> None:
    (work / "secret").mkdir()
    (work / "secret/p.png").write_bytes(picture("PNG"))
    (work / "link.png").symlink_to(work / "secret/p.png")
    async with Toolrest(work, settings={"hidden_paths": ["secret/**"]}, tools=["all"]) as rest:
        for path in ("secret/p.png", "link.png", "a/../secret/p.png", "../../../../etc/shadow"):
            output = await rest.call("view_image", {"path": path})
            assert output.failure is not None
            assert not isinstance(output.content, list)


async def test_the_size_limit_counts(work: Path) -> None:
    (work / "p.png").write_bytes(picture("PNG", (500, 500), compress_level=0))
    async with Toolrest(
        work, settings={"tool_security.max_file_access_size": 1000}, tools=["all"]
    ) as rest:
        for name, argument in (("view_image", "path"), ("read_file", "file_path")):
            output = await rest.call(name, {argument: "p.png"})
            assert "tool_security.max_file_access_size is 1,000" in output.text


async def test_without_pillow(work: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "p.png").write_bytes(picture("PNG"))
    monkeypatch.setitem(sys.modules, "PIL.PngImagePlugin", None)
    output = await call("view_image", path="p.png")
    assert "pip install 'toolrest[images]'" in output.text


async def test_switched_off(work: Path) -> None:
    (work / "p.png").write_bytes(picture("PNG"))
    async with Toolrest(
        work, settings={"tools.include_view_image_tool": False}, tools=["all"]
    ) as rest:
        assert (await rest.call("view_image", {"path": "p.png"})).failure is not None
        output = await rest.call("read_file", {"file_path": "p.png"})
        assert "is not text but a PNG image" in output.text


async def test_the_event(work: Path) -> None:
    (work / "p.png").write_bytes(picture("PNG"))
    seen: list[Event] = []
    async with Toolrest(work, tools=["all"]) as rest:
        rest.subscribe(seen.append)
        await rest.call("view_image", {"path": "p.png"})
    (event,) = [event for event in seen if isinstance(event, ViewImageToolCall)]
    assert event.path == f"{work}/p.png"


async def test_every_wire(work: Path) -> None:
    data = picture("PNG")
    (work / "p.png").write_bytes(data)
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    arguments = '{"path": "p.png"}'
    async with Toolrest(work, tools=["all"]) as rest:
        (item,) = await rest.answer(
            {"type": "function_call", "call_id": "c", "name": "view_image", "arguments": arguments}
        )
        assert item["output"] == [{"type": "input_image", "image_url": url}]
        (item,) = await rest.answer(
            {"type": "view_image_call", "call_id": "c", "image_path": "p.png"}
        )
        assert item == {
            "type": "view_image_call_output",
            "call_id": "c",
            "image_data": url,
            "metadata": {"width": 40, "height": 20, "format": "PNG"},
        }
        use = {"type": "tool_use", "id": "c", "name": "view_image", "input": {"path": "p.png"}}
        (message,) = await rest.answer({"role": "assistant", "content": [use]})
        assert message["content"][0]["content"][0]["source"]["media_type"] == "image/png"
        function = {"name": "view_image", "arguments": arguments}
        call = {"id": "c", "type": "function", "function": function}
        messages = await rest.answer({"role": "assistant", "tool_calls": [call]})
        assert [message["role"] for message in messages] == ["tool", "user"]
        assert messages[1]["content"][-1] == {"type": "image_url", "image_url": {"url": url}}


def test_all_calls_share_one_budget_of_pixels() -> None:
    """Failed before: as many pictures were decoded at once as there were calls."""
    budget = PixelBudget(100)
    together: list[int] = []
    inside: list[int] = []

    def decode(pixels: int) -> None:
        with budget.taken(pixels, lambda: False):
            inside.append(pixels)
            together.append(sum(inside))
            time.sleep(0.01)
            inside.remove(pixels)

    threads = [threading.Thread(target=decode, args=(size,)) for size in (60, 30, 70, 100, 10, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(together) == len(threads)
    assert max(together) <= 100


def test_a_call_that_waits_for_pixels_can_be_cancelled() -> None:
    """Failed before: nothing waited."""
    asked = 0

    def stopped() -> bool:
        nonlocal asked
        asked += 1
        return asked > 1

    taken = pictures._budget.taken(pictures.MOST_PIXELS, lambda: False)
    with taken, pytest.raises(RespondToModel, match="cancelled"):
        pictures.prepare(picture("PNG"), stopped)
    assert pictures.prepare(picture("PNG")).width == 40


async def test_a_relative_path_does_not_climb_out_of_the_workspace(
    work: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    Pillow.new("RGB", (4, 4)).save(outside / "dot.png")
    (work / "sub").mkdir(exist_ok=True)
    Pillow.new("RGB", (4, 4)).save(work / "own.png")
    climbing = os.path.relpath(outside / "dot.png", work)
    async with Toolrest(work, tools=["view_image"]) as rest:
        refused = await rest.call("view_image", {"path": climbing})
        assert refused.failure is not None
        assert refused.failure.kind == "policy_denied"
        assert "give the absolute path" in refused.text
        item = {"type": "view_image_call", "call_id": "v", "image_path": climbing}
        [answer] = await rest.answer([item])
        assert "give the absolute path" in answer["metadata"]["error"]
        assert (await rest.call("view_image", {"path": str(outside / "dot.png")})).success
        assert (await rest.call("view_image", {"path": "sub/../own.png"})).success
