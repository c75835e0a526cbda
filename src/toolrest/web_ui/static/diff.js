// Diffs: patches, edits and whole sessions, inline or side by side.

const drawnDiffs = new WeakMap();
let sideBySide = false;

/** The files that a call changes, with their lines; null when it is no change of files. */
function diffOf(event) {
  if (PATCH.test(event.arguments)) return patchFiles(event.arguments);
  let value;
  try { value = JSON.parse(event.arguments); } catch { return null; }
  if (value === null || typeof value !== "object") return null;
  const patch = value.input ?? value.patch;
  if (typeof patch === "string" && PATCH.test(patch)) return patchFiles(patch);
  const path = value.path ?? value.file_path;
  if (typeof path !== "string") return null;
  if (typeof value.content === "string") return [{ path, kind: "write", lines: value.content.split("\n").map((line) => `+${line}`) }];
  if (!Array.isArray(value.edits)) return null;
  const lines = value.edits.flatMap((edit) => ["@@", ...signed("-", edit?.oldText), ...signed("+", edit?.newText)]);
  return [{ path, kind: "update", lines }];
}

const signed = (sign, text) => (typeof text === "string" ? text.split("\n").map((line) => sign + line) : []);

function patchFiles(text) {
  const files = [];
  for (const line of text.split("\n")) {
    const start = /^\*\*\* (Add|Update|Delete) File: (.*)$/.exec(line);
    if (start) files.push({ path: start[2], kind: start[1].toLowerCase(), lines: [] });
    else if (line.startsWith("*** Move to: ") && files.length) files.at(-1).path += ` → ${line.slice(13)}`;
    else if (line === "*** End Patch") break;
    else if ((line === "" || /^[-+ @]/.test(line)) && files.length) files.at(-1).lines.push(line || " ");
  }
  return files;
}

const countOf = (files, sign) => files.reduce((sum, file) => sum + file.lines.filter((line) => line.startsWith(sign)).length, 0);

/** How many lines some files gained and lost. */
function counts(files) {
  return el("span", { class: "counts" }, el("span", { class: "good", text: ` +${countOf(files, "+")}` }), el("span", { class: "bad", text: ` −${countOf(files, "-")}` }));
}

const KINDS = { add: "new", delete: "deleted", write: "written" };

const pathOf = (file, more) => el("p", { class: "path" }, el("b", { text: visible(file.path) }), file.kind in KINDS ? el("span", { class: "quiet", text: ` ${KINDS[file.kind]}` }) : "", more);

/** The diff of one file. */
function drawDiff(file) {
  const head = pathOf(file, counts([file]));
  const lines = file.lines.map(visible);
  const body = !lines.length ? "" : sideBySide ? columns(lines, visible(file.path)) : unified(lines, visible(file.path));
  const drawn = el("div", { class: "diff" }, head, body);
  drawnDiffs.set(drawn, file);
  return drawn;
}

const COLOURED = 2000; // lines; what follows is laid out when it is looked at

function unified(lines, path) {
  const block = el("pre", { tabindex: "0", role: "region", "aria-label": `Diff of ${path}` });
  for (const line of lines.slice(0, COLOURED)) block.append(el("span", { class: kindOf(line), text: `${line}\n` }));
  for (let at = COLOURED; at < lines.length; at += 500) block.append(el("span", { class: "far", text: `${lines.slice(at, at + 500).join("\n")}\n` }));
  return block;
}

function columns(lines, path) {
  const body = el("tbody");
  let gone = [], come = [];
  const pairs = () => {
    for (let n = 0; n < Math.max(gone.length, come.length); n += 1) body.append(pair(gone[n], come[n]));
    gone = []; come = [];
  };
  for (const line of lines) {
    if (line.startsWith("-")) gone.push(line);
    else if (line.startsWith("+")) come.push(line);
    else { pairs(); body.append(line.startsWith("@") ? el("tr", {}, el("td", { class: "at", colspan: "2", text: line })) : pair(line, line)); }
  }
  pairs();
  const head = el("thead", {}, el("tr", {}, el("th", { scope: "col", text: "before" }), el("th", { scope: "col", text: "after" })));
  return el("div", { class: "columns", tabindex: "0", role: "region", "aria-label": `Diff of ${path}` }, el("table", {}, head, body));
}

const pair = (left, right) => el("tr", {}, ...[left, right].map((line) => el("td", { class: line === undefined ? "none" : kindOf(line), text: line ?? "" })));
const kindOf = (line) => (line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : line.startsWith("@") ? "at" : "same");

/** Draw every diff of the page the other way. */
function turnDiffs(wanted) {
  sideBySide = wanted;
  for (const drawn of document.querySelectorAll(".diff")) drawn.replaceWith(drawDiff(drawnDiffs.get(drawn)));
}

/** The changes of a whole session. */
function drawChanges(answer) {
  if (answer.error) return [el("p", { class: "quiet", text: visible(answer.error) })];
  if (!answer.files.length) return [el("p", { class: "quiet", text: "No changed file is recorded: checkpoints hold what a turn changed once it has ended." })];
  const files = answer.files.map((file) => ({ ...file, lines: (file.text ?? "").split("\n").filter((line) => line !== "") }));
  const drawn = files.map((file) => (file.note
    ? el("div", { class: "diff-note" }, pathOf(file, ""), el("p", { class: "quiet", text: visible(file.note) }))
    : drawDiff(file)));
  const more = answer.more ? ` and ${answer.more} more` : "";
  return [el("p", { text: `${files.length} ${files.length === 1 ? "file" : "files"}${more} changed since the session began.` }), ...drawn];
}
