// The batch of a store: its status, distributions, failures by class, a table of results.

function bars(shown) {
  const most = Math.max(1, ...shown.counts);
  const width = 400 / shown.counts.length;
  const drawn = shown.counts.map((count, at) => svg("rect", { x: (at * width).toFixed(1), width: (width - 1).toFixed(1), y: (48 - (count / most) * 46).toFixed(1), height: ((count / most) * 46).toFixed(1) }));
  return el("figure", {}, svg("svg", { viewBox: "0 0 400 48", preserveAspectRatio: "none", role: "img", "aria-label": visible(shown.caption) }, ...drawn),
    el("figcaption", { class: "quiet", "aria-hidden": "true", text: visible(shown.caption) }));
}

const number = (value, digits) => (value === null ? "" : value.toLocaleString(undefined, { maximumFractionDigits: digits }));

function batchRow(result) {
  const numbers = [number(result.score, 3), number(result.turns, 0), number(result.tool_calls, 0), number(result.total_tokens, 0), number(result.cost, 4), number(result.seconds, 1), number(result.attempts, 0)];
  return el("tr", {}, el("th", { scope: "row", text: visible(result.id ?? "") }),
    el("td", { class: result.failure ? "bad" : "", text: visible(result.failure ?? "done") }),
    ...numbers.map((text) => el("td", { class: "number", text })),
    el("td", { class: "words", text: visible(result.error || result.text) }));
}

/** The whole view; `choose` is called with the class of failures to show. */
function drawBatch(answer, chosen, choose) {
  const { status } = answer;
  const facts = [`${status.finished} of ${status.tasks} have a result`, `${status.failed} failed`, `${status.running} running on ${status.runners} runners`,
    status.per_minute === null ? "" : `${status.per_minute.toFixed(1)} a minute`, `${status.tokens.toLocaleString()} tokens`, status.cost ? dollars(status.cost) : "", status.cancelled ? "cancelled" : ""];
  const failures = Object.entries(status.failures);
  const classes = el("div", { class: "row", role: "group", "aria-label": "Failures by class" }, ...[["", status.finished], ...failures].map(([name, count]) =>
    el("button", { type: "button", "aria-pressed": String(name === chosen), text: `${visible(name || "all")} ${count}`, on: { click: () => choose(name) } })));
  const heads = ["task", "end", "score", "turns", "calls", "tokens", "cost in $", "seconds", "attempts", "answer or error"];
  const table = el("table", {}, el("caption", { class: "unseen", text: "Results" }), el("thead", {}, el("tr", {}, ...heads.map((text, at) => el("th", { scope: "col", class: at > 1 && at < heads.length - 1 ? "number" : "", text })))), el("tbody", {}, ...answer.rows.map(batchRow)));
  return [el("h2", { text: "Batch" }), el("p", { class: "quiet", text: visible(answer.store) }), el("p", { text: facts.filter(Boolean).join(" · ") }),
    el("progress", { max: String(Math.max(1, status.tasks)), value: String(status.finished), "aria-label": "Tasks with a result" }),
    el("div", { class: "charts" }, ...answer.charts.map(bars)), classes,
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Results" }, table),
    answer.more ? el("p", { class: "quiet", text: `${answer.more} more rows are in: toolrest batch results STORE` }) : ""];
}
