"""A small MCP server for tests, without the SDK: quick to start, and as odd as it is told to be.

Usage: fake_server.py MODE [STATE_FILE]. It speaks newline-delimited JSON-RPC on its own.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

MODE = sys.argv[1] if len(sys.argv) > 1 else "plain"
STATE = sys.argv[2] if len(sys.argv) > 2 else ""
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJ"
    "RU5ErkJggg=="
)
MODERN = "2026-07-28" if MODE.startswith("modern") else ""
listeners: list[dict[str, Any]] = []
lock = threading.Lock()
waiting: dict[Any, Any] = {}
cancelled: list[Any] = []


def send(message: dict[str, Any]) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def tool(name: str, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return {"name": name, "description": f"The {name} tool.", "inputSchema": schema, **more}


def tools() -> list[Any]:
    listed: list[Any] = [tool(n) for n in ("echo", "image", "fail", "env", "structured", "both")]
    listed += [tool(n) for n in ("sleep", "steps", "crash", "files", "grow", "ask", "seen", "net")]
    listed.append(tool("wipe", annotations={"destructiveHint": True}))
    listed.append(tool("look", annotations={"readOnlyHint": True}))
    if MODE == "bad-tools":
        listed += ["nonsense", {"name": "no-schema"}, {"name": "bad", "inputSchema": 7}]
        listed += [{"name": "worse", "inputSchema": {"type": "object", "properties": {"a": 3}}}]
        listed += [tool("echo"), tool("ünï cödé.x"), tool("hidden\u202e")]
    if MODE == "described" and STATE:
        with open(STATE) as file:
            listed[0].update(json.load(file))
    if MODE == "listed":
        with open(STATE) as file:
            listed = json.load(file)
    if MODE == "many":
        listed = [tool(f"tool_{n:03}", description=f"Does thing {n}. " * 20) for n in range(500)]
    if os.path.exists(STATE + ".grown"):
        listed.append(tool("grown"))
    return listed


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], **more}


def call(
    request: Any, name: str, arguments: dict[str, Any], token: Any, given: dict[str, Any]
) -> dict[str, Any]:
    if name == "echo":
        return text(arguments.get("text", ""))
    if name == "image":
        image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
        return {"content": [{"type": "text", "text": "a pixel"}, image]}
    if name == "fail":
        return text(arguments.get("text") or "it went wrong", isError=True)
    if name == "env":
        return text(json.dumps(dict(os.environ)))
    if name == "structured":
        return {"content": [], "structuredContent": {"n": 7}}
    if name == "both":
        return text("hello", structuredContent={"n": 7})
    if name == "sleep":
        time.sleep(float(arguments.get("text") or 900))
        return text("slept")
    if name == "steps":
        for step in range(6):
            time.sleep(0.3)
            send_progress(token, step)
        return text("stepped")
    if name == "crash":
        os._exit(3)
    if name == "files":
        with open(arguments["text"], "w") as file:
            file.write("written")
        return text("written")
    if name == "grow":
        open(STATE + ".grown", "w").close()
        for stamp in listeners or [{}]:
            send({"method": "notifications/tools/list_changed", "params": stamp})
        return text("grown")
    if name == "ask" and MODERN:
        return ask_first(arguments.get("text") or "elicitation/create", given)
    if name == "ask":
        return text(json.dumps(ask(arguments.get("text") or "elicitation/create")))
    if name == "seen":
        return text(json.dumps(cancelled))
    if name == "net":
        import socket

        socket.create_connection(("127.0.0.1", int(arguments["text"])), 2).close()
        return text("connected")
    return text(name)


def send_progress(token: Any, step: int) -> None:
    params = {"progressToken": token, "progress": step, "total": 6, "message": f"step {step}"}
    send({"method": "notifications/progress", "params": params})


def ask_first(method: str, given: dict[str, Any]) -> dict[str, Any]:
    """Answer with a question, as 2026-07-28 has it, until its answer comes."""
    if "inputResponses" in given:
        return text(json.dumps([given["inputResponses"]["q"], given.get("requestState")]))
    wanted = {"q": {"method": method, "params": params_of(method)}}
    return {"resultType": "input_required", "inputRequests": wanted, "requestState": "st"}


def params_of(method: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    if method == "sampling/createMessage":
        content = {"type": "text", "text": "hi"}
        return {"messages": [{"role": "user", "content": content}], "maxTokens": 10}
    if method == "roots/list":
        return {}
    return {"mode": "form", "message": "really?", "requestedSchema": schema}


def ask(method: str) -> Any:
    done = threading.Event()
    waiting["ask"] = done
    send({"id": "ask", "method": method, "params": params_of(method)})
    done.wait(60)
    return waiting.pop("answer", None)


def old_fashioned(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """What a server that speaks only 2026-07-28 has against a request."""
    if method == "initialize" and MODE == "modern":
        return {"code": -32601, "message": "Method not found"}
    meta = params.get("_meta") or {}
    if method != "initialize" and meta.get("io.modelcontextprotocol/protocolVersion") != MODERN:
        return {"code": -32602, "message": f"{method} lacks its _meta"}
    return None


def answer(message: dict[str, Any]) -> None:
    method, params = str(message.get("method")), message.get("params") or {}
    result: dict[str, Any] | None
    if MODERN and (problem := old_fashioned(method, params)):
        send({"id": message["id"], "error": problem})
        return
    if MODE == "modern-shape" and method == "initialize":
        result = {"resultType": "complete", "supportedVersions": [MODERN]}
    elif method == "server/discover":
        result = {"supportedVersions": [MODERN], "capabilities": {"tools": {"listChanged": True}}}
        result |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    elif method == "subscriptions/listen":
        stamp = {"_meta": {"io.modelcontextprotocol/subscriptionId": message["id"]}}
        wanted = {"notifications": params["notifications"]}
        send({"method": "notifications/subscriptions/acknowledged", "params": stamp | wanted})
        listeners.append(stamp)
        return
    elif method == "initialize":
        capabilities = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": capabilities}
        result["serverInfo"] = {"name": "fake", "version": "1"}
    elif method == "tools/list":
        listed, start = tools(), int(params.get("cursor") or 0)
        result = {"tools": listed[start : start + 100]}
        if start + 100 < len(listed):
            result["nextCursor"] = str(start + 100)
    elif method == "tools/call":
        token = (params.get("_meta") or {}).get("progressToken")
        try:
            arguments = params.get("arguments") or {}
            result = call(message["id"], params["name"], arguments, token, params)
        except OSError as error:
            result = text(str(error), isError=True)
    elif method == "resources/list":
        result = {"resources": [{"uri": "memo://one", "name": "one", "mimeType": "text/plain"}]}
        if not params.get("cursor"):
            result["nextCursor"] = "2"
    elif method == "resources/templates/list":
        result = {"resourceTemplates": [{"uriTemplate": "memo://{id}", "name": "memo"}]}
    elif method == "resources/read":
        result = {"contents": [{"uri": params["uri"], "text": "the text"}]}
    elif method == "prompts/list":
        result = {"prompts": [{"name": "review", "arguments": [{"name": "what"}]}]}
    elif method == "prompts/get":
        content = {"type": "text", "text": "do it"}
        result = {"messages": [{"role": "user", "content": content}]}
    elif method == "ping":
        result = {}
    else:
        send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
        return
    send({"id": message["id"], "result": result})


def main() -> None:
    if MODE == "crash":
        sys.stderr.write("cannot find my own feet; WALKING_STICK is not set\n")
        sys.exit(7)
    if MODE == "hang":
        time.sleep(3600)
    if MODE == "junk":
        while True:
            sys.stdout.write("this is no message\n")
            sys.stdout.flush()
            if STATE:
                open(STATE + ".said", "w").close()
            time.sleep(0.01)
    if MODE == "noisy":
        sys.stdout.write("Welcome to my server!\n{broken\n")
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "notifications/cancelled":
            cancelled.append(message["params"]["requestId"])
        elif "method" not in message:
            waiting["answer"] = message.get("result", message.get("error"))
            waiting["ask"].set()
        elif "id" in message:
            threading.Thread(target=answer, args=(message,), daemon=True).start()


main()
