// The server's routes: a streamed chat, models, metrics, and what the server is.

// Where the API is: beside the page, also behind a proxy that adds a path.
const BASE = new URL(".", document.baseURI);
let key = localStorage.getItem("sluice.key") ?? sessionStorage.getItem("sluice.key") ?? "";

export function setKey(value, keep) {
  key = value.trim();
  localStorage.removeItem("sluice.key");
  sessionStorage.removeItem("sluice.key");
  if (key) (keep ? localStorage : sessionStorage).setItem("sluice.key", key);
}

export function hasKey() {
  return key !== "";
}

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function headers(more = {}) {
  return key ? { Authorization: `Bearer ${key}`, ...more } : more;
}

async function refusal(response) {
  let message = `The server answered ${response.status}.`;
  try {
    message = (await response.json()).error.message || message;
  } catch {
    // No error of the API: a proxy's page perhaps.
  }
  return new ApiError(response.status, message);
}

async function get(path, signal) {
  const response = await fetch(new URL(path, BASE), { headers: headers(), signal });
  if (!response.ok) throw await refusal(response);
  return response;
}

export const getJson = async (path) => (await get(path)).json();
export async function postJson(path, value) {
  const response = await fetch(new URL(path, BASE), {
    method: "POST", headers: headers({ "Content-Type": "application/json" }),
    body: JSON.stringify(value) });
  if (!response.ok) throw await refusal(response);
  return response.json();
}
// `value` becomes the body; without one there is none.
export async function send(method, path, value) {
  const body = value === undefined ? undefined : JSON.stringify(value);
  const type = body === undefined ? {} : { "Content-Type": "application/json" };
  const response = await fetch(new URL(path, BASE), { method, headers: headers(type), body });
  if (!response.ok) throw await refusal(response);
}
export const getText = async (path) => (await get(path)).text();

// The values of the `data:` lines of an event stream.
async function* eventData(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines)
      if (line.startsWith("data:")) yield line.slice(5).trim();
  }
}

// Runs a chat. onChunk(choice) gets each choice of each chunk; returns {usage, stats}, where stats
// has the times that this page saw.
export async function streamChat(request, { signal, onChunk }) {
  const sent = performance.now();
  const response = await fetch(new URL("v1/chat/completions", BASE), {
    method: "POST", signal, headers: headers({ "Content-Type": "application/json" }),
    body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }) });
  if (!response.ok) throw await refusal(response);
  let usage = null, first = 0, last = 0;
  for await (const data of eventData(response.body)) {
    if (data === "[DONE]") break;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(chunk.error.code ?? 500, chunk.error.message);
    if (chunk.usage) usage = chunk.usage;
    for (const choice of chunk.choices) {
      const { content, reasoning_content: thought, reasoning, tool_calls: calls } = choice.delta;
      if (content || thought || reasoning || calls) {
        last = performance.now();
        first ||= last;
      }
      onChunk(choice, chunk);
    }
  }
  return { usage, times: { first: first ? first - sent : 0, writing: last - first,
                           total: performance.now() - sent } };
}

// What a message shows of its request: milliseconds, and counts of tokens.
export function statsOf({ usage, times }, choices = 1) {
  const stats = { first_ms: times.first, total_ms: times.total };
  if (!usage) return stats;
  stats.prompt = usage.prompt_tokens;
  stats.tokens = usage.completion_tokens;
  stats.cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  if (usage.queue_time !== undefined) stats.queue_ms = 1000 * usage.queue_time;
  if (times.writing > 0 && usage.completion_tokens > choices)
    stats.rate = 1000 * (usage.completion_tokens - choices) / times.writing;
  const details = usage.completion_tokens_details ?? {};
  if (details.accepted_prediction_tokens !== undefined) {
    stats.accepted = details.accepted_prediction_tokens;
    stats.drafted = stats.accepted + details.rejected_prediction_tokens;
  }
  if (details.reasoning_tokens) stats.thought = details.reasoning_tokens;
  return stats;
}
