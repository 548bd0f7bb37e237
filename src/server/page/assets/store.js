// Chats in this browser's IndexedDB, one record each and a short one for the list. Where the
// browser keeps none (a private window), they live as long as the page.

let database = null;
const memory = new Map();

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

export async function openStore() {
  try {
    const request = indexedDB.open("sluice", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("chats", { keyPath: "id" });
      request.result.createObjectStore("list", { keyPath: "id" });
    };
    database = await done(request);
    return true;
  } catch {
    return false;
  }
}

const summary = ({ id, title, updated }) => ({ id, title, updated });

export async function saveChat(chat) {
  if (!database) {
    memory.set(chat.id, structuredClone(chat));
    return;
  }
  const change = database.transaction(["chats", "list"], "readwrite");
  change.objectStore("chats").put(chat);
  change.objectStore("list").put(summary(chat));
  await new Promise((resolve, reject) => {
    change.oncomplete = resolve;
    change.onerror = change.onabort = () => reject(change.error);
  });
}

export async function loadChat(id) {
  if (!database) return structuredClone(memory.get(id));
  return done(database.transaction("chats").objectStore("chats").get(id));
}

export async function deleteChat(id) {
  if (!database) {
    memory.delete(id);
    return;
  }
  const change = database.transaction(["chats", "list"], "readwrite");
  change.objectStore("chats").delete(id);
  await done(change.objectStore("list").delete(id));
}

// {id, title, updated} of all chats, the newest first.
export async function listChats() {
  const all = database ? await done(database.transaction("list").objectStore("list").getAll())
    : [...memory.values()].map(summary);
  return all.sort((a, b) => b.updated - a.updated);
}

export async function allChats() {
  if (!database) return [...memory.values()];
  return done(database.transaction("chats").objectStore("chats").getAll());
}

// Small settings.
export function recall(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(`sluice.${name}`)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function keep(name, value) {
  try {
    localStorage.setItem(`sluice.${name}`, JSON.stringify(value));
  } catch {
    // No room, or not allowed: the setting lives as long as the page.
  }
}
