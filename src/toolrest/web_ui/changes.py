"""The diff of a whole session against its start, from the checkpoints of its folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

from toolrest.agent.undo.checkpoints import Changed, Checkpoints
from toolrest.config.loader import load
from toolrest.errors import ToolrestError
from toolrest.gate.output.redact import Redactor
from toolrest.items import JSONObject
from toolrest.patch.text.diff import unified_diff
from toolrest.policy.paths.hidden import HiddenList, home_folders

_LARGEST_FILE = 1 << 20
_MOST_BYTES = 16 << 20
_MOST_FILES = 500


def session_changes(home: str, cwd: str, session: str) -> JSONObject:
    """The files that a session changed, each with its diff; `error` says why there is none.

    A turn that still runs is counted when it ends. Of files that the settings hide from models in
    that folder only the name is shown; secrets are redacted, as they are in the journal.
    """
    from toolrest.agent.setup.session import redactor_for  # slow to import

    try:
        config = load(home=home, workspace=cwd, surface="cli")
        found = ((folder, changed) for folder, changed in _found(home, cwd, session) if changed)
        folder, changed = next(found, (cwd, []))
    except ToolrestError as error:
        return {"files": [], "more": 0, "error": str(error)}
    files = [one for one in changed if not _is_folder(one)]
    globs = config.value.hidden_paths
    hidden = HiddenList(homes=home_folders(), roots=(folder,), globs=globs, toolrest_homes=(home,))
    redactor = redactor_for(config, os.environ)
    shown = []
    for one in files[:_MOST_FILES]:
        is_hidden = hidden.hit(os.path.normpath(os.path.join(folder, one.path))) is not None
        diff = {"note": "hidden"} if is_hidden else _diff(one, redactor)
        shown.append({"path": one.path, "kind": _kind(one), **diff})
    return {"files": shown, "more": len(files) - len(shown), "error": ""}


def _found(home: str, cwd: str, session: str) -> Iterator[tuple[str, list[Changed]]]:
    """What the checkpoints of the session's folder, or of one above it, know of the session."""
    folder = os.path.realpath(cwd)
    while True:
        yield folder, Checkpoints(home, folder).changed_by(session, _LARGEST_FILE, _MOST_BYTES)
        if folder == os.path.dirname(folder):
            return
        folder = os.path.dirname(folder)


def _is_folder(one: Changed) -> bool:
    return any(record is not None and record.is_dir for record in (one.was, one.now))


def _kind(one: Changed) -> str:
    return "add" if one.was is None else "delete" if one.now is None else "update"


def _diff(one: Changed, redactor: Redactor) -> JSONObject:
    """The unified diff, or a note where there cannot be one."""
    for record, content in ((one.was, one.before), (one.now, one.after)):
        if record is not None and content is None:
            why = f" ({record.why})" if record.why else ""
            return {"note": f"the content was not kept{why} or is too large to show"}
    texts = []
    for content in (one.before or b"", one.after or b""):
        try:
            texts.append(content.decode())
        except UnicodeDecodeError:
            return {"note": "not a text file"}
    if "\0" in texts[0] or "\0" in texts[1]:
        return {"note": "not a text file"}
    if texts[0] == texts[1]:
        return {"note": "its mode or owner changed"}
    # A diff has only a part of each text, with marks in it: secrets are found in the whole.
    text = unified_diff(redactor.redact(texts[0]), redactor.redact(texts[1]))
    return {"text": text} if text else {"note": "only secrets in it changed"}
