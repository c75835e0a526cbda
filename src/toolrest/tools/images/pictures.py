"""Prepare an image file for a model: checked, turned upright, scaled to fit.

Only five formats are ever decoded, each by its own decoder, and only when
the header gives a sane size.
"""

from __future__ import annotations

import math
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolrest.errors import RespondToModel
from toolrest.items import Image, JSONObject, ToolOutput

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

LONGEST_SIDE = 2048
PATCH = 32
MOST_PATCHES = 2500
MOST_PIXELS = 64_000_000
"""Pixels of the largest image that is decoded; larger ones are refused by their header."""
MOST_SENT_BYTES = 3_750_000
"""5 MB as base64, the smallest limit among the model APIs."""
QUALITY = 85
_GLANCE = 0.1
"""Seconds between checks of cancellation while a call waits."""

NOT_AN_IMAGE = "unable to process image: invalid or unsupported image data"
NO_PILLOW = (
    "unable to process image: the package Pillow is not installed; "
    "pip install 'toolrest[images]' adds it"
)
_ORIENTATION = 0x0112


def format_of(head: bytes) -> str | None:
    """The image format of a file with this beginning; None when it is none of the five."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if head.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "webp"
    # Two letters begin many texts, so the header's own length must make sense too.
    if head.startswith(b"BM") and head[14:18] in _BMP_HEADERS:
        return "bmp"
    return None


_BMP_HEADERS = tuple(size.to_bytes(4, "little") for size in (12, 16, 40, 52, 56, 64, 108, 124))


class PreparedImage(Struct, frozen=True):
    """An image as it is sent, and the size of the original."""

    data: bytes
    format: str
    width: int
    height: int
    original: tuple[int, int]
    source: str

    def output(self) -> ToolOutput:
        """The image with its metadata, and a note when it was scaled down."""
        url = f"data:image/{self.format};base64,{b64encode(self.data).decode()}"
        kind = self.format.upper()
        facts: JSONObject = {"width": self.width, "height": self.height, "format": kind}
        notes = []
        if (self.width, self.height) != self.original:
            width, height = self.original
            facts |= {"original_width": width, "original_height": height}
            notes = [f"shown at {self.width}x{self.height}; the file is {width}x{height}"]
        if self.source != self.format:
            facts["original_format"] = self.source.upper()
        return ToolOutput([Image(url)], metadata=facts, notes=notes)


def fitted(width: int, height: int) -> tuple[int, int]:
    """The size scaled to the limits of models; never larger than the original."""
    scale = min(1.0, LONGEST_SIDE / width, LONGEST_SIDE / height)
    if _fits(width, height) and scale == 1.0:
        return width, height
    # The first guess ignores that patches at the edges count whole; a few steps settle that.
    scale = min(scale, math.sqrt(MOST_PATCHES * PATCH * PATCH / (width * height)))
    while True:
        size = max(1, int(width * scale)), max(1, int(height * scale))
        if _fits(*size):
            return size
        scale *= 0.995


def _fits(width: int, height: int) -> bool:
    return math.ceil(width / PATCH) * math.ceil(height / PATCH) <= MOST_PATCHES


def prepare(data: bytes, stopped: Callable[[], bool] = lambda: False) -> PreparedImage:
    """Prepare a file's bytes for sending; RespondToModel when they cannot be shown."""
    kind = format_of(data[:32])
    if kind is None:
        raise RespondToModel(NOT_AN_IMAGE)
    decoder = _decoder(kind)
    try:
        picture = decoder(BytesIO(data))
    except Exception:
        # A decoder fails in many ways on bytes that are made to break it; the details help no one.
        raise RespondToModel(NOT_AN_IMAGE) from None
    width, height = picture.size
    if width < 1 or height < 1:
        raise RespondToModel(NOT_AN_IMAGE)
    if width * height > MOST_PIXELS:
        raise RespondToModel(
            f"unable to process image: {width}x{height} is more than "
            f"{MOST_PIXELS:,} pixels; make it smaller first"
        )
    _refuse_if(stopped)
    try:
        with _budget.taken(width * height, stopped):
            return _ready(picture, data, kind)
    except RespondToModel:
        raise
    except Exception:
        raise RespondToModel(NOT_AN_IMAGE) from None
    finally:
        picture.close()


