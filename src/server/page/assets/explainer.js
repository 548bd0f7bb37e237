// The cache explainer: what the prefix cache has of a prompt, and where the prompt leaves what the
// cache has.
import { byId, el } from "./dom.js";
import { requestFields } from "./settings.js";
import { postJson } from "./stream.js";
import { pathTo, toMessages } from "./tree.js";

// Longer texts are shown by their two ends.
const MOST_SHOWN = 4000;
const NAMES = {
  cached: "from the cache",
  unusable: "known, computed again",
  new: "computed",
};

function shortened(text) {
  if (text.length <= MOST_SHOWN) return text;
  const half = MOST_SHOWN / 2;
  return `${text.slice(0, half)}\n… ${text.length - MOST_SHOWN} characters …\n${text.slice(-half)}`;
}

function ago(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`;
}

// Whose tokens these are.
function origin(request, isTold) {
  if (request) return `${request.route}, request ${request.id}, ${ago(request.age_s)}`;
  return isTold ? "a request that the server does not remember" : "";
}

const tokens = (n) => `${n.toLocaleString("en")} token${n === 1 ? "" : "s"}`;

// The sentences above the parts.
function summary(answer) {
  const { num_tokens: all, cached_tokens: cached, common_tokens: common, divergence } = answer;
  const lines = [`${tokens(cached)} of ${all.toLocaleString("en")} would come from the cache.`];
  if (common === all && cached === all - 1)
    lines.push("The cache has the whole prompt. Its last token is computed for its logits.");
  else if (common > cached)
    lines.push(`The cache knows ${tokens(common - cached)} more, but a page or a state that the ` +
               "next token reads is gone.");
  if (divergence)
    lines.push(divergence.token === 0 ? "The prompt differs from the cache at its first token."
      : `The prompt leaves the cache behind token ${divergence.token.toLocaleString("en")}.`);
  else if (common < all)
    lines.push(common === 0 ? "The cache has nothing here."
      : `What the cache has ends behind token ${common.toLocaleString("en")}.`);
  return lines;
}

export class Explainer {
  // currentChat(): the open chat, or null
  constructor(app, currentChat) {
    this.app = app;
    this.currentChat = currentChat;
    byId("explain-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#explain();
    });
  }

  #request() {
    const text = byId("explain-prompt").value, salt = byId("explain-salt").value;
    const kind = byId("explain-kind").value;
    const request = { model: this.app.model };
    const chat = this.currentChat();
    if (kind === "text") {
      request.prompt = text;
    } else {
      const path = kind === "chat" && chat ? pathTo(chat) : [];
      if (text || !path.length) path.push({ role: "user", content: text });
      const settings = kind === "chat" && chat ? chat.settings : {};
      const fields = requestFields(settings);
      for (const name of ["tools", "tool_choice", "chat_template_kwargs", "reasoning_effort",
                          "documents", "cache_salt"])
        if (name in fields) request[name] = fields[name];
      request.messages = toMessages(path, settings.system);
    }
    if (salt) request.cache_salt = salt;
    return request;
  }

  async #explain() {
    const result = byId("explain-result");
    try {
      this.#show(result, await postJson("page/cache", this.#request()));
    } catch (error) {
      result.replaceChildren(el("p", { class: "bad", role: "alert" }, error.message));
      if (error.status === 401) this.app.askKey();
    }
  }

  #show(result, answer) {
    const isTold = answer.tells_origins;
    const bar = el("div", { class: "bar", "aria-hidden": "true" });
    for (const part of answer.parts) {
      const span = el("span", { class: `part ${part.state}` });
      span.style.width = `${100 * part.tokens / answer.num_tokens}%`;
      bar.append(span);
    }
    const rows = answer.parts.map((part) =>
      el("tr", {}, el("th", { scope: "row" }, el("span", { class: `mark ${part.state}` }),
                      NAMES[part.state]),
         el("td", { class: "right" }, part.tokens.toLocaleString("en")),
         el("td", {}, part.state === "new" ? "" : origin(part.request, isTold))));
    const head = el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Part"),
                                    el("th", { scope: "col", class: "right" }, "Tokens"),
                                    el("th", { scope: "col" }, "Left there by")));
    const text = el("pre", { class: "prompt", tabindex: "0", "aria-label": "The prompt by parts" },
                    ...answer.parts.map((part) =>
                      el("span", { class: part.state, title: NAMES[part.state] },
                         shortened(part.text))));
    result.replaceChildren(...summary(answer).map((line) => el("p", {}, line)), bar,
                           el("table", {}, head, el("tbody", {}, ...rows)),
                           ...this.#divergence(answer.divergence, isTold), text);
  }

  #divergence(divergence, isTold) {
    if (!divergence) return [];
    const pair = (name, text) =>
      [el("dt", {}, name), el("dd", {}, el("code", {}, text))];
    if (!isTold)
      return [el("p", { class: "hint" }, "What the cache has there is told with a key, or to " +
                                         "those who may administrate the server.")];
    const from = origin(divergence.request, isTold);
    return [el("dl", { class: "differs" }, ...pair("The prompt goes on with", divergence.prompt_text),
               ...pair("the cache with", divergence.cached_text),
               el("dt", {}, "of"), el("dd", {}, from))];
  }
}
