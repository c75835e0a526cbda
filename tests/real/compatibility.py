"""docs/compatibility.md, written from what the tests in this folder found.

`TOOLREST_WRITE_DOCS=1 TOOLREST_TEST_FULL=1 pytest -n 0 tests/real` notes the result of each test
that ran in `results.json` and writes the page from it; a part of the tests changes only its rows.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.real import conformance

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "compatibility.md"
RESULTS = Path(__file__).with_name("results.json")
_TEST = r"tests/real/(?!test_compatibility\.)(\w+)\.py::(\w+)(?:\[(.*)\])?"
WIRES = {"responses": "Responses", "chat": "Chat", "anthropic": "Anthropic"}

POINTS: dict[str, tuple[str, ...]] = {
    "A read is never refused as a loop; changes count by turn and client": (
        "tests/agent/test_stale.py::test_a_fifth_read_shows_what_changed_outside",
        "tests/gate/decision/test_loops.py::test_a_read_is_always_run_and_its_repeated_result_noted",
        "tests/agent/conversation/test_session.py::test_repeated_changes_are_counted_by_turn",
        "tests/serve/test_http.py::test_clients_do_not_share_a_loop_watch",
    ),
    "MCP results without repetitions and base64": (
        "tests/mcp/test_servers.py::test_what_a_model_sees_of_a_result",
    ),
    "Images on a server without eyes": (
        "tests/wire/test_wires.py::test_a_server_without_eyes_gets_the_request_once_more_without_images",
        "tests/real/test_llama.py::test_a_picture_for_a_model_without_eyes",
    ),
    "Errors keep the server's words; a base URL without `/v1` is named": (
        "tests/wire/apis/test_responses.py::test_an_error_without_a_known_type_keeps_the_servers_words",
        "tests/wire/http/test_failures.py::test_words_of_a_server_sent_event_are_shown_without_their_wrapping",
        "tests/wire/test_wires.py::test_a_missing_version_in_the_address_is_named",
        "tests/wire/test_odd_replies.py::test_an_error_that_is_not_called_one_keeps_the_servers_words",
        "tests/wire/test_odd_replies.py::test_nothing_of_a_reply_is_lost",
        "tests/wire/http/test_refusals.py::test_the_status_counts_when_the_words_cannot_be_read",
    ),
    "Templates that take one system message, on every wire": (
        "tests/wire/test_wires.py::test_without_a_developer_role_only_the_start_instructs",
        "tests/real/test_llama.py::test_later_instructions_with_a_strict_template",
    ),
    "A cut answer is not a full window; a first request that is too large fails at once": (
        "tests/agent/conversation/test_session.py::test_a_cut_answer_is_reported_and_nothing_is_summarised",
        "tests/agent/conversation/test_session.py::test_a_first_request_that_is_too_large_fails_at_once_with_the_numbers",
        "tests/wire/test_wires.py::test_the_window_is_learned_from_an_overflow",
        "tests/wire/test_providers.py::test_a_near_server_is_asked_for_the_window",
        "tests/wire/test_odd_replies.py::test_a_stream_that_ends_without_saying_how_was_cut",
        "tests/wire/test_odd_replies.py::test_whole_calls_of_a_cut_stream_are_kept",
    ),
    "LiteLLM's signed thinking goes back": (
        "tests/wire/apis/test_chat_deltas.py::test_thinking_blocks_keep_their_signatures_and_go_back",
    ),
    "`rest.answer()` takes objects, streams and text, or says what to pass": (
        "tests/agent/test_sdk_objects.py::test_a_loop_with_the_vendors_package",
        "tests/agent/test_sdk_objects.py::test_a_stream_itself_is_read_whole",
        "tests/agent/test_sdk_objects.py::test_forms_in_which_a_reply_is_held",
        "tests/agent/test_sdk_objects.py::test_what_is_no_reply_says_what_to_pass",
    ),
    "Spilled output is whole and its totals exact": (
        "tests/tools/shell/test_command_tools.py::test_a_huge_output_of_exec_command_is_counted_exactly_and_kept_without_a_hole",
    ),
    "The Agent Client Protocol": (
        "tests/serve/test_acp.py",
        "tests/serve/test_acp_session.py",
        "tests/serve/test_acpx.py",
    ),
    "MCP servers that run in practice": (
        "tests/mcp/transports/test_stderr.py::test_errors_of_node",
        "tests/mcp/test_folders.py::test_a_server_that_writes_beside_its_program",
        "tests/mcp/test_folders.py::test_a_server_that_is_installed_in_tmp",
        "tests/mcp/test_session.py::test_lists_do_not_wait_for_a_dead_server",
        "tests/mcp/test_session.py::test_a_required_server_is_named_while_it_is_waited_for",
        "tests/real/test_servers.py::test_a_server",
    ),
}
"""What real servers and clients have taught us, each with the tests that hold it."""


class Results:
    """The results by module, test and parameters, as they are stored."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, dict[str, Any]]] = (
            json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        )
        self._new: list[tuple[str, str, str, dict[str, Any]]] = []

    def note(self, report: pytest.TestReport) -> None:
        """Take the result of a test of this folder."""
        match = re.fullmatch(_TEST, report.nodeid)
        if match is None or not (report.when == "call" or report.skipped):
            return
        module, test, parameters = match.groups()
        found = {"passed": "works", "failed": "fails"}.get(report.outcome, "not run")
        row = {"result": found, **dict(report.user_properties)}
        self._new.append((module, test, parameters or "", row))

    def write(self) -> None:
        """Add the new results to what is stored by now, and write the page."""
        self.rows = Results().rows
        for module, test, parameters, row in self._new:
            self.rows.setdefault(module, {}).setdefault(test, {})[parameters] = row
        RESULTS.write_text(json.dumps(self.rows, indent=1, sort_keys=True) + "\n")
        PAGE.write_text(self.page())

    def cases(self, module: str) -> set[tuple[str, str]]:
        """The tests of a module that have a result, each with its parameters."""
        return {(t, p) for t, cases in self.rows.get(module, {}).items() for p in cases}

    def page(self) -> str:
        """The whole page."""
        return HEAD + "\n\n".join(
            [
                self._llama(),
                self._litellm(),
                self._details("Clients of `toolrest mcp serve`", CLIENTS, "test_clients"),
                self._details("MCP servers", SERVERS, "test_servers"),
                self._soak(),
                f"## MCP's conformance suite\n\n{SUITE}\n\n{conformance.table()}",
                _points(),
            ]
        )

    def _llama(self) -> str:
        rows = [
            f"| {_sentence(test)} | {self._over_wires('test_llama', test, '{}')} |"
            for test in sorted(self.rows.get("test_llama", {}))
        ]
        return "\n".join(["## llama.cpp", "", _header("", *WIRES.values()), *rows])

    def _litellm(self) -> str:
        cases = self.rows.get("test_litellm", {})
        kinds = sorted({p.rsplit("-", 1)[0] for test in cases.values() for p in test})
        rows = [
            f"| `{kind}/` | {self._over_wires('test_litellm', test, kind + '-{}')} |"
            for test in sorted(cases)
            for kind in kinds
        ]
        table = _header("LiteLLM's name for llama.cpp's server", *WIRES.values())
        return "\n".join(["## LiteLLM", "", table, *rows])

    def _over_wires(self, module: str, test: str, form: str) -> str:
        cases = self.rows[module][test]
        found = (cases.get(form.format(wire), {"result": "–"}) for wire in WIRES)
        return " | ".join(row["result"] for row in found)

    def _details(self, title: str, text: str, module: str) -> str:
        rows = [
            f"| {row.get('name', parameters)} | {row.get('version', '')} | {row['result']} |"
            f" {row.get('what', '')} |"
            for cases in self.rows.get(module, {}).values()
            for parameters, row in sorted(cases.items())
        ]
        return "\n".join([f"## {title}", "", text, "", _header("", "version", "", "tools"), *rows])

    def _soak(self) -> str:
        cases = self.rows.get("test_soak", {}).get("test_a_long_session", {})
        lines = [f"- {row['soak']}: {row['result']}" for row in cases.values() if "soak" in row]
        return "\n".join(["## A long session", "", SOAK, "", *lines])


