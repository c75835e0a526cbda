// Drawing: everything that a model or a program wrote becomes text, never markup.

/** An element with a class, text and children. */
function el(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "text") node.textContent = value;
    else if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// Control, format, private and unpaired characters, line separators, and letters that are drawn as nothing.
const HIDDEN = /([\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}])\1*/gu;
const PICTURE = /\p{Extended_Pictographic}\ufe0f?$/u;

/** Words in which nothing hides or changes the direction: they must not deceive. Parts of emoji stay. */
function visible(text) {
  return String(text).replace(HIDDEN, (run, char, at, whole) => {
    if (char === "\n" || char === "\t") return run;
    if (char === "\r") return "";
    const count = run.length / char.length;
    if (count === 1 && (char === "\ufe0f" || char === "\u200d") && PICTURE.test(whole.slice(Math.max(0, at - 3), at))) return char;
    return `⟨U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}${count > 1 ? `×${count}` : ""}⟩`;
  });
}

/** What `draw` makes, or what stands for it: an entry that nobody foresaw takes no other away. */
function safely(draw, instead) {
  try {
    return draw();
  } catch (error) {
    console.error(error);
    return instead();
  }
}

const PATCH = /^\*\*\* Begin Patch$/m;

/** A block of code; the lines of a patch are coloured. */
function code(text, label) {
  const block = el("pre", { tabindex: "0", role: "region", "aria-label": label });
  const shown = visible(text);
  if (!PATCH.test(shown)) {
    block.textContent = shown;
    return block;
  }
  for (const line of shown.split("\n")) {
    const kind = line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : null;
    block.append(kind ? el("span", { class: kind, text: line }) : document.createTextNode(`${line}\n`));
  }
  return block;
}

/** What a call does: its plan, its changes of files, its command or its arguments. */
function callBody(event) {
  const plan = planOf(event);
  if (plan) return [drawPlan(plan)];
  if (event.questions) return event.questions.map(drawQuestion);
  const files = diffOf(event);
  if (files?.length) return files.map(drawDiff);
  const values = event.command === null ? valuesOf(event.arguments) : null;
  return values ? [drawValues(values)] : [code(event.command ?? event.arguments, `Call of ${visible(event.tool)}`)];
}

/** The arguments of a call by their names; null where they are no small object. */
function valuesOf(text) {
  let values;
  try { values = JSON.parse(text); } catch { return null; }
  const is = values !== null && typeof values === "object" && !Array.isArray(values);
  return is && Object.keys(values).length <= 20 ? values : null;
}

function drawValues(values) {
  const rows = Object.entries(values).map(([name, value]) => [el("dt", { text: visible(name) }), el("dd", { text: visible(typeof value === "string" ? value : JSON.stringify(value)) })]);
  return rows.length ? el("dl", { class: "values" }, ...rows.flat()) : "";
}

const IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/;

function pictures(event) {
  return (event.images ?? []).filter((url) => IMAGE.test(url)).map((url, at) => el("img", { src: url, alt: `Image ${at + 1} of this step`, loading: "lazy" }));
}

/** The time for machines; none for what is no time. */
const iso = (time) => (Number.isNaN(time.getTime()) ? null : time.toISOString());

const LABELS = { user: "You", message: "Model", reasoning: "Reasoning", notice: "Note" };

const asked = new WeakMap(); // the questions of an entry

function drawQuestion(question) {
  const options = question.options.map((label) => el("li", { text: visible(label) }));
  return el("div", { class: "question" }, el("p", { class: "label", text: visible(question.header) }),
    el("p", { class: "words", text: visible(question.text) }), el("ul", {}, ...options));
}

/** What the person answered, below the questions; a secret is not shown. */
function drawAnswers(questions, event) {
  const given = questions.filter((question) => event.answers?.[question.id]);
  if (!given.length) return el("p", { class: "quiet", text: visible(event.text) });
  const rows = given.map((question) => {
    const text = question.is_secret ? "(not shown)" : event.answers[question.id].join("; ");
    return el("p", { class: "answer" }, el("span", { class: "label", text: visible(`${question.header}: `) }), visible(text));
  });
  return el("div", { class: "answers" }, ...rows);
}

/** What became of sub-agents, each in the entry of the call that started it. */
function drawAgents(agents, calls) {
  return agents.filter((agent) => calls.has(agent.call)).map((agent) => {
    const last = agent.last ? `: ${agent.last}` : "";
    return [el("p", { class: `agent ${agent.runs ? "runs" : ""}`, text: visible(`Agent ${agent.number} ${agent.state}${last}`) }), calls.get(agent.call)];
  });
}

/** What an event draws, each with where it goes: outputs into the entry of their call, all else into the list. */
function drawCell(event, calls) {
  if (event.kind === "output") {
    const call = calls.get(event.id);
    if (event.agents) return drawAgents(event.agents, calls);
    if (call && asked.has(call)) return [[drawAnswers(asked.get(call), event), call]];
    if (!call || call.classList.contains("planned") || !(event.text || event.images || event.code)) return [];
    const lines = event.text.trimEnd().split("\n").length;
    const failed = event.code ? el("span", { class: "bad", text: `, exit code ${event.code}` }) : "";
    if (!event.text && !event.images) return [[el("p", { class: "quiet" }, "No output", failed), call]];
    const output = el("details", { open: event.text.length < 2000 },
      el("summary", {}, `Output, ${lines} ${lines === 1 ? "line" : "lines"}`, failed), code(event.text, "Output"), ...pictures(event));
    return [[output, call]];
  }
  const time = new Date(event.time * 1000);
  const when = el("time", { datetime: iso(time), text: time.toLocaleTimeString() });
  if (event.kind === "call") {
    const title = event.questions ? "The model asks" : visible(event.tool);
    const cell = el("li", { class: planOf(event) ? "call planned" : "call" }, el("p", { class: "label" }, `${title} · `, when), ...callBody(event));
    calls.set(event.id, cell);
    if (event.questions) asked.set(cell, event.questions);
    return [[cell, null]];
  }
  if (!(event.kind in LABELS)) return [];
  const label = el("p", { class: "label" }, `${LABELS[event.kind]} · `, when);
  const words = el("p", { class: "words", text: visible(event.text) });
  if (event.kind !== "reasoning") return [[el("li", { class: event.kind }, label, words, ...pictures(event)), null]];
  return [[el("li", { class: "reasoning" }, label, el("details", {}, el("summary", { text: "Show the reasoning" }), words)), null]];
}
