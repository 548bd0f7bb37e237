// The chat view: a conversation, the field below it, and the answers that are being written. An
// answer goes on when another chat is shown.
import { announce, byId, el, notice, readTextFiles } from "./dom.js";
import { MessageList } from "./message.js";
import { requestFields } from "./settings.js";
import { saveChat } from "./store.js";
import { statsOf, streamChat } from "./stream.js";
import { addNode, choose, fork, pathTo, removeBranch, toMessages } from "./tree.js";

const SAVE_EVERY_MS = 3000;

export class ChatView {
  chat = null;
  #jobs = new Map();  // chat id -> {controller, nodes}
  #files = [];
  #frame = 0;

  // app: {model, onChanged(chat), open(chat), askKey()}
  constructor(app) {
    this.app = app;
    this.list = new MessageList(byId("messages"), byId("message-list"));
    this.field = byId("composer");
    byId("composer-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.isBusy) this.stop();
      else this.#send();
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      // The key of a phone makes lines; its button sends.
      if (matchMedia("(pointer: coarse)").matches) return;
      event.preventDefault();
      if (this.isBusy) announce("An answer is being written. Escape stops it.");
      else this.#send();
    });
    byId("attach").addEventListener("click", () => byId("attach-input").click());
    byId("attach-input").addEventListener("change", (event) => {
      this.#attach([...event.target.files]);
      event.target.value = "";
    });
    this.field.addEventListener("paste", (event) => {
      if (event.clipboardData.files.length) this.#attach([...event.clipboardData.files]);
    });
    const drop = byId("chat");
    drop.addEventListener("dragover", (event) => event.preventDefault());
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      this.#attach([...event.dataTransfer.files]);
    });
  }

  get isBusy() {
    return this.#jobs.has(this.chat?.id);
  }

  show(chat, toEnd = true) {
    this.chat = chat;
    this.#refresh(toEnd);
  }

  stop() {
    this.#jobs.get(this.chat?.id)?.controller.abort();
  }

  stopChat(id) {
    this.#jobs.get(id)?.controller.abort();
  }

  #actions(chat) {
    const view = this;
    return {
      chat,
      isLive: (node) => this.#jobs.get(chat.id)?.nodes.includes(node) ?? false,
      choose(id) {
        choose(chat, id);
        view.list.isPinned = false;
        view.#changed(chat, false);
        view.list.views.get(id)?.element.scrollIntoView({ block: "nearest" });
      },
      regenerate: (node) => this.generate(chat, node.parent),
      answer: (node) => this.generate(chat, node.id),
      goOn: (node) => this.#run(chat, pathTo(chat, node.id), [node], true),
      fork: (node) => this.app.open(fork(chat, node.id)),
      edit(node, text, isSent) {
        const { role, files, reasoning, calls, call } = node;
        const copy = structuredClone({ role, files, reasoning, calls, call });
        const made = addNode(chat, node.parent, { ...copy, content: text });
        if (isSent) view.generate(chat, made.id);
        else view.#changed(chat, false);
      },
      remove(node) {
        if (view.isBusy || !confirm("Delete this message and all that follows it?")) return;
        removeBranch(chat, node.id);
        view.#changed(chat, false);
      },
      // With the last result of several calls the model goes on.
      toolResult(node, call, text) {
        const known = pathTo(chat).filter((n) => n.role === "tool").map((n) => n.call);
        const parent = pathTo(chat).at(-1);
        const made = addNode(chat, parent.id, { role: "tool", content: text, call: call.id });
        const open = node.calls.filter((c) => c.id !== call.id && !known.includes(c.id));
        if (open.length) view.#changed(chat);
        else view.generate(chat, made.id);
      },
    };
  }

  #refresh(toEnd) {
    this.list.show(pathTo(this.chat), this.#actions(this.chat), toEnd);
    byId("empty").hidden = this.chat.leaf !== "root";
    this.#updateButton();
  }

  #updateButton() {
    const button = byId("send");
    button.textContent = this.isBusy ? "Stop" : "Send";
    button.classList.toggle("stop", this.isBusy);
  }

  #changed(chat, toEnd = true) {
    chat.updated = Date.now();
    if (chat === this.chat) this.#refresh(toEnd);
    this.#save(chat);
  }

  async #save(chat) {
    try {
      await saveChat(chat);
    } catch (error) {
      notice(`The chat could not be kept: ${error.message}`, true);
    }
    this.app.onChanged(chat);
  }

  async #attach(files) {
    this.#files.push(...await readTextFiles(files));
    this.#showFiles();
    this.field.focus();
  }

  #showFiles() {
    byId("files").replaceChildren(...this.#files.map((file, i) =>
      el("li", {}, file.name, el("button", { type: "button", class: "quiet",
        "aria-label": `Remove ${file.name}`, onclick: () => {
          this.#files.splice(i, 1);
          this.#showFiles();
        } }, "×"))));
  }

  #send() {
    const text = this.field.value;
    if (!text.trim() && !this.#files.length) return;
    const fields = { role: "user", content: text };
    if (this.#files.length) fields.files = this.#files;
    const node = addNode(this.chat, this.chat.leaf, fields);
    this.field.value = "";
    this.#files = [];
    this.#showFiles();
    this.generate(this.chat, node.id);
  }

  // As many answers to `parent` as the settings say, each a branch.
  generate(chat, parent) {
    if (this.#jobs.has(chat.id)) return undefined;
    const count = Math.max(1, Number(chat.settings.n) || 1);
    const path = pathTo(chat, parent);
    const nodes = [];
    for (let i = 0; i < count; i++)
      nodes.push(addNode(chat, parent, { role: "assistant", model: this.app.model }));
    choose(chat, nodes[0].id);
    return this.#run(chat, path, nodes, false);
  }

  async #run(chat, path, nodes, isContinued) {
    if (this.#jobs.has(chat.id)) return;
    const controller = new AbortController();
    const job = { controller, nodes };
    this.#jobs.set(chat.id, job);
    for (const node of nodes) {
      delete node.error;
      delete node.finish;
    }
    this.#changed(chat);
    announce("The answer begins");
    const saver = setInterval(() => this.#save(chat), SAVE_EVERY_MS);
    try {
      const request = { model: this.app.model, ...requestFields(chat.settings),
                        messages: toMessages(path, chat.settings.system) };
      if (isContinued) {
        // The model goes on from the words, of one answer.
        Object.assign(request, { n: 1, continue_final_message: true,
                                 add_generation_prompt: false });
      }
      const result = await streamChat(request, {
        signal: controller.signal,
        onChunk: (choice) => {
          const node = nodes[choice.index];
          if (!node) return;
          this.#take(node, choice);
          if (chat === this.chat) this.#draw(nodes);
        } });
      const stats = statsOf(result, nodes.length);
      if (nodes.length > 1) stats.answers = nodes.length;
      for (const node of nodes) node.stats = stats;
      announce(`The answer is complete. ${nodes[0].content.slice(0, 1500)}`);
    } catch (error) {
      for (const node of nodes) {
        if (error.name === "AbortError") node.finish = "abort";
        else node.error = error.message;
      }
      announce(error.name === "AbortError" ? "Stopped" : `Error: ${error.message}`);
      if (error.status === 401) this.app.askKey();
    } finally {
      clearInterval(saver);
      this.#jobs.delete(chat.id);
      if (chat === this.chat) {
        for (const node of nodes) this.list.views.get(node.id)?.update();
        this.#updateButton();
      }
      chat.updated = Date.now();
      this.#save(chat);
    }
  }

  #take(node, choice) {
    const { content, reasoning_content: thought, reasoning, tool_calls: calls } = choice.delta;
    if (content) node.content += content;
    if (thought ?? reasoning) node.reasoning = (node.reasoning ?? "") + (thought ?? reasoning);
    for (const piece of calls ?? []) {
      node.calls ??= [];
      node.calls[piece.index] ??= { id: "", name: "", arguments: "" };
      const call = node.calls[piece.index];
      if (piece.id) call.id = piece.id;
      if (piece.function?.name) call.name = piece.function.name;
      call.arguments += piece.function?.arguments ?? "";
    }
    if (choice.finish_reason) node.finish = choice.finish_reason;
  }

  // At most once a frame.
  #draw(nodes) {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      for (const node of nodes) this.list.views.get(node.id)?.update();
      this.list.follow();
    });
  }
}
