// Views of a session beside its timeline, replay, the batch.

/** Look at the timeline of the session, or at all its changes. */
function look(view) {
  state.view = view;
  for (const name of ["timeline", "changes"]) {
    $(name).hidden = name !== view;
    $(`${name}-button`).setAttribute("aria-pressed", String(name === view));
  }
  $("live").hidden = view !== "timeline";
  $("controls").hidden = view !== "timeline" || !state.replays;
}

/** Show the bar of the replay, or take it away: then the session goes on. */
function replays(on) {
  state.replays = on;
  $("replay-button").setAttribute("aria-pressed", String(on));
  if (on) { look("timeline"); return; }
  stop();
  $("controls").hidden = true;
  show(state.events.length);
}

async function changes() {
  if (state.chosen === null) return;
  const id = state.chosen;
  look("changes");
  if (data !== null) { $("changes").replaceChildren(...drawChanges(data.changes)); return; }
  $("changes").replaceChildren(el("p", { class: "quiet", text: "Reading …" }));
  const response = await request(`/api/sessions/${encodeURIComponent(id)}/changes`);
  if (id === state.chosen && !response.ok) $("changes").replaceChildren(el("p", { class: "quiet", text: "They cannot be read now." }));
  if (id === state.chosen && response.ok) $("changes").replaceChildren(...drawChanges(await response.json()));
}

async function batch(failure = "") {
  const response = await request(`/api/batch?${new URLSearchParams({ failure })}`);
  const answer = await response.json();
  if (!response.ok) { say(answer.error); return; }
  choose(null);
  $("empty").hidden = true;
  $("batch").hidden = false;
  $("batch").replaceChildren(...drawBatch(answer, failure, batch));
  drawComposer();
}

function sides() {
  turnDiffs(!sideBySide);
  $("sides").setAttribute("aria-pressed", String(sideBySide));
}

// Replay

function play() {
  if (!state.replays) replays(true);
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
  $("play").textContent = "Play";
}

/** Go some steps on or back, and stop there. */
function jump(count) {
  if (!state.replays) replays(true);
  stop();
  show(Math.min(state.events.length, Math.max(0, count)));
}

function pace(step) {
  const speed = $("speed");
  speed.selectedIndex = Math.min(speed.options.length - 1, Math.max(0, speed.selectedIndex + step));
}

const EXPORTS = [["html", "HTML"], ["md", "Markdown"], ["json", "JSON"]];

async function save(kind) {
  const response = await request(`/api/sessions/${encodeURIComponent(state.chosen)}/export?format=${kind}`);
  if (!response.ok) { say("This session cannot be saved now."); return; }
  const link = el("a", { href: URL.createObjectURL(await response.blob()), download: `toolrest-${state.chosen}.${kind}` });
  link.click();
  URL.revokeObjectURL(link.href);
}

// Whether someone is at the page: what it asks for by itself keeps nobody logged in.

const ATTENDED = 60000;
let touched = Date.now(), told = touched;

const idleHeader = () => (Date.now() - touched > ATTENDED ? { "x-toolrest-idle": "1" } : {});

function present() {
  touched = Date.now();
  if (touched - told < ATTENDED || !state.key) return;
  told = touched;
  void ask("/api/seen").catch(() => {});
}

for (const kind of ["pointerdown", "keydown", "wheel", "touchstart"]) window.addEventListener(kind, present, { capture: true, passive: true });
