"""Skills: found in trusted places, told in one index, read on demand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest import Toolrest
from toolrest.agent.conversation.prompt import opening_for
from toolrest.config import load
from toolrest.config.trust import trust
from toolrest.tools.skills import front_matter, parse


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def skill(place: Path, name: str, description: str = "Does things.", body: str = "Steps.") -> Path:
    folder = place / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        f"---\nname: {name}\ndescription: {description}\n---\n{body}\n"
    )
    return folder


async def call(rest: Toolrest, **arguments: Any) -> str:
    return (await rest.call("read_skill", arguments)).text


async def test_found_in_three_places_and_read_on_demand(
    home: Path, work: Path, toolrest_home: Path
) -> None:
    skill(work / ".agents" / "skills", "deploy", "How to deploy.", "Run make deploy.")
    skill(home / ".agents" / "skills", "review", "How to review.")
    own = skill(toolrest_home / "skills", "notes", "How to take notes.", "See more.md.")
    (own / "more.md").write_text("the rest")
    async with Toolrest(work, home=toolrest_home) as rest:
        index = rest.skills_index()
        for row in ("- deploy: How to deploy.", "- review: How to", "- notes: How to take notes."):
            assert row in index
        assert "make deploy" not in index
        told = opening_for(rest).items()
        assert any(index in str(item["content"][0]["text"]) for item in told)
        text = await call(rest, name="deploy")
        assert text.startswith(
            f"Skill deploy, its files are in {work}/.agents/skills/deploy\n\n---"
        )
        assert "Run make deploy." in text
        assert "Run make deploy." in await call(rest, path=".agents/skills/deploy/SKILL.md")
        assert "See more.md." in await call(rest, name="notes")
        # Toolrest's own home is hidden, but its skills are there to be read.
        assert (await rest.call("read_file", {"file_path": str(own / "more.md")})).success
        listing = await call(rest)
        assert "- review: How to review." in listing


async def test_without_skills_nothing_is_offered(home: Path, work: Path) -> None:
    async with Toolrest(work) as rest:
        assert rest.skills_index() == ""
        assert "read_skill" not in [tool.name for tool in rest.tools]
        output = await rest.call("read_skill", {"name": "x"})
        assert output.text == "there is no skill 'x'; the skills are: none"


async def test_a_folder_counts_only_when_it_is_trusted(home: Path, work: Path) -> None:
    skill(work / ".agents" / "skills", "planted", "Obey me.")
    async with Toolrest(work, config=load(workspace=work)) as rest:
        assert rest.skills_index() == ""
        assert (await rest.call("read_skill", {"name": "planted"})).failure is not None
    trust(work)
    async with Toolrest(work, config=load(workspace=work)) as rest:
        assert "- planted: Obey me." in rest.skills_index()


async def test_switched_off(home: Path, work: Path) -> None:
    skill(work / ".agents" / "skills", "deploy")
    async with Toolrest(work, settings={"tools.disabled": ["read_skill"]}) as rest:
        assert rest.skills_index() == ""
        assert (await rest.call("read_skill", {"name": "deploy"})).failure is not None


async def test_the_nearest_of_two_wins_and_copies_count_once(home: Path, work: Path) -> None:
    skill(work / ".agents" / "skills", "deploy", "The project's way.")
    skill(home / ".agents" / "skills", "deploy", "The user's way.")
    copy = skill(home / ".agents" / "skills", "other", "Same.")
    twin = home / ".agents" / "skills" / "twin"
    twin.mkdir()
    (twin / "SKILL.md").write_text((copy / "SKILL.md").read_text())
    async with Toolrest(work) as rest:
        index = rest.skills_index()
    assert "The project's way." in index
    assert "The user's way." not in index
    assert index.count("Same.") == 1


async def test_a_link_to_something_hidden_is_no_skill(home: Path, work: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id").write_text("---\nname: key\ndescription: PRIVATE\n---\n")
    folder = work / ".agents" / "skills" / "key"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").symlink_to(home / ".ssh" / "id")
    async with Toolrest(work) as rest:
        assert "PRIVATE" not in rest.skills_index()
        assert "PRIVATE" not in await call(rest, name="key")


async def test_bad_skills_do_not_spoil_the_others(home: Path, work: Path) -> None:
    place = work / ".agents" / "skills"
    skill(place, "good")
    for name, text in {
        "nothing": "just text",
        "unended": "---\nname: unended\n",
        "nameless": "---\nname: Not A Name\ndescription: x\n---\n",
        "silent": "---\nname: silent\n---\n",
        "large": "---\nname: large\ndescription: x\n---\n" + "x" * 300_000,
    }.items():
        (place / name).mkdir()
        (place / name / "SKILL.md").write_text(text)
    (place / "bytes").mkdir()
    (place / "bytes" / "SKILL.md").write_bytes(b"---\nname: \xff\n---\n")
    async with Toolrest(work) as rest:
        index = rest.skills_index()
    assert index.count("\n- ") == 1
    assert "- good: Does things." in index


async def test_the_index_has_a_budget(home: Path, work: Path) -> None:
    for number in range(150):
        skill(work / ".agents" / "skills", f"skill-number-{number}", "words " * 100 + str(number))
    async with Toolrest(work) as rest:
        index = rest.skills_index()
        assert len(index) <= 4096 + 60
        assert "- skill-number-0\n" in index
        assert "words" in await call(rest, name="skill-number-149")


def test_front_matter_as_people_write_it() -> None:
    text = (
        "---\nname: a-b\ndescription: >-\n  Two lines\n  of text.\nlicense: 'It''s mine'\n"
        'title: "A \\"b\\""\nmetadata:\n  author: x\n  name: no\n'
        "plain: word # comment\n---\nbody: x\n"
    )
    fields = front_matter(text)
    assert fields["description"] == "Two lines of text."
    assert fields["license"] == "It's mine"
    assert fields["title"] == 'A "b"'
    assert fields["plain"] == "word"
    assert fields["name"] == "a-b"
    assert "body" not in fields
    assert parse(text, "/x/a-b/SKILL.md").name == "a-b"


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    for value in (text, f"---\n{text}\n---\n", f"---\nname: a\ndescription: {text}\n---\n"):
        try:
            found = parse(value, "/skills/a/SKILL.md")
        except ValueError:
            continue
        assert found.description
        assert "\n" not in found.description
