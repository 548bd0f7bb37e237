// The page: views, the list of chats, settings, keys of the keyboard, and the API key.
import { ChatView } from "./chat.js";
import { announce, byId, download, el, notice } from "./dom.js";
import { Explainer } from "./explainer.js";
import { Monitor } from "./monitor.js";
import { settingsForm } from "./settings.js";
import { allChats, deleteChat, keep, listChats, loadChat, openStore, recall, saveChat }
  from "./store.js";
import { ApiError, getJson, hasKey, setKey } from "./stream.js";
import { exportText, importChats, newChat } from "./tree.js";

const app = {
  model: recall("model", ""),
  chats: [],  // {id, title, updated}, the newest first

  onChanged(chat) {
    const known = app.chats.find((c) => c.id === chat.id);
    const isNew = !known || known.title !== chat.title;
    app.chats = [{ id: chat.id, title: chat.title, updated: chat.updated },
                 ...app.chats.filter((c) => c.id !== chat.id)];
    if (isNew || app.chats[1] !== known) showChats();
    if (chat === view.chat && location.hash !== `#chat/${chat.id}`)
      history.replaceState(null, "", `#chat/${chat.id}`);
  },

  async open(chat) {
    await saveChat(chat);
    app.onChanged(chat);
    location.hash = `chat/${chat.id}`;
  },

  askKey() {
    const dialog = byId("key-dialog");
    if (!dialog.open) dialog.showModal();
  },
};

const view = new ChatView(app);
const monitor = new Monitor(app);
new Explainer(app, () => view.chat);
const loaded = new Map();  // chats with their messages

function freshChat() {
  const defaults = recall("settings", {});
  return newChat(defaults);
}

async function chatOf(id) {
  if (!loaded.has(id)) {
    const chat = await loadChat(id);
    if (!chat) return null;
    loaded.set(id, chat);
  }
  return loaded.get(id);
}

function startChat() {
  view.show(freshChat());
  loaded.set(view.chat.id, view.chat);
  if (location.hash !== "#chat") history.pushState(null, "", "#chat");
  selectView("chat");
  showChats();
  byId("composer").focus();
}

async function route() {
  const [name, id] = location.hash.slice(1).split("/");
  if (name === "monitor") {
    selectView("monitor");
    return;
  }
  selectView("chat");
  if (id && view.chat?.id !== id) {
    const chat = await chatOf(id);
    if (chat) view.show(chat);
    else notice("There is no such chat here", true);
  }
  if (!view.chat) view.show(freshChat());
  loaded.set(view.chat.id, view.chat);
  showChats();
}

function selectView(name) {
  byId("chat").hidden = name !== "chat";
  byId("monitor").hidden = name !== "monitor";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (name === "monitor") monitor.start();
  else monitor.stop();
  document.title = name === "monitor" ? "Monitor – Sluice" : "Chat – Sluice";
  closeSidebar();
}

function showChats() {
  const filter = byId("filter").value.toLowerCase();
  const shown = app.chats.filter((c) => c.title.toLowerCase().includes(filter)).slice(0, 500);
  byId("chat-list").replaceChildren(...shown.map((chat) => {
    const link = el("a", { href: `#chat/${chat.id}` }, chat.title || "Untitled");
    if (chat.id === view.chat?.id) link.setAttribute("aria-current", "true");
    return el("li", {}, link, el("button", {
      type: "button", class: "quiet", "aria-label": `Delete the chat ${chat.title}`,
      onclick: () => removeChat(chat) }, "×"));
  }));
}

async function removeChat({ id, title }) {
  if (!confirm(`Delete the chat "${title}"?`)) return;
  view.stopChat(id);
  await deleteChat(id);
  app.chats = app.chats.filter((c) => c.id !== id);
  loaded.delete(id);
  if (view.chat.id === id) startChat();
  else showChats();
  announce("Chat deleted");
}

