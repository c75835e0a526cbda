"""What will a unified diff do, file by file? The same plan as any other patch."""

from __future__ import annotations

from toolrest.patch.text.encoding import Unreadable
from toolrest.patch.errors import ApplyError
from toolrest.patch.files.file_system import FileSystem
from toolrest.patch.forms._merge_hunks import patched
from toolrest.patch.files.paths import Target, resolve
from toolrest.patch.plan import Plan, Planner, Record
from toolrest.patch.forms.unified import FileDiff
from toolrest.patch.overlay import Spot


def plan_diff(
    diffs: list[FileDiff], files: FileSystem, cwd: str, legacy: str | None = None
) -> Plan:
    """Work out a unified diff. ApplyError says what stands in the way."""
    planner = Planner(files, cwd, legacy)
    for diff in diffs:
        if diff.old is None and diff.new is not None:
            _make(planner, diff, diff.new)
        elif diff.new is None and diff.old is not None:
            _delete(planner, diff, diff.old)
        else:
            _update(planner, diff)
    return planner.finish()


def paths(diffs: list[FileDiff]) -> list[str]:
    """Every path that a diff would write or remove, as spelled, each once."""
    named = (name for diff in diffs for name in (diff.old, diff.new) if name is not None)
    return list(dict.fromkeys(named))


def _make(planner: Planner, diff: FileDiff, name: str) -> None:
    target = _target(planner, name)
    if _exists(planner, target):
        raise ApplyError(
            f"File already exists: {target.label}",
            ["the diff says it is new (/dev/null); diff against its content instead"],
        )
    for hunk in diff.hunks:
        hunk.start = 0  # there is only one place in a new file, whatever the numbers say
    content = patched(b"", diff.hunks, target.label)
    spot = planner.write_new(target, content)
    planner.view.changes[spot.real].executable = diff.executable
    planner.records.append(Record(target.label, None, content))
    planner.added.append(name)


def _delete(planner: Planner, diff: FileDiff, name: str) -> None:
    target = _target(planner, name)
    _, data = _read(planner, target)
    if _patched(planner, diff, data, target):
        raise ApplyError(
            f"Failed to delete file {target.label}",
            ["the diff does not remove every line that the file has; read it again"],
        )
    planner.remove(target, f"Failed to delete file {target.label}")
    planner.records.append(Record(target.label, data, None))
    planner.deleted.append(name)


def _update(planner: Planner, diff: FileDiff) -> None:
    old, new = diff.old or "", diff.new or ""
    moved = diff.renamed or diff.copied
    source = _target(planner, old if moved else _which(planner, old, new))
    spot, data = _read(planner, source)
    content = _patched(planner, diff, data, source)
    target = _target(planner, new) if moved else source
    if moved and target.path != source.path and _exists(planner, target):
        raise ApplyError(f"File already exists: {target.label}")
    if diff.copied:
        landed = planner.write_new(target, content, planner.view.model(spot)).real
        planner.records.append(Record(target.label, None, content))
        planner.added.append(new)
    else:
        planner.replace(source, spot, data, content, target if diff.renamed else None)
        landed = planner.view.spot(target.path).real
    planner.view.changes[landed].executable = diff.executable


def _target(planner: Planner, name: str) -> Target:
    return resolve(planner.cwd, name, literal=True)


def _which(planner: Planner, old: str, new: str) -> str:
    """A plain diff may name a backup copy first: the new name, unless only the old one exists."""
    if old == new or _exists(planner, _target(planner, new)):
        return new
    return old if _exists(planner, _target(planner, old)) else new


def _exists(planner: Planner, target: Target) -> bool:
    try:
        return planner.view.spot(target.path).kind != "missing"
    except OSError:
        return False


def _read(planner: Planner, target: Target) -> tuple[Spot, bytes]:
    if not _exists(planner, target):
        raise ApplyError(f"File not found: {target.label}")
    return planner.read(target)


def _patched(planner: Planner, diff: FileDiff, data: bytes, target: Target) -> bytes:
    if not diff.hunks:
        return data
    try:
        return patched(data, diff.hunks, target.label, planner.legacy)
    except Unreadable as error:
        message = f"Failed to read file to update {target.label}: {error}"
        raise ApplyError(message) from None
