"""A hostile page in the browser that is logged in: it can neither read nor do anything."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.web_ui.conftest import Served, open_first, waiting

from toolrest.gate.approval.pending_store import PendingStore

pytestmark = pytest.mark.system
EVIL = """<!doctype html><title>evil</title><body></body><script>
const target = "TARGET", done = {}, own = { credentials: "include" };
const answer = JSON.stringify({ approve: true, pin: "PIN" });

const read = async (path, options) => (await fetch(target + path, options)).text();
const first = (source, opened) => new Promise((found) => {
  for (const name of opened) source[`on${name}`] = () => found("OPENED");
  source.onerror = () => found("refused");
});
function loaded(tag, fields) {
  const node = Object.assign(document.createElement(tag), fields);
  const found = first(node, ["load"]);
  document.body.append(node);
  return found;
}
async function framed() {
  await loaded("iframe", { src: target, name: "inside" });
  return frames.inside.document.title;
}
async function submitted() {
  await loaded("iframe", { name: "quiet" });
  const form = document.createElement("form"), field = document.createElement("input");
  const action = `${target}api/approvals/ID`;
  Object.assign(form, { method: "POST", action, target: "quiet", enctype: "text/plain" });
  Object.assign(field, { name: '{"approve":true,"pin":"PIN","x":"', value: '"}' });
  form.append(field);
  document.body.append(form);
  const frame = document.querySelector("[name=quiet]");
  const sent = new Promise((found) => { frame.onload = () => found("sent"); });
  form.submit();
  return sent;
}
const attacks = {
  read: () => read("api/sessions", own),
  keyed: () => read("api/sessions", { ...own, headers: { "x-toolrest-key": "guess" } }),
  login: () => read("api/login", { method: "POST", body: '{"token":"guess"}' }),
  blind: async () => (await fetch(`${target}api/approvals/ID`,
    { ...own, method: "POST", mode: "no-cors", body: answer })).type,
  events: () => first(new EventSource(`${target}api/news`, own), ["open", "message"]),
  socket: () => first(new WebSocket(`${target.replace("http", "ws")}api/news`), ["open"]),
  script: () => loaded("script", { src: target }),
  frame: framed,
  form: submitted,
};
addEventListener("load", async () => {
  await Promise.all(Object.entries(attacks).map(async ([name, attack]) => {
    try { done[name] = await attack(); } catch (error) { done[name] = `refused: ${error.name}`; }
  }));
  window.done = done;
});
</script>"""


@pytest.fixture
def elsewhere() -> Iterator[Callable[[str], str]]:
    """Serves a page on another port of this machine, whose requests have our cookies."""
    text = [""]

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(text[0].encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def serve(page: str) -> str:
        text[0] = page
        return f"http://127.0.0.1:{server.server_port}/"

    yield serve
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_page_on_another_port_can_neither_read_nor_do_anything(
    tab: Any, served: Served, home: Path, elsewhere: Callable[[str], str]
) -> None:
    pending = waiting(home)
    target = f"http://127.0.0.1:{served.port}/"
    text = EVIL.replace("TARGET", target).replace("ID", pending.id).replace("PIN", pending.pin)
    evil = tab.context.new_page()
    evil.goto(elsewhere(text))
    evil.wait_for_function("window.done")
    done = evil.evaluate("window.done")
    assert done == {
        "read": "refused: TypeError",
        "blind": "refused: TypeError",
        "keyed": "refused: TypeError",
        "login": "refused: TypeError",
        "events": "refused",
        "socket": "refused",
        "script": "refused",
        "frame": "refused: SecurityError",
        "form": "sent",
    }
    assert PendingStore(str(home)).state(pending) == "waiting"
    # The browser that is logged in still is, and no wrong link was counted.
    open_first(tab)
    assert httpx.post(
        f"{target}api/login", json={"token": "guess"}, headers={"Origin": target[:-1]}
    ).status_code == 401  # fmt: skip


def test_a_page_that_nobody_touches_does_not_keep_itself_logged_in(
    browser: Any, served: Served, home: Path
) -> None:
    """It looks again at every approval; those requests say that nobody asked for them."""
    context = browser.new_context()
    page = context.new_page()
    page.clock.install()
    page.goto(served.link)
    page.wait_for_selector("#sessions a")
    for touched in (False, True):
        page.clock.run_for(61_000)
        if touched:
            with page.expect_request("**/api/seen") as seen:
                page.keyboard.press("Shift")
            assert "x-toolrest-idle" not in seen.value.headers
        with page.expect_request("**/api/approvals") as asked:
            waiting(home, text=f"echo {touched}")
        assert ("x-toolrest-idle" in asked.value.headers) is not touched
    context.close()
