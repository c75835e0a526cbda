// The composer: what is written now, messages, files behind an @, the model, stop, undo.

const SOON = 1500; // milliseconds in which the journal has what is whole
const LONGEST = 65536; // characters of live text that are drawn
const drafts = new Map(); // messages that are not sent yet, by session; "" is a new one's
const NOTHING = { on: false, control: false, hosted: false, busy: false, turn: null, undoing: false, armed: false, queued: [], model: "", models: [] };
const live = { ...NOTHING, wanted: false, written: "", sent: [], texts: new Map(), outputs: new Map(), ended: new Set(), drawing: false };
let folders = [];

// What is written now

function leaveLive() {
  Object.assign(live, NOTHING, { wanted: false, sent: [], texts: new Map(), outputs: new Map(), ended: new Set() });
  $("live").replaceChildren();
  drawComposer();
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
      void list();
    }
  }
}

/** Look once more whether the chosen session runs. */
function followAgain() {
  if (live.wanted && !live.on && state.chosen !== null && state.stream) void follow(state.chosen, state.stream.signal);
}

function heard(event, value) {
  if (event === "state") {
    if ("control" in value) Object.assign(live, { control: value.control, hosted: value.hosted });
    Object.assign(live, { busy: value.busy, turn: value.undo, queued: value.queued ?? [], model: value.model ?? "", models: value.models ?? [] });
    if (!live.busy) live.sent = [];
    drawComposer();
    return;
  }
  if (event === "undo") {
    live.turn = value.turn;
    drawComposer();
  } else if (event === "text") {
    takeText(value);
  } else if (event === "reasoning") {
    const one = liveText("reasoning");
    one.text = (one.text + value.text).slice(-LONGEST);
  } else if (event === "text_end" || event === "reasoning_end") {
    const kind = event.slice(0, -4), known = live.texts.get(kind);
    if (known?.recorded || known?.text.trim() === live.written) dropText(kind);
    else if (known) {
      known.ended = true;
      setTimeout(() => { if (live.texts.get(kind) === known) dropText(kind); }, SOON);
    }
  } else if (event === "output" && !live.ended.has(value.call)) {
    live.outputs.set(value.call, ((live.outputs.get(value.call) ?? "") + value.text).slice(-LONGEST));
  } else if (event === "end") {
    if (value.error && value.status !== "interrupted") say(value.error);
  } else if (event === "reset") {
    for (const [kind, one] of [...live.texts]) if (!one.ended) dropText(kind); // what is whole waits for the journal
    live.outputs.clear();
  }
  drawLive();
}

/** The text of a kind that is written now, with its entry. */
function liveText(kind) {
  const known = live.texts.get(kind);
  if (known && !known.ended) return known;
  if (known) dropText(kind);
  const whole = el("div", { class: "md" }), open = el("div", { class: "md" });
  const made = { text: "", whole, open, ended: false, recorded: false, node: el("li", { class: kind === "text" ? "message" : "reasoning" }, whole, open) };
  live.texts.set(kind, made);
  return made;
}

function dropText(kind) {
  live.texts.get(kind)?.node.remove();
  live.texts.delete(kind);
}

/** Blocks that are whole are appended; the open one is drawn anew. */
function takeText(value) {
  const one = liveText("text");
  one.text = (one.text + value.text).slice(-LONGEST);
  if (value.whole) {
    one.whole.append(...drawBlocks(value.whole));
    one.open.replaceChildren(...(value.open ? drawBlocks(value.open) : []));
  }
  if (value.plain) {
    if (value.whole) one.open.append(el("p", { class: "words" }));
    const last = one.open.lastElementChild;
    last?.append(visible(value.plain));
    while (last && last.childNodes.length > 1 && last.textContent.length > LONGEST) last.firstChild.remove();
  }
  if (!one.recorded && !one.node.isConnected) $("live").append(one.node);
}

/** An event of the journal: what it has is not live any more. */
function recorded(event) {
  if (event.kind === "output") {
    live.ended.add(event.id);
    live.outputs.delete(event.id);
  }
  if (event.kind === "user" && live.sent.length) {
    live.sent = live.sent.filter((text) => text.trim() !== event.text.trim());
    drawQueue();
  }
  const kind = event.kind === "message" ? "text" : event.kind;
  if (kind === "text") live.written = event.text.trim();
  const known = live.texts.get(kind);
  if (known?.ended) dropText(kind);
  else if (known) { known.recorded = true; known.node.remove(); }
  drawLive();
}

function drawLive() {
  if (live.drawing) return;
  live.drawing = true;
  requestAnimationFrame(() => {
    live.drawing = false;
    const thought = live.texts.get("reasoning");
    if (thought && !thought.recorded) {
      thought.whole.replaceChildren(el("p", { class: "words", text: visible(thought.text.slice(-2000)) }));
      if (!thought.node.isConnected) $("live").prepend(thought.node);
    }
    for (const old of $("live").querySelectorAll(".printed")) old.remove();
    $("live").append(...[...live.outputs.values()].map((text) => el("li", { class: "call printed" }, code(text, "Output so far"))));
  });
}