class PixelBudget:
    """A limit of the pixels that all calls of this process decode at once; others wait in turn."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._left = most
        self._first = threading.Lock()
        self._freed = threading.Condition()

    @contextmanager
    def taken(self, pixels: int, stopped: Callable[[], bool]) -> Iterator[None]:
        """Wait until there is room; RespondToModel when the call is cancelled meanwhile."""
        while not self._first.acquire(timeout=_GLANCE):
            _refuse_if(stopped)
        try:
            with self._freed:
                while self._left < pixels:
                    self._freed.wait(_GLANCE)
                    _refuse_if(stopped)
                self._left -= pixels
        finally:
            self._first.release()
        try:
            yield
        finally:
            with self._freed:
                self._left += pixels
                self._freed.notify()


def _refuse_if(stopped: Callable[[], bool]) -> None:
    if stopped():
        raise RespondToModel("cancelled", kind="aborted")


_budget = PixelBudget(MOST_PIXELS)

_DECODERS: Final = {"png": "Png", "jpeg": "Jpeg", "gif": "Gif", "webp": "WebP"}


def _decoder(kind: str) -> Callable[[BytesIO], Any]:
    """The Pillow class that reads this format, without loading all the others."""
    name = _DECODERS.get(kind, "Bmp")
    try:
        module = import_module(f"PIL.{name}ImagePlugin")
    except ImportError:
        raise RespondToModel(NO_PILLOW) from None
    decoder: Callable[[BytesIO], Any] = getattr(module, f"{name}ImageFile")
    return decoder


def _ready(picture: Any, data: bytes, kind: str) -> PreparedImage:
    turned = picture.getexif().get(_ORIENTATION, 1) in range(2, 9)
    original = picture.size
    across = original[0] > original[1]
    if kind == "jpeg":
        # Decodes at a fraction of its size where that is enough: a twelfth of the time and memory.
        picture.draft(None, (LONGEST_SIDE, LONGEST_SIDE))
    picture.load()  # a cut or damaged file shows here, also when its bytes are sent as they are
    upright = _upright(picture) if turned else picture
    if turned and (upright.size[0] > upright.size[1]) != across:
        original = original[::-1]
    size = fitted(*original)
    as_is = size == original and not turned and kind in ("png", "jpeg")
    if as_is and len(data) <= MOST_SENT_BYTES:
        return PreparedImage(data, kind, *size, original, kind)
    if upright.size != size:
        upright = _plain(upright).resize(size, _bilinear(), reducing_gap=2.0)
    encoded, target = _encoded(upright, "jpeg" if kind == "jpeg" else "png")
    return PreparedImage(encoded, target, *size, original, kind)


def _upright(picture: Picture) -> Picture:
    from PIL.ImageOps import exif_transpose

    return exif_transpose(picture)


def _bilinear() -> Any:
    from PIL.Image import Resampling

    return Resampling.BILINEAR


def _plain(picture: Picture) -> Picture:
    """The image in a mode that can be blended, unlike palettes and single bits."""
    if picture.mode in ("L", "LA", "RGB", "RGBA"):
        return picture
    clear = "transparency" in picture.info or picture.mode in ("PA", "La", "RGBa")
    return picture.convert("RGBA" if clear else "RGB")


def _encoded(picture: Picture, target: str) -> tuple[bytes, str]:
    """Encode as PNG or JPEG; too large ones become a JPEG, on white where transparent."""
    if target == "png":
        data = _saved(_plain(picture), "PNG")
        if len(data) <= MOST_SENT_BYTES:
            return data, "png"
    flat = _plain(picture)
    if flat.mode in ("LA", "RGBA"):
        from PIL.Image import new

        white = new("RGB", flat.size, "white")
        white.paste(flat.convert("RGB"), mask=flat.getchannel("A"))
        flat = white
    return _saved(flat, "JPEG", quality=QUALITY), "jpeg"


def _saved(picture: Picture, name: str, **options: Any) -> bytes:
    target = BytesIO()
    picture.save(target, name, **options)
    return target.getvalue()
