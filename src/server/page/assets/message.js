// One message on the page. What is far from the window has its words only; the rest, Markdown and
// buttons, comes when it is near (MessageList).
import { copyText, el } from "./dom.js";
import { MarkdownView } from "./render.js";
import { siblings } from "./tree.js";

const NAMES = { user: "You", assistant: "Answer", tool: "Tool result" };

const ms = (value) => value < 10 ? value.toFixed(1) : value < 10000 ? Math.round(value)
  : `${(value / 1000).toFixed(1)} s`;
const milliseconds = (value) => value < 10000 ? `${ms(value)} ms` : ms(value);

// The line below an answer: [name, value] pairs.
export function statsItems(stats) {
  const items = [];
  const put = (name, value) => items.push([name, value]);
  if (stats.queue_ms !== undefined) put("queue", milliseconds(stats.queue_ms));
  if (stats.first_ms) put("first token", milliseconds(stats.first_ms));
  if (stats.rate) put("speed", `${stats.rate.toFixed(1)} tokens/s`);
  if (stats.tokens !== undefined) {
    put("tokens", stats.thought ? `${stats.tokens} (${stats.thought} of thought)`
      : `${stats.tokens}`);
  }
  if (stats.prompt !== undefined) put("prompt", `${stats.prompt} (${stats.cached} cached)`);
  if (stats.drafted !== undefined) put("drafts accepted", `${stats.accepted} of ${stats.drafted}`);
  if (stats.answers > 1) put("for", `${stats.answers} answers`);
  return items;
}

function statsLine(stats) {
  const line = el("dl", { class: "stats" });
  for (const [name, value] of statsItems(stats))
    line.append(el("div", {}, el("dt", {}, name), el("dd", {}, value)));
  return line;
}

function icon(label, text, onclick, more = {}) {
  return el("button", { type: "button", class: "quiet", "aria-label": label, title: label, onclick,
                        ...more }, text);
}

export class MessageView {
  #markdown = null;
  #isFull = false;
  #raw = false;
  #state = "";

  constructor(node, actions) {
    this.node = node;
    this.actions = actions;
    this.body = el("div", { class: "body" });
    this.element = el("article", { class: `message ${node.role}`, "data-id": node.id,
                                   "aria-label": NAMES[node.role] }, this.body);
    this.body.textContent = node.content;
  }

  get isFull() {
    return this.#isFull;
  }

