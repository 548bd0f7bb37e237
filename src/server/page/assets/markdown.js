// Markdown to plain values, and to elements: text stays text, so nothing of an answer becomes HTML.
// The time is linear in the text but for lists of lists, whose depth is bounded.

const MAX_DEPTH = 12;
const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(?:\s+(.*)|)$/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;

function width(spaces) {
  let n = 0;
  for (const c of spaces) n += c === "\t" ? 4 : 1;
  return n;
}

function cells(line) {
  const out = [];
  let cell = "", code = false;
  let text = line.trim();
  if (text.startsWith("|")) text = text.slice(1);
  if (text.endsWith("|") && !text.endsWith("\\|")) text = text.slice(0, -1);
  for (let i = 0; i < text.length; i++) {
    if (text[i] === "\\" && text[i + 1] === "|") {
      cell += "|";
      i++;
    } else if (text[i] === "|" && !code) {
      out.push(cell.trim());
      cell = "";
    } else {
      if (text[i] === "`") code = !code;
      cell += text[i];
    }
  }
  out.push(cell.trim());
  return out;
}

function startsBlock(line) {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || /^ {0,3}>/.test(line) ||
    /^ {0,3}(?:[-*+]|1[.)])\s+\S/.test(line);
}

// Blocks of `lines`, each with the line it begins at (`from`).
export function parseLines(lines, depth = 0) {
  const blocks = [];
  let i = 0;
  const put = (from, block) => blocks.push({ ...block, from });
  while (i < lines.length) {
    const from = i, line = lines[i];
    if (!line.trim()) {
      i++;
      continue;
    }
    let match = FENCE.exec(line);
    if (match) {
      const [, indent, fence, info] = match;
      const body = [];
      let closed = false;
      for (i++; i < lines.length && !closed; i++) {
        const end = lines[i].trim();
        closed = end.length >= fence.length && end === fence[0].repeat(end.length);
        if (!closed) body.push(lines[i].slice(Math.min(indent.length, lines[i].search(/\S|$/))));
      }
      put(from, { type: "code", lang: info.trim().split(/\s/, 1)[0], text: body.join("\n"),
                  closed });
      continue;
    }
    match = HEADING.exec(line);
    if (match) {
      put(from, { type: "heading", level: match[1].length, text: match[2] ?? "" });
      i++;
      continue;
    }
    if (RULE.test(line)) {
      put(from, { type: "rule" });
      i++;
      continue;
    }
    if (/^ {0,3}>/.test(line) && depth < MAX_DEPTH) {
      const body = [];
      for (; i < lines.length && lines[i].trim() && (/^ {0,3}>/.test(lines[i]) ||
           !startsBlock(lines[i])); i++)
        body.push(lines[i].replace(/^ {0,3}> ?/, ""));
      put(from, { type: "quote", blocks: parseLines(body, depth + 1) });
      continue;
    }
    match = ITEM.exec(line);
    if (match && depth < MAX_DEPTH) {
      const list = parseList(lines, i, depth);
      i = list.end;
      put(from, list.block);
      continue;
    }
    if (line.includes("|") && i + 1 < lines.length && TABLE_RULE.test(lines[i + 1]) &&
        lines[i + 1].includes("-")) {
      const head = cells(line), rule = cells(lines[i + 1]);
      if (head.length === rule.length) {
        const align = rule.map((c) => c.endsWith(":") ? c.startsWith(":") ? "center" : "right" : "");
        const rows = [];
        for (i += 2; i < lines.length && lines[i].includes("|"); i++) {
          const row = cells(lines[i]).slice(0, head.length);
          while (row.length < head.length) row.push("");
          rows.push(row);
        }
        put(from, { type: "table", head, align, rows });
        continue;
      }
    }
    const body = [line.trimStart()];
    for (i++; i < lines.length && lines[i].trim() && !startsBlock(lines[i]); i++)
      body.push(lines[i].trimStart());
    put(from, { type: "paragraph", text: body.join("\n") });
  }
  return blocks;
}

function parseList(lines, start, depth) {
  const first = ITEM.exec(lines[start]);
  const base = width(first[1]), ordered = /\d/.test(first[2]), mark = first[2].at(-1);
  const items = [];
  let i = start;
  while (i < lines.length) {
    const match = ITEM.exec(lines[i]);
    if (!match || Math.abs(width(match[1]) - base) > 1 || /\d/.test(match[2]) !== ordered ||
        match[2].at(-1) !== mark || RULE.test(lines[i]))
      break;
    const inner = base + match[2].length + 1;
    const body = [match[3] ?? ""];
    for (i++; i < lines.length; i++) {
      const line = lines[i], indent = width(/^\s*/.exec(line)[0]);
      if (!line.trim()) {
        // A blank line goes on with the item where the next line is indented.
        let next = i + 1;
        while (next < lines.length && !lines[next].trim()) next++;
        if (next >= lines.length) break;
        const follows = width(/^\s*/.exec(lines[next])[0]) >= inner;
        if (!follows) break;
        body.push("");
        continue;
      }
      if (indent >= Math.min(inner, base + 2)) {
        body.push(line.replace(/^\s*/, " ".repeat(Math.max(0, indent - inner))));
      } else if (ITEM.test(line) || startsBlock(line) || !lines[i - 1].trim()) {
        break;
      } else {
        body.push(line.trimStart());
      }
    }
    const task = /^\[([ xX])\]\s+/.exec(body[0]);
    if (task) body[0] = body[0].slice(task[0].length);
    items.push({ checked: task ? task[1] !== " " : null, blocks: parseLines(body, depth + 1) });
    // Blank lines between items of one list.
    let next = i;
    while (next < lines.length && !lines[next].trim()) next++;
    if (next < lines.length && ITEM.test(lines[next])) i = next;
  }
  return { end: i, block: { type: "list", ordered, start: ordered ? parseInt(first[2], 10) : 1,
                            items } };
}