function closeSidebar() {
  document.body.classList.remove("sidebar-open");
  byId("menu").setAttribute("aria-expanded", "false");
}

function openSettings() {
  const dialog = byId("settings");
  byId("settings-fields").replaceChildren(...settingsForm(view.chat.settings, (name, text) => {
    if (text === "") delete view.chat.settings[name];
    else view.chat.settings[name] = text;
  }));
  dialog.showModal();
}

byId("settings").addEventListener("close", async () => {
  if (byId("settings").returnValue === "default") {
    keep("settings", view.chat.settings);
    notice("New chats begin with these settings");
  }
  if (view.chat.leaf !== "root") await saveChat(view.chat);
});

byId("key-dialog").addEventListener("close", () => {
  if (byId("key-dialog").returnValue !== "save") return;
  setKey(byId("key").value, byId("key-keep").checked);
  byId("key").value = "";
  readModels();
  openChats();
  if (!byId("monitor").hidden) monitor.start();
});

async function readModels() {
  const select = byId("model");
  try {
    const names = (await getJson("v1/models")).data.map((model) => model.id);
    if (!names.includes(app.model)) app.model = names[0] ?? "";
    select.replaceChildren(...names.map((name) => el("option", { value: name }, name)));
    select.value = app.model;
    byId("banner").hidden = true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) {
      app.askKey();
      if (hasKey()) notice("The server does not know this key", true);
      return;
    }
    // While the model loads the server says how far it is.
    byId("banner").hidden = false;
    byId("banner").textContent = error.message;
    setTimeout(readModels, 1000);
  }
}

async function importFile(file) {
  try {
    const chats = importChats(await file.text());
    const known = new Set(app.chats.map((c) => c.id));
    for (const chat of chats) {
      while (known.has(chat.id)) chat.id += "i";
      known.add(chat.id);
      await saveChat(chat);
    }
    app.chats = await listChats();
    showChats();
    notice(`${chats.length} chat${chats.length === 1 ? "" : "s"} imported`);
  } catch (error) {
    notice(error.message, true);
  }
}

// The list of chats, which may be those of a key.
async function openChats() {
  const store = await openStore();
  app.chats = await listChats();
  showChats();
  return store;
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  byId("theme").value = theme;
}

function listen() {
  byId("new-chat").addEventListener("click", startChat);
  byId("filter").addEventListener("input", showChats);
  byId("chat-list").addEventListener("click", (event) => {
    if (event.target.closest("a")) closeSidebar();
  });
  byId("settings-button").addEventListener("click", openSettings);
  byId("model").addEventListener("change", (event) => {
    app.model = event.target.value;
    keep("model", app.model);
  });
  byId("export").addEventListener("click", async () =>
    download("sluice-chats.json", exportText(await allChats())));
  byId("import").addEventListener("click", () => byId("import-input").click());
  byId("import-input").addEventListener("change", (event) => {
    if (event.target.files[0]) importFile(event.target.files[0]);
    event.target.value = "";
  });
  byId("menu").addEventListener("click", () => {
    const isOpen = document.body.classList.toggle("sidebar-open");
    byId("menu").setAttribute("aria-expanded", isOpen);
    if (isOpen) byId("new-chat").focus();
  });
  byId("theme").addEventListener("change", (event) => {
    setTheme(event.target.value);
    keep("theme", event.target.value);
  });
  byId("key-button").addEventListener("click", () => app.askKey());
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("composer").focus();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
      if (view.isBusy) view.stop();
      closeSidebar();
    }
    if (event.altKey && event.key.toLowerCase() === "n") {
      event.preventDefault();
      startChat();
    }
    const isTyping = /^(?:INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName);
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      byId("composer").focus();
    }
  });
  window.addEventListener("hashchange", route);
}

setTheme(recall("theme", ""));
listen();
readModels();
if (await openChats() === "page")
  notice("This browser keeps no chats here; export those you need", true);
await route();
document.body.dataset.ready = "true";
