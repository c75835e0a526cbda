// The sessions: grouped by folder, each with its state, name and last line.

const STATES = { working: ["●", "working"], waiting: ["◐", "waiting for you"], idle: ["○", "idle"], ended: ["", "ended"] };

const rowOf = (id) => state.rows.find((row) => row.id === id);

async function list(more = false) {
  const query = new URLSearchParams({ limit: "50", q: $("search").value, state: $("state").value, before: more ? (state.rows.at(-1)?.id ?? "") : "" });
  const response = await request(`/api/sessions?${query}`);
  if (!response.ok) return;
  const answer = await response.json();
  Object.assign(state, { readOnly: answer.readOnly, control: answer.control, rows: more ? [...state.rows, ...answer.sessions] : answer.sessions });
  $("batch-link").hidden = !answer.batch;
  $("more").hidden = answer.sessions.length < 50;
  if (state.chosen !== null) drawHead();
  drawRows();
  drawComposer();
}

function drawRows() {
  const folders = new Map();
  for (const row of state.rows) folders.set(row.where, [...(folders.get(row.where) ?? []), row]);
  const groups = [...folders].map(([where, rows], at) => el("section", { "aria-labelledby": `folder-${at}` },
    el("h2", { id: `folder-${at}`, class: "folder", title: visible(rows[0].cwd), text: visible(where || "(no folder)") }), el("ul", {}, ...rows.map(sessionRow))));
  const none = $("search").value || $("state").value ? "No session is like that." : "No session is recorded yet. Start one here, or run toolrest in a folder.";
  $("sessions").replaceChildren(...(groups.length || !state.key ? groups : [el("p", { class: "quiet", text: none })]));
}

function sessionRow(session) {
  const now = (session.id === state.chosen && stateNow()) || session.state;
  const [sign, word] = STATES[now] ?? STATES.ended;
  const changed = new Date(session.changed * 1000);
  const last = now === "waiting" ? waitsFor(session.id) || "Waiting for you" : session.last;
  const cost = session.cost === null || session.cost === undefined ? "" : dollars(session.cost);
  return el("li", {}, el("a", { href: `#session=${encodeURIComponent(session.id)}`, "aria-current": session.id === state.chosen ? "true" : null, class: now, title: visible([session.title, session.model, cost].filter(Boolean).join(" · ")) },
    el("span", { class: "sign", "aria-hidden": "true", text: sign }),
    el("span", { class: "name line", text: visible(session.title || "(no message)") }),
    el("time", { class: "quiet", datetime: iso(changed), text: iso(changed) ? when(changed) : "" }),
    el("span", { class: "unseen", text: `, ${word}` }),
    el("span", { class: "quiet line last", text: visible(last || word) })));
}

/** The time of something of today, the day of anything else. */
function when(time) {
  const now = new Date();
  if (now - time >= 0 && now - time < 60_000) return "now";
  if (time.toDateString() === now.toDateString()) return time.toLocaleTimeString(undefined, { hour: "numeric", minute: "2-digit" });
  const day = { month: "short", day: "numeric" };
  return time.toLocaleDateString(undefined, time.getFullYear() === now.getFullYear() ? day : { ...day, year: "numeric" });
}

/** The state of the session that is looked at, as it says itself, or as the list has it. */
function stateNow() {
  if (state.chosen === null || data !== null) return "";
  if ([...cards.values()].some(({ one }) => one.session === state.chosen)) return "waiting";
  if (live.on && live.model) return live.busy ? "working" : "idle";
  return rowOf(state.chosen)?.state ?? "";
}

function drawStatus() {
  const [sign, word] = STATES[stateNow()] ?? ["", ""];
  const said = word ? `${sign} ${word}`.trim() : "";
  if ($("status").textContent === said) return; // nothing new for a screen reader
  $("status").className = stateNow();
  $("status").textContent = said;
  drawRows();
}

function drawHead() {
  const found = rowOf(state.chosen);
  $("title").textContent = visible(found?.title || state.chosen);
  const last = state.tokens.at(-1);
  const tokens = last ? `${last.input.toLocaleString()} tokens in, ${last.output.toLocaleString()} out` : "";
  const cost = last && last.cost !== null ? dollars(last.cost) : "";
  $("facts").textContent = visible([found?.cwd, found?.model, tokens, cost].filter(Boolean).join(" · "));
  drawStatus();
}

async function rename() {
  const id = state.chosen;
  const field = el("input", { type: "text", "aria-label": "Name", maxlength: "120", value: rowOf(id)?.title ?? "" });
  field.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.isComposing) { event.preventDefault(); $("sure-yes").click(); } });
  const answered = sure("Rename this session", [field, el("p", { class: "quiet", text: "Without a name it has its first message again." })], "Rename");
  field.select();
  if (!(await answered)) return;
  const response = await post(`/api/sessions/${encodeURIComponent(id)}/rename`, { title: field.value });
  if (!response.ok) say((await response.json()).error);
  await list();
}

/** Ask in a dialog; whether the answer is yes. */
function sure(title, body, yes) {
  $("sure-title").textContent = title;
  $("sure-body").replaceChildren(...body);
  $("sure-yes").textContent = yes;
  $("actions").open = false;
  return new Promise((answer) => {
    const close = (given) => { $("sure").close(); answer(given); };
    $("sure-yes").onclick = () => close(true);
    $("sure-no").onclick = () => close(false);
    $("sure").oncancel = () => answer(false);
    $("sure").showModal();
  });
}

function move(step) {
  const links = [...$("sessions").querySelectorAll("a")];
  const at = links.findIndex((link) => link.hasAttribute("aria-current"));
  const next = links[Math.min(links.length - 1, Math.max(0, at + step))];
  if (next) { location.hash = next.hash; next.scrollIntoView({ block: "nearest" }); }
}
