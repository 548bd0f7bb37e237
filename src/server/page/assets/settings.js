// The settings of a chat, as a form and as fields of a request.
import { el } from "./dom.js";

const number = (name, label, min, max, step, hint) =>
  ({ name, label, kind: "number", min, max, step, hint });
export const FIELDS = [
  { name: "system", label: "System prompt", kind: "area" },
  number("temperature", "Temperature", 0, 100, "any", "0 takes the likeliest token"),
  number("top_p", "Top p", 0, 1, "any"),
  number("top_k", "Top k", -1, 1000000, 1, "-1: all"),
  number("min_p", "Min p", 0, 1, "any"),
  number("frequency_penalty", "Frequency penalty", -2, 2, "any"),
  number("presence_penalty", "Presence penalty", -2, 2, "any"),
  number("repetition_penalty", "Repetition penalty", 0, 2, "any"),
  number("max_completion_tokens", "Most tokens of an answer", 1, 16777216, 1),
  number("seed", "Seed", 0, 9007199254740991, 1),
  number("n", "Answers at once", 1, 16, 1),
  { name: "stop", label: "Stop strings, one a line", kind: "area" },
  { name: "thinking", label: "Thinking", kind: "choice",
    options: [["", "as the model does"], ["on", "on"], ["off", "off"]] },
  { name: "tools", label: "Tools, as a JSON list", kind: "area", hint: "you answer their calls" },
  { name: "extra", label: "More fields of the request, as a JSON object", kind: "area" },
];

function readJson(text, label, isRight) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error(`${label}: this is not JSON`);
  }
  if (!isRight(value)) throw new Error(`${label}: this is JSON of another kind`);
  return value;
}

// Throws an Error that names the setting.
export function requestFields(settings) {
  const out = {};
  for (const field of FIELDS) {
    const value = settings[field.name];
    if (field.kind === "number" && value !== undefined && value !== "")
      out[field.name] = Number(value);
  }
  const stop = (settings.stop ?? "").split("\n").filter((line) => line !== "");
  if (stop.length) out.stop = stop;
  if (settings.thinking) out.chat_template_kwargs = { enable_thinking: settings.thinking === "on" };
  if (settings.tools?.trim()) out.tools = readJson(settings.tools, "Tools", Array.isArray);
  if (settings.extra?.trim()) {
    Object.assign(out, readJson(settings.extra, "More fields", (v) =>
      v && typeof v === "object" && !Array.isArray(v)));
  }
  return out;
}

// Fills `form` with the fields; onChange(name, text) follows what is typed.
export function settingsForm(settings, onChange) {
  return FIELDS.map((field) => {
    const attributes = { id: `set-${field.name}`, name: field.name,
                         oninput: (event) => onChange(field.name, event.target.value) };
    let input;
    if (field.kind === "area") {
      input = el("textarea", { ...attributes, rows: field.name === "system" ? "5" : "3",
                               spellcheck: field.name === "system" ? null : "false" });
    } else if (field.kind === "choice") {
      input = el("select", attributes,
                 ...field.options.map(([value, text]) => el("option", { value }, text)));
    } else {
      input = el("input", { ...attributes, type: "number", min: field.min, max: field.max,
                            step: field.step, placeholder: "the model's" });
    }
    input.value = settings[field.name] ?? "";
    return el("div", { class: "field" }, el("label", { for: attributes.id }, field.label), input,
              field.hint ? el("small", {}, field.hint) : null);
  });
}
