// Markdown as elements. MarkdownView shows a text that grows: of each addition only the open block,
// the last one, is parsed again.
import { copyText, el } from "./dom.js";
import { highlight } from "./highlight.js";
import { parseInline, parseLines } from "./markdown.js";

function inline(parent, nodes) {
  for (const node of nodes) {
    if (typeof node === "string") {
      parent.append(node);
    } else if (node.tag === "code") {
      parent.append(el("code", {}, node.text));
    } else if (node.tag === "a") {
      // An address of another kind than http and mailto is shown, not linked.
      const link = node.href
        ? el("a", { href: node.href, target: "_blank", rel: "noopener noreferrer" }) : el("span");
      inline(link, node.children);
      parent.append(link);
    } else {
      const child = el(node.tag);
      inline(child, node.children ?? []);
      parent.append(child);
    }
  }
  return parent;
}

function codeBlock(block) {
  const code = el("code");
  for (const [kind, text] of highlight(block.text, block.lang))
    code.append(kind ? el("span", { class: `hl-${kind}` }, text) : text);
  const copy = el("button", { type: "button", class: "quiet", "aria-label": "Copy the code",
                              onclick: () => copyText(code.textContent) }, "Copy");
  return el("div", { class: "code" },
            el("div", { class: "code-head" }, el("span", {}, block.lang || "text"), copy),
            el("pre", { tabindex: "0", "aria-label": `Code, ${block.lang || "text"}`,
                        role: "region" }, code));
}

function table(block) {
  const row = (tag, texts) => el("tr", {}, ...texts.map((text, i) =>
    inline(el(tag, { class: block.align[i] || null, scope: tag === "th" ? "col" : null }),
           parseInline(text))));
  return el("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" },
            el("table", {}, el("thead", {}, row("th", block.head)),
               el("tbody", {}, ...block.rows.map((texts) => row("td", texts)))));
}

function list(block) {
  const out = el(block.ordered ? "ol" : "ul");
  if (block.ordered && block.start !== 1) out.setAttribute("start", block.start);
  for (const item of block.items) {
    const li = el("li");
    if (item.checked !== null) {
      li.className = "task";
      li.append(item.checked ? "☑ " : "☐ ");
    }
    // A single paragraph stands in the item itself.
    if (item.blocks.length && item.blocks[0].type === "paragraph") {
      inline(li, parseInline(item.blocks[0].text));
      li.append(...item.blocks.slice(1).map(renderBlock));
    } else {
      li.append(...item.blocks.map(renderBlock));
    }
    out.append(li);
  }
  return out;
}

function renderBlock(block) {
  switch (block.type) {
    case "heading":
      // The page's own headings are the first two levels.
      return inline(el(`h${Math.min(6, block.level + 2)}`), parseInline(block.text));
    case "code": return codeBlock(block);
    case "rule": return el("hr");
    case "quote": return el("blockquote", {}, ...block.blocks.map(renderBlock));
    case "list": return list(block);
    case "table": return table(block);
    default: return inline(el("p"), parseInline(block.text));
  }
}

export class MarkdownView {
  #source = "";
  #open = 0;       // where the open block begins
  #nodes = [];     // the elements of what is open
  parsed = 0;      // characters parsed so far, for tests

  constructor(parent) {
    this.parent = parent;
  }

  // The whole text; one that goes on from the last is cheap.
  set(text) {
    if (!text.startsWith(this.#source) || !this.#source) {
      this.parent.replaceChildren();
      this.#open = 0;
      this.#nodes = [];
    } else if (text.length === this.#source.length) {
      return;
    }
    this.#source = text;
    const tail = text.slice(this.#open);
    this.parsed += tail.length;
    const lines = tail.split("\n");
    const blocks = parseLines(lines);
    for (const node of this.#nodes) node.remove();
    const elements = blocks.map(renderBlock);
    this.parent.append(...elements);
    this.#nodes = elements.slice(-1);
    // All but the last block are as they stay.
    const from = blocks.length ? blocks.at(-1).from : 0;
    for (let i = 0; i < from; i++) this.#open += lines[i].length + 1;
  }
}
