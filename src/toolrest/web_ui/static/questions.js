// What waits for an answer, above the composer: a card for each question, in the words of the chat.

const INERT = 500; // a button that has just appeared takes no click that was meant for another
const cards = new Map();
let arming = 0;

/** No button of a question takes a click for a while: another one may have moved under the pointer. */
function rest() {
  const buttons = () => $("approvals").querySelectorAll("button");
  for (const button of buttons()) button.disabled = true;
  clearTimeout(arming);
  arming = setTimeout(() => { for (const button of buttons()) button.disabled = state.readOnly; }, INERT);
}

async function approvals() {
  const response = await request("/api/approvals");
  if (!response.ok) return;
  drawApprovals((await response.json()).approvals);
}

/** A card stands for one request of one session, as it was shown. */
const nameOf = (one) => JSON.stringify([one.live ?? false, one.session, one.id, one.pin]);

function drawApprovals(waiting) {
  const names = waiting.map(nameOf);
  const gone = [...cards].filter(([name]) => !names.includes(name));
  const come = waiting.filter((_, at) => !cards.has(names[at]));
  for (const [name, { card }] of gone) { card.remove(); cards.delete(name); }
  for (const one of come) {
    const card = safely(() => (one.kind === "question" ? questionCard(one) : approvalCard(one)), () => el("article", { class: "card", text: "A request that cannot be shown: answer it where the session runs." }));
    cards.set(nameOf(one), { one, card });
    $("approvals").append(card);
  }
  if (gone.length || come.length) placeCards();
  if (come.length) notifyOf(come);
}

const sentenceOf = (one) => (one.kind === "question" ? "The model asks you something." : formOf(one).sentence);

/** What a session waits for, in a sentence. */
function waitsFor(id) {
  const found = [...cards.values()].find(({ one }) => one.session === id);
  return found && safely(() => visible(sentenceOf(found.one)), () => "");
}

/** Show the questions of the session that is looked at; with none, all of them. */
function placeCards() {
  const elsewhere = [];
  for (const { one, card } of cards.values()) {
    card.hidden = state.chosen !== null && one.session !== state.chosen;
    for (const where of card.querySelectorAll(".where")) where.hidden = state.chosen !== null;
    if (card.hidden) elsewhere.push(one);
  }
  rest();
  $("approvals").hidden = elsewhere.length === cards.size;
  const button = $("approvals-button");
  button.hidden = elsewhere.length === 0;
  button.textContent = elsewhere.length === 1 ? "1 other waits" : `${elsewhere.length} others wait`;
  button.onclick = () => {
    const next = elsewhere.find((one) => state.rows.some((row) => row.id === one.session));
    location.hash = next ? `session=${encodeURIComponent(next.session)}` : "";
  };
  document.title = cards.size ? `(${cards.size}) Waiting for you · Toolrest` : "Toolrest";
  drawRows();
  drawStatus();
}

// The person may look elsewhere

function offerNotes() {
  $("notify").hidden = !("Notification" in window) || Notification.permission !== "default" || data !== null;
}

function notifyOf(come) {
  if (!("Notification" in window) || Notification.permission !== "granted" || document.visibilityState === "visible") return;
  try {
    const note = new Notification("Toolrest waits for you", { body: safely(() => visible(sentenceOf(come[0])), () => ""), tag: "toolrest" });
    note.onclick = () => { window.focus(); note.close(); };
  } catch { /* phones show none without a service worker, which there is not */ }
}

// Cards

/** The words of an approval; those of a version that made none from what it shows. */
function formOf(one) {
  if (one.form) return one.form;
  const options = one.choices.map((choice) => ({ key: choice.scope, label: choice.scope, grants: choice.sentence }));
  return { sentence: `Run ${one.tool}?`, says: "", notes: [], command: "", call: one.lines, diff: "", more: [], details: [],
    options: [...options, { key: "deny", label: "No, and say what to do instead", grants: "" }] };
}

