"""What a user says, as items: text, and images from files."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence

from toolrest.agent.history.history import message
from toolrest.errors import ConfigError
from toolrest.items import JSONObject

_LARGEST = 20_000_000
_TAKEN = ("png", "jpeg", "gif", "webp")


def prompt_items(text: str, images: Sequence[str] = ()) -> list[JSONObject]:
    """One user message: the images first, each between marks that name it, then the text."""
    parts: list[str | JSONObject] = []
    for number, path in enumerate(images, 1):
        full = os.path.abspath(path)
        parts += [
            f'<image name=[Image #{number}] path="{full}">',
            {"type": "input_image", "image_url": image_url(full)},
            "</image>",
        ]
    return [message("user", *parts, text)]


def image_url(path: str) -> str:
    """A picture's file as a `data:` URL; ConfigError when it is none that models take."""
    from toolrest.tools.images.pictures import format_of

    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"image {path} cannot be read: {error.strerror}") from None
    kind = format_of(data)
    if kind not in _TAKEN:
        raise ConfigError(f"image {path} is not a PNG, JPEG, GIF or WebP picture")
    if len(data) > _LARGEST:
        raise ConfigError(f"image {path} is larger than {_LARGEST:,} bytes; make it smaller")
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
