// The monitor: what /metrics and /server_info say, read once a second while it is shown.
import { byId, el } from "./dom.js";
import { buckets, parseMetrics, quantile, sum } from "./metrics.js";
import { getJson, getText } from "./stream.js";

const EVERY_MS = 1000;
const POINTS = 300;
const GAPS = "sglang:inter_token_latency_seconds";
const FIRST = "vllm:time_to_first_token_seconds";

const whole = (v) => v === null ? "–" : Math.round(v).toLocaleString("en");
const tenths = (v) => v === null ? "–" : v.toFixed(1);
const percent = (v) => v === null ? "–" : `${(100 * v).toFixed(1)} %`;
const time = (s) => s === null ? "–" : s < 1 ? `${(1000 * s).toFixed(s < 0.01 ? 2 : 0)} ms`
  : `${s.toFixed(2)} s`;
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${n.toFixed(n < 10 && i ? 2 : n < 100 && i ? 1 : 0)} ${units[i]}`;
}

const CARDS = [
  { id: "running", name: "Running", show: whole, value: (n) => sum(n, "vllm:num_requests_running") },
  { id: "waiting", name: "Waiting", show: whole, value: (n) => sum(n, "vllm:num_requests_waiting") },
  { id: "generated", name: "Generated tokens/s", show: tenths,
    value: (n, o, s) => rate(n, o, s, "vllm:generation_tokens_total") },
  { id: "prompts", name: "Prompt tokens/s", show: tenths,
    value: (n, o, s) => rate(n, o, s, "vllm:prompt_tokens_total") },
  { id: "step", name: "Time of a step", show: time,
    value: (n, o) => share(n, o, "sluice:step_seconds_total", "sluice:steps_total") },
  { id: "kv", name: "KV memory in use", show: percent,
    value: (n) => sum(n, "vllm:kv_cache_usage_perc") },
  { id: "hits", name: "Prefix found", show: percent, value: (n) =>
    ratio(sum(n, "vllm:prefix_cache_hits_total"), sum(n, "vllm:prefix_cache_queries_total")) },
  { id: "drafts", name: "Drafts accepted", show: percent, value: (n) =>
    ratio(sum(n, "vllm:spec_decode_num_accepted_tokens_total"),
          sum(n, "vllm:spec_decode_num_draft_tokens_total")) },
];

const ratio = (part, all) => all ? part / all : null;

function rate(now, old, seconds, name) {
  const a = sum(now, name), b = old && sum(old, name);
  return a === null || b === null || !old || seconds <= 0 ? null : Math.max(0, a - b) / seconds;
}

// The mean over what was added since the last reading.
function share(now, old, part, all) {
  if (!old) return ratio(sum(now, part), sum(now, all));
  return ratio(sum(now, part) - sum(old, part), sum(now, all) - sum(old, all));
}

function spark(values) {
  const known = values.filter((v) => v !== null);
  const top = Math.max(...known, 1e-9);
  let path = "", pen = "M";
  values.forEach((v, i) => {
    if (v === null) {
      pen = "M";
      return;
    }
    path += `${pen}${(i * 100 / (POINTS - 1)).toFixed(2)} ${(29 - 28 * v / top).toFixed(2)}`;
    pen = "L";
  });
  return path;
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function row(...cells) {
  return el("tr", {}, el("th", { scope: "row" }, cells[0]),
            ...cells.slice(1).map((c) => el("td", {}, c)));
}

export class Monitor {
  #timer = 0;
  #old = null;
  #oldTime = 0;
  #first = null;
  #history = new Map(CARDS.map((card) => [card.id, []]));
  #parts = new Map();

  constructor(app) {
    this.app = app;
    const cards = byId("cards");
    for (const card of CARDS) {
      const path = svg("path", { class: "spark" });
      const value = el("p", { class: "figure" }, "–");
      cards.append(el("section", { class: "card", id: `card-${card.id}` },
                      el("h3", {}, card.name), value,
                      svg("svg", { viewBox: "0 0 100 30", preserveAspectRatio: "none",
                                   "aria-hidden": "true" }, path)));
      this.#parts.set(card.id, { path, value });
    }
  }

  start() {
    if (this.#timer) return;
    this.#timer = setInterval(() => this.#read(), EVERY_MS);
    this.#read();
    this.#readServer();
  }

  stop() {
    clearInterval(this.#timer);
    this.#timer = 0;
    this.#old = null;
  }

  async #read() {
    if (document.hidden) return;
    let text;
    try {
      text = await getText("metrics");
    } catch (error) {
      byId("monitor-error").textContent = error.message;
      if (error.status === 401) {
        this.stop();
        this.app.askKey();
      }
      return;
    }
    byId("monitor-error").textContent = "";
    const now = parseMetrics(text), at = performance.now();
    const seconds = (at - this.#oldTime) / 1000;
    this.#first ??= now;
    for (const card of CARDS) {
      const value = card.value(now, this.#old, seconds);
      const history = this.#history.get(card.id), { path, value: shown } = this.#parts.get(card.id);
      history.push(value);
      if (history.length > POINTS) history.shift();
      shown.textContent = card.show(value);
      path.setAttribute("d", spark(history));
    }
    this.#old = now;
    this.#oldTime = at;
    this.#showPages(now);
    this.#showGaps(now);
    this.#showAnswers(now);
  }

  #showPages(now) {
    const groups = new Map();
    for (const { labels, value } of now.get("sluice:kv_pages") ?? []) {
      if (!groups.has(labels.group)) groups.set(labels.group, {});
      groups.get(labels.group)[labels.state] = value;
    }
    byId("pages").replaceChildren(...[...groups].map(([name, g]) => {
      const all = g.used + g.cached + g.free || 1;
      const bar = el("div", { class: "bar", "aria-hidden": "true" });
      for (const state of ["used", "cached", "free"]) {
        const part = el("span", { class: `part ${state}` });
        part.style.width = `${100 * g[state] / all}%`;
        bar.append(part);
      }
      return el("div", { class: "pages-row" }, el("h4", {}, name), bar,
                el("p", {}, `${whole(g.used)} used, ${whole(g.cached)} cached, ` +
                            `${whole(g.free)} free pages`));
    }));
  }

  #showGaps(now) {
    const isRecent = byId("gaps-recent").checked;
    const rows = buckets(now, GAPS, isRecent ? this.#first : null);
    const most = Math.max(1, ...rows.map((r) => r.count));
    const total = rows.reduce((n, r) => n + r.count, 0);
    const chart = svg("svg", { viewBox: `0 0 ${rows.length * 10 || 10} 60`, role: "img",
                               preserveAspectRatio: "none",
                               "aria-label": `Times between tokens: ${whole(total)} observed` });
    rows.forEach(({ below, count }, i) => {
      const height = 58 * count / most;
      const bar = svg("rect", { class: "column", x: i * 10 + 1, width: 8, y: 60 - height, height });
      bar.append(svg("title", {}, `below ${time(below)}: ${whole(count)}`));
      chart.append(bar);
    });
    byId("gaps").replaceChildren(chart);
    const q = (p) => time(quantile(p, rows));
    const first = buckets(now, FIRST, isRecent ? this.#first : null);
    const f = (p) => time(quantile(p, first));
    byId("gaps-text").replaceChildren(
      row("Between tokens", q(0.5), q(0.9), q(0.99)), row("First token", f(0.5), f(0.9), f(0.99)));
  }

  #showAnswers(now) {
    const counts = new Map();
    for (const { labels, value } of now.get("vllm:request_success_total") ?? [])
      if (value) counts.set(labels.finished_reason, value);
    const http = new Map();
    for (const { labels, value } of now.get("http_requests_total") ?? [])
      http.set(labels.status, (http.get(labels.status) ?? 0) + value);
    byId("answers").replaceChildren(
      ...[...counts].map(([reason, n]) => row(`Ended: ${reason}`, whole(n))),
      ...[...http].sort().map(([status, n]) => row(`HTTP ${status}`, whole(n))),
      row("Sent back to the queue", whole(sum(now, "vllm:num_preemptions_total"))),
      row("Pages evicted", whole(sum(now, "sluice:evicted_pages_total"))));
  }

  async #readServer() {
    let info;
    try {
      info = await getJson("server_info");
    } catch {
      return;  // the reading of the metrics says it
    }
    const steps = info.startup ?? [];
    const longest = Math.max(1, ...steps.map((s) => s.milliseconds));
    byId("ledger").replaceChildren(...steps.map((s) => {
      const part = el("span", { class: "part used" });
      part.style.width = `${100 * s.milliseconds / longest}%`;
      return row(s.step, time(s.milliseconds / 1000), s.detail,
                 el("div", { class: "bar thin", "aria-hidden": "true" }, part));
    }));
    const plan = info.memory_plan ?? {};
    byId("plan").replaceChildren(
      row("Weights", bytes(plan.weight_bytes ?? 0)),
      row("KV cache", `${bytes(plan.kv_bytes ?? 0)}, ${whole(plan.max_total_tokens ?? 0)} tokens`),
      row("Activations", bytes(plan.activation_bytes ?? 0)),
      row("Buffers", bytes(plan.buffer_bytes ?? 0)),
      ...(plan.state_bytes ? [row("States", bytes(plan.state_bytes))] : []),
      row("Was free", bytes(plan.available_bytes ?? 0)));
    byId("about").replaceChildren(
      row("Model", info.served_model_name), row("Version", info.version),
      row("Type of computation", info.dtype),
      row("Context", `${whole(info.context_length)} tokens`));
  }
}
