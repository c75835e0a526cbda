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

/** Control, zero-width and direction-changing characters in words: they must not deceive. */
function visible(text) {
  return text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g,
    (char) => (char === "\r" ? "" : `⟨U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`),
  );
}

const PATCH = /^\*\*\* Begin Patch$/m;

/** A block of code; the lines of a patch are coloured. */
function code(text, label) {
  const block = el("pre", { tabindex: "0", "aria-label": label });
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

/** What a call does, as text: its command, its patch or its arguments. */
function callText(event) {
  if (event.command !== null && event.command !== undefined) return event.command;
  try {
    const value = JSON.parse(event.arguments);
    const patch = value && (value.input ?? value.patch);
    if (typeof patch === "string" && PATCH.test(patch)) return patch;
  } catch { /* free text */ }
  return event.arguments;
}

const LABELS = { user: "You", message: "Model", reasoning: "Reasoning", notice: "Note" };

/** The list entry of an event; outputs go into the entry of their call. */
function drawCell(event, calls) {
  if (event.kind === "output") {
    const call = calls.get(event.id);
    if (call && event.text) {
      call.append(el("details", { open: event.text.length < 2000 },
        el("summary", { text: `Output, ${event.text.split("\n").length} lines` }), code(event.text, "Output")));
    }
    return null;
  }
  const time = new Date(event.time * 1000);
  const when = el("time", { datetime: time.toISOString(), text: time.toLocaleTimeString() });
  if (event.kind === "call") {
    const cell = el("li", { class: "call" }, el("p", { class: "label" }, `${visible(event.tool)} · `, when),
      code(callText(event), `Call of ${visible(event.tool)}`));
    calls.set(event.id, cell);
    return cell;
  }
  if (!(event.kind in LABELS)) return null;
  const label = el("p", { class: "label" }, `${LABELS[event.kind]} · `, when);
  const words = el("p", { class: "words", text: visible(event.text) });
  if (event.kind !== "reasoning") return el("li", { class: event.kind }, label, words);
  return el("li", { class: "reasoning" }, label, el("details", {}, el("summary", { text: "Show the reasoning" }), words));
}

const SVG = "http://www.w3.org/2000/svg";

/** The tokens in the context over time, as a small line. */
function chart(points) {
  if (points.length < 2) return "";
  const most = Math.max(...points.map((point) => point.window ?? point.context));
  const first = points[0].time, span = Math.max(1, points.at(-1).time - first);
  const at = points.map((point) => `${(((point.time - first) / span) * 400).toFixed(1)},${(46 - (point.context / most) * 44).toFixed(1)}`);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 400 48");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `Context: ${points.at(-1).context} of ${most} tokens`);
  const line = document.createElementNS(SVG, "polyline");
  line.setAttribute("points", at.join(" "));
  svg.append(line);
  return svg;
}
