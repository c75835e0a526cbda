// The page: the list of sessions, one session as it goes on, replay, approvals.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const INERT = 500; // a button that has just appeared takes no click that was meant for another
const state = { key: "", readOnly: false, rows: [], chosen: null, events: [], shown: 0, calls: new Map(), tokens: [], stream: null, playing: null, at: 0 };

// Requests

function say(text) { $("message").textContent = text; }

async function ask(path, options = {}) {
  const headers = { "x-toolrest-key": state.key, ...(options.headers ?? {}) };
  const response = await fetch(path, { ...options, headers, credentials: "same-origin", cache: "no-store" });
  if (response.status === 401) {
    sessionStorage.removeItem("key");
    say("This page is not logged in. Open the link that toolrest web printed, or start it again for a new one.");
  }
  return response;
}

const post = (path, body) => ask(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

async function logIn() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token !== null) {
    history.replaceState(null, "", location.pathname); // neither the history nor a screenshot keeps it
    const response = await post("/api/login", { token });
    const answer = await response.json();
    if (!response.ok) { say(answer.error); return false; }
    sessionStorage.setItem("key", answer.key);
  }
  state.key = sessionStorage.getItem("key") ?? "";
  return true;
}

// The list

async function list(more = false) {
  const query = new URLSearchParams({ limit: "50", q: $("search").value, before: more ? (state.rows.at(-1)?.id ?? "") : "" });
  const response = await ask(`/api/sessions?${query}`);
  if (!response.ok) return;
  const answer = await response.json();
  state.readOnly = answer.readOnly;
  state.rows = more ? [...state.rows, ...answer.sessions] : answer.sessions;
  $("more").hidden = answer.sessions.length < 50;
  $("sessions").replaceChildren(...state.rows.map(row));
  if (!state.rows.length) $("sessions").append(el("li", { class: "quiet", text: "No session is recorded." }));
}

function row(session) {
  const tokens = session.input + session.output;
  const facts = [session.cwd, session.model, new Date(session.changed * 1000).toLocaleString(), tokens ? `${tokens.toLocaleString()} tokens` : ""];
  return el("li", {}, el("a", { href: `#session=${encodeURIComponent(session.id)}`, "aria-current": session.id === state.chosen ? "true" : null },
    el("span", { class: session.open ? "open" : "", text: visible(session.title || "(no message)") }),
    session.open ? el("span", { class: "quiet", text: "running" }) : "",
    el("span", { class: "quiet", text: visible(facts.filter(Boolean).join(" · ")) }),
    el("span", { class: "quiet", text: visible(session.last) })));
}

function mark() {
  for (const link of $("sessions").querySelectorAll("a")) {
    if (link.hash === `#session=${encodeURIComponent(state.chosen ?? "")}`) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

// One session

function choose(id) {
  stop();
  state.stream?.abort();
  Object.assign(state, { chosen: id, events: [], shown: 0, calls: new Map(), tokens: [], at: 0 });
  $("timeline").replaceChildren();
  $("chart").replaceChildren();
  $("session").hidden = id === null;
  $("empty").hidden = id !== null;
  document.body.classList.remove("menu");
  mark();
  if (id === null) return;
  head();
  $("exports").replaceChildren(...["html", "md", "json"].map((kind) => el("button", { type: "button", text: `Save ${kind}`, on: { click: () => save(kind) } })));
  state.stream = new AbortController();
  void watch(id, state.stream.signal);
}

function head(open) {
  const found = state.rows.find((one) => one.id === state.chosen);
  $("title").textContent = visible(found?.title || state.chosen);
  const last = state.tokens.at(-1);
  const tokens = last ? `${last.input.toLocaleString()} tokens in, ${last.output.toLocaleString()} out` : "";
  const running = open === undefined ? "" : open ? "running" : "ended";
  $("facts").textContent = visible([found?.cwd, found?.model, tokens, running].filter(Boolean).join(" · "));
}

/** Read the session's events, and again from the last one when the connection breaks. */
async function watch(id, signal) {
  let after = 0;
  for (let wait = 250; !signal.aborted; wait = Math.min(wait * 2, 8000)) {
    try {
      const response = await ask(`/api/sessions/${encodeURIComponent(id)}/events?after=${after}`, { signal });
      if (!response.ok) { if (response.status !== 401) say("This session cannot be read."); return; }
      say("");
      for await (const [event, text] of messages(response.body)) {
        wait = 250;
        if (event === "state") { const now = JSON.parse(text); head(now.open); if (now.gone) return; flush(); continue; }
        const value = JSON.parse(text);
        after = value.at;
        take(value);
      }
    } catch (error) {
      if (signal.aborted) return;
    }
    say("The connection is lost; trying again.");
    await new Promise((done) => setTimeout(done, wait));
  }
}

/** The messages of a server-sent stream, as pairs of event and data. */
async function* messages(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const lines = part.split("\n");
      const text = lines.find((line) => line.startsWith("data: "));
      if (text) yield [lines.find((line) => line.startsWith("event: "))?.slice(7) ?? "message", text.slice(6)];
    }
  }
}

