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

const PIECE = 8000; // characters that are laid out at once

/** A text; a long one in pieces that are laid out when they are looked at. */
function pieces(text) {
  if (text.length <= 2 * PIECE) return [text];
  const found = [];
  for (let at = 0; at < text.length;) {
    let end = Math.min(text.length, at + PIECE);
    const line = text.lastIndexOf("\n", end);
    const cut = line > at + PIECE / 2 ? line : text.lastIndexOf(" ", end);
    if (end < text.length && cut > at) end = cut;
    found.push(el("span", { class: "far", text: text.slice(at, end) }));
    at = text[end] === "\n" || text[end] === " " ? end + 1 : end;
  }
  return found;
}

const PATCH = /^\*\*\* Begin Patch$/m;

/** A block of code; the lines of a patch are coloured. */
function code(text, label) {
  const block = el("pre", { tabindex: "0", role: "region", "aria-label": label });
  const shown = visible(text);
  if (!PATCH.test(shown)) {
    block.append(...pieces(shown));
    return block;
  }
  for (const line of shown.split("\n")) {
    const kind = line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : null;
    block.append(kind ? el("span", { class: kind, text: line }) : document.createTextNode(`${line}\n`));
  }
  return block;
}

/** The time for machines; none for what is no time. */
const iso = (time) => (Number.isNaN(time.getTime()) ? null : time.toISOString());