// The composer

/** What a message does now: begin a session, go to one that runs, resume one that has ended. */
function mode() {
  if (!state.control) return null;
  if (state.chosen === null) return folders.length && $("batch").hidden ? "new" : null;
  if (live.on && live.control) return "live";
  const row = rowOf(state.chosen);
  return row?.state === "ended" && !live.on && folders.includes(row.cwd) ? "resume" : null;
}

const HINTS = { new: "What should be done? · @ files", live: "Message · @ files", resume: "A message resumes this session · @ files" };

function drawComposer() {
  const now = mode(), running = now === "live";
  $("composer").hidden = now === null;
  $("say").placeholder = HINTS[now] ?? "";
  $("folder").hidden = now !== "new";
  $("limits").hidden = now !== "resume";
  if ($("interrupt").hidden && running && live.busy) arm();
  $("interrupt").hidden = !(running && live.busy);
  $("send").hidden = running && live.busy;
  $("queue").hidden = !(running && live.busy && $("say").value.trim());
  $("interrupt").disabled = !live.armed;
  $("rename").hidden = !state.control || state.chosen === null;
  $("end").hidden = !(running && live.hosted);
  $("undo").hidden = !running;
  $("undo").disabled = live.busy || live.undoing || live.turn === null;
  const models = live.models.some(isCurrent) || !live.model ? live.models : [live.model, ...live.models];
  $("model").hidden = !running || !models.length;
  $("model").disabled = live.busy;
  $("model").replaceChildren(...models.map((name) => el("option", { value: name, text: visible(name), selected: isCurrent(name) })));
  $("used").textContent = running || now === "resume" ? shareOf(state.tokens.findLast((one) => one.context)) : "";
  drawQueue();
  drawStatus();
}

const isCurrent = (name) => name === live.model || name.endsWith(`:${live.model}`);

/** Stop stands where send stood: it takes no click that was meant for that. */
function arm() {
  live.armed = false;
  setTimeout(() => { live.armed = true; $("interrupt").disabled = false; }, INERT);
}

function drawQueue() {
  const rows = live.queued.map((text, at) => el("li", {}, el("span", { class: "line", text: visible(text), title: visible(text) }), el("span", { class: "quiet", text: live.busy ? "queued" : "goes after your next message" }),
    live.control ? el("button", { type: "button", class: "plain", "aria-label": `Remove: ${visible(text).slice(0, 80)}`, text: "Remove", on: { click: () => control("unqueue", { at, text }) } }) : ""));
  const sent = live.sent.map((text) => el("li", {}, el("span", { class: "line", text: visible(text) }), el("span", { class: "quiet", text: "sent, not read yet" })));
  $("queued").replaceChildren(...sent, ...rows);
  $("queued").hidden = !rows.length && !sent.length;
}

// What the person does

async function control(what, body = {}) {
  const response = await post(`/api/sessions/${encodeURIComponent(state.chosen)}/${what}`, body);
  const answer = await response.json();
  say(response.ok ? "" : answer.error);
  return response.ok ? answer : null;
}

/** Show what undo would do, and then take back the turn that was shown: no click is for the one before. */
async function undo() {
  const { turn } = live, id = state.chosen;
  if (turn === null || live.undoing) return;
  live.undoing = true;
  drawComposer();
  try {
    const plan = await control("undo_plan", { turn });
    if (!plan || id !== state.chosen) return;
    const rows = [...plan.files.map((file) => [file.path, file.action]), ...plan.kept.map((file) => [file.path, `stays: ${file.why}`])];
    const files = el("ul", { class: "files" }, ...rows.slice(0, 200).map(([path, what]) => el("li", {}, el("code", { text: visible(path) }), el("span", { class: "quiet", text: visible(` ${what}`) }))));
    if (!(await sure("Undo the last turn?", [files], plan.files.length === 1 ? "Undo 1 file" : `Undo ${plan.files.length} files`)) || id !== state.chosen) return;
    const done = await control("undo", { turn });
    if (done) say(done.lines.join(" · "));
  } finally {
    live.undoing = false;
    drawComposer();
  }
}

let changing = null; // the model: the session is opened anew for another, and takes messages then

function changeModel() {
  const name = $("model").value, id = state.chosen;
  changing = (async () => {
    if (!(await control("model", { name }))) { drawComposer(); return; }
    for (let tries = 0; tries < 50 && id === state.chosen && !isCurrent(name); tries += 1) await new Promise((done) => setTimeout(done, 100));
  })();
}

