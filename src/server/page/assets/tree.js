// A conversation as a tree of messages: an edit or another answer is one more branch. Pure.

const MAX_NODES = 100000;
const MAX_TEXT = 8 << 20;
const ROLES = ["user", "assistant", "tool"];

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(9));
  return [...bytes].map((b) => b.toString(16).padStart(2, "0")).join("");
}

export function newChat(settings = {}) {
  const now = Date.now();
  const root = { id: "root", parent: null, children: [], role: "root" };
  return { id: newId(), title: "", created: now, updated: now, settings: { ...settings },
           nodes: { root }, leaf: "root" };
}

export function addNode(chat, parent, fields) {
  const node = { id: newId(), parent, children: [], content: "", created: Date.now(), ...fields };
  chat.nodes[node.id] = node;
  chat.nodes[parent].children.push(node.id);
  choose(chat, node.id);
  if (!chat.title && node.role === "user") chat.title = titleOf(node);
  chat.updated = node.created;
  return node;
}

// The messages from the first to `id`.
export function pathTo(chat, id = chat.leaf) {
  const path = [];
  for (let node = chat.nodes[id]; node && node.role !== "root"; node = chat.nodes[node.parent])
    path.push(node);
  return path.reverse();
}

export function siblings(chat, id) {
  return chat.nodes[chat.nodes[id].parent].children;
}

// Shows the branch of `id`, down to where it was left.
export function choose(chat, id) {
  for (let node = chat.nodes[id]; node.parent; node = chat.nodes[node.parent])
    chat.nodes[node.parent].pick = node.id;
  let node = chat.nodes[id];
  while (node.children.length)
    node = chat.nodes[node.children.includes(node.pick) ? node.pick : node.children.at(-1)];
  chat.leaf = node.id;
}

export function removeBranch(chat, id) {
  const parent = chat.nodes[chat.nodes[id].parent];
  parent.children = parent.children.filter((child) => child !== id);
  const gone = [id];
  while (gone.length) {
    const node = chat.nodes[gone.pop()];
    gone.push(...node.children);
    delete chat.nodes[node.id];
  }
  choose(chat, parent.children.at(-1) ?? parent.id);
}

// Another conversation with the messages up to `id`.
export function fork(chat, id) {
  const copy = newChat(chat.settings);
  for (const node of pathTo(chat, id)) {
    const { id: _id, parent: _parent, children: _children, pick: _pick, ...fields } = node;
    addNode(copy, copy.leaf, structuredClone(fields));
  }
  copy.title = chat.title;
  return copy;
}

export function titleOf(node) {
  const text = node.content.trim() || node.files?.[0]?.name || "";
  const line = text.split("\n", 1)[0];
  return line.length > 60 ? line.slice(0, 59) + "…" : line;
}

// What a message says to the model: text files stand before the words.
export function textOf(node) {
  const files = (node.files ?? []).map((file) => {
    let fence = "```";
    while (file.text.includes(fence)) fence += "`";
    return `${file.name}:\n${fence}\n${file.text}\n${fence}\n\n`;
  });
  return files.join("") + node.content;
}

// The messages of a request.
export function toMessages(path, system) {
  const messages = system ? [{ role: "system", content: system }] : [];
  for (const node of path) {
    const message = { role: node.role, content: textOf(node) };
    if (node.role === "assistant") {
      if (node.reasoning) message.reasoning_content = node.reasoning;
      if (node.calls?.length) {
        message.tool_calls = node.calls.map((call) => ({
          id: call.id, type: "function",
          function: { name: call.name, arguments: call.arguments } }));
      }
    }
    if (node.role === "tool") message.tool_call_id = node.call;
    messages.push(message);
  }
  return messages;
}

export function exportText(chats) {
  return JSON.stringify({ format: "sluice-chats", version: 1, chats }, null, 1);
}

class ImportError extends Error {}

function want(condition, what) {
  if (!condition) throw new ImportError(`This file is no export of chats: ${what}.`);
}

function isText(value, limit = MAX_TEXT) {
  return typeof value === "string" && value.length <= limit;
}

// Only known fields of known types come in; parents must lead to the root.
function readNode(id, value) {
  want(value && typeof value === "object", `message ${id} is no object`);
  want(ROLES.includes(value.role), `message ${id} has the role ${String(value.role)}`);
  want(isText(value.content), `message ${id} has no text`);
  want(isText(value.parent, 64), `message ${id} has no parent`);
  const node = { id, parent: value.parent, children: [], role: value.role,
                 content: value.content, created: Number(value.created) || 0 };
  for (const name of ["reasoning", "finish", "model", "error", "call", "pick"])
    if (isText(value[name])) node[name] = value[name];
  if (Array.isArray(value.files)) {
    node.files = value.files.filter((f) => f && isText(f.name, 1024) && isText(f.text))
      .map((f) => ({ name: f.name, text: f.text }));
  }
  if (Array.isArray(value.calls)) {
    node.calls = value.calls.filter((c) => c && isText(c.name) && isText(c.arguments))
      .map((c) => ({ id: String(c.id ?? ""), name: c.name, arguments: c.arguments }));
  }
  if (value.stats && typeof value.stats === "object") {
    node.stats = Object.fromEntries(
      Object.entries(value.stats).filter(([, v]) => Number.isFinite(v)));
  }
  return node;
}

function readChat(value) {
  want(value && typeof value === "object", "a chat is no object");
  want(value.nodes && typeof value.nodes === "object", "a chat has no messages");
  const ids = Object.keys(value.nodes).filter((id) => id !== "root");
  want(ids.length <= MAX_NODES, `a chat has more than ${MAX_NODES} messages`);
  const chat = newChat();
  if (isText(value.title, 1024)) chat.title = value.title;
  if (value.settings && typeof value.settings === "object") chat.settings = value.settings;
  chat.created = Number(value.created) || chat.created;
  chat.updated = Number(value.updated) || chat.updated;
  for (const id of ids) chat.nodes[id] = readNode(id, value.nodes[id]);
  for (const id of ids) {
    const parent = chat.nodes[chat.nodes[id].parent];
    want(parent, `message ${id} hangs on no message`);
    parent.children.push(id);
  }
  // The order of siblings is that of the file, where it names them.
  for (const node of Object.values(chat.nodes)) {
    const order = value.nodes[node.id]?.children;
    if (Array.isArray(order)) {
      const place = new Map(order.map((id, i) => [id, i]));
      node.children.sort((a, b) => (place.get(a) ?? 1e9) - (place.get(b) ?? 1e9));
    }
  }
  const seen = new Set(), open = ["root"];
  while (open.length) {
    const id = open.pop();
    seen.add(id);
    open.push(...chat.nodes[id].children);
  }
  want(seen.size === ids.length + 1, "messages form a circle");
  choose(chat, Object.hasOwn(chat.nodes, value.leaf) ? value.leaf : "root");
  return chat;
}

export function importChats(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    want(false, "it is not JSON");
  }
  want(value?.format === "sluice-chats" && Array.isArray(value.chats), "it has another form");
  return value.chats.map(readChat);
}
