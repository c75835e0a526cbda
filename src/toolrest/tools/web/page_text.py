"""The text of a web page for a model, marked as external content."""

from __future__ import annotations

import codecs
import re
from html import unescape

from toolrest.errors import RespondToModel
from toolrest.tools.web.client import Page

TAG = "external_content"
_TEXTUAL = re.compile(
    r"text/.+|application/(?:[\w.+-]+\+)?(?:json|xml|yaml|x-yaml|toml|javascript|ecmascript"
    r"|x-javascript|x-sh|x-ndjson|jsonl?|xhtml\+xml|graphql|sql|rtf|x-httpd-php)|image/svg\+xml"
)
_HTML = re.compile(rb"<(?:!doctype\s+html|html)\b", re.IGNORECASE)
_META = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
# What a terminal obeys, a reader cannot see, or shows in another order than it is written.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_TAG_NAME = re.compile(r"</?([a-z][a-z0-9]{0,19})", re.IGNORECASE)
_SILENT = {
    name: re.compile(rf"</{name}\b", re.IGNORECASE)
    for name in ("script", "style", "noscript", "template", "head")
}
_BREAKS = {"li": "\n- ", "br": "\n", "hr": "\n"}
_BLOCKS = frozenset(
    [
        "p",
        "div",
        "section",
        "article",
        "header",
        "footer",
        "aside",
        "main",
        "tr",
        "table",
        "pre",
        "form",
    ]
)
_BLOCKS |= frozenset(
    [
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "blockquote",
        "ul",
        "ol",
        "dl",
        "dt",
        "dd",
        "figure",
        "body",
    ]
)
_HEAD = 100_000
_MOST_TAGS = 100_000
_DEEPEST = 200
_BLANKS = re.compile(r"\n{3,}")
_FENCE = re.compile(rf"<(/?\s*{TAG})", re.IGNORECASE)


def readable(page: Page, *, raw: bool = False) -> tuple[str, str]:
    """The text of a page and its source format; RespondToModel when it has no text."""
    kind = page.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind and not _TEXTUAL.fullmatch(kind):
        raise RespondToModel(f"{page.url} is {kind[:80]} ({len(page.body):,} bytes), not text")
    if not kind and b"\0" in page.body[:8192]:
        raise RespondToModel(f"{page.url} is binary ({len(page.body):,} bytes), not text")
    text = _decode(page)
    is_html = kind in ("text/html", "application/xhtml+xml") or (
        kind in ("", "text/plain")
        and page.body.lstrip()[:1] == b"<"
        and _HTML.search(page.body[:1024]) is not None
    )
    if is_html and not raw:
        return clean(_markdown(text, str(page.url))), "html"
    return clean(text), kind or "text"


def _decode(page: Page) -> str:
    declared = re.search(r"charset\s*=\s*\"?([\w.:-]{1,40})", page.headers.get("content-type", ""))
    found = _META.search(page.body[:2048])
    if page.body.startswith((b"\xff\xfe", b"\xfe\xff")):
        name = "utf-16"
    elif declared:
        name = declared[1]
    else:
        name = found[1].decode("ascii") if found else "utf-8"
    try:
        if not codecs.lookup(name)._is_text_encoding:
            name = "utf-8"
    except LookupError:
        name = "utf-8"
    return page.body.decode(name, "replace")


def _markdown(html: str, url: str) -> str:
    title = re.search(r"<title[^>]{0,200}>([^<]{1,300})", html[:_HEAD], re.IGNORECASE)
    body = ""
    # The converter stops everything else while it works, so it is not given what takes it long.
    if html.count("<") <= _MOST_TAGS:
        try:
            from html_to_markdown import ConversionOptions, convert

            options = ConversionOptions(
                base_url=url, skip_images=True, extract_metadata=False, max_depth=_DEEPEST
            )
            body = convert(html, options).content or ""
        except ImportError:
            pass  # it is in the extra `web`
    body = body if body.strip() else stripped(html)
    return f"{unescape(title[1]).strip()}\n\n{body}" if title else body


def stripped(html: str) -> str:
    """HTML without its tags, blocks on lines of their own; linear time for any input."""
    pieces: list[str] = []
    at = 0
    while (start := html.find("<", at)) >= 0:
        pieces.append(html[at:start])
        comment = html.startswith("<!--", start)
        end = html.find("-->" if comment else ">", start)
        if end < 0:
            break
        at = end + (3 if comment else 1)
        found = None if comment else _TAG_NAME.match(html, start)
        name = found[1].lower() if found else ""
        if name in _SILENT and html[start + 1] != "/":
            close = _SILENT[name].search(html, at)
            at = close.start() if close else len(html)
        pieces.append(_BREAKS.get(name, "\n" if name in _BLOCKS else " "))
    else:
        pieces.append(html[at:])
    lines = (" ".join(line.split()) for line in unescape("".join(pieces)).splitlines())
    return "\n".join(line for line in lines if line)


def clean(text: str) -> str:
    """Text without invisible characters, with plain line ends and no runs of blank lines."""
    text = _UNSEEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _BLANKS.sub("\n\n", text).strip()


def one_line(text: object, most: int) -> str:
    """External text on one line."""
    line = " ".join(clean(str(text or "")).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def wrapped(text: str, source: str) -> str:
    """Put text between marks that it cannot contain."""
    source = source.replace('"', "%22").replace("<", "%3C").replace(">", "%3E")
    inner = _FENCE.sub(r"&lt;\1", text)
    return f'<{TAG} source="{source}">\n{inner}\n</{TAG}>'
