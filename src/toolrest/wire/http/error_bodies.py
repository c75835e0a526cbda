"""A server's errors, in their many shapes, as ModelError; and the rate limits in its headers."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolrest.items import JSONObject, Wire
from toolrest.urls import parse_url
from toolrest.wire.model import LONGEST_WAIT, ModelError, ModelErrorKind

_LONGEST: Final = 2000
_CODES: Final[dict[str, ModelErrorKind]] = {
    "context_length_exceeded": "context_window",
    "exceed_context_size_error": "context_window",
    "model_context_window_exceeded": "context_window",
    "insufficient_quota": "quota",
    "billing_error": "quota",
    "usage_limit_reached": "usage_limit",
    "usage_not_included": "usage_limit",
    "invalid_prompt": "invalid_request",
    "invalid_request_error": "invalid_request",
    "authentication_error": "auth",
    "permission_error": "auth",
    "not_found_error": "not_found",
    "rate_limit_exceeded": "rate_limit",
    "rate_limit_error": "rate_limit",
    "server_is_overloaded": "overloaded",
    "slow_down": "overloaded",
    "overloaded_error": "overloaded",
    "bio_policy": "policy",
    "cyber_policy": "policy",
    "misalignment_policy_violation": "policy",
    "request_too_large": "context_window",
    "invalid_encrypted_content": "bad_reasoning",
    "invalid_image": "invalid_image",
    "invalid_image_format": "invalid_image",
    "invalid_base64_image": "invalid_image",
    "image_parse_error": "invalid_image",
    "image_too_large": "invalid_image",
    "image_too_small": "invalid_image",
    "image_file_too_large": "invalid_image",
    "empty_image_file": "invalid_image",
    "unsupported_image_media_type": "invalid_image",
}
_STATUSES: Final[dict[int, ModelErrorKind]] = {
    **dict.fromkeys(range(300, 400), "not_found"),
    400: "invalid_request",
    401: "auth",
    402: "quota",
    403: "auth",
    404: "not_found",
    407: "auth",
    413: "context_window",
    422: "invalid_request",
    429: "rate_limit",
    529: "overloaded",
}
# Messages of servers without codes: OpenAI, Anthropic, vLLM, llama.cpp, Ollama, LM Studio, Gemini,
# xAI.
_FULL: Final = re.compile(
    r"maximum context length|context window|context length|prompt is too long"
    r"|exceeds? (the )?(available )?context|context[_ ]size|input is too long|too many tokens"
    r"|maximum number of tokens allowed|maximum prompt length|token count of \d+ exceeds"
    r"|reduce the length of the (messages|prompt|input)|range of input length should be",
    re.IGNORECASE,
)
_BAD_IMAGE: Final = re.compile(
    r"not represent a valid image|image exceeds|image dimensions exceed|unsupported image(?! input)"
    r"|(could not|failed to|unable to) (process|load|decode) (the )?image|cannot identify image",
    re.IGNORECASE,
)
_NO_IMAGES: Final = re.compile(
    r"image input is not supported|mmproj|\bsupport(s|ed)? image|not support (vision|multimodal)"
    r"|image_url.{0,80}(only|not) supported|not a (multimodal|vision) model"
    r"|(images?|vision|multimodal)( inputs?)? (is|are) not (supported|enabled)|at most 0 image"
    r"|missing data required for image|unknown variant .image|not have vision"
    r"|unsupported content (type|part).{0,20}image",
    re.IGNORECASE,
)
_BAD_REASONING: Final = re.compile(
    r"encrypted content .*could not be (verified|decrypted)|'rs_\w*' not found"
    r"|(reasoning.{0,9} was provided without|without its required .?reasoning)"
    r"|signature.{0,40}\bthinking|\bthinking.{0,40}signature"
    r"|final block in an assistant message cannot be|thinking\b.{0,60}cannot be modified",
    re.IGNORECASE,
)
_WINDOW: Final = re.compile(
    r"(?:maximum (?:context|prompt) length(?: is| of)?|context size \(|context (?:length|window) of"
    r"|context limit: \d+ \+ \d+ >|prompt is too long: \d+ tokens >|number of tokens allowed \()"
    r" *(\d+)",
    re.IGNORECASE,
)
_DATA: Final = re.compile(r"\A\s*(?:event:[^\n]*\n)?data:")
"""The start of a server-sent event, which some servers send as the body of an error."""
_WAIT: Final = re.compile(r"try again in\s*(\d+(?:\.\d+)?)\s*(ms|s|seconds?)\b", re.IGNORECASE)
_SECONDS: Final = re.compile(
    r"([0-9]{1,300}(?:\.[0-9]{1,300})?(?:[eE][0-9]{1,4})?)\s*s?\s*(?:,|\Z)"
)
"""A number of seconds, as servers write it; a second value after a comma is a proxy's."""
_VAGUE: Final = frozenset({"invalid_request", "server"})


