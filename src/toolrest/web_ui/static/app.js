// The page: requests, the login, one session as it goes on, keys.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const EMPTY = { open: null, events: [], drawn: [], tokens: [], price: null, plans: [], replays: false };
const state = { ...EMPTY, key: "", readOnly: false, control: false, rows: [], chosen: null, calls: new Map(), changed: new Map(), lanes: null, stream: null, playing: null, view: "timeline" };

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
    if (!response.ok) { noLink(answer.error); return; }
    sessionStorage.setItem("key", answer.key);
  }
  state.key = sessionStorage.getItem("key") ?? "";
  if (!state.key) noLink("");
}

/** Say how this tab gets a link. */
function noLink(why) {
  $("no-link").hidden = false;
  $("empty").hidden = true;
  document.body.classList.add("out");
  say(why);
}

/** Nothing stays on a screen that was left alone; a new link shows the same session again. */
function logOut() {
  state.key = "";
  sessionStorage.removeItem("key");
  const place = state.chosen ?? new URLSearchParams(location.hash.slice(1)).get("session");
  if (place !== null) sessionStorage.setItem("place", place);
  history.replaceState(null, "", location.pathname);
  choose(null);
  Object.assign(state, { rows: [], control: false });
  folders = [];
  drafts.clear();
  $("say").value = "";
  for (const part of ["sessions", "batch", "folder"]) $(part).replaceChildren();
  for (const part of ["begin", "more", "batch-link", "leave"]) $(part).hidden = true;
  drawApprovals([]);
  drawComposer();
  noLink("This page is not logged in.");
}

// One session

/** Forget the session that was shown. */
function clear(id) {
  Object.assign(state, { ...EMPTY, chosen: id, events: [], drawn: [], tokens: [], plans: [], calls: new Map(), changed: new Map(), lanes: { calls: new Map(), agents: new Map() } });
  for (const part of ["timeline", "chart", "lanes", "plan", "changes", "changed"]) $(part).replaceChildren();
  $("scrub").max = $("scrub").value = "0";
  for (const part of ["lanes-panel", "plan-panel", "changed-panel", "context-panel"]) $(part).hidden = true;
  $("title").textContent = $("facts").textContent = "";
  $("replay-button").setAttribute("aria-pressed", "false");
  $("actions").open = false;
  follows = true;
  look("timeline");
}

function choose(id) {
  stop();
  say("");
  state.stream?.abort();
  changeDraft(id);
  clear(id);
  leaveLive();
  $("session").hidden = $("views").hidden = $("side").hidden = id === null;
  $("empty").hidden = id !== null || !state.key;
  $("batch").hidden = true;
  showMenu(false);
  placeCards();
  if (id === null) return;
  drawHead();
  $("exports").replaceChildren(...EXPORTS.map(([kind, name]) => el("button", { type: "button", text: `Save ${name}`, on: { click: () => save(kind) } })));
  state.stream = new AbortController();
  void watch(id, state.stream.signal);
  void follow(id, state.stream.signal);
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
        if (event === "state") { const now = JSON.parse(text); state.open = now.open; drawHead(); if (now.gone) return; flush(); continue; }
        if (event === "rest") { flush(); continue; }
        const value = JSON.parse(text);
        after = value.at;
        take(value);
        if (state.events.length % 100 === 0) await breath(signal);
      }
    } catch (error) {
      if (signal.aborted) return;
    }
    say(LOST);
    await new Promise((done) => setTimeout(done, wait));
  }
}

let breathed = 0;

/** Let the browser do what else there is, now and then: no task of a long session holds it up. */
async function breath(signal) {
  if (performance.now() - breathed < 50) return;
  await new Promise((done) => setTimeout(done));
  breathed = performance.now();
  signal.throwIfAborted();
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
  safely(() => takeChanges(event), () => {});
  state.events.push(event);
  drawing ||= setTimeout(flush, 50);
}

/** Note the files that a call has changed, once it has not failed. */
function takeChanges(event) {
  if (event.kind !== "output" || event.failed || event.code) return;
  const call = state.lanes.calls.get(event.id);
  for (const file of (call && !call.questions && !planOf(call) && diffOf(call)) || []) {
    state.changed.set(file.path, [...(state.changed.get(file.path) ?? []), file]);
  }
}

let drawing = 0; // events that come together are drawn together

/** Draw what has come since, unless an earlier moment is looked at. */
function flush() {
  clearTimeout(drawing);
  drawing = 0;
  const atLast = state.playing === null && Number($("scrub").value) === Number($("scrub").max);
  $("scrub").max = String(state.events.length);
  $("lanes-panel").hidden = state.lanes.agents.size === 0;
  if (state.lanes.agents.size) $("lanes").replaceChildren(...drawLanes(state.lanes, state.events[0].time, state.events.at(-1).time, state.open));
  $("changed-panel").hidden = state.changed.size === 0;
  $("changed").replaceChildren(...[...state.changed].slice(0, 50).map(([path, files]) => el("li", {}, el("span", { class: "line", text: visible(path), title: visible(path) }), counts(files))));
  if (atLast) show(state.events.length);
  else position();
  $("used").textContent = live.on ? shareOf(state.tokens.findLast((one) => one.context)) : $("used").textContent;
}

const AT_ONCE = 24; // milliseconds of drawing before the browser does something else

