"""The drawing of a question: its sentence, what would run, the answers with a marked one.

At most ten rows on a screen of 24; what does not fit is put above, or shown by the pager first.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolrest.chat.questions import Asked, Offered, Posed, Questions, Waiting
from toolrest.timeline.approval import STOPS, AnswerOption, ApprovalForm
from toolrest.timeline.cells import FileDiff
from toolrest.timeline.draw_diff import counts, diff_lines
from toolrest.timeline.highlight import highlighted
from toolrest.timeline.text import BAR, block, rows, shown
from toolrest.timeline.wrap import Line, broken, first_row, hung, wrapped

_ROWS = 10
_LOW = 14
"""Rows of a screen that is so low that a question may have all of it."""
_SAYS = 2
"""Rows of the model's reason."""
_NARROW = 24
"""Columns that are too few to show a request whole, row by row."""
_MORE = "  > "
"""Before the further rows of a command, as shells have it: a bar would look like a pipe."""
SIGNS = {"+": "green", "-": "red", "@": "cyan"}
"""The styles of the lines of a diff, by their first letter."""
_ESC: dict[type, str] = {Asked: STOPS, Posed: "Esc declines", Offered: "Esc quits"}
_HINTS = {
    "note": "What should it do instead? Enter sends it, Esc goes back",
    "word": "Type yes and Enter to approve, Esc goes back",
}


def question_lines(questions: Questions, first: Waiting, room: int, width: int) -> list[Line]:
    """The rows of a question, at most `room` of them, none wider than `width`."""
    return [first_row(line, width) for line in _lines(questions, first, room, width)]


def _lines(questions: Questions, first: Waiting, room: int, width: int) -> list[Line]:
    if isinstance(first, Posed):
        return _posed(questions, first, room, width)
    if isinstance(first, Offered):
        return _offered(questions, first, room, width)
    limit = _limit(room)
    head, (subject, whole) = _head(first.form, width), _laid_out(first, width)
    tail = _indented([("yellow", _HINTS[first.writes])], width) if first.writes else []
    answers = tail or [*_answers(first, width), _hint(questions, first)]
    fixed = len(head) + len(answers)
    inline = fixed + len(subject) <= limit and width > _NARROW
    if not first.seen_whole and not first.writes and _fits(first, room, width):
        first.seen_whole = True
        return _lines(questions, first, room, width)
    if first.is_above:
        subject = []
    elif not first.seen_whole:
        subject = _cut(whole, max(limit - fixed - 1, 1))
    elif not inline:
        subject = _cut(subject, max(limit - fixed, 1))
    spare = limit - fixed - len(subject)
    gap: list[Line] = [[]] if spare >= 1 else []
    above: list[Line] = [[]] if spare >= 2 and subject else []
    lines = [*head, *above, *subject, *gap, *answers]
    if len(lines) <= room:
        _note_shown(first)
        return lines
    return _small(questions, first, head, tail, room, width)