class ErrorBody(NamedTuple):
    """The message and codes in the body of an error."""

    message: str
    codes: tuple[str, ...] = ()
    window: int | None = None


def read_error(body: bytes | str | Any) -> ErrorBody:
    """The message and codes in an error's body; plain text is its own message."""
    value = body
    if isinstance(body, bytes | str):
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
        try:
            value = json.loads(_DATA.sub("", text, count=1))
        except (ValueError, RecursionError):
            return ErrorBody(message := _short(text), window=_window_in({}, message))
    return _parsed(value)


def _parsed(value: Any) -> ErrorBody:
    if isinstance(value, list) and value:
        return _parsed(value[0])
    if not isinstance(value, Mapping):
        return ErrorBody(_short(value if isinstance(value, str) else json.dumps(value)))
    inner = value.get("error")
    if isinstance(inner, str):
        return ErrorBody(_short(inner))
    source = inner if isinstance(inner, Mapping) else value
    codes = tuple(c for key in ("code", "type") if isinstance(c := source.get(key), str))
    if (upstream := _upstream(source.get("metadata"))) is not None:
        return upstream._replace(codes=(*codes, *upstream.codes))
    for key in ("message", "detail", "msg", "title"):
        text = source.get(key)
        if text:
            message = _short(text if isinstance(text, str) else json.dumps(text))
            return ErrorBody(message, codes, _window_in(source, message))
    return ErrorBody(_short(json.dumps(value, ensure_ascii=False)), codes)


def _upstream(metadata: Any) -> ErrorBody | None:
    """The error of the server behind OpenRouter, whose own words only say that there was one."""
    raw = metadata.get("raw") if isinstance(metadata, Mapping) else None
    if not raw:
        return None
    found = read_error(raw)
    name = metadata.get("provider_name")
    if not isinstance(name, str) or not name:
        return found
    return found._replace(message=f"{name}: {found.message}")


def _window_in(source: Mapping[str, Any], message: str) -> int | None:
    """The context window that an error names: llama.cpp in a field, others in their words."""
    stated = source.get("n_ctx")
    if isinstance(stated, int) and stated > 0:
        return stated
    found = _WINDOW.search(message)
    return int(found[1]) if found is not None else None


_PAGE = re.compile(r"\s*(<!doctype html|<html|<head|<body)", re.IGNORECASE)
_HEADING = re.compile(r"<(title|h1)[^>]*>\s*([^<]+?)\s*<", re.IGNORECASE)


def _short(text: str) -> str:
    if _PAGE.match(text):  # a proxy's page
        heading = _HEADING.search(text)
        text = f"a web page, {heading[2]!r}" if heading else "a web page"
    text = text.strip()
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def error_in_stream(body: Any, wire: Wire) -> ModelError:
    """The ModelError for a failure inside a stream that had begun."""
    found = read_error(body)
    kind = _kind(found, "stream")
    wait = _wait_in(found.message) if kind == "rate_limit" else None
    retryable = kind in ("stream", "rate_limit", "server")
    if kind == "overloaded" and wire != "responses":
        retryable = True
    message = found.message or "the server reported a failure without a reason"
    return ModelError(
        kind,
        message + _long_wait(wait),
        retryable=retryable and not _long_wait(wait),
        retry_after=wait,
        window=found.window,
    )


def error_of_status(
    status: int, headers: Mapping[str, str], body: bytes, url: str, wire: Wire
) -> ModelError:
    """The ModelError for a refused request, with its URL and the server's message."""
    found = read_error(body)
    kind = _kind(found, _STATUSES.get(status, "server"))
    wait = retry_after(headers)
    if wait is None and kind == "rate_limit":
        wait = _wait_in(found.message)
    message = found.message or "(no reason given)"
    request_id = next(
        (headers[key] for key in ("x-request-id", "request-id", "cf-ray") if headers.get(key)), ""
    )
    where = f"{url}, request id {request_id}" if request_id else url
    return ModelError(
        kind,
        f"HTTP {status} from {where}: {message}{_long_wait(wait)}{_redirect(status, headers)}",
        status=status,
        retryable=_is_retryable(kind, wait, wire) and not _long_wait(wait),
        retry_after=wait,
        window=found.window,
    )


