// Control of a running session: what it writes now, messages to it, interrupt, undo.

const LONGEST = 65536; // characters of live text that are drawn
const drafts = new Map(); // messages that are not sent yet, by session
const live = { on: false, wanted: false, busy: false, turn: null, undoing: false, armed: false, texts: new Map(), outputs: new Map(), ended: new Set(), drawing: false };

// What is written now

function leaveLive() {
  Object.assign(live, { on: false, wanted: false, busy: false, turn: null, undoing: false, armed: false, texts: new Map(), outputs: new Map(), ended: new Set() });
  $("control").hidden = true;
  $("live").replaceChildren();
}

/** Follow the chosen session while it runs; it may be opened again later. */
async function follow(id, signal) {
  live.wanted = true;
  if (live.on) return;
  live.on = true;
  try {
    const response = await ask(`/api/sessions/${encodeURIComponent(id)}/live`, { signal });
    if (!response.ok) return;
    for await (const [event, text] of messages(response.body)) heard(event, JSON.parse(text));
  } catch { /* the session has ended, or another one was chosen */ } finally {
    if (!signal.aborted) {
      const { wanted } = live;
      leaveLive();
      live.wanted = wanted;
    }
  }
}

/** Look once more whether the chosen session runs. */
function followAgain() {
  if (live.wanted && !live.on && state.chosen !== null && state.stream) void follow(state.chosen, state.stream.signal);
}

/** Show what the session takes; a click that was meant for another session's button does nothing. */
function showControl(value) {
  $("control").hidden = !value.control;
  $("end").hidden = !value.hosted;
  const id = state.chosen;
  setTimeout(() => { if (id === state.chosen) { live.armed = true; buttons(); } }, INERT);
}

function buttons() {
  $("interrupt").disabled = !live.armed || !live.busy;
  $("end").disabled = !live.armed;
  $("undo").disabled = !live.armed || live.busy || live.undoing || live.turn === null;
}

function heard(event, value) {
  if (event === "state") {
    if ("control" in value) showControl(value);
    Object.assign(live, { busy: value.busy, turn: value.undo });
    buttons();
  } else if (event === "undo") {
    live.turn = value.turn;
    buttons();
  } else if (event === "text" || event === "reasoning") {
    const known = live.texts.get(event);
    const before = known && !known.ended ? known : { text: "", ended: false, recorded: false };
    live.texts.set(event, { ...before, text: (before.text + value.text).slice(-LONGEST) });
  } else if (event === "text_end" || event === "reasoning_end") {
    const kind = event.slice(0, -4), known = live.texts.get(kind);
    if (known?.recorded) live.texts.delete(kind);
    else if (known) known.ended = true;
  } else if (event === "output" && !live.ended.has(value.call)) {
    live.outputs.set(value.call, ((live.outputs.get(value.call) ?? "") + value.text).slice(-LONGEST));
  } else if (event === "end") {
    if (value.error) say(value.error);
  } else if (event === "reset") {
    live.texts.clear();
    live.outputs.clear();
  }
  drawLive();
}

/** An event of the journal: what it has is not live any more. */
function recorded(event) {
  if (event.kind === "output") {
    live.ended.add(event.id);
    live.outputs.delete(event.id);
  }
  const kind = event.kind === "message" ? "text" : event.kind;
  const known = live.texts.get(kind);
  if (known?.ended) live.texts.delete(kind);
  else if (known) known.recorded = true;
  drawLive();
}

function drawLive() {
  if (live.drawing) return;
  live.drawing = true;
  requestAnimationFrame(() => {
    live.drawing = false;
    const follows = atEnd();
    const texts = [...live.texts].filter(([, one]) => !one.recorded).map(([kind, one]) => el("li", { class: kind === "text" ? "message" : kind },
      el("p", { class: "label", text: kind === "text" ? "Model · writing" : "Reasoning" }), el("p", { class: "words", text: visible(one.text) })));
    const outputs = [...live.outputs.values()].map((text) => el("li", { class: "call" }, el("p", { class: "label", text: "Output so far" }), code(text, "Output so far")));
    $("live").replaceChildren(...texts, ...outputs);
    if (follows) $("main").scrollTop = $("main").scrollHeight;
  });
}

// What the person does

async function control(what, body = {}) {
  const response = await post(`/api/sessions/${encodeURIComponent(state.chosen)}/${what}`, body);
  const answer = await response.json();
  say(response.ok ? (answer.lines ?? []).join(" · ") : answer.error);
  return response.ok;
}

/** Take back the turn that the page knows as the last one; a second click is not for the one before. */
async function undo() {
  live.undoing = true;
  buttons();
  try {
    await control("undo", { turn: live.turn });
  } finally {
    live.undoing = false;
    buttons();
  }
}

async function sendMessage(queued) {
  const id = state.chosen, text = $("say").value.trim();
  if (!text || !(await control("message", { text, queued }))) return;
  if (id !== state.chosen) { if (drafts.get(id)?.trim() === text) drafts.delete(id); }
  else if ($("say").value.trim() === text) $("say").value = "";
}

/** Another session is chosen: what is written for this one waits until it is chosen again. */
function changeDraft(id) {
  if (state.chosen !== null) drafts.set(state.chosen, $("say").value);
  $("say").value = drafts.get(id) ?? "";
}

// Sessions of the page's own

/** The folders in which a session can be started; without any there is nothing to start. */
async function folders() {
  const response = await request("/api/folders");
  const found = response.ok ? (await response.json()).folders : [];
  $("new").hidden = found.length === 0;
  $("folder").replaceChildren(...found.map((folder) => el("option", { value: folder, text: visible(folder) })));
}

async function begin() {
  const text = $("first").value.trim();
  if (!text) return;
  const from = state.chosen;
  $("begin").disabled = true;
  try {
    const response = await post("/api/sessions", { folder: $("folder").value, text });
    const answer = await response.json();
    if (!response.ok) { say(answer.error); return; }
    $("first").value = "";
    $("new").open = false;
    await list();
    if (from === state.chosen && !$("say").value.trim()) location.hash = `session=${encodeURIComponent(answer.session)}`;
    else say("The new session has started; it is in the list.");
  } finally {
    $("begin").disabled = false;
  }
}

/** Called once by the page. */
function startControl() {
  $("send").addEventListener("click", () => sendMessage(false));
  $("queue").addEventListener("click", () => sendMessage(true));
  $("interrupt").addEventListener("click", () => control("interrupt"));
  $("end").addEventListener("click", () => control("end"));
  $("begin").addEventListener("click", begin);
  $("undo").addEventListener("click", undo);
  $("say").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); void sendMessage(false); }
  });
}
