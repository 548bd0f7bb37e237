// text/jinja: an untrusted chat template, rendered with a conversation. Time and memory stay
// bounded (R16).
#include "base/json.h"
#include "fuzz_support.h"
#include "fuzz_target.h"
#include "text/jinja/template.h"

namespace sluice::fuzz {
namespace {

const Json& variables() {
  static const Json json = parse_json_or_throw(R"({
    "messages": [
      {"role": "system", "content": "Be brief."},
      {"role": "user", "content": [{"type": "text", "text": "What's 2 + 2?"}]},
      {"role": "assistant", "content": "<think>sum</think>", "reasoning_content": "sum",
      "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": {"a": 2,
        "b": [2.5, null, true]}}}]},
      {"role": "tool", "tool_call_id": "call_1", "name": "add", "content": "4"},
      {"role": "user", "content": "Thanks \u00e9\ud83d\ude00"}],
    "tools": [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters":
      {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}],
    "documents": [{"title": "T", "text": "D"}], "add_generation_prompt": true,
    "enable_thinking": false,
    "bos_token": "<s>", "eos_token": "</s>", "n": 3, "x": "text", "items": [3, 1, 2], "d": {"k":
    "v", "a": 1}})",
                                               "variables");
  return json;
}

}  // namespace

void run_one(std::string_view input) {
  try {
    const jinja::Template compiled = jinja::Template::compile(input);
    const jinja::Limits limits{.fuel = 100'000, .max_output_bytes = 1 << 20};
    const jinja::Rendered rendered = compiled.render(variables(), limits);
    must_hold(rendered.text.size() <= limits.max_output_bytes, "the output stays below its limit");
    must_hold(rendered.fuel_used <= limits.fuel, "the fuel is a limit");
    must_hold(compiled.render(variables(), limits).text == rendered.text, "a render has no memory");
  } catch (const jinja::TemplateError& error) {
    must_hold(!error.type().empty(), "an error has a name");
  }
}

std::vector<std::string> seeds() {
  std::vector<std::string> texts = golden_texts("chat_templates", "chat_template.jinja", 32 << 10);
  const Json snippets =
      parse_json_or_throw(golden_text("chat_templates/snippets.json"), "snippets.json");
  for (const Json& snippet : snippets.at("snippets"))
    texts.push_back(snippet.at("template").get<std::string>());
  return texts;
}

}  // namespace sluice::fuzz