const SAFE_URL = /^(?:https?:\/\/|mailto:)/i;
const MARKS = ["***", "___", "**", "__", "~~", "*", "_"];
const TAGS = { "**": "strong", "__": "strong", "*": "em", "_": "em", "~~": "del" };

// Strings and {tag, children, text, href}.
export function parseInline(text, depth = 0) {
  const out = [];
  const hopeless = new Set();  // marks that nothing closes from here on
  let plain = "", i = 0;
  const flush = () => {
    if (plain) out.push(plain);
    plain = "";
  };
  const isWord = (c) => c !== undefined && /[\p{L}\p{N}]/u.test(c);
  scan: while (i < text.length) {
    const c = text[i];
    if (c === "\\" && /[!-/:-@[-`{-~]/.test(text[i + 1] ?? "")) {
      plain += text[i + 1];
      i += 2;
      continue;
    }
    if (c === "`") {
      let n = 1;
      while (text[i + n] === "`") n++;
      const mark = "`".repeat(n);
      let end = hopeless.has(mark) ? -1 : text.indexOf(mark, i + n);
      while (end >= 0 && (text[end + n] === "`" || text[end - 1] === "`")) {
        let past = end + n;
        while (text[past] === "`") past++;
        end = text.indexOf(mark, past);
      }
      if (end < 0) {
        hopeless.add(mark);
        plain += mark;
        i += n;
        continue;
      }
      flush();
      const code = text.slice(i + n, end).replaceAll("\n", " ");
      out.push({ tag: "code", text: /^ .*\S.* $/.test(code) ? code.slice(1, -1) : code });
      i = end + n;
      continue;
    }
    if ((c === "[" || (c === "!" && text[i + 1] === "[")) && depth < MAX_DEPTH) {
      const open = c === "!" ? i + 1 : i;
      const middle = hopeless.has("](") ? -1 : text.indexOf("](", open);
      if (middle < 0) hopeless.add("](");
      const close = middle < 0 ? -1 : closingParenthesis(text, middle + 2);
      if (close > 0 && middle - open < 2000) {
        const href = text.slice(middle + 2, close).trim().split(/\s/, 1)[0].replace(/^<|>$/g, "");
        flush();
        const label = text.slice(open + 1, middle);
        out.push({ tag: "a", href: SAFE_URL.test(href) ? href : "",
                   children: c === "!" ? [label || href] : parseInline(label, depth + 1) });
        i = close + 1;
        continue;
      }
    }
    if (c === "<" || c === "h") {
      const link = /^<?(https?:\/\/[^\s<>"'`\])]+[^\s<>"'`\]).,;:!?*_])>?/.exec(
        text.slice(i, i + 2048));
      if (link && !isWord(text[i - 1])) {
        flush();
        out.push({ tag: "a", href: link[1], children: [link[1]] });
        i += link[0].length;
        continue;
      }
    }
    if ((c === "*" || c === "_" || c === "~") && depth < MAX_DEPTH) {
      for (const mark of MARKS) {
        if (!text.startsWith(mark, i) || hopeless.has(mark)) continue;
        if (/\s/.test(text[i + mark.length] ?? " ")) continue;
        if (c === "_" && isWord(text[i - 1])) continue;
        let end = text.indexOf(mark, i + mark.length);
        for (let tries = 0; end >= 0 && tries < 16; tries++) {
          const fits = end > i + mark.length && !/\s/.test(text[end - 1]) &&
            !(c === "_" && isWord(text[end + mark.length])) &&
            !(mark.length === 1 && text[end + 1] === c && text[end - 1] !== c);
          if (fits) break;
          let past = end + 1;
          while (text[past] === c) past++;
          end = text.indexOf(mark, past);
          if (tries === 15) end = -1;
        }
        if (end < 0) {
          hopeless.add(mark);
          continue;
        }
        flush();
        const children = parseInline(text.slice(i + mark.length, end), depth + 1);
        out.push(mark.length === 3
          ? { tag: "strong", children: [{ tag: "em", children }] }
          : { tag: TAGS[mark], children });
        i = end + mark.length;
        continue scan;
      }
    }
    if (c === "\n") {
      flush();
      out.push({ tag: "br" });
      i++;
      continue;
    }
    plain += c;
    i++;
  }
  flush();
  return out;
}

function closingParenthesis(text, from) {
  let depth = 0;
  for (let i = from; i < text.length && i < from + 2048; i++) {
    if (text[i] === "(") depth++;
    if (text[i] === ")" && depth-- === 0) return i;
    if (text[i] === "\n") return -1;
  }
  return -1;
}