function take(event) {
  if (event.kind === "tokens") {
    state.tokens.push(event);
    return;
  }
  if (event.kind === "turn") return;
  state.events.push(event);
  if (state.events.length % 500 === 0) flush();
}

/** Draw what has come since, unless an earlier moment is looked at. */
function flush() {
  const live = state.playing === null && Number($("scrub").value) === Number($("scrub").max);
  $("scrub").max = String(state.events.length);
  $("chart").replaceChildren(chart(state.tokens.filter((one) => one.context)));
  if (live) show(state.events.length);
  else position();
}

/** Show the first `count` events. */
function show(count) {
  const main = $("main");
  const atEnd = main.scrollHeight - main.scrollTop - main.clientHeight < 80;
  if (count < state.shown) {
    $("timeline").replaceChildren();
    state.calls = new Map();
    state.shown = 0;
  }
  const fresh = document.createDocumentFragment();
  for (; state.shown < count; state.shown += 1) {
    const cell = drawCell(state.events[state.shown], state.calls);
    if (cell) fresh.append(cell);
  }
  $("timeline").append(fresh);
  $("scrub").value = String(count);
  position();
  if (atEnd) main.scrollTop = main.scrollHeight;
}

function position() { $("position").textContent = `${$("scrub").value} of ${state.events.length}`; }

// Replay

function play() {
  if (state.playing !== null) { stop(); return; }
  if (Number($("scrub").value) >= state.events.length) show(0);
  $("play").textContent = "Pause";
  state.playing = 0;
  step();
}

function step() {
  const at = Number($("scrub").value);
  if (at >= state.events.length) { stop(); return; }
  show(at + 1);
  const gap = (state.events[at + 1]?.time ?? 0) - state.events[at].time;
  state.playing = setTimeout(step, Math.min(2000, Math.max(30, (gap * 1000) / Number($("speed").value))));
}

function stop() {
  if (state.playing) clearTimeout(state.playing);
  state.playing = null;
  $("play").textContent = "Replay";
}

async function save(kind) {
  const response = await ask(`/api/sessions/${encodeURIComponent(state.chosen)}/export?format=${kind}`);
  if (!response.ok) return;
  const link = el("a", { href: URL.createObjectURL(await response.blob()), download: `toolrest-${state.chosen}.${kind}` });
  link.click();
  URL.revokeObjectURL(link.href);
}

// Approvals

const cards = new Map();
let arming = 0;

/** No button of an approval takes a click for a while: another card may have moved under the pointer. */
function rest() {
  const buttons = () => $("approvals").querySelectorAll("button");
  for (const button of buttons()) button.disabled = true;
  clearTimeout(arming);
  arming = setTimeout(() => { for (const button of buttons()) button.disabled = state.readOnly; }, INERT);
}

async function approvals() {
  const response = await ask("/api/approvals");
  if (!response.ok) return;
  const waiting = (await response.json()).approvals;
  const gone = [...cards].filter(([id]) => !waiting.some((one) => one.id === id));
  const come = waiting.filter((one) => !cards.has(one.id));
  for (const [id, card] of gone) { card.remove(); cards.delete(id); }
  for (const one of come) { const made = approvalCard(one); cards.set(one.id, made); $("approvals").append(made); }
  if (gone.length || come.length) rest();
  $("approvals").hidden = cards.size === 0;
  $("approvals-button").hidden = cards.size === 0;
  $("approvals-button").textContent = cards.size === 1 ? "1 approval waits" : `${cards.size} approvals wait`;
  document.title = cards.size ? `(${cards.size}) Toolrest` : "Toolrest";
}

