// Chats: on the server where it keeps them (--page-store FILE), else in this browser's IndexedDB,
// one record each and a short one for the list. Where the browser keeps none (a private window),
// they live as long as the page.
import { ApiError, getJson, send } from "./stream.js";

let isOnServer = false;
let lastWrite = Promise.resolve();  // to the server, in the order of the calls
let database = null;
const memory = new Map();

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

const pathOf = (id) => `page/chats/${id}`;

function write(method, path, value) {
  const written = lastWrite.then(() => send(method, path, value));
  lastWrite = written.catch(() => {});
  return written;
}

// Where chats are kept: "server", "browser", or "page", which ends with the page. Called again
// when there is another key.
export async function openStore() {
  try {
    isOnServer = (await getJson("page/chats")).store === "server";
    if (isOnServer) return "server";
  } catch {
    // No key yet, or no answer.
    isOnServer = false;
  }
  if (database) return "browser";
  try {
    const request = indexedDB.open("sluice", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("chats", { keyPath: "id" });
      request.result.createObjectStore("list", { keyPath: "id" });
    };
    database = await done(request);
    return "browser";
  } catch {
    return "page";
  }
}

const summary = ({ id, title, updated }) => ({ id, title, updated });

export async function saveChat(chat) {
  if (isOnServer) return write("PUT", pathOf(chat.id), chat);
  if (!database) {
    memory.set(chat.id, structuredClone(chat));
    return undefined;
  }
  const change = database.transaction(["chats", "list"], "readwrite");
  change.objectStore("chats").put(chat);
  change.objectStore("list").put(summary(chat));
  return new Promise((resolve, reject) => {
    change.oncomplete = resolve;
    change.onerror = change.onabort = () => reject(change.error);
  });
}

export async function loadChat(id) {
  if (isOnServer) {
    try {
      return await getJson(pathOf(id));
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return undefined;
      throw error;
    }
  }
  if (!database) return structuredClone(memory.get(id));
  return done(database.transaction("chats").objectStore("chats").get(id));
}

export async function deleteChat(id) {
  if (isOnServer) return write("DELETE", pathOf(id));
  if (!database) {
    memory.delete(id);
    return undefined;
  }
  const change = database.transaction(["chats", "list"], "readwrite");
  change.objectStore("chats").delete(id);
  return done(change.objectStore("list").delete(id));
}

// {id, title, updated} of all chats, the newest first.
export async function listChats() {
  if (isOnServer) return (await getJson("page/chats")).data;
  const all = database ? await done(database.transaction("list").objectStore("list").getAll())
    : [...memory.values()].map(summary);
  return all.sort((a, b) => b.updated - a.updated);
}

export async function allChats() {
  if (isOnServer) {
    const chats = [];
    for (const { id } of await listChats()) chats.push(await getJson(pathOf(id)));
    return chats;
  }
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