def _redirect(status: int, headers: Mapping[str, str]) -> str:
    """A note on where a redirect leads: it is not followed, as the request has the user's key."""
    location = headers.get("location", "")
    if not 300 <= status < 400 or not location:
        return ""
    try:
        location = parse_url(location).without_query
    except ValueError:
        location = location.partition("?")[0]
    return f" (redirects to {_short(location)}, which is not followed; check base_url)"


def _long_wait(wait: float | None) -> str:
    """A note on a time to wait that is too long for a turn; empty for any other."""
    if wait is None or wait <= LONGEST_WAIT:
        return ""
    return f" (the server asks to wait {wait / 60:,.0f} minutes; try again then)"


def _is_retryable(kind: ModelErrorKind, wait: float | None, wire: Wire) -> bool:
    if kind in ("rate_limit", "overloaded"):
        # OpenAI's API gives a time to wait if retrying can help; the others often do not.
        return wait is not None or wire != "responses"
    return kind == "server"


def _kind(found: ErrorBody, otherwise: ModelErrorKind) -> ModelErrorKind:
    kinds = [_CODES[code] for code in found.codes if code in _CODES]
    kind = next((kind for kind in kinds if kind not in _VAGUE), kinds[0] if kinds else otherwise)
    if kind in ("invalid_request", "server", "stream", "not_found"):
        if _FULL.search(found.message):
            return "context_window"
        if _BAD_IMAGE.search(found.message):
            return "invalid_image"
        if _NO_IMAGES.search(found.message):
            return "no_images"
        if _BAD_REASONING.search(found.message):
            return "bad_reasoning"
    return kind


def _wait_in(message: str) -> float | None:
    match = _WAIT.search(message)
    if match is None:
        return None
    seconds = float(match[1])
    return seconds / 1000 if match[2].lower() == "ms" else seconds


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that the server asks to wait, given as seconds, milliseconds or a date."""
    millis, value = headers.get("retry-after-ms", ""), headers.get("retry-after", "").strip()
    try:
        if found := _SECONDS.match(millis):
            seconds = float(found[1]) / 1000
        elif found := _SECONDS.match(value):
            seconds = float(found[1])
        else:
            seconds = _until(value, time.time())
    except (ValueError, OverflowError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _until(date: str, now: float) -> float:
    if not date:
        raise ValueError
    # Slow to import; few servers send a date.
    from email.utils import mktime_tz, parsedate_tz

    parsed = parsedate_tz(date)
    if parsed is None:
        raise ValueError
    return mktime_tz(parsed) - now  # without a zone it is UTC, as HTTP has it


def rate_limits(headers: Mapping[str, str]) -> JSONObject:
    """The rate-limit snapshot in a response's headers; empty when they have none."""
    snapshot: JSONObject = {}
    for window in ("primary", "secondary"):
        found = _window(headers, f"x-codex-{window}-")
        if found:
            snapshot[window] = found
    found = _credits(headers)
    if found:
        snapshot["credits"] = found
    return snapshot


def _window(headers: Mapping[str, str], prefix: str) -> JSONObject | None:
    used = _number(headers.get(f"{prefix}used-percent"))
    if used is None:
        return None
    minutes = _number(headers.get(f"{prefix}window-minutes"))
    resets = _number(headers.get(f"{prefix}reset-at"))
    if not used and not minutes and resets is None:
        return None
    window: JSONObject = {"used_percent": used}
    if minutes is not None:
        window["window_minutes"] = int(minutes)
    if resets is not None:
        window["resets_at"] = int(resets)
    return window


def _credits(headers: Mapping[str, str]) -> JSONObject | None:
    if "x-codex-credits-has-credits" not in headers:
        return None
    found: JSONObject = {
        "has_credits": _flag(headers["x-codex-credits-has-credits"]),
        "unlimited": _flag(headers.get("x-codex-credits-unlimited", "")),
    }
    balance: Any = headers.get("x-codex-credits-balance")
    return found | {"balance": balance} if balance else found


def _flag(text: str) -> bool:
    return text.strip().lower() in ("true", "1")


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is None or math.isfinite(value) else None
