"""Images in items: for models that cannot see, words stand in their place."""

from __future__ import annotations

from typing import Any, Final

from toolrest.items import JSONObject

LEFT_OUT: Final = "[image left out: this model does not take images]"


def without_images(item: JSONObject) -> JSONObject:
    """The item with a text for each image; the item itself when it has none."""
    for key in ("content", "output"):
        parts = item.get(key)
        if isinstance(parts, list) and any(map(is_image, parts)):
            return {**item, key: [_words(part) if is_image(part) else part for part in parts]}
    if item.get("type") == "view_image_call_output" and item.get("image_data"):
        return {**item, "image_data": None, "metadata": {"error": LEFT_OUT}}
    return item


def is_image(part: Any) -> bool:
    """Whether this part of a message or output is an image."""
    return isinstance(part, dict) and part.get("type") == "input_image"


def _words(part: JSONObject) -> JSONObject:
    return {"type": "input_text", "text": LEFT_OUT}
