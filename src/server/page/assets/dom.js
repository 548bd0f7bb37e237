// Small helpers around elements.

// el("button", {class: "x", onclick: f, "aria-label": "y"}, child, "text", ...)
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "hidden") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((c) => c !== null && c !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

// Says something to users of a screen reader.
export function announce(text) {
  byId("status").textContent = text;
}

// Shows a line at the bottom for a while.
export function notice(text, isError = false) {
  const line = el("p", { class: isError ? "notice bad" : "notice", role: isError ? "alert" : "status" },
                  text);
  byId("notices").append(line);
  setTimeout(() => line.remove(), isError ? 12000 : 4000);
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages of plain HTTP have no clipboard but the old way.
    const area = el("textarea", { class: "offscreen", value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  announce("Copied");
}

export function download(name, text, type = "application/json") {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// The text files that a person chose; those that are no text are told.
export async function readTextFiles(files) {
  const out = [];
  for (const file of files) {
    if (file.size > 4 << 20) {
      notice(`${file.name} has more than 4 MiB`, true);
      continue;
    }
    try {
      const bytes = await file.arrayBuffer();
      const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
      if (text.includes("\0")) throw new TypeError("binary");
      out.push({ name: file.name || "text", text });
    } catch {
      notice(`${file.name} is no text in UTF-8; only text can be attached`, true);
    }
  }
  return out;
}