function approvalCard(one) {
  const note = el("input", { type: "text", placeholder: "why not (sent to the model)", "aria-label": "Reason for denying" });
  const pin = el("input", { type: "text", inputmode: "numeric", placeholder: "code", "aria-label": "Code for critical calls", autocomplete: "off" });
  const scopes = [{ scope: "once", sentence: "this call only" }, ...one.choices.filter((choice) => choice.scope !== "once")];
  const scope = el("select", { "aria-label": "Approve for" }, ...scopes.map((choice) => el("option", { value: choice.scope, text: `${choice.scope}: ${visible(choice.sentence)}` })));
  const approve = el("button", { type: "button", class: "approve", text: "Approve", disabled: true });
  const deny = el("button", { type: "button", class: "deny", text: "Deny", disabled: true });
  const answer = async (body) => {
    approve.disabled = deny.disabled = true;
    const response = await post(`/api/approvals/${encodeURIComponent(one.id)}`, { pin: one.pin, ...body });
    if (!response.ok) say((await response.json()).error);
    await approvals();
    rest();
  };
  approve.addEventListener("click", () => answer({ approve: true, scope: scope.value, code: pin.value }));
  deny.addEventListener("click", () => answer({ approve: false, note: note.value }));
  return el("article", { class: "card", "data-id": one.id }, el("h3", { text: `${visible(one.tool)}: ${one.risk}${one.leaves ? ", OUTSIDE THE SANDBOX" : ""}` }),
    el("p", { class: "quiet", text: visible(`${one.workspace} · ${one.sandbox}`) }), code(one.lines.join("\n"), "What would run"),
    el("div", { class: "row" }, approve, scope, one.critical ? pin : ""), el("div", { class: "row" }, deny, note));
}

// Keys

function move(step) {
  const links = [...$("sessions").querySelectorAll("a")];
  const at = links.findIndex((link) => link.hasAttribute("aria-current"));
  const next = links[Math.min(links.length - 1, Math.max(0, at + step))];
  if (next) { next.click(); next.scrollIntoView({ block: "nearest" }); }
}

function first(kind) { $("approvals").querySelector(`button.${kind}:not(:disabled)`)?.focus(); }

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  "/": () => $("search").focus(),
  a: () => first("approve"),
  d: () => first("deny"),
  " ": () => { if (state.chosen) play(); },
  Escape: () => stop(),
};

document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === " " && event.target.closest("button, a, summary")) return;
  const act = KEYS[event.key];
  if (act) { event.preventDefault(); act(); }
});

// Start

$("scrub").addEventListener("input", () => { stop(); show(Number($("scrub").value)); });
$("play").addEventListener("click", play);
$("menu").addEventListener("click", () => { const on = document.body.classList.toggle("menu"); $("menu").setAttribute("aria-expanded", String(on)); });
$("approvals-button").addEventListener("click", () => { $("main").scrollTop = 0; first("approve"); });
$("more").addEventListener("click", () => list(true));
let typing = 0;
$("search").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => list(), 200); });

/** Look again when the server says that approvals or sessions have changed. */
async function news() {
  for (let wait = 500; state.key; wait = Math.min(wait * 2, 8000)) {
    try {
      const response = await ask("/api/news");
      if (!response.ok) return;
      for await (const _ of messages(response.body)) {
        wait = 500;
        await approvals();
        if (!$("search").value && state.rows.length <= 50) await list();
      }
    } catch { /* tried again */ }
    await new Promise((done) => setTimeout(done, wait));
    await approvals().catch(() => {});
  }
}

function route() {
  const asked = new URLSearchParams(location.hash.slice(1));
  if (asked.has("token")) { location.reload(); return; }
  const id = asked.get("session");
  if (id !== state.chosen) choose(id);
}

async function start() {
  if (data !== null) { // a session saved as a file
    document.body.querySelector("nav").remove();
    $("menu").remove();
    Object.assign(state, { chosen: data.session.id, rows: [data.session] });
    $("session").hidden = false;
    $("empty").hidden = true;
    data.events.forEach(take);
    head(false);
    flush();
    return;
  }
  window.addEventListener("hashchange", route);
  if (!(await logIn()) || !state.key) { if (!state.key) say("Open the link that toolrest web printed."); return; }
  await list();
  route();
  await approvals();
  void news();
}

void start();