def _limit(room: int) -> int:
    return room if room <= _LOW else max(_ROWS, room // 2)


def _note_shown(first: Waiting) -> None:
    if isinstance(first, Asked) and not first.writes:
        first.shown.update(one.key for _, one in first.options)


def _small(
    questions: Questions, first: Asked, head: list[Line], tail: list[Line], room: int, width: int
) -> list[Line]:
    """On a screen of a few rows: the sentence, and the marked answer alone."""
    if tail:
        return [*head, *tail][-room:]
    options = first.options
    name, one = options[min(first.at, len(options) - 1)]
    first.shown.add(one.key)
    count = f"  {first.at + 1}/{len(options)}"
    answer = first_row([("bold", f"› {name}. {one.label}")], max(width - len(count), 1))
    lines = [*head[: max(room - 1, 0)], [*answer, ("dim", count)]]
    return lines[-room:] if room > 1 else lines[-1:]


def _head(form: ApprovalForm, width: int) -> list[Line]:
    # Indented further than our own words: no row of a long reason can be taken for one of them.
    reason = wrapped([("italic", f"The model says: {form.says}")], max(width - 7, 8))
    says = hung(reason, [("", "  ")], [("", "    ")]) if form.says else []
    if len(says) > _SAYS:
        says = [*says[: _SAYS - 1], [*says[_SAYS - 1], ("italic", " …")]]
    return [
        *_indented([("bold", form.sentence)], width),
        *says,
        *(row for note in form.notes for row in _indented([("", note)], width)),
        *_summary(form.files, width),
    ]


def _indented(line: Line, width: int) -> list[Line]:
    return hung(wrapped(line, max(width - 3, 8)), [("", "  ")], [("", "  ")])


def _summary(files: Sequence[FileDiff], width: int) -> list[Line]:
    """The files of a change with how much of each changes; one is in the sentence."""
    line: Line = []
    for file in files:
        added, removed = counts(diff_lines(file))
        parts = [
            ("", shown(file.path) if len(files) > 1 else ""),
            ("green", f"+{added}" if added else ""),
            ("red", f"−{removed}" if removed else ""),
            ("", f"→ {shown(file.moved_to)}" if file.moved_to else ""),
        ]
        line += [("dim", " ·")] if line else []
        for style, text in parts:
            line += [("", " " * bool(line)), (style, text)] if text else []
    return _indented(line, width) if line else []


def _laid_out(asked: Asked, width: int) -> tuple[list[Line], list[Line]]:
    """What would run, and that with what would change, drawn once for a width."""
    if asked.laid_out is None or asked.laid_out[0] != width:
        asked.laid_out = width, subject_lines(asked.form, width), _all_lines(asked.form, width)
    return asked.laid_out[1:]


def _fits(asked: Asked, room: int, width: int) -> bool:
    """Whether all of it fits beside the answers; a change never does, it stands above them."""
    form = asked.form
    rows = _own_rows(asked, width) + len(_laid_out(asked, width)[0])
    return not (form.diff or form.files) and rows <= _limit(room) and width > _NARROW


def _own_rows(asked: Asked, width: int) -> int:
    """The rows of the question without what would run, with every answer as it is wrapped."""
    return len(_head(asked.form, width)) + len(_rows_of(asked, asked.answers, width)) + 1


def subject_lines(form: ApprovalForm, width: int) -> list[Line]:
    """What would run, every row behind a mark: none can be taken for our own words."""
    code = form.command.split("\n") if form.command else []
    lines = highlighted(code, "bash") if code else [[("", text)] for text in form.call]
    found: list[Line] = []
    for number, line in enumerate(lines):
        rest = _MORE if code else BAR
        first = "  $ " if code and number == 0 else rest
        found += hung(broken(line, max(width - 5, 8)), [("dim", first)], [("dim", rest)])
    return found


def above_lines(asked: Asked, room: int, width: int) -> list[Line]:
    """What would run or change, where it is for above the question and fits one screen with it."""
    if _fits(asked, room, width) or width <= _NARROW:
        return []
    lines, own = _laid_out(asked, width)[1], _own_rows(asked, width)
    return lines if len(lines) + own < room and own <= _limit(room) else []


def _all_lines(form: ApprovalForm, width: int) -> list[Line]:
    if not form.files:
        diff = (
            [[(SIGNS.get(text[:1], ""), text)] for text in form.diff.split("\n")]
            if form.diff
            else []
        )
        barred = [
            row
            for line in diff
            for row in hung(broken(line, max(width - 5, 8)), [("dim", BAR)], [("dim", BAR)])
        ]
        return [*subject_lines(form, width), *barred]
    found: list[Line] = []
    for file in form.files:
        moved = f" → {shown(file.moved_to)}" if file.moved_to else ""
        found.append([("", "  "), ("bold", f"{shown(file.path)}{moved}")])
        for line in diff_lines(file):
            found += hung(broken(line, max(width - 9, 8)), [], [("dim", " " * 8)])
    return found


def _cut(lines: list[Line], most: int) -> list[Line]:
    if len(lines) <= most:
        return lines
    more = len(lines) - most + 1
    return [*lines[: most - 1], [("dim", f"  … {more} more {'line' if more == 1 else 'lines'}")]]


def _answers(first: Waiting, width: int) -> list[Line]:
    return _rows_of(first, first.options, width)


def _rows_of(first: Waiting, options: Sequence[tuple[str, AnswerOption]], width: int) -> list[Line]:
    found: list[Line] = []
    for number, (name, one) in enumerate(options):
        is_marked = number == first.at
        style = "changed" if is_marked else ""
        text = f"{name}. {one.label}"
        if isinstance(first, Asked) and first.form.is_critical and one.key == "once":
            text += " (asks you to type yes)"
        rest = wrapped([(style, text)], max(width - 8, 8))
        lead: Line = [("", "  "), (style, "› ")] if is_marked else [("", "    ")]
        for row in hung(rest, lead, [("", "    "), (style, "   ")]):
            found.append([*row, (style, " ")])
    return found


def _hint(questions: Questions, first: Waiting) -> Line:
    if questions.is_early:
        return [("yellow", "  one moment …")]
    options = first.options
    most = sum(name.isdigit() for name, _ in options)
    keys = [f"Enter or 1-{most}"] if most > 1 else ["Enter"]
    keys += ["e details"] if isinstance(first, Asked) and first.seen_whole else []
    keys.append(_ESC[type(first)])
    keys += [f"{questions.others} more waiting"] if questions.others else []
    return [("dim", f"  {' · '.join(keys)}")]


def _offered(questions: Questions, offered: Offered, room: int, width: int) -> list[Line]:
    sentence, *notes = offered.lines
    head = _indented([("bold", sentence)], width)
    head += [row for note in notes for row in _indented([("", note)], width)]
    lines = [*head, [], *_answers(offered, width), _hint(questions, offered)]
    if len(lines) > room:
        lines = [*head[: max(room - len(offered.labels), 1)], *_answers(offered, width)]
    return lines[-room:]


def _posed(questions: Questions, posed: Posed, room: int, width: int) -> list[Line]:
    question = posed.question
    head: list[Line] = _indented(
        [("bold", f"The model asks{posed.count}: {shown(question.header)}")], width
    )
    text: list[Line] = [
        [("", row)] for line in block(question.question) for row in rows(line, width)
    ]
    answers: list[Line] = [] if posed.writes else _answers(posed, width)
    words = []
    if question.is_secret:
        words.append("The model will read the answer; it is not shown and kept out of logs.")
    if posed.writes:
        leaves = "goes back" if posed.options else "declines"
        words.append(f"Enter sends your answer · Esc {leaves}")
    tail: list[Line] = [
        *([("yellow", f"  {posed.problem}")] for _ in range(bool(posed.problem))),
        *([("dim", f"  {each}")] for each in words),
    ]
    if not posed.writes:
        tail.append(_hint(questions, posed))
    limit = max(room, 1)
    text = _cut(text, max(limit - len(head) - len(answers) - len(tail), 1))
    lines = [*head, *text, *answers, *tail]
    if len(lines) <= limit:
        return lines
    marked = [line for line in answers if line[1][1] == "› "] or tail
    return [*head, *text, *marked][-limit:] if limit > 1 else marked[:1]
