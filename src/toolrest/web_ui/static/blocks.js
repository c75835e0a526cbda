// Markdown as blocks: nodes are made one by one, and text is text.

const HREF = /^https?:\/\//i; // the server sends no other; this is the second lock

/** The node of each block; one that cannot be drawn takes no other away. */
function drawBlocks(blocks) {
  return blocks.map((block) => safely(() => BLOCKS[block.type](block), () => el("p", { class: "quiet", text: "A part that cannot be shown." })));
}

function drawSpans(spans) {
  return spans.map((span) => {
    const text = visible(span.text), styles = (span.style ?? "").split(" ");
    let node = document.createTextNode(text);
    if (styles.includes("code")) node = el("code", { text });
    if (styles.includes("bold")) node = el("strong", {}, node);
    if (styles.includes("emphasis")) node = el("em", {}, node);
    if (styles.includes("struck")) node = el("s", {}, node);
    return span.href && HREF.test(span.href) ? el("a", { href: span.href, target: "_blank", rel: "noopener noreferrer" }, node) : node;
  });
}

const BLOCKS = {
  paragraph: ({ spans }) => el("p", {}, ...drawSpans(spans)),
  // The page has its own headings; those of a model stand below them.
  heading: ({ level, spans }) => el("p", { class: `heading h${level}`, role: "heading", "aria-level": String(Math.min(6, level + 2)) }, ...drawSpans(spans)),
  rule: () => el("hr"),
  quote: ({ blocks }) => el("blockquote", {}, ...drawBlocks(blocks)),
  code: ({ spans, language }) => {
    const pre = el("pre", { tabindex: "0", role: "region", "aria-label": visible(language ? `Code, ${language}` : "Code") },
      ...spans.map(([style, text]) => (style ? el("span", { class: `t-${style}`, text: visible(text) }) : visible(text))));
    return el("div", { class: "code" }, pre, copyButton(() => spans.map(([, text]) => text).join("")));
  },
  list: ({ items, tight }) => {
    const ordered = items.length > 0 && /^\d/.test(items[0].mark);
    return el(ordered ? "ol" : "ul", { class: tight ? "tight" : null, start: ordered ? items[0].mark.replace(/\D/g, "") : null }, ...items.map((item) => {
      const box = item.checked === null ? "" : el("span", { class: "box-mark", role: "img", "aria-label": item.checked ? "done" : "to do", text: item.checked ? "☑ " : "☐ " });
      const drawn = drawBlocks(item.blocks);
      if (box && drawn[0]?.tagName === "P") drawn[0].prepend(box);
      return el("li", { class: box ? "task" : null }, ...drawn);
    }));
  },
  table: ({ aligns, rows, more }) => {
    const row = (tag, cells) => el("tr", {}, ...cells.map((spans, at) => el(tag, { class: aligns[at] ?? null, scope: tag === "th" ? "col" : null }, ...drawSpans(spans))));
    const [head, ...body] = rows;
    const table = el("table", {}, el("thead", {}, row("th", head)), el("tbody", {}, ...body.map((cells) => row("td", cells))));
    const left = more ? el("p", { class: "quiet", text: `… ${more.toLocaleString()} more rows` }) : "";
    return el("div", { class: "table" }, el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" }, table), left);
  },
};

/** A button that copies a text, on a click alone. */
function copyButton(text) {
  const button = el("button", { type: "button", class: "copy", text: "Copy" });
  button.addEventListener("click", async () => {
    let said = "Copied";
    try { await navigator.clipboard.writeText(text()); } catch { said = "Not copied"; }
    button.textContent = said;
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return button;
}