  fill() {
    if (this.#isFull) return;
    this.#isFull = true;
    const { node } = this;
    this.body.textContent = "";
    this.head = el("header", {}, el("h3", {}, NAMES[node.role]));
    this.thought = el("details", { class: "fold", hidden: true }, el("summary", {}, "Thinking"),
                      el("div", { class: "thought" }));
    this.calls = el("div", { class: "calls" });
    this.foot = el("footer");
    this.body.before(this.head, this.thought);
    this.body.after(this.calls, this.foot);
    this.update();
  }

  // Shows what has changed around the message: its branches, what follows it, whether it is written.
  refresh() {
    if (!this.#isFull) return;
    const { node, actions } = this, all = siblings(actions.chat, node.id);
    const state = [all.length, all.indexOf(node.id), node.children.length, actions.isLive(node),
                   node.finish, node.error].join();
    if (state === this.#state) return;
    this.#state = state;
    this.update();
  }

  // Shows what the node has: while it is written, only what has grown.
  update() {
    if (!this.#isFull) {
      this.body.textContent = this.node.content;
      return;
    }
    const { node } = this, isLive = this.actions.isLive(node);
    this.element.classList.toggle("live", isLive);
    this.element.setAttribute("aria-busy", isLive);
    if (node.reasoning) {
      this.thought.hidden = false;
      this.thought.firstChild.textContent =
        isLive && !node.content ? "Thinking…" : `Thinking (${node.reasoning.length} characters)`;
      this.thought.lastChild.textContent = node.reasoning;
    }
    if (this.#raw || node.role !== "assistant") {
      this.body.classList.add("plain");
      this.body.textContent = node.content;
      this.#markdown = null;
    } else {
      this.body.classList.remove("plain");
      if (!this.#markdown) {
        this.body.textContent = "";
        this.#markdown = new MarkdownView(this.body);
      }
      this.#markdown.set(node.content);
    }
    this.#updateCalls(isLive);
    if (isLive) {
      this.foot.replaceChildren();
    } else {
      this.#updateFoot();
    }
  }

  #updateCalls(isLive) {
    const calls = this.node.calls ?? [];
    this.calls.replaceChildren(...calls.map((call) => {
      let shown = call.arguments;
      try {
        shown = JSON.stringify(JSON.parse(call.arguments), null, 2);
      } catch {
        // Not complete yet.
      }
      return el("details", { class: "fold" }, el("summary", {}, `Calls ${call.name}`),
                el("pre", { tabindex: "0" }, shown));
    }));
    for (const file of this.node.files ?? []) {
      this.calls.append(el("details", { class: "fold" },
                           el("summary", {}, `${file.name} (${file.text.length} characters)`),
                           el("pre", { tabindex: "0" }, file.text)));
    }
    if (calls.length && !isLive && !this.node.children.length) {
      this.calls.append(...calls.map((call) => {
        const input = el("textarea", { rows: "2", "aria-label": `Result of ${call.name}` });
        return el("form", { class: "result", onsubmit: (event) => {
          event.preventDefault();
          this.actions.toolResult(this.node, call, input.value);
        } }, el("label", {}, `Result of ${call.name}`, input),
                  el("button", { type: "submit" }, "Send the result"));
      }));
    }
  }

  #updateFoot() {
    const { node, actions } = this, { chat } = actions;
    this.foot.replaceChildren();
    if (node.error) this.foot.append(el("p", { class: "bad", role: "alert" }, node.error));
    if (node.finish === "length") this.foot.append(el("p", { class: "hint" }, "Cut at the limit of tokens."));
    if (node.finish === "abort") this.foot.append(el("p", { class: "hint" }, "Stopped."));
    if (node.stats) this.foot.append(statsLine(node.stats));
    const bar = el("div", { class: "actions", role: "group", "aria-label": "This message" });
    const all = siblings(chat, node.id);
    if (all.length > 1) {
      const at = all.indexOf(node.id);
      bar.append(
        icon("Previous branch", "‹", () => actions.choose(all[at - 1]), { disabled: at === 0 }),
        el("span", { class: "branch" }, `${at + 1} of ${all.length}`),
        icon("Next branch", "›", () => actions.choose(all[at + 1]),
             { disabled: at === all.length - 1 }));
    }
    bar.append(icon("Copy", "Copy", () => copyText(node.content)));
    bar.append(icon("Edit", "Edit", () => this.edit()));
    if (node.role === "assistant") {
      bar.append(icon("Regenerate", "Regenerate", () => actions.regenerate(node)));
      if (node.finish !== "stop" && !node.children.length && node.content)
        bar.append(icon("Continue this answer", "Continue", () => actions.goOn(node)));
      bar.append(icon("Show the text as it came", "Raw", (event) => {
        this.#raw = !this.#raw;
        event.currentTarget.setAttribute("aria-pressed", this.#raw);
        this.update();
      }, { "aria-pressed": this.#raw }));
    } else if (!node.children.length) {
      bar.append(icon("Answer this message", "Answer", () => actions.answer(node)));
    }
    bar.append(icon("New chat from here", "Fork", () => actions.fork(node)),
               icon("Delete this branch", "Delete", () => actions.remove(node)));
    this.foot.append(bar);
  }

  edit() {
    const { node, actions } = this;
    const area = el("textarea", { class: "editor", "aria-label": "The message's text",
                                  value: node.content });
    area.rows = Math.min(20, node.content.split("\n").length + 1);
    const close = () => {
      form.remove();
      this.body.hidden = false;
      this.element.focus();
    };
    const form = el("form", { class: "edit", onsubmit: (event) => {
      event.preventDefault();
      close();
      actions.edit(node, area.value, node.role === "user");
    }, onkeydown: (event) => {
      if (event.key === "Escape") close();
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
      event.stopPropagation();
    } }, area, el("div", { class: "actions" },
      el("button", { type: "submit" }, node.role === "user" ? "Send as a branch" : "Save as a branch"),
      el("button", { type: "button", class: "quiet", onclick: close }, "Cancel")));
    this.body.hidden = true;
    this.body.after(form);
    area.focus();
  }
}

const AT_ONCE = 40;   // messages that are there when a chat opens
const AT_A_TIME = 100;  // of those before them, when the browser is idle

const whenIdle = window.requestIdleCallback ?? ((task) => setTimeout(task, 1));

// The messages of the shown branch. The last ones come first, and those near the window are filled.
export class MessageList {
  views = new Map();
  #observer;
  #before = [];  // messages that have no element yet
  #actions = null;

  constructor(scroller, content) {
    this.scroller = scroller;
    this.content = content;
    this.isPinned = true;
    this.#observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        this.#observer.unobserve(entry.target);
        this.views.get(entry.target.dataset.id)?.fill();
      }
    }, { root: scroller, rootMargin: "1200px 0px" });
    // A reader who scrolls up stays where they are, until they are at the end again. The browser
    // scrolls, too, where heights change, so only what a person does counts.
    const leave = () => {
      this.isPinned = false;
    };
    const atEnd = () => {
      if (scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 48)
        this.isPinned = true;
    };
    scroller.addEventListener("wheel", (event) => event.deltaY < 0 && leave(), { passive: true });
    scroller.addEventListener("touchmove", leave, { passive: true });
    scroller.addEventListener("pointerdown", (event) => event.target === scroller && leave());
    scroller.addEventListener("pointerup", atEnd);
    scroller.addEventListener("keydown", (event) =>
      ["ArrowUp", "PageUp", "Home"].includes(event.key) && leave());
    scroller.addEventListener("scroll", atEnd, { passive: true });
    new ResizeObserver(() => this.follow()).observe(content);
  }

  follow() {
    if (this.isPinned) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  #make(node, old) {
    if (old?.node === node) return old;
    const view = new MessageView(node, this.#actions);
    this.#observer.observe(view.element);
    return view;
  }

  show(path, actions, toEnd = true) {
    const old = this.views;
    this.#actions = actions;
    let start = Math.max(0, path.length - AT_ONCE);
    while (start > 0 && old.has(path[start - 1].id)) start--;
    this.#before = path.slice(0, start);
    this.views = new Map(path.slice(start).map((node) => [node.id, this.#make(node, old.get(node.id))]));
    const views = [...this.views.values()];
    for (const [id, view] of old)
      if (this.views.get(id) !== view) this.#observer.unobserve(view.element);
    // What stays in its place is not touched.
    const { children } = this.content;
    let same = 0;
    while (same < views.length && children[same] === views[same].element) same++;
    while (children.length > same) this.content.lastElementChild.remove();
    this.content.append(...views.slice(same).map((view) => view.element));
    if (toEnd) for (const view of views.slice(-4)) view.fill();
    for (const view of views) view.refresh();
    if (toEnd) {
      this.isPinned = true;
      this.follow();
    }
    if (this.#before.length) this.#fillBefore(this.#before);
  }

  // The browser keeps what is seen in its place while messages come above it.
  #fillBefore(nodes) {
    whenIdle(() => {
      if (nodes !== this.#before) return;  // another branch is shown
      const views = nodes.splice(-AT_A_TIME).map((node) => this.#make(node));
      this.views = new Map([...views.map((view) => [view.node.id, view]), ...this.views]);
      this.content.prepend(...views.map((view) => view.element));
      this.follow();
      if (nodes.length) this.#fillBefore(nodes);
    });
  }
}
