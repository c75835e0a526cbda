// The page: the list of sessions, one session as it goes on, replay, approvals.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const state = { key: "", readOnly: false, rows: [], chosen: null, events: [], drawn: [], calls: new Map(), tokens: [], price: null, plans: [], lanes: null, stream: null, open: null, playing: null, view: "timeline" };

// Requests

function say(text) { $("message").textContent = visible(text); }

const LOST = "The connection is lost; trying again.";

function reached() { if ($("message").textContent === LOST) say(""); }

async function ask(path, options = {}) {
  const headers = { "x-toolrest-key": state.key, ...idleHeader(), ...(options.headers ?? {}) };
  const response = await fetch(path, { ...options, headers, credentials: "same-origin", cache: "no-store" });
  if (response.status === 401) logOut();
  return response;
}

/** As `ask`; a server that is gone is an answer, too. */
async function request(path, options) {
  try {
    return await ask(path, options);
  } catch {
    return new Response(JSON.stringify({ error: "The server does not answer." }), { status: 503 });
  }
}

const post = (path, body) => request(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

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

/** Nothing stays on a screen that was left alone; a new link shows the same session again. */
function logOut() {
  state.key = "";
  sessionStorage.removeItem("key");
  const place = state.chosen ?? new URLSearchParams(location.hash.slice(1)).get("session");
  if (place !== null) sessionStorage.setItem("place", place);
  history.replaceState(null, "", location.pathname);
  choose(null);
  state.rows = [];
  for (const part of ["sessions", "batch", "folder"]) $(part).replaceChildren();
  for (const part of ["new", "more", "batch-link", "leave"]) $(part).hidden = true;
  $("first").value = "";
  drawApprovals([]);
  $("empty").textContent = "Not logged in.";
  say("This page is not logged in. Open the link that toolrest web printed at its start in this tab.");
}

// The list

async function list(more = false) {
  const query = new URLSearchParams({ limit: "50", q: $("search").value, state: $("state").value, before: more ? (state.rows.at(-1)?.id ?? "") : "" });
  const response = await request(`/api/sessions?${query}`);
  if (!response.ok) return;
  const answer = await response.json();
  state.readOnly = answer.readOnly;
  $("batch-link").hidden = !answer.batch;
  state.rows = more ? [...state.rows, ...answer.sessions] : answer.sessions;
  $("more").hidden = answer.sessions.length < 50;
  if (state.chosen !== null) head();
  $("sessions").replaceChildren(...state.rows.map(row));
  if (!state.rows.length) $("sessions").append(el("li", { class: "quiet", text: $("search").value || $("state").value ? "No session is like that." : "No session is recorded yet. Start one here, or run toolrest in a folder." }));
}

/** A session in three lines; what they cut is in the title of each. */
function row(session) {
  const tokens = session.input + session.output;
  const cost = session.cost === null || session.cost === undefined ? "" : dollars(session.cost);
  const facts = [lastOf(session.cwd), session.model].filter(Boolean).join(" · ");
  const changed = new Date(session.changed * 1000);
  const line = (text, title) => el("span", { class: "quiet line", text: visible(text), title: visible(title) });
  return el("li", {}, el("a", { href: `#session=${encodeURIComponent(session.id)}`, "aria-current": session.id === state.chosen ? "true" : null },
    el("span", { class: "first" }, el("span", { class: "name", text: visible(session.title || "(no message)") }),
      session.open ? el("span", { class: "open", text: "running" }) : el("time", { class: "quiet", datetime: iso(changed), title: changed.toLocaleString(), text: when(changed) })),
    el("span", { class: "first" }, line(facts, [session.cwd, session.model].filter(Boolean).join(" · ")),
      el("span", { class: "quiet", text: cost || (tokens ? `${short(tokens)} tokens` : "") })),
    session.last ? line(session.last, session.last) : ""));
}

const lastOf = (folder) => folder.split("/").filter(Boolean).at(-1) ?? folder;
const short = (count) => count.toLocaleString(undefined, { notation: "compact", maximumFractionDigits: 1 });

/** The time of something of today, the day of anything else. */
function when(time) {
  const now = new Date();
  if (time.toDateString() === now.toDateString()) return time.toLocaleTimeString(undefined, { hour: "numeric", minute: "2-digit" });
  const day = { month: "short", day: "numeric" };
  return time.toLocaleDateString(undefined, time.getFullYear() === now.getFullYear() ? day : { ...day, year: "numeric" });
}

function mark() {
  for (const link of $("sessions").querySelectorAll("a")) {
    if (link.hash === `#session=${encodeURIComponent(state.chosen ?? "")}`) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

// One session

/** Forget the session that was shown. */
function clear(id) {
  Object.assign(state, { chosen: id, open: null, events: [], drawn: [], calls: new Map(), tokens: [], price: null, plans: [], lanes: { calls: new Map(), agents: new Map() } });
  for (const part of ["timeline", "chart", "lanes", "plan", "changes"]) $(part).replaceChildren();
  $("scrub").max = $("scrub").value = "0";
  $("lanes-panel").hidden = $("plan-panel").hidden = true;
  look("timeline");
}

function choose(id) {
  stop();
  say("");
  state.stream?.abort();
  leaveLive();
  changeDraft(id);
  clear(id);
  $("session").hidden = id === null;
  $("empty").hidden = id !== null;
  $("batch").hidden = true;
  document.body.classList.remove("menu");
  mark();
  if (id === null) return;
  head();
  $("exports").replaceChildren(...EXPORTS.map(([kind, name]) => el("button", { type: "button", class: "plain", text: `Save ${name}`, on: { click: () => save(kind) } })));
  state.stream = new AbortController();
  void watch(id, state.stream.signal);
  void follow(id, state.stream.signal);
}

function head() {
  const found = state.rows.find((one) => one.id === state.chosen);
  $("title").textContent = visible(found?.title || state.chosen);
  const last = state.tokens.at(-1);
  const tokens = last ? `${last.input.toLocaleString()} tokens in, ${last.output.toLocaleString()} out` : "";
  const cost = last && last.cost !== null ? dollars(last.cost) : "";
  const running = state.open === null ? "" : state.open ? "running" : "ended";
  $("facts").textContent = visible([found?.cwd, found?.model, tokens, cost, running].filter(Boolean).join(" · "));
}

/** Read the session's events, and again from the last one when the connection breaks. */
async function watch(id, signal) {
  let after = 0;
  for (let wait = 250; !signal.aborted; wait = Math.min(wait * 2, 8000)) {
    try {
      const response = await ask(`/api/sessions/${encodeURIComponent(id)}/events?after=${after}`, { signal });
      if (response.status === 404 && live.on) { // it has only just been started
        await new Promise((done) => setTimeout(done, wait));
        continue;
      }
      if (!response.ok) { if (response.status !== 401) say("This session cannot be read."); return; }
      reached();
      for await (const [event, text] of messages(response.body)) {
        wait = 250;
        if (event === "state") { const now = JSON.parse(text); state.open = now.open; head(); if (now.gone) return; flush(); continue; }
        if (event === "rest") { flush(); continue; }
        const value = JSON.parse(text);
        after = value.at;
        take(value);
      }
    } catch (error) {
      if (signal.aborted) return;
    }
    say(LOST);
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
  if (event.kind === "turn") {
    state.price = event.price ?? null;
    return;
  }
  if (event.kind === "tokens") {
    const before = state.tokens.at(-1)?.cost ?? (state.tokens.length ? null : 0);
    const price = "model" in event ? (event.price ?? null) : state.price; // a sub-agent's model
    state.tokens.push({ ...event, cost: before === null || price === null ? null : before + costOf(event.used, price) });
    return;
  }
  const plan = event.kind === "call" ? planOf(event) : null;
  if (plan) state.plans.push([state.events.length, plan]);
  recorded(event);
  safely(() => takeLane(state.lanes, event), () => {});
  state.events.push(event);
  if (state.events.length % 500 === 0) flush();
  else drawing ||= setTimeout(flush, 50);
}

let drawing = 0; // events that come together are drawn together

/** Draw what has come since, unless an earlier moment is looked at. */
function flush() {
  clearTimeout(drawing);
  drawing = 0;
  const live = state.playing === null && Number($("scrub").value) === Number($("scrub").max);
  $("scrub").max = String(state.events.length);
  $("lanes-panel").hidden = state.lanes.agents.size === 0;
  if (state.lanes.agents.size) $("lanes").replaceChildren(...drawLanes(state.lanes, state.events[0].time, state.events.at(-1).time, state.open));
  if (live) show(state.events.length);
  else position();
}

/** The chunk that takes the next cell: those out of sight are not laid out, and few are cheaper to check than many. */
function lastChunk() {
  const last = $("timeline").lastElementChild;
  if (last && last.childElementCount < 50) return last;
  const made = el("ol", { class: "chunk" });
  $("timeline").append(made);
  return made;
}

/** Show the first `count` events; what is drawn already stays. */
function show(count) {
  const follows = atEnd();
  for (const [made] of state.drawn.splice(count).flat()) made.remove();
  while ($("timeline").lastElementChild?.childElementCount === 0) $("timeline").lastElementChild.remove();
  for (let at = state.drawn.length; at < count; at += 1) {
    const made = safely(() => drawCell(state.events[at], state.calls), () => [[el("li", { class: "notice", text: "An entry that cannot be shown." }), null]]);
    state.drawn.push(made);
    for (const [cell, place] of made) (place ?? lastChunk()).append(cell);
  }
  $("scrub").value = String(count);
  position();
  if (follows) $("main").scrollTop = $("main").scrollHeight;
}

/** Whether what comes is followed: nobody reads further up, and no button that approves would move under the pointer. */
function atEnd() {
  const main = $("main");
  if (cards.size && $("approvals").getBoundingClientRect().bottom > main.getBoundingClientRect().top) return false;
  return main.scrollHeight - main.scrollTop - main.clientHeight < 80;
}

/** The moment that is shown, with the plan and the chart as of then. */
function position() {
  const at = Number($("scrub").value);
  $("position").textContent = `${at} of ${state.events.length}`;
  const plan = state.plans.findLast(([from]) => from < at)?.[1];
  $("plan-panel").hidden = !plan;
  $("plan").replaceChildren(...(plan ? [drawPlan(plan)] : []));
  if (plan) $("plan-count").textContent = `Plan, ${plan.filter((one) => one.status === "completed").length} of ${plan.length} done`;
  $("chart").replaceChildren(...chart(state.tokens.filter((one) => one.context), at < state.events.length ? state.events[at].time : 0));
}

// Keys

function move(step) {
  const links = [...$("sessions").querySelectorAll("a")];
  const at = links.findIndex((link) => link.hasAttribute("aria-current"));
  const next = links[Math.min(links.length - 1, Math.max(0, at + step))];
  if (next) { next.click(); next.scrollIntoView({ block: "nearest" }); }
}

function first(what) { $("approvals").querySelector(what)?.focus(); }

const at = () => Number($("scrub").value);
const inSession = (act) => () => { if (state.chosen !== null && state.view === "timeline") act(); };

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  "/": () => $("search").focus(),
  a: () => first("button.approve:not(:disabled)"),
  d: () => first(".why"),
  " ": inSession(play),
  ArrowRight: inSession(() => jump(at() + 1)),
  ArrowLeft: inSession(() => jump(at() - 1)),
  Home: inSession(() => jump(0)),
  End: inSession(() => jump(state.events.length)),
  ">": () => pace(1),
  "<": () => pace(-1),
  v: sides,
  c: () => (state.view === "changes" ? look("timeline") : void changes()),
  "?": () => $("help").showModal(),
  Escape: () => { stop(); say(""); },
};

document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === " " && event.target.closest("button, a, summary")) return;
  if (/^(Arrow|Home|End)/.test(event.key) && event.target.closest("pre, [role=region]")) return; // these scroll
  if ($("help").open) return;
  const act = KEYS[event.key];
  if (act) { event.preventDefault(); act(); }
});