function approvalCard(one) {
  const form = formOf(one);
  const pin = el("input", { type: "text", inputmode: "numeric", placeholder: "code", "aria-label": "The code that toolrest web printed", autocomplete: "off" });
  const why = el("input", { type: "text", class: "why", placeholder: "What to do instead (the model reads it)", "aria-label": "What to do instead" });
  const no = el("button", { type: "button", class: "no", text: "Say no", disabled: true });
  const instead = el("div", { class: "row", hidden: true }, why, no);
  const answer = async (body) => {
    for (const button of card.querySelectorAll("button")) button.disabled = true;
    const [path, which] = answerTo(one);
    const response = await post(path, { ...which, ...body });
    if (!response.ok) say((await response.json()).error);
    await answered();
  };
  const buttonOf = (option, at) => {
    const first = at === 0, denies = option.key === "deny";
    const hint = denies ? "d" : first ? "a, then Enter" : null;
    const button = el("button", { type: "button", class: denies ? "deny" : first ? "approve go" : "approve", "data-scope": option.key, "data-key": denies ? "d" : first ? "a" : null, title: visible([option.grants, hint].filter(Boolean).join(" · ")), text: visible(option.label), disabled: true });
    button.addEventListener("click", () => {
      if (!denies) { void answer({ approve: true, scope: option.key, code: pin.value }); return; }
      instead.hidden = false;
      why.focus();
    });
    return button;
  };
  why.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.isComposing && !no.disabled) no.click(); });
  no.addEventListener("click", () => answer({ approve: false, note: why.value }));
  const grants = form.options.filter((option) => option.grants).map((option) => el("li", { text: `${visible(option.label.split(":")[0])}: ${visible(option.grants)}` }));
  const card = el("article", { class: "card", "data-id": one.id }, el("h3", { text: visible(form.sentence) }), whereOf(one),
    form.says ? el("p", { class: "says" }, "The model says: ", el("em", { text: visible(form.says) })) : "",
    ...form.notes.map((note) => el("p", { class: "quiet", text: visible(note) })),
    askedLines(form),
    el("div", { class: "row choices" }, ...form.options.map(buttonOf), one.critical ? pin : ""), instead,
    el("details", {}, el("summary", { text: "Details" }), el("ul", { class: "grants" }, ...grants),
      el("div", { class: "row" }, ...form.more.map((option) => buttonOf(option, 1))),
      form.details.length ? lineBlock(form.details, "Details") : ""));
  return card;
}

async function answered() {
  await approvals();
  rest();
}

/** What would run or change. */
function askedLines(form) {
  if (form.files?.length) return el("div", { class: "asked", tabindex: "0", role: "region", "aria-label": "The change" }, ...form.files.map((file) => drawDiff(changeOf(file))));
  if (form.diff) return el("div", { class: "asked" }, unified(form.diff.split("\n").map(visible), "the change"));
  const lines = form.command ? form.command.split("\n") : form.call;
  return lines.length ? el("div", { class: "asked" }, lineBlock(lines, "What would run")) : "";
}

/** The change of one file, as diffs are drawn; the whole text of a new or deleted file has no signs. */
function changeOf(file) {
  const lines = file.text.replace(/\n$/, "").split("\n");
  const path = file.moved_to ? `${file.path} → ${file.moved_to}` : file.path;
  return { path, kind: file.kind, lines: file.kind === "update" || !file.text ? lines.filter(Boolean) : lines.map((line) => (file.kind === "delete" ? "-" : "+") + line) };
}

/** Each line is a block of its own, and what is too long goes on further in: no text of a model's begins
    where our words do. */
function lineBlock(lines, label) {
  const block = el("pre", { class: "lines", tabindex: "0", role: "region", "aria-label": label });
  block.append(...lines.map((line) => el("span", { text: `${visible(line)}\n` })));
  return block;
}

/** Where the answer to something that waits goes, and what says which one is meant. */
function answerTo(one) {
  if (!one.live) return [`/api/approvals/${encodeURIComponent(one.id)}`, { pin: one.pin }];
  return [`/api/sessions/${encodeURIComponent(one.session)}/answer`, { request: one.id, pin: one.pin }];
}

/** Where something that waits would happen; with a link to its session where another one is looked at. */
function whereOf(one) {
  return el("p", { class: "quiet where" }, `${visible(rowOf(one.session)?.where ?? one.workspace)} · ${visible(one.sandbox)} · `, el("a", { href: `#session=${encodeURIComponent(one.session)}`, text: "open the session" }));
}

/** The card of a model's questions. */
function questionCard(one) {
  const fields = one.questions.map((question, number) => {
    const name = `question-${one.id}-${number}`;
    const options = (question.options ?? []).map((option) => el("label", {},
      el("input", { type: "radio", name, value: option.label }), ` ${visible(option.label)}`, el("span", { class: "quiet", text: ` ${visible(option.description)}` })));
    const own = el("input", { type: question.isSecret ? "password" : "text", autocomplete: "off", "aria-label": "Your answer", placeholder: options.length ? "or an answer of your own" : "your answer" });
    const box = el("fieldset", {}, el("legend", { text: visible(question.header) }), el("p", { class: "words", text: visible(question.question) }), ...options, own);
    return { id: question.id, box, text: () => own.value.trim() || (box.querySelector("input[type=radio]:checked")?.value ?? "") };
  });
  const send = el("button", { type: "button", class: "approve go", text: "Answer", disabled: true });
  const decline = el("button", { type: "button", class: "deny", text: "Decline", disabled: true });
  const give = async (answers) => {
    send.disabled = decline.disabled = true;
    const [path, which] = answerTo(one);
    const response = await post(path, { ...which, answers });
    if (!response.ok) say((await response.json()).error);
    await answered();
  };
  send.addEventListener("click", () => give(Object.fromEntries(fields.map((field) => [field.id, [field.text()]]))));
  decline.addEventListener("click", () => give(null));
  return el("article", { class: "card", "data-id": one.id }, el("h3", { text: "The model asks" }), whereOf(one),
    ...fields.map((field) => field.box), el("div", { class: "row" }, send, decline));
}
