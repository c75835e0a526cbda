// The entries of a session: messages as blocks, a call in one line with its result, what it did inside.

const asked = new WeakMap(); // the questions of an entry
const TAIL = 3; // lines of a failed command's output that are seen at once
const OPEN = 60; // lines of a diff that is seen at once

/** What a model wrote: as blocks, or as it is where it is too long for them. */
function drawWords(event) {
  if (!event.blocks) return [el("p", { class: "words" }, ...pieces(visible(event.text)))];
  return drawBlocks(event.blocks);
}

/** What a call does: its plan, its changes of files, its command or its arguments. */
function callBody(event, files) {
  const plan = planOf(event);
  if (plan) return [drawPlan(plan)];
  if (event.questions) return event.questions.map(drawQuestion);
  if (files) return files.map(drawDiff);
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

/** A call in one line: a verb (before / after it was done), a note, and what it is done to. */
function titleOf(event, files) {
  const plan = planOf(event);
  if (plan) {
    const now = plan.find((one) => one.status === "in_progress") ?? plan.find((one) => one.status !== "completed");
    return ["Plan", `${plan.filter((one) => one.status === "completed").length} of ${plan.length} done`, now?.step ?? ""];
  }
  if (event.questions) return ["Ask/Asked", "", ""];
  if (event.command !== null && !files) return ["Run/Ran", "", event.command.trim().split("\n")[0]];
  if (files) {
    const verb = { add: "Create/Created", delete: "Delete/Deleted", write: "Write/Wrote" }[files.length === 1 ? files[0].kind : ""] ?? "Edit/Edited";
    return [verb, "", files.map((file) => file.path).join(", ")];
  }
  const words = event.tool.replace(/^mcp__/, "").replaceAll("__", " · ").replaceAll("_", " ");
  return [words.charAt(0).toUpperCase() + words.slice(1), "", event.title ?? ""];
}

function drawCall(event, calls, time) {
  const found = planOf(event) || event.questions ? null : diffOf(event);
  const files = found?.length ? found : null;
  const [verb, note, what] = titleOf(event, files);
  const added = files ? counts(files) : "";
  const result = el("span", { class: "result" });
  const [before, after] = verb.split("/");
  const line = el("summary", {}, el("b", {}, el("span", { class: "before", text: visible(before) }), el("span", { class: "after", text: visible(after ?? before) })), note ? el("span", { class: "quiet", text: ` ${note}` }) : "",
    what ? el("code", { class: "what", text: visible(what) }) : "", added, result);
  const body = el("div", { class: "body" }, ...callBody(event, files));
  const short = files ? files.reduce((sum, file) => sum + file.lines.length, 0) <= OPEN : false;
  const cell = el("li", { class: planOf(event) ? "call planned" : "call", title: time.toLocaleString() },
    el("details", { open: short || Boolean(event.questions) }, line, body));
  calls.set(event.id, { cell, body, result, planned: Boolean(planOf(event)), files: Boolean(files) });
  if (event.questions) asked.set(cell, event.questions);
  return [[cell, null]];
}

/** What a person did to a call, where that was its end. */
function endedBy(text) {
  const stopped = /^aborted by user after ([\d.]+)\s?s$/.exec(text), denied = /^rejected by user(?:: (.*))?$/s.exec(text);
  if (stopped) return el("span", { class: "quiet", text: `stopped after ${stopped[1]} s` });
  return denied && el("span", { class: "quiet denied", text: visible(denied[1] ? `you said no: ${denied[1]}` : "you said no") });
}

/** What came of a call, in its line and inside its entry. */
function drawOutput(event, calls) {
  if (event.agents) return drawAgents(event.agents, new Map([...calls].map(([id, call]) => [id, call.cell])));
  const call = calls.get(event.id);
  if (!call) return [];
  if (asked.has(call.cell)) return [[drawAnswers(asked.get(call.cell), event), call.body], [el("span"), call.result]];
  const ended = endedBy(event.text.trim());
  if (ended) return [[ended, call.result]];
  const failed = Boolean(event.code) || event.failed;
  const took = event.seconds >= 0.05 ? `${event.seconds < 10 ? event.seconds.toFixed(1) : Math.round(event.seconds)} s` : "";
  const end = event.code ? `exit code ${event.code}` : event.failed ? "failed" : "";
  const words = [end, took].filter(Boolean).join(" · ");
  const drawn = [[el("span", { class: failed ? "bad" : "", text: words }), call.result]];
  if (call.planned || !(event.text || event.images) || (call.files && !failed)) return drawn;
  const lines = event.text.trimEnd().split("\n");
  drawn.push([el("div", { class: "output" }, code(event.text, `Output, ${lines.length} ${lines.length === 1 ? "line" : "lines"}`), ...pictures(event)), call.body]);
  if (event.images) call.body.parentElement.open = true;
  if (failed && event.text.trim()) drawn.push([tail(lines), call.cell]);
  return drawn;
}

/** The end of an output, which is seen while its call is folded. */
function tail(lines) {
  const more = lines.length > TAIL ? `… ${lines.length - TAIL} more ${lines.length - TAIL === 1 ? "line" : "lines"}\n` : "";
  return el("pre", { class: "tail", text: visible(more + lines.slice(-TAIL).map((line) => line.slice(0, 500)).join("\n")) });
}

const WHO = { user: "You", message: "Model", reasoning: "Reasoning", notice: "Note" };

/** What an event draws, each with where it goes: outputs into the entry of their call, all else into the list. */
function drawCell(event, calls) {
  const time = new Date(event.time * 1000);
  if (event.kind === "output") return drawOutput(event, calls);
  if (event.kind === "call") return drawCall(event, calls, time);
  if (!(event.kind in WHO)) return [];
  const cell = el("li", { class: event.kind, title: iso(time) ? time.toLocaleString() : null });
  const who = el("span", { class: "unseen", text: `${WHO[event.kind]}: ` });
  if (event.kind === "reasoning") cell.append(el("details", {}, el("summary", { text: "Thought" }), el("div", { class: "md" }, ...drawWords(event))));
  else if (event.kind === "message") cell.append(who, el("div", { class: "md" }, ...drawWords(event)), ...pictures(event));
  else cell.append(who, el("p", { class: "words", text: visible(event.text) }), ...pictures(event));
  return [[cell, null]];
}
