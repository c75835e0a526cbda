"""`apply_patch` through the whole gate: recorded texts, recorded decisions, all forms, events."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest

from toolrest import ApprovalRequest, Toolrest
from toolrest.events import Event, PatchApplyBegin, PatchApplyEnd, TurnDiff

DATA = Path(__file__).parents[2] / "data"
SAFETY = json.loads((DATA / "apply_patch_safety.json").read_text())
FULL = os.environ.get("TOOLREST_TEST_FULL") == "1"


def load(name: str) -> list[dict[str, Any]]:
    with (DATA / name).open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def plain_tree(tree: dict[str, Any]) -> bool:
    return all(isinstance(entry, str) for entry in tree.values())


INPUTS = {case["name"]: case for case in load("apply_patch.jsonl")}
TOOL_CASES = [
    case
    for case in load("apply_patch_tool.jsonl")
    if plain_tree(INPUTS[case["name"]]["input"]) and INPUTS[case["name"]].get("cwd", ".") == "."
    if case["name"] != "malformed/git_diff"  # Codex refuses a diff, this tool applies it
]
if not FULL:
    TOOL_CASES = random.Random(5).sample(TOOL_CASES, len(TOOL_CASES) // 2)


def listed(changes: dict[str, Any], root: Path) -> list[dict[str, Any]]:
    """The changes of an event as the recordings have them: elements of a `fileChange` item."""
    items = []
    for path, change in changes.items():
        kind = {"type": change["type"]}
        diff, target = change.get("content", change.get("unified_diff")), change.get("move_path")
        if kind["type"] == "update":
            kind["move_path"] = target and target.replace(str(root), "$ROOT")
            diff += f"\n\nMoved to: {kind['move_path']}" if target else ""
        items.append({"path": path.replace(str(root), "$ROOT"), "kind": kind, "diff": diff})
    return items


@pytest.mark.parametrize("case", TOOL_CASES, ids=[case["name"] for case in TOOL_CASES])
async def test_recorded_texts_changes_and_trees(case: dict[str, Any], tmp_path: Path) -> None:
    recorded = INPUTS[case["name"]]
    root = tmp_path / "root"
    root.mkdir()
    for name, text in recorded["input"].items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    patch = recorded["patch"].replace("$ROOT", str(root))
    seen: list[Event] = []
    async with Toolrest(workspace=root, model="gpt-5.5", tools=["all"]) as rest:
        rest.subscribe(seen.append)
        (answer,) = await rest.answer(
            {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": patch}
        )
    begun = [listed(event.changes, root) for event in seen if isinstance(event, PatchApplyBegin)]
    # A patch that fails when it is planned was not begun.
    assert begun == ([case["changes"]] if case["output"].startswith("Exit code: 0") else [])
    expected = case["output"].replace("$ROOT", str(root))
    output = re.sub(r"\nWall time: [\d.]+ seconds\n", "\nWall time: 0 seconds\n", answer["output"])
    expected = re.sub(r"\nWall time: [\d.]+ seconds\n", "\nWall time: 0 seconds\n", expected)
    assert answer["type"] == "custom_tool_call_output"
    assert output.startswith(expected)
    assert all(
        line.startswith("[toolrest] ") for line in output[len(expected) :].split("\n") if line
    )
    if plain_tree(case["expected"]):
        tree = {
            str(path.relative_to(root)): path.read_bytes().decode()
            for path in root.rglob("*")
            if path.is_file()
        }
        assert tree == case["expected"]


def first_decision(row: dict[str, Any]) -> str:
    """What was decided first: a second question, or an exit code, means it was approved."""
    if row["asked"] and row["ask_reason"] is None:
        return "ask"
    if row["asked"] or str(row["output"]).startswith("Exit code"):
        return "auto-approve"
    return str(row["output"])


@pytest.mark.parametrize(
    "row",
    SAFETY["results"],
    ids=[f"{r['sandbox']}-{r['approval']}-{r['target']}" for r in SAFETY["results"]],
)
async def test_recorded_decisions(row: dict[str, Any], tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    for folder in (work, outside, work / "sub" / ".git", work / ".git"):
        folder.mkdir(parents=True)
    for path in (work / "a.txt", work / "del.txt", work / "mv.txt", outside / "have.txt",
                 outside / "mv2.txt", outside / "target.txt"):  # fmt: skip
        path.write_text("a\n")
    (work / "lnk").symlink_to(outside)
    (work / "fl.txt").symlink_to(outside / "target.txt")
    asked: list[str] = []

    def decline(request: ApprovalRequest) -> bool:
        asked.append(request.reason)
        return False

    patch = SAFETY["patches"][row["target"]].replace("$OUTSIDE", str(outside))
    async with Toolrest(
        workspace=work,
        sandbox_mode=row["sandbox"],
        approval_policy=row["approval"],
        on_ask=decline,
        tools=["all"],
    ) as rest:
        output = await rest.call("apply_patch", {"input": patch})
    expected = first_decision(row).replace("$CWD", str(work))
    if expected == "ask":
        assert len(asked) == 1
        assert output.text == "patch rejected by user"
    elif expected == "auto-approve":
        assert not asked
        assert output.text.startswith("Exit code: ")
    else:
        assert not asked
        assert output.text.startswith(expected)
    if row["sandbox"] != "danger-full-access" or expected == "ask":
        names = sorted(os.listdir(outside))
        assert names == ["have.txt", "mv2.txt", "target.txt"]
        assert {path.read_text() for path in outside.iterdir()} == {"a\n"}


DIFF = "--- a/f.txt\n+++ b/f.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
CODEX = "*** Begin Patch\n*** Update File: f.txt\n@@\n one\n-two\n+2\n*** End Patch\n"


@pytest.mark.parametrize("model", ["gpt-5.5", "gpt-oss-20b", "claude-x", "unknown"])
@pytest.mark.parametrize(
    "arguments",
    [
        {"input": CODEX},
        {"patch": CODEX, "confirm": True},
        {"patch": DIFF},
        {"input": DIFF},
        {"file_path": "f.txt", "old_string": "two", "new_string": "2"},
        {"file_path": "f.txt", "edits": [{"old_string": "two", "new_string": "2"}]},
        CODEX,
        DIFF,
    ],
)
async def test_every_form_whatever_is_advertised(
    tmp_path: Path, model: str, arguments: Any
) -> None:
    (tmp_path / "f.txt").write_text("one\ntwo\n")
    async with Toolrest(workspace=tmp_path, model=model, tools=["all"]) as rest:
        if isinstance(arguments, str):
            item = {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch"}
            (answer,) = await rest.answer({**item, "input": arguments})
            text = answer["output"]
        else:
            text = (await rest.call("apply_patch", arguments)).text
    assert (tmp_path / "f.txt").read_text() == "one\n2\n", text
    assert text.endswith("M f.txt\n")


def test_the_schema_of_a_diff_has_confirm_and_does_not_require_it(tmp_path: Path) -> None:
    """It lowers no verdict: see `test_confirm_approves_nothing`."""
    settings = {"model_families": {"diffs": {"prefixes": ["acme"], "patch": "unified"}}}
    rest = Toolrest(tmp_path, model="acme-1", tools=["apply_patch"], settings=settings)
    (spec,) = rest.specs("chat")
    schema = spec["function"]["parameters"]
    assert schema["properties"]["confirm"]["type"] == "boolean"
    assert schema["required"] == ["patch"]


async def test_confirm_approves_nothing(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("one\ntwo\n")
    asked: list[ApprovalRequest] = []

    def decline(request: ApprovalRequest) -> bool:
        asked.append(request)
        return False

    async with Toolrest(tmp_path, approval_policy="untrusted", on_ask=decline) as rest:
        output = await rest.call("apply_patch", {"patch": DIFF, "confirm": True})
    assert len(asked) == 1
    assert not output.success
    assert (tmp_path / "f.txt").read_text() == "one\ntwo\n"


async def test_what_is_no_patch_names_all_forms(tmp_path: Path) -> None:
    async with Toolrest(workspace=tmp_path, tools=["all"]) as rest:
        output = await rest.call("apply_patch", {"input": "please change the file"})
        empty = await rest.call("apply_patch", {})
    for text in (output.text, empty.text):
        assert text.startswith("apply_patch verification failed: ")
        for form in ("*** Begin Patch", "diff --git", "old_string"):
            assert form in text


async def test_an_edit_that_is_not_unique_is_refused_with_the_count(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x\nx\nx\n")
    async with Toolrest(workspace=tmp_path, tools=["all"]) as rest:
        arguments = {"file_path": "f", "old_string": "x", "new_string": "$&"}
        refused = await rest.call("apply_patch", arguments)
        assert "3" in refused.text
        assert (tmp_path / "f").read_text() == "x\nx\nx\n"
        await rest.call("apply_patch", {**arguments, "replace_all": True})
    assert (tmp_path / "f").read_text() == "$&\n$&\n$&\n"


async def test_events_and_the_turn_diff(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("one\ntwo\n")
    seen: list[Event] = []
    calls = [
        {"type": "function_call", "call_id": "1", "name": "apply_patch",
         "arguments": json.dumps({"input": CODEX})},
        {"type": "function_call", "call_id": "2", "name": "apply_patch",
         "arguments": json.dumps({"file_path": "f.txt", "old_string": "one", "new_string": "1"})},
    ]  # fmt: skip
    async with Toolrest(workspace=tmp_path, tools=["all"]) as rest:
        rest.subscribe(seen.append)
        await rest.answer(calls)
    begins = [event for event in seen if isinstance(event, PatchApplyBegin)]
    ends = [event for event in seen if isinstance(event, PatchApplyEnd)]
    diffs = [event.unified_diff for event in seen if isinstance(event, TurnDiff)]
    assert [event.call_id for event in begins] == ["1", "2"]
    assert all(event.success for event in ends)
    assert begins[0].changes[str(tmp_path / "f.txt")]["type"] == "update"
    assert "-one\n-two\n+1\n+2\n" in diffs[-1]


async def test_patches_of_one_file_in_one_reply_build_on_each_other(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"{n}\n" for n in range(50)))

    def patch(n: int) -> str:
        return f"*** Begin Patch\n*** Update File: f\n@@\n-{n}\n+line {n}\n*** End Patch"

    items = [
        {"type": "custom_tool_call", "call_id": str(n), "name": "apply_patch", "input": patch(n)}
        for n in range(50)
    ]
    async with Toolrest(workspace=tmp_path, tools=["all"]) as rest:
        await rest.answer(items)
    assert (tmp_path / "f").read_text() == "".join(f"line {n}\n" for n in range(50))


async def test_a_secret_in_a_file_does_not_leave_through_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sk-canary-0123456789abcdef"
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    (tmp_path / "f.txt").write_text(f"one\ntwo\n{secret}\n")
    seen: list[Event] = []
    async with Toolrest(workspace=tmp_path, tools=["all"]) as rest:
        rest.subscribe(seen.append)
        output = await rest.call("apply_patch", {"input": CODEX})
    assert output.success
    assert secret in (tmp_path / "f.txt").read_text()
    assert secret not in json.dumps([event.to_json() for event in seen])


PATCHED = "*** Begin Patch\n*** Add File: new.txt\n+hi\n*** End Patch"


@pytest.mark.parametrize(
    ("tool", "arguments", "folder"),
    [
        ("exec_command", {"cmd": f"apply_patch <<'EOF'\n{PATCHED}\nEOF\n"}, "."),
        ("exec_command", {"cmd": f"cd sub && apply_patch <<'EOF'\n{PATCHED}\nEOF\n"}, "sub"),
        ("exec_command", {"cmd": f"applypatch <<X\n{PATCHED}\nX", "workdir": "sub"}, "sub"),
        ("shell", {"command": ["apply_patch", PATCHED]}, "."),
        ("shell", {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCHED}\nEOF\n"]}, "."),
        ("shell_command", {"command": f"apply_patch <<'EOF'\n{PATCHED}\nEOF\n"}, "."),
    ],
)
async def test_a_command_that_is_a_patch_goes_through_the_same_gate(
    tmp_path: Path, tool: str, arguments: dict[str, Any], folder: str
) -> None:
    (tmp_path / "sub").mkdir()
    seen: list[Event] = []
    async with Toolrest(workspace=tmp_path, tools=["all"]) as rest:
        rest.subscribe(seen.append)
        output = await rest.call(tool, arguments)
    assert (tmp_path / folder / "new.txt").read_text() == "hi\n"
    assert "Success. Updated the following files:\nA new.txt\n" in output.text
    assert any(isinstance(event, PatchApplyEnd) for event in seen)
    assert not [event for event in seen if event.type == "exec_command_begin"]
    assert f"requested via {tool}" in output.text.splitlines()[-1]


async def test_a_patch_in_a_command_obeys_the_path_policy(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    work = tmp_path / "work"
    for folder in (outside, work):
        folder.mkdir()
    command = f"cd {outside} && apply_patch <<'EOF'\n{PATCHED}\nEOF\n"
    async with Toolrest(workspace=work, approval_policy="never", tools=["all"]) as rest:
        output = await rest.call("exec_command", {"cmd": command})
    assert output.text == (
        "patch rejected: writing outside of the project; rejected by user approval settings"
    )
    assert not list(outside.iterdir())


async def test_a_bare_patch_given_to_a_shell_is_refused(tmp_path: Path) -> None:
    async with Toolrest(workspace=tmp_path, tools=["all"]) as rest:
        output = await rest.call("exec_command", {"cmd": PATCHED})
    assert output.text.startswith(
        "apply_patch verification failed: patch detected without explicit call to apply_patch."
    )


@pytest.mark.usefixtures("any_sandbox")
async def test_words_about_patches_are_ordinary_commands(tmp_path: Path) -> None:
    async with Toolrest(workspace=tmp_path, tools=["all"]) as rest:
        output = await rest.call("exec_command", {"cmd": "echo apply_patch", "login": False})
    assert output.text.endswith("apply_patch\n")


async def test_no_folder_stays_open_after_patches(tmp_path: Path) -> None:
    """Failed before: each write left three descriptors behind, until no file could be opened."""

    def held() -> int:
        links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
        return sum(os.path.realpath(link).startswith(str(tmp_path)) for link in links)

    async with Toolrest(tmp_path, settings={"checkpoints": {"enabled": False}}) as rest:
        patch = "*** Begin Patch\n*** Add File: sub/{}\n+x\n*** End Patch"
        await rest.call("apply_patch", {"input": patch.format(0)})
        before = held()
        for number in range(1, 6):
            done = await rest.call("apply_patch", {"input": patch.format(number)})
            assert done.success
            await rest.call("write_file", {"file_path": f"w{number}", "content": "x"})
            await rest.call("apply_patch", {"input": "*** Begin Patch\n*** Delete File: none"})
        assert (tmp_path / "sub" / "5").exists()
        assert held() == before


async def test_a_file_that_appeared_while_the_approver_thought_is_asked_about(
    tmp_path: Path,
) -> None:
    """Failed before: the person's own new file was replaced by the added one, unasked."""
    asked: list[ApprovalRequest] = []

    def approver(request: ApprovalRequest) -> bool:
        asked.append(request)
        (tmp_path / "new.txt").write_text("the person's own\n")
        return len(asked) == 1

    patch = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"
    async with Toolrest(
        tmp_path, tools=["all"], approval_policy="untrusted", on_ask=approver
    ) as rest:
        await rest.call("apply_patch", patch)
    assert len(asked) == 2
    assert "new.txt changed meanwhile" in asked[1].reason
    assert (tmp_path / "new.txt").read_text() == "the person's own\n"


