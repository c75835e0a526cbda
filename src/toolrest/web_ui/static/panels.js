// Panels above the timeline: the plan, sub-agents as lanes, context and cost over time.

const STEPS = { completed: ["✓", "done"], in_progress: ["▸", "in progress"], pending: ["○", "to do"] };

/** The steps of a plan that a call sets; null for any other call. */
function planOf(event) {
  if (!event.arguments?.includes('"plan"')) return null;
  try {
    const { plan } = JSON.parse(event.arguments);
    return Array.isArray(plan) && plan.every((one) => typeof one?.step === "string") ? plan : null;
  } catch { return null; }
}

const MOST_STEPS = 200;

function drawPlan(plan) {
  const more = plan.length > MOST_STEPS ? el("li", { class: "done", text: `and ${plan.length - MOST_STEPS} more` }) : "";
  return el("ul", { class: "plan" }, ...plan.slice(0, MOST_STEPS).map((one) => {
    const [sign, word] = STEPS[one.status] ?? STEPS.pending;
    return el("li", { class: one.status === "completed" ? "done" : "" }, el("span", { "aria-hidden": "true", text: `${sign} ` }),
      visible(one.step), el("span", { class: "unseen", text: `, ${word}` }));
  }), more);
}

/** Take what an event says of sub-agents: each is a lane from its start to its end, and the event has their states. */
function takeLane(lanes, event) {
  if (event.kind === "call") lanes.calls.set(event.id, event);
  if (event.kind !== "output" || !/^\{"(agent_id|status)":/.test(event.text)) return;
  let value, asked = {};
  try {
    value = JSON.parse(event.text);
    asked = JSON.parse(lanes.calls.get(event.id)?.arguments ?? "{}");
  } catch { return; }
  if (typeof value.agent_id === "string") {
    const agent = { task: String(asked?.message ?? ""), role: String(asked?.agent_type ?? ""), began: event.time, ended: null, state: "running", last: "", call: event.id, number: lanes.agents.size + 1 };
    lanes.agents.set(value.agent_id, agent);
    event.agents = [stateOf(agent)];
    return;
  }
  if (asked === null || typeof asked !== "object") return;
  const states = lanes.agents.has(asked.id) ? { [asked.id]: value.status } : Array.isArray(asked.ids) ? value.status : null;
  if (states === null || typeof states !== "object") return;
  event.agents = [];
  for (const [id, status] of Object.entries(states)) {
    const agent = lanes.agents.get(id);
    if (!agent) continue;
    const [state, last] = typeof status === "string" ? [status, ""] : Object.entries(status ?? {})[0] ?? ["", ""];
    const runs = state === "running" || state === "pending_init";
    Object.assign(agent, { state, last: last ? String(last) : agent.last, ended: runs ? null : agent.ended ?? event.time });
    event.agents.push(stateOf(agent));
  }
  if (!event.agents.length) delete event.agents;
}

/** An agent as it is now. */
const stateOf = (agent) => ({ number: agent.number, call: agent.call, state: agent.state, last: agent.last, runs: agent.ended === null });

function drawLanes(lanes, first, last, open) {
  const span = Math.max(0.001, last - first);
  return [...lanes.agents.values()].map((agent, number) => {
    const x = ((agent.began - first) / span) * 400;
    const bar = svg("rect", { x: x.toFixed(1), y: "1", height: "8", width: Math.max(2, (((agent.ended ?? last) - agent.began) / span) * 400).toFixed(1), rx: "2" });
    const rail = svg("svg", { viewBox: "0 0 400 10", preserveAspectRatio: "none", "aria-hidden": "true" }, bar);
    const seconds = `${((agent.ended ?? last) - agent.began).toFixed(0)} s`;
    const runs = agent.ended === null && open;
    const took = agent.ended !== null ? `${agent.state} after ${seconds}` : open ? `${agent.state} for ${seconds}` : "its end is not recorded";
    return el("li", { class: runs ? "runs" : "" },
      el("span", { class: "lane", text: visible(`Agent ${number + 1}${agent.role ? ` (${agent.role})` : ""}: ${agent.task}`) }), rail,
      el("span", { class: "quiet", text: visible(`${took}${agent.last ? `: ${agent.last}` : ""}`) }));
  });
}

const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Dollars for the tokens of one request. */
function costOf(used, price) {
  const fresh = Math.max(0, used.input - used.cached - used.written);
  const rates = price.long && used.input > price.above ? price.long : price;
  return (fresh * rates.input + used.cached * rates.cached + used.written * rates.written + used.output * rates.output) / 1e6;
}

const dollars = (cost) => `$${cost < 0.995 ? cost.toFixed(3) : cost.toFixed(2)}`;

const thousands = (count) => (count < 10_000 ? count.toLocaleString() : `${Math.round(count / 1000).toLocaleString()}k`);

/** The share of the context that is used; nothing where no window is known. */
const shareOf = (point) => (point?.window ? `${Math.round((point.context / point.window) * 100)}% of context` : "");

/** The tokens in the context and the cost, now and over time, with a line at the moment that is looked at. */
function chart(points, now) {
  if (!points.length) return [];
  const last = points.at(-1);
  const cost = last.cost !== null ? `cost ${dollars(last.cost)}` : "";
  const tokens = `${thousands(last.context)}${last.window ? ` of ${thousands(last.window)}` : ""} tokens`;
  const meter = last.window ? el("progress", { max: String(last.window), value: String(Math.min(last.context, last.window)), "aria-label": "Context used" }) : "";
  const words = el("p", { class: "quiet", text: [tokens, cost].filter(Boolean).join(" · ") });
  if (points.length < 3) return [meter, words];
  const most = Math.max(...points.map((point) => point.window ?? point.context));
  const first = points[0].time, span = Math.max(0.001, last.time - first);
  const x = (time) => Math.min(400, Math.max(0, ((time - first) / span) * 400)).toFixed(1);
  const line = (kind, value, top) => svg("polyline", { class: kind, points: points.map((point) => `${x(point.time)},${(46 - (value(point) / (top || 1)) * 44).toFixed(1)}`).join(" ") });
  const drawn = [line("context", (point) => point.context, most)];
  if (last.cost !== null) drawn.push(line("cost", (point) => point.cost ?? 0, last.cost));
  if (now > first && now < last.time) drawn.push(svg("line", { class: "now", x1: x(now), x2: x(now), y1: "0", y2: "48" }));
  const image = svg("svg", { viewBox: "0 0 400 48", preserveAspectRatio: "none", role: "img", "aria-label": `Context${cost ? " and cost (dashed)" : ""} over time` }, ...drawn);
  return [meter, words, image];
}
