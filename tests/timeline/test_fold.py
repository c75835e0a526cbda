"""Events become cells: nothing is lost, nothing is invented, in whatever order they come."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.agent.conversation.events import (
    AgentMessage,
    AgentMessageDelta,
    AgentReasoning,
    AgentReasoningDelta,
    StreamError,
    TaskComplete,
    TokenCount,
    UserMessage,
)
from toolrest.agent.subagents.subagents import AgentCall, AgentStatus
from toolrest.answer import Answer
from toolrest.events import (
    ApprovalRequested,
    ConnectionBlocked,
    Event,
    ExecApprovalRequest,
    ExecCommandBegin,
    ExecCommandOutputDelta,
    PatchApplyEnd,
    PlanUpdate,
    RequestUserInput,
    ToolCallBegin,
    ToolCallDecision,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallProgress,
    Warning,  # noqa: A004 - the event
)
from toolrest.timeline.cells import (
    AgentCell,
    CallCell,
    EndCell,
    FileDiff,
    MessageCell,
    NoticeCell,
    Output,
    PlanCell,
    PlanStep,
    Question,
    QuestionCell,
    ReasoningCell,
    UserCell,
)
from toolrest.timeline.fold import Timeline
from toolrest.tools.agents.events import (
    CollabAgentInteractionBegin,
    CollabAgentSpawnBegin,
    CollabAgentSpawnEnd,
)


def begin(call_id: str = "c", tool: str = "exec_command", arguments: str = "{}") -> Event:
    return ToolCallBegin(call_id=call_id, tool=tool, arguments=arguments)


def end(call_id: str = "c", **more: Any) -> Event:
    fields: dict[str, Any] = {
        "tool": "exec_command",
        "success": True,
        "failure": None,
        "duration": 0.5,
        "bytes": 0,
        "output": "",
    }
    return ToolCallEnd(call_id=call_id, **fields | more)


def complete(**more: Any) -> Event:
    fields: dict[str, Any] = {
        "status": "completed",
        "reason": "done",
        "last_agent_message": None,
        "error": None,
        "usage": {"input_tokens": 7, "output_tokens": 2},
    }
    return TaskComplete(**fields | more)


def folded(*events: Event) -> Timeline:
    timeline = Timeline()
    for event in events:
        timeline.feed(event)
    return timeline


def call(*events: Event) -> CallCell:
    (cell,) = folded(*events).cells
    assert isinstance(cell, CallCell)
    return cell


def test_a_message_grows_and_is_replaced_by_the_whole_one() -> None:
    timeline = Timeline()
    first = timeline.feed(AgentMessageDelta(delta="he"))
    assert isinstance(first, MessageCell)
    assert not first.done
    assert timeline.feed(AgentMessageDelta(delta="llo")) is first
    assert first.text == "hello"
    assert timeline.feed(AgentMessage(message="hello.")) is first
    assert (first.text, first.done) == ("hello.", True)
    assert timeline.feed(AgentMessage(message="next")) is not first
    assert len(timeline.cells) == 2


def test_reasoning_and_users_have_cells_of_their_own() -> None:
    timeline = folded(
        UserMessage(message="go"),
        AgentReasoningDelta(delta="hm"),
        AgentReasoning(text="hm, yes"),
        AgentMessage(message="done"),
    )
    user, thought, message = timeline.cells
    assert isinstance(user, UserCell)
    assert isinstance(thought, ReasoningCell)
    assert isinstance(message, MessageCell)
    assert (user.text, thought.text, message.text) == ("go", "hm, yes", "done")


def test_a_command_runs_and_ends() -> None:
    timeline = Timeline()
    cell = timeline.feed(begin(arguments='{"cmd": "make"}'))
    assert isinstance(cell, CallCell)
    assert (cell.command, cell.state) == ("make", "begun")
    line = ("/bin/bash", "-lc", "make all")
    timeline.feed(ExecCommandBegin(call_id="c", command=line, cwd="/ws"))
    assert (cell.command, cell.cwd, cell.state) == ("make all", "/ws", "running")
    timeline.feed(ExecCommandOutputDelta(call_id="c", text="one\ntw"))
    timeline.feed(ExecCommandOutputDelta(call_id="c", text="o\nthree"))
    assert cell.output.tail() == ["one", "two"]
    assert timeline.running == [cell]
    timeline.feed(end(exit_code=2, sandbox="bubblewrap"))
    assert cell.output.tail() == ["one", "two", "three"]
    assert (cell.state, cell.exit_code, cell.sandbox, cell.done) == (
        "failed",
        2,
        "bubblewrap",
        True,
    )
    assert timeline.running == []


def test_a_call_waits_and_is_denied() -> None:
    asked = ExecApprovalRequest(
        call_id="c",
        tool="exec_command",
        reason="it leaves the sandbox",
        risk="execute",
        command=("make",),
        cwd="/ws",
        proposed_execpolicy_amendment=None,
    )
    denied = ToolCallDecision(
        call_id="c",
        tool="exec_command",
        arguments="{}",
        verdict=Answer.DENY,
        rule="r",
        risk="execute",
        reason="no",
    )
    assert call(begin(), asked).state == "waiting"
    cell = call(begin(), asked, denied, end(failure="approval_denied", success=False, output="x"))
    assert (cell.state, cell.reason, cell.rule, cell.done) == ("denied", "no", "r", True)


def test_a_failed_write_has_its_cause() -> None:
    changes = {"/ws/a": {"type": "add", "content": "x\n"}}
    patch = PatchApplyEnd(
        call_id="c", stdout="", stderr="a: permission denied\n", success=False, changes=changes
    )
    cell = call(begin(tool="apply_patch"), patch, end(failure="execution_failed", success=False))
    assert (cell.state, cell.reason) == ("failed", "a: permission denied")
    assert cell.files == (FileDiff("/ws/a", "add", "x\n"),)


@pytest.mark.parametrize(
    ("failure", "output", "reason"),
    [
        ("timed_out", "timed out after 3 s\nx", "timed_out: timed out after 3 s"),
        ("sandbox_denied", "x\nblocked: /etc", "sandbox_denied: blocked: /etc"),
        ("fatal", "", "fatal: "),
    ],
)
def test_a_failure_says_why(failure: Any, output: str, reason: str) -> None:
    assert call(begin(), end(failure=failure, output=output, success=False)).reason == reason


def test_plans_notices_and_the_end() -> None:
    timeline = folded(
        PlanUpdate(explanation=None, plan=[{"step": "look", "status": "in_progress"}]),
        Warning(message="careful"),
        TokenCount(total={}, last={"total_tokens": 90}, model_context_window=100),
        complete(status="failed", error="no server"),
    )
    plan, notice, ended = timeline.cells
    assert isinstance(plan, PlanCell)
    assert plan.steps == (PlanStep("look", "in_progress"),)
    assert isinstance(notice, NoticeCell)
    assert isinstance(ended, EndCell)
    assert (ended.status, ended.error, ended.input_tokens) == ("failed", "no server", 7)
    assert (timeline.tokens, timeline.window) == (90, 100)


def test_what_a_turn_leaves_open_is_closed_with_it() -> None:
    timeline = folded(begin(), AgentMessageDelta(delta="half"), complete(status="interrupted"))
    assert all(cell.done for cell in timeline.cells)
    later = timeline.feed(AgentMessageDelta(delta="new"))
    assert isinstance(later, MessageCell)
    assert later.text == "new"


def test_a_repeated_answer_starts_a_new_message() -> None:
    timeline = folded(
        AgentMessageDelta(delta="ha"),
        StreamError(message="", kind="stream", reason="cut", attempt=1, most=5),
        AgentMessage(message="ok"),
    )
    texts = [cell.text for cell in timeline.cells if isinstance(cell, MessageCell | NoticeCell)]
    assert texts == ["ha", "Connection lost; trying again now (1 of 5)", "ok"]
    again = timeline.feed(StreamError(message="", kind="stream", reason="cut", attempt=2, most=5))
    assert isinstance(again, NoticeCell)
    assert again.text == "Connection lost; trying again now (2 of 5)", "a reason is named once"


def test_a_blocked_connection_goes_to_the_only_running_call() -> None:
    running = ExecCommandBegin(call_id="c", command=("curl",), cwd="/ws")
    blocked = ConnectionBlocked(host="evil.example", port=443, protocol="tcp")
    assert "evil.example:443" in call(begin(), running, blocked).notes[0]
    assert isinstance(folded(blocked).cells[0], NoticeCell)


def test_connections_that_are_blocked_again_and_again_are_told_once() -> None:
    running = ExecCommandBegin(call_id="c", command=("curl",), cwd="/ws")
    many = [
        ConnectionBlocked(host=f"{number % 100}.example", port=443, protocol="tcp")
        for number in range(1000)
    ]
    notes = call(begin(), running, *many[:1], *many).notes
    assert len(notes) == len(set(notes)) == 20


# Whatever comes

IDS = st.sampled_from(["a", "b"])
TEXT = st.text(max_size=30)
EVENTS = st.lists(
    st.one_of(
        st.builds(lambda i, t: begin(i, "t", t), IDS, TEXT),
        st.builds(lambda i, t: ToolCallDelta(call_id=i, text=t), IDS, TEXT),
        st.builds(lambda i, t: ToolCallProgress(call_id=i, message=t), IDS, TEXT),
        st.builds(lambda i, t: end(i, output=t), IDS, TEXT),
        st.builds(lambda t: AgentMessageDelta(delta=t), TEXT),
        st.builds(lambda t: AgentMessage(message=t), TEXT),
        st.builds(lambda t: AgentReasoningDelta(delta=t), TEXT),
        st.builds(lambda t: UserMessage(message=t), TEXT),
        st.builds(lambda t: StreamError(message=t), TEXT),
        st.builds(complete),
    ),
    max_size=40,
)


@given(EVENTS)
def test_nothing_is_lost_whatever_the_order(events: list[Event]) -> None:
    timeline = Timeline()
    for event in events:
        before = len(timeline.cells)
        cell = timeline.feed(event)
        assert len(timeline.cells) - before in (0, 1)
        assert cell is None or cell in timeline.cells
    messages = [cell.text for cell in timeline.cells if isinstance(cell, MessageCell)]
    for event in events:
        if isinstance(event, AgentMessage):
            assert event.message in messages
    begun = sum(isinstance(event, ToolCallBegin) for event in events)
    assert sum(isinstance(cell, CallCell) for cell in timeline.cells) == begun
    if events and isinstance(events[-1], TaskComplete):
        assert all(cell.done for cell in timeline.cells)


PRINTED = st.text(st.characters(codec="utf-8", exclude_categories=["C"]) | st.just("\n"))


@given(st.lists(PRINTED, max_size=20), st.integers(1, 8))
def test_a_tail_is_the_end_however_it_arrives(pieces: list[str], most: int) -> None:
    output = Output()
    for piece in pieces:
        output.feed(piece)
    output.flush()
    whole = "".join(pieces)
    lines = whole.split("\n")
    if lines[-1] == "":
        lines.pop()
    assert output.text == "\n".join(lines)
    assert output.count == len(lines)
    while lines and not lines[-1].strip():
        lines.pop()
    assert output.tail(most) == lines[-most:]


def test_a_flood_keeps_its_end_and_its_count() -> None:
    output = Output()
    for number in range(200_000):
        output.feed(f"line {number}\n")
    output.flush()
    assert output.count == 200_000
    assert output.tail(2) == ["line 199998", "line 199999"]
    assert len(output.text) <= Output.MOST
    endless = Output()
    for _ in range(100):
        endless.feed("x" * 65_536)
    endless.flush()
    assert len(endless.text) <= 2 * Output.MOST


QUESTION = {"id": "drop", "header": "Drop", "question": "Drop it?", "options": [{"label": "Yes"}]}


def asked(*questions: dict[str, Any]) -> Event:
    return RequestUserInput(call_id="c", questions=list(questions or (QUESTION,)))


def test_a_question_has_a_cell_with_its_answers() -> None:
    timeline = folded(begin(tool="asks"), asked())
    (cell,) = timeline.cells
    assert isinstance(cell, QuestionCell)
    assert cell.questions == (Question("drop", "Drop", "Drop it?", ("Yes",)),)
    assert not cell.done
    assert timeline.running == [cell], "in the place of its call"
    assert timeline.feed(end(output='{"answers":{"drop":{"answers":["Yes"]}}}')) is cell
    assert (cell.done, cell.state, cell.answers) == (True, "done", {"drop": ("Yes",)})
    assert timeline.running == []


def test_a_question_that_is_declined_has_no_answers() -> None:
    (cell,) = folded(
        begin(tool="asks"),
        asked(),
        end(success=False, failure="execution_failed", output="it was cancelled"),
    ).cells
    assert isinstance(cell, QuestionCell)
    assert (cell.state, cell.answers) == ("failed", {})
    assert "it was cancelled" in cell.reason


@pytest.mark.parametrize("questions", [[], ["text"], [{"id": 1}], [QUESTION, {"id": "b"}]])
def test_what_is_no_question_stays_a_call(questions: list[Any]) -> None:
    cell = call(begin(tool="asks"), RequestUserInput(call_id="c", questions=questions))
    assert not isinstance(cell, QuestionCell)


def spawned(agent_id: str = "a1", task: str = "look", path: str = "root/explorer-1") -> list[Event]:
    fields: dict[str, Any] = {"call_id": "c", "tool": "spawns", "sender_thread_id": "me"}
    return [
        begin(tool="spawns"),
        CollabAgentSpawnBegin(prompt=task, **fields),
        AgentStatus(agent_id=agent_id, path=path, role="explorer", status="running"),
        CollabAgentSpawnEnd(
            prompt=task,
            receiver_thread_ids=(agent_id,),
            statuses={agent_id: "running"},
            success=True,
            **fields,
        ),
        end(),
    ]


def agent_is(status: Any, agent_id: str = "a1", path: str = "root/explorer-1") -> Event:
    return AgentStatus(agent_id=agent_id, path=path, role="explorer", status=status)


def agent_calls(tool: str, arguments: str = "", *, ended: bool = False) -> Event:
    return AgentCall(
        agent_id="a1", path="root/explorer-1", tool=tool, arguments=arguments, ended=ended
    )


def agents(timeline: Timeline) -> list[AgentCell]:
    return [cell for cell in timeline.cells if isinstance(cell, AgentCell)]


def test_a_sub_agent_has_a_cell_from_its_start_to_its_end() -> None:
    timeline = folded(*spawned())
    started, cell = timeline.cells
    assert isinstance(started, CallCell)
    assert started.hidden, "the agent's own cell shows it"
    assert isinstance(cell, AgentCell)
    assert (cell.name, cell.task, cell.state, cell.done) == ("explorer-1", "look", "running", False)
    assert timeline.feed(agent_calls("exec_command", '{"cmd": "pytest -q"}')) is cell
    assert (cell.doing, cell.calls) == ("$ pytest -q", 1)
    timeline.feed(agent_calls("exec_command", ended=True))
    timeline.feed(agent_calls("read_file", '{"path": "a.py"}'))
    assert (cell.doing, cell.calls) == ("read_file a.py", 2)
    assert timeline.feed(agent_is({"completed": "two callers"})) is cell
    assert (cell.state, cell.last, cell.done) == ("completed", "two callers", True)
    timeline.feed(agent_is("shutdown"))
    timeline.feed(agent_calls("late"))
    assert (cell.state, cell.calls) == ("completed", 2), "closed when it is done already"


def test_a_sub_agent_goes_on_after_the_turn_and_can_get_another_task() -> None:
    timeline = folded(*spawned(), complete())
    (first,) = agents(timeline)
    assert not first.done
    fields: dict[str, Any] = {"call_id": "d", "tool": "sends", "sender_thread_id": "me"}
    for event in (
        agent_is({"errored": "no"}),
        CollabAgentInteractionBegin(receiver_thread_ids=("a1",), prompt="once more", **fields),
        agent_is("running"),
    ):
        timeline.feed(event)
    before, after = agents(timeline)
    assert (before.state, before.last, before.done) == ("errored", "no", True)
    assert (after.task, after.state, after.done) == ("once more", "running", False)


def test_what_works_between_turns_is_not_in_the_time_of_the_next() -> None:
    timeline = Timeline()
    events = [*spawned(), complete(), agent_is({"completed": "x"}), UserMessage(message="go")]
    times = [*(1.0 for _ in spawned()), 2.0, 50.0, 100.0, 101.0, 103.0]
    for event, time in zip([*events, UserMessage(message="and"), complete()], times, strict=True):
        event.time = time
        timeline.feed(event)
    assert [cell.seconds for cell in timeline.cells if isinstance(cell, EndCell)] == [1.0, 3.0]


def test_two_sub_agents_and_one_of_their_own_do_not_mix() -> None:
    timeline = folded(
        *spawned(),
        *spawned("a2", "measure", "root/default-2"),
        agent_is("running", "b", "root/default-2/explorer-1"),
        agent_is({"completed": "x"}, "b", "root/default-2/explorer-1"),
        agent_is({"completed": "y"}, "a2", "root/default-2"),
    )
    found = [(cell.task, cell.depth, cell.state, cell.last) for cell in agents(timeline)]
    assert found == [
        ("look", 0, "running", ""),
        ("measure", 0, "completed", "y"),
        ("", 1, "completed", "x"),
    ]


def test_a_sub_agent_that_cannot_be_started_is_a_failed_call() -> None:
    start, spawn, *_ = spawned()
    cell = call(
        start,
        spawn,
        CollabAgentSpawnEnd(
            call_id="c", tool="spawns", sender_thread_id="me", statuses={}, success=False
        ),
        end(success=False, failure="execution_failed", output="collab spawn failed: too many"),
    )
    assert (cell.hidden, cell.state) == (False, "failed")


def test_the_time_that_a_person_takes_is_no_work() -> None:
    """Two calls wait at the same time, then a question: from 2 to 7 and from 8 to 9."""
    events = [
        UserMessage(message="go"), begin("a"), begin("b", "asks"),
        ApprovalRequested(call_id="a", tool="exec_command", reason="", risk="execute"),
        RequestUserInput(call_id="b", questions=[QUESTION]),
        ToolCallDecision(
            call_id="a", tool="exec_command", arguments="", verdict=Answer.ALLOW, rule="", risk=""
        ),
        end("b"), begin("c"),
        ApprovalRequested(call_id="c", tool="exec_command", reason="", risk="execute"),
        end("c"), end("a"), complete(),
    ]  # fmt: skip
    for event, time in zip(events, (1, 1, 1, 2, 3, 5, 7, 7, 8, 9, 10, 11), strict=True):
        event.time = float(time)
    last = folded(*events).cells[-1]
    assert isinstance(last, EndCell)
    assert last.seconds == 10 - 5 - 1