async def test_a_hard_link_made_while_the_approver_thought_stays_one(tmp_path: Path) -> None:
    """Failed before: the plan was from before the link, and the file was replaced."""
    file, other = tmp_path / "a.txt", tmp_path / "b.txt"
    file.write_text("one\n")

    def approver(request: ApprovalRequest) -> bool:
        other.hardlink_to(file)
        return True

    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch\n"
    async with Toolrest(
        tmp_path, tools=["all"], approval_policy="untrusted", on_ask=approver
    ) as rest:
        await rest.call("apply_patch", patch)
    assert (file.read_text(), other.read_text()) == ("two\n", "two\n")


@pytest.mark.parametrize("key", ["input", "patch", "cmd"])
async def test_a_patch_wrapped_in_json_is_told_so(tmp_path: Path, key: str) -> None:
    patch = "*** Begin Patch\n*** Add File: a.txt\n+x\n*** End Patch"
    for text in (json.dumps({key: patch}), json.dumps([patch]), json.dumps(patch)):
        async with Toolrest(tmp_path, tools=["edit"], model="gpt-5.1") as rest:
            item = {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch"}
            [answer] = await rest.answer([item | {"input": text}])
        first, *notes = answer["output"].splitlines()
        assert first == (
            "apply_patch verification failed: invalid patch: "
            "The first line of the patch must be '*** Begin Patch'"
        )
        assert notes == ["[toolrest] this is JSON: send only the patch text"]
    assert not list(tmp_path.iterdir())
