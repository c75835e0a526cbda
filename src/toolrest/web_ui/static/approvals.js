// What waits for an answer: a card for each request, with everything that the terminal shows.

const INERT = 500; // a button that has just appeared takes no click that was meant for another
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
  for (const [name, card] of gone) { card.remove(); cards.delete(name); }
  for (const one of come) {
    const made = safely(() => (one.kind === "question" ? questionCard(one, answered) : approvalCard(one)), () => el("article", { class: "card", text: "A request that cannot be shown: answer it where the session runs." }));
    cards.set(nameOf(one), made);
    $("approvals").append(made);
  }
  if (gone.length || come.length) rest();
  $("approvals").hidden = cards.size === 0;
  $("approvals-button").hidden = cards.size === 0;
  $("approvals-button").replaceChildren(cards.size === 1 ? "1 waits" : `${cards.size} wait`, el("span", { class: "wide", text: " for an answer" }));
  document.title = cards.size ? `(${cards.size}) Toolrest` : "Toolrest";
}

async function answered() {
  await approvals();
  rest();
}

function approvalCard(one) {
  const note = el("input", { type: "text", class: "why", placeholder: "why not (sent to the model)", "aria-label": "Reason for denying" });
  const pin = el("input", { type: "text", inputmode: "numeric", placeholder: "code", "aria-label": "Code for critical calls", autocomplete: "off" });
  const scopes = one.choices.length ? one.choices : [{ scope: "once", sentence: "this call only" }];
  const scope = el("select", { "aria-label": "Approve for" }, ...scopes.map((choice) => el("option", { value: choice.scope, text: visible(choice.scope) })));
  const grant = el("p", { class: "quiet grant", "aria-live": "polite" });
  const told = () => { grant.textContent = `Approves ${visible(scopes.find((choice) => choice.scope === scope.value).sentence)}.`; };
  scope.addEventListener("change", told);
  told();
  const approve = el("button", { type: "button", class: "approve", text: "Approve", "data-key": "a", title: "a, then Enter", disabled: true });
  const deny = el("button", { type: "button", class: "deny", text: "Deny", "data-key": "d", title: "d, the reason, then Enter", disabled: true });
  const answer = async (body) => {
    approve.disabled = deny.disabled = true;
    const [path, which] = answerTo(one);
    const response = await post(path, { ...which, ...body });
    if (!response.ok) say((await response.json()).error);
    await answered();
  };
  note.addEventListener("keydown", (event) => { if (event.key === "Enter" && !deny.disabled) deny.click(); });
  approve.addEventListener("click", () => answer({ approve: true, scope: scope.value, code: pin.value }));
  deny.addEventListener("click", () => answer({ approve: false, note: note.value }));
  const risk = el("span", { class: one.critical || one.leaves ? "risk high" : "risk", text: one.leaves ? `${one.risk}, OUTSIDE THE SANDBOX` : one.risk });
  return el("article", { class: "card", "data-id": one.id }, el("h3", {}, `${visible(one.tool)} `, risk),
    whereOf(one), askedLines(one.lines),
    el("div", { class: "row" }, approve, scopes.length > 1 ? scope : "", one.critical ? pin : ""), grant, el("div", { class: "row" }, deny, note));
}

/** What the terminal shows of a request. Each line is a block of its own, and what is too long goes on
    further in: no text of a model's begins where our words do. */
function askedLines(lines) {
  const block = el("pre", { class: "asked", tabindex: "0", role: "region", "aria-label": "What would run" });
  block.append(...lines.map((line) => el("span", { text: `${visible(line)}\n` })));
  return block;
}

/** Where the answer to something that waits goes, and what says which one is meant. */
function answerTo(one) {
  if (!one.live) return [`/api/approvals/${encodeURIComponent(one.id)}`, { pin: one.pin }];
  return [`/api/sessions/${encodeURIComponent(one.session)}/answer`, { request: one.id, pin: one.pin }];
}

/** Where something that waits would happen, with a link to its session. */
function whereOf(one) {
  return el("p", { class: "quiet" }, `${visible(`${one.workspace} · ${one.sandbox}`)} · `, el("a", { href: `#session=${encodeURIComponent(one.session)}`, text: "Open the session" }));
}

/** The card of a model's questions. */
function questionCard(one, answered) {
  const fields = one.questions.map((question, number) => {
    const name = `question-${one.id}-${number}`;
    const options = (question.options ?? []).map((option) => el("label", { class: "quiet" },
      el("input", { type: "radio", name, value: option.label }), ` ${visible(option.label)}: ${visible(option.description)}`));
    const own = el("input", { type: question.isSecret ? "password" : "text", autocomplete: "off", "aria-label": "Your answer", placeholder: options.length ? "or an answer of your own" : "your answer" });
    const box = el("fieldset", {}, el("legend", { text: visible(question.header) }), el("p", { class: "words", text: visible(question.question) }), ...options, own);
    return { id: question.id, box, text: () => own.value.trim() || (box.querySelector("input[type=radio]:checked")?.value ?? "") };
  });
  const send = el("button", { type: "button", class: "approve", text: "Answer", disabled: true });
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