HEAD = """\
# Compatibility

What was tried with programs that others wrote. This page is written by the tests in `tests/real`
(`TOOLREST_WRITE_DOCS=1 TOOLREST_TEST_FULL=1 .venv/bin/pytest -n 0 tests/real`); `make test-full`
runs all of them, `make test` a sample. "–" is what an API or a server does not have.

"""
CLIENTS = """\
Each lists the tools, reads a file, and meets a denial."""
SERVERS = """\
Each runs in a session's sandbox; "asked" names folders that the user was asked about (PLACE: where
it is installed)."""
SUITE = """\
`tests/mcp/test_conformance.py` (client) and `tests/serve/test_foreign_clients.py` (server) run the
newest stable version of `@modelcontextprotocol/conformance` and the newest of the next one. All
scenarios pass but for these, which do not apply."""
SOAK = """\
One session against llama.cpp on all three APIs in turn. In its turns the server is killed and
started again, answers are cut in the middle, the user interrupts, and the session is resumed, also
from what was on disk in the middle of a turn. After each, every call has exactly one output; the
process must not grow."""


def _header(*names: str) -> str:
    return f"| {' | '.join(names)} |\n|{'---|' * len(names)}"


def _sentence(test: str) -> str:
    return test.removeprefix("test_").replace("_", " ")


def _points() -> str:
    rows = []
    for number, (point, tests) in enumerate(POINTS.items(), 1):
        listed = "".join(f"\n   - `{test}`" for test in tests)
        rows.append(f"{number}. {point}{listed}")
    return "\n".join(["## What real servers have taught us", "", *rows, ""])