// Start

$("scrub").addEventListener("input", () => { stop(); show(Number($("scrub").value)); });
$("play").addEventListener("click", play);
$("sides").addEventListener("click", sides);
$("timeline-button").addEventListener("click", () => look("timeline"));
$("changes-button").addEventListener("click", () => changes());
$("keys").addEventListener("click", () => $("help").showModal());
$("leave").addEventListener("click", async () => { if ((await post("/api/logout", {})).ok) logOut(); });
$("dismiss").addEventListener("click", () => say(""));
$("help-close").addEventListener("click", () => $("help").close());
$("state").addEventListener("change", () => list());
$("menu").addEventListener("click", () => { const on = document.body.classList.toggle("menu"); $("menu").setAttribute("aria-expanded", String(on)); });
$("approvals-button").addEventListener("click", () => { $("main").scrollTop = 0; first("button.approve:not(:disabled)"); });
$("more").addEventListener("click", () => list(true));
startControl();
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
        reached();
        await approvals();
        followAgain();
        if (!$("search").value && !$("state").value && state.rows.length <= 50) await list();
      }
    } catch { /* tried again */ }
    if (state.key) say(LOST);
    await new Promise((done) => setTimeout(done, wait));
    await approvals();
  }
}

function route() {
  const asked = new URLSearchParams(location.hash.slice(1));
  if (asked.has("token")) { // a new link, as after a restart: the same session is shown then
    if (state.chosen !== null) sessionStorage.setItem("place", state.chosen);
    location.reload();
    return;
  }
  if (asked.has("batch")) { void batch(); return; }
  const id = asked.get("session");
  if (id !== state.chosen || id === null) choose(id);
}

async function start() {
  if (data !== null) { // a session saved as a file
    document.body.querySelector("nav").remove();
    $("menu").remove();
    document.body.classList.add("saved");
    clear(data.session.id);
    state.rows = [data.session];
    $("session").hidden = false;
    $("empty").hidden = true;
    data.events.forEach(take);
    state.open = false;
    head();
    flush();
    return;
  }
  window.addEventListener("hashchange", route);
  if (!(await logIn()) || !state.key) { if (!state.key) say("Open the link that toolrest web printed."); return; }
  await list();
  if (!state.key) return;
  $("leave").hidden = false;
  const place = sessionStorage.getItem("place");
  sessionStorage.removeItem("place");
  if (place !== null && !location.hash) history.replaceState(null, "", `#session=${encodeURIComponent(place)}`);
  route();
  await approvals();
  await folders();
  void news();
}

void start();
