"""Trajectories in ATIF (Agent Trajectory Interchange Format), which Harbor reads, of journals."""

from __future__ import annotations

import json
import os
from typing import Any

from toolrest import __version__
from toolrest.agent.history.history import message_text
from toolrest.batch.reports.results import read_results
from toolrest.batch.run_task import task_folder
from toolrest.batch.stores.store import Store
from toolrest.items import JSONObject
from toolrest.private_files import make_private, write_all
from toolrest.wire.items.pairing import call_id_of, is_call

_VERSION = "ATIF-v1.7"


def export_trajectories(store: Store, folder: str) -> int:
    """Write `folder/KEY.json` for each task with a result and a journal; returns how many."""
    make_private(folder)
    count = 0
    for result in read_results(store):
        journal = store.read(f"{task_folder(result['key'])}/journal.jsonl")
        if journal is None:
            continue
        found = trajectory(journal, result)
        path = os.path.join(folder, f"{result['key']}.json")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            write_all(fd, json.dumps(found, ensure_ascii=False, indent=1).encode())
        finally:
            os.close(fd)
        count += 1
    return count


def trajectory(journal: bytes, result: JSONObject | None = None) -> JSONObject:
    """The trajectory of a session's journal, with the totals of a task's result."""
    steps = _Steps()
    meta: JSONObject = {}
    for line in journal.splitlines():
        try:
            row: Any = json.loads(line)
            kind, payload, at = row["type"], row["payload"], row["timestamp"]
        except (ValueError, KeyError, TypeError):
            continue  # a crash cut it
        if kind == "session_meta":
            meta = meta or payload
        else:
            steps.take(kind, payload, at)
    agent = {"name": "toolrest", "version": str(meta.get("cli_version") or __version__)}
    if steps.model is not None:
        agent["model_name"] = steps.model
    found: JSONObject = {
        "schema_version": _VERSION,
        "session_id": str(meta.get("id") or ""),
        "agent": agent,
        "steps": steps.steps,
    }
    if result is not None:
        usage = result.get("usage") or {}
        found["final_metrics"] = {
            "total_prompt_tokens": usage.get("input_tokens"),
            "total_completion_tokens": usage.get("output_tokens"),
            "total_cached_tokens": usage.get("cached_input_tokens"),
            "total_cost_usd": result.get("cost"),
            "total_steps": len(steps.steps),
        }
        found["extra"] = {"task": result["id"], "failure": result["failure"]}
        if result.get("check"):
            found["extra"]["check"] = result["check"]
    return found


class _Steps:
    """Steps in the making: a reply with its calls and their outputs is one step."""

    def __init__(self) -> None:
        self.steps: list[JSONObject] = []
        self.model: str | None = None
        self._reply: JSONObject | None = None

    def take(self, kind: str, payload: JSONObject, at: str) -> None:
        """Take one line of the journal."""
        if kind == "turn_context":
            self.model = payload.get("model") or self.model
        elif kind == "response_item":
            self._item(payload, at)
        elif kind == "event_msg" and payload.get("type") == "token_count":
            self._count((payload.get("info") or {}).get("last_token_usage"))

    def _item(self, item: JSONObject, at: str) -> None:
        kind = item.get("type")
        if kind == "message" and item.get("role") != "assistant":
            source = "user" if item.get("role") == "user" else "system"
            self._add(source, message_text(item), at)
            self._reply = None
        elif kind == "message":
            reply = self._of_reply(at)
            reply["message"] = "\n".join(filter(None, (reply["message"], message_text(item))))
        elif kind == "reasoning":
            texts = [part.get("text", "") for part in item.get("summary") or []]
            if text := "\n".join(filter(None, texts)):
                self._of_reply(at)["reasoning_content"] = text
        elif is_call(item):
            self._of_reply(at).setdefault("tool_calls", []).append(_call(item))
        elif item.get("output") is not None and self.steps:
            self._output(item)

    def _add(self, source: str, text: str, at: str) -> JSONObject:
        step: JSONObject = {"step_id": len(self.steps) + 1, "timestamp": at, "source": source}
        step["message"] = text
        self.steps.append(step)
        return step

    def _of_reply(self, at: str) -> JSONObject:
        """The step of the reply that is being recorded; a new one after outputs."""
        if self._reply is None or "observation" in self._reply:
            self._reply = self._add("agent", "", at)
        return self._reply

    def _output(self, item: JSONObject) -> None:
        call_id = str(item.get("call_id"))
        for step in reversed(self.steps):
            if any(call["tool_call_id"] == call_id for call in step.get("tool_calls", ())):
                results = step.setdefault("observation", {"results": []})["results"]
                results.append({"source_call_id": call_id, "content": _text(item["output"])})
                return

    def _count(self, usage: Any) -> None:
        if self._reply is not None and isinstance(usage, dict):
            self._reply["metrics"] = {
                "prompt_tokens": usage.get("input_tokens"),
                "completion_tokens": usage.get("output_tokens"),
                "cached_tokens": usage.get("cached_input_tokens"),
            }


def _call(item: JSONObject) -> JSONObject:
    raw: Any = item.get("arguments")
    try:
        arguments = json.loads(raw) if isinstance(raw, str) else raw
    except ValueError:
        arguments = {"raw": raw}
    if not isinstance(arguments, dict):
        arguments = {"input": item.get("input", item.get("action", arguments))}
    name = str(item.get("name") or item.get("type"))
    return {"tool_call_id": call_id_of(item), "function_name": name, "arguments": arguments}


def _text(output: Any) -> str:
    if isinstance(output, str):
        return output
    if isinstance(output, dict):
        return str(output.get("content", ""))
    parts = output if isinstance(output, list) else []
    return "\n".join(str(part.get("text", "[image]")) for part in parts if isinstance(part, dict))