/** The chunk that takes the next cell: those out of sight are not laid out, and few are cheaper to check than many. */
function lastChunk() {
  const last = $("timeline").lastElementChild;
  if (last && last.childElementCount < 50) return last;
  const made = el("ol", { class: "chunk" });
  $("timeline").append(made);
  return made;
}

/** Show the first `count` events; what is drawn already stays. Many are drawn in several goes. */
function show(count) {
  const until = performance.now() + AT_ONCE;
  for (const [made] of state.drawn.splice(count).flat()) made.remove();
  while ($("timeline").lastElementChild?.childElementCount === 0) $("timeline").lastElementChild.remove();
  for (let at = state.drawn.length; at < count; at += 1) {
    if (performance.now() > until) { more(count); break; }
    const made = safely(() => drawCell(state.events[at], state.calls), () => [[el("li", { class: "notice", text: "An entry that cannot be shown." }), null]]);
    state.drawn.push(made);
    for (const [cell, place] of made) (place ?? lastChunk()).append(cell);
  }
  $("scrub").value = String(count);
  position();
}

function more(count) {
  const { stream } = state;
  setTimeout(() => { if (stream === state.stream && Number($("scrub").value) === count) show(count); });
}

// Whoever looks at the end stays there, whatever comes or unfolds.
let follows = true;
$("scroll").addEventListener("scroll", () => { follows = $("scroll").scrollHeight - $("scroll").scrollTop - $("scroll").clientHeight < 80; }, { passive: true });
const growing = new ResizeObserver(() => { if (follows && state.view === "timeline") $("scroll").scrollTop = $("scroll").scrollHeight; });
for (const id of ["session", "scroll"]) growing.observe($(id));

/** The moment that is shown, with the plan and the chart as of then. */
function position() {
  const at = Number($("scrub").value);
  $("position").textContent = `${at} of ${state.events.length}`;
  const plan = state.plans.findLast(([from]) => from < at)?.[1];
  $("plan-panel").hidden = !plan;
  $("plan").replaceChildren(...(plan ? [drawPlan(plan)] : []));
  if (plan) $("plan-count").textContent = `Plan, ${plan.filter((one) => one.status === "completed").length} of ${plan.length} done`;
  const points = state.tokens.filter((one) => one.context);
  $("context-panel").hidden = !points.length;
  $("chart").replaceChildren(...chart(points, at < state.events.length ? state.events[at].time : 0));
}

// Keys

const first = (what) => [...$("approvals").querySelectorAll(what)].find((one) => one.checkVisibility());
const at = () => Number($("scrub").value);
const inSession = (act) => () => { if (state.chosen !== null && state.view === "timeline") act(); };

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  m: () => { if (!$("composer").hidden) $("say").focus(); },
  n: () => $("begin").click(),
  "/": () => $("search").focus(),
  a: () => first("button.approve:not(:disabled)")?.focus(),
  d: () => first("button.deny:not(:disabled)")?.click(),
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
  Escape: () => { stop(); say(""); $("actions").open = false; },
};

document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === " " && event.target.closest("button, a, summary")) return;
  if (/^(Arrow|Home|End)/.test(event.key) && event.target.closest("pre, [role=region]")) return; // these scroll
  if ($("help").open || $("sure").open) return;
  const act = KEYS[event.key];
  if (act) { event.preventDefault(); act(); }
});

// Start

function showMenu(on) {
  document.body.classList.toggle("menu", on);
  $("menu").setAttribute("aria-expanded", String(on));
}

function showSide() {
  const on = document.body.classList.toggle("side");
  $("side-button").setAttribute("aria-pressed", String(on));
}

for (const [id, act] of Object.entries({
  play, sides, rename, "timeline-button": () => look("timeline"), "changes-button": changes, "replay-button": () => replays(!state.replays),
  keys: () => $("help").showModal(), "help-close": () => $("help").close(), dismiss: () => say(""), more: () => list(true),
  menu: () => showMenu(true), "close-menu": () => showMenu(false), "side-button": showSide,
  leave: async () => { if ((await post("/api/logout", {})).ok) logOut(); },
  notify: async () => { await Notification.requestPermission(); offerNotes(); },
})) $(id).addEventListener("click", act);
document.addEventListener("click", (event) => { if (!event.target.closest("#actions")) $("actions").open = false; });
$("scrub").addEventListener("input", () => { stop(); show(Number($("scrub").value)); });
$("state").addEventListener("change", () => list());
let typing = 0;
$("search").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => list(), 200); });
startComposer();

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
    for (const part of ["sidebar", "menu", "dock"]) $(part).hidden = true;
    document.body.classList.add("saved");
    clear(data.session.id);
    state.rows = [data.session];
    $("session").hidden = $("views").hidden = $("side").hidden = false;
    $("empty").hidden = true;
    data.events.forEach(take);
    state.open = false;
    drawHead();
    flush();
    return;
  }
  window.addEventListener("hashchange", route);
  await logIn();
  if (!state.key) return;
  await list();
  if (!state.key) return;
  $("leave").hidden = false;
  offerNotes();
  const place = sessionStorage.getItem("place");
  sessionStorage.removeItem("place");
  if (place !== null && !location.hash) history.replaceState(null, "", `#session=${encodeURIComponent(place)}`);
  await findFolders();
  route();
  await approvals();
  void news();
}

void start();