async function sendMessage(queued = false) {
  await changing;
  const id = state.chosen, now = mode(), text = $("say").value.trim();
  if (!text || now === null || $("send").disabled) return;
  if (now !== "live") { await startSession(now, id, text); return; }
  const busy = live.busy;
  if (!(await control("message", { text, queued }))) return;
  if (id !== state.chosen) { if (drafts.get(id)?.trim() === text) drafts.delete(id); return; }
  if (busy && !queued) live.sent.push(text);
  if ($("say").value.trim() === text) $("say").value = "";
  drawComposer();
}

/** Begin a session in a folder, or resume the one that is looked at. */
async function startSession(now, id, text) {
  $("send").disabled = true;
  try {
    const response = now === "new"
      ? await post("/api/sessions", { folder: $("folder").value, text })
      : await post(`/api/sessions/${encodeURIComponent(id)}/resume`, { text, sandbox: $("limits").value });
    const answer = await response.json();
    if (!response.ok) { say(answer.error); return; }
    if (id === state.chosen) $("say").value = "";
    else drafts.delete(id ?? "");
    await list();
    if (now === "new" && id === state.chosen) location.hash = `session=${encodeURIComponent(answer.session)}`;
    else followAgain();
  } finally {
    $("send").disabled = false;
    drawComposer();
  }
}

/** Another session is chosen: what is written for this one waits until it is chosen again. */
function changeDraft(id) {
  drafts.set(state.chosen ?? "", $("say").value);
  $("say").value = drafts.get(id ?? "") ?? "";
  closeNames();
}

/** The folders in which a session can be started; without any there is nothing to start. */
async function findFolders() {
  const response = await request("/api/folders");
  folders = response.ok ? (await response.json()).folders : [];
  $("begin").hidden = folders.length === 0;
  $("folder").replaceChildren(...folders.map((folder) => el("option", { value: folder, text: visible(folder) })));
  drawComposer();
}

// Files behind an @

const MENTION = /(?:^|\s)@([^\s@]*)$/;
const names = { shown: [], at: 0, asked: 0 };

function closeNames() {
  names.asked += 1;
  names.shown = [];
  $("names").hidden = true;
  $("say").removeAttribute("aria-activedescendant");
}

const typedName = () => MENTION.exec($("say").value.slice(0, $("say").selectionStart))?.[1];

async function findNames() {
  const typed = typedName();
  if (typed === undefined) { closeNames(); return; }
  const asked = (names.asked += 1);
  await new Promise((done) => setTimeout(done, 80));
  if (asked !== names.asked) return;
  const folder = mode() === "new" ? $("folder").value : rowOf(state.chosen)?.cwd;
  const response = await request(`/api/files?${new URLSearchParams({ folder: folder ?? "", typed })}`);
  if (asked !== names.asked || typedName() !== typed) return;
  names.shown = response.ok ? (await response.json()).names : [];
  names.at = 0;
  drawNames();
}

function drawNames() {
  $("names").hidden = !names.shown.length;
  $("names").replaceChildren(...names.shown.map((name, at) => el("li", { id: `name-${at}`, role: "option", "aria-selected": String(at === names.at), text: visible(name), on: { mousedown: (event) => { event.preventDefault(); names.at = at; takeName(); } } })));
  if (names.shown.length) $("say").setAttribute("aria-activedescendant", `name-${names.at}`);
  else $("say").removeAttribute("aria-activedescendant");
}

function takeName() {
  const box = $("say"), typed = typedName(), name = names.shown[names.at];
  if (typed === undefined || name === undefined) return;
  const end = box.selectionStart;
  box.setRangeText(`${name} `, end - typed.length, end, "end");
  closeNames();
}

/** A key in the composer while names are shown; whether it was for them. */
function namesKey(event) {
  if (!names.shown.length) return false;
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) { names.at = (names.at + step + names.shown.length) % names.shown.length; drawNames(); }
  else if (event.key === "Tab" || event.key === "Enter") takeName();
  else if (event.key === "Escape") closeNames();
  else return false;
  return true;
}

/** Called once by the page. */
function startComposer() {
  $("send").addEventListener("click", () => sendMessage());
  $("queue").addEventListener("click", () => sendMessage(true));
  $("interrupt").addEventListener("click", () => control("interrupt"));
  $("end").addEventListener("click", async () => { $("actions").open = false; await control("end"); await list(); });
  $("undo").addEventListener("click", undo);
  $("model").addEventListener("change", changeModel);
  $("begin").addEventListener("click", () => { location.hash = ""; route(); $("say").focus(); });
  $("say").addEventListener("input", () => { drawComposer(); void findNames(); });
  $("say").addEventListener("blur", closeNames);
  $("say").addEventListener("keydown", (event) => {
    if (event.isComposing) return; // Enter ends a word of an input method
    if (namesKey(event)) { event.preventDefault(); event.stopPropagation(); return; }
    if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); void sendMessage(event.altKey && live.busy); }
  });
}
