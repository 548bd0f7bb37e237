// Renders the templates of cases on standard input; tests/differential/*.py compare the results.
//
// A case is one line of JSON:
//   {"template": TEXT, "variables": JSON as text}             the language alone
//   {"template": TEXT, "request": JSON as text, "chat": true} as a chat: messages, tools, ...
// and optionally "now": "YYYY-MM-DDTHH:MM:SS". A result is one line: {"text": ...}, or {"error":
// {kind, type, message, line}}. Variables and requests are parsed as a request's body is.
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>

#include "base/json.h"
#include "text/chat/chat_render.h"
#include "text/jinja/template.h"

namespace sluice {
namespace {

const char* kind_name(jinja::ErrorKind kind) {
  switch (kind) {
    case jinja::ErrorKind::kRaised:
      return "raise_exception";
    case jinja::ErrorKind::kTemplate:
      return "template";
    case jinja::ErrorKind::kPython:
      return "python";
    case jinja::ErrorKind::kArguments:
      return "arguments";
    case jinja::ErrorKind::kFuel:
      return "fuel";
  }
  return "";
}

Json take(Json& map, const char* key, Json otherwise) {
  const auto at = map.find(key);
  if (at == map.end()) return otherwise;
  Json value = std::move(*at);
  map.erase(at);
  return value;
}

jinja::Clock clock_of(const Json& item) {
  jinja::Clock clock;
  const std::string now = item.value("now", std::string("2026-02-03T14:05:06"));
  require(std::sscanf(now.c_str(), "%d-%d-%dT%d:%d:%d", &clock.year, &clock.month, &clock.day,
                      &clock.hour, &clock.minute, &clock.second) == 6,
          "'now' is '{}', which is no YYYY-MM-DDTHH:MM:SS", now);
  return clock;
}

jinja::Rendered render(const Json& item) {
  const auto source = jinja::Template::compile(item.at("template").get<std::string>());
  if (!item.value("chat", false)) {
    const std::string text = item.value("variables", std::string("{}"));
    return source.render(parse_json_or_throw(text, "variables", kRequestJson), {}, clock_of(item));
  }
  Json request =
      parse_json_or_throw(item.at("request").get<std::string>(), "request", kRequestJson);
  ChatRenderInput input;
  input.messages = take(request, "messages", Json::array());
  input.tools = take(request, "tools", nullptr);
  input.documents = take(request, "documents", nullptr);
  input.add_generation_prompt = take(request, "add_generation_prompt", false).get<bool>();
  input.continue_final_message = take(request, "continue_final_message", false).get<bool>();
  input.variables = std::move(request);
  input.now = clock_of(item);
  return render_chat_template(source, std::move(input));
}

Json result_of(const Json& item) {
  try {
    const jinja::Rendered rendered = render(item);
    Json out{{"text", rendered.text}};
    if (rendered.generation_spans.empty()) return out;
    for (const auto& [begin, end] : rendered.generation_spans)
      out["spans"].push_back(Json::array({begin, end}));
    return out;
  } catch (const jinja::TemplateError& error) {
    return {{"error",
             {{"kind", kind_name(error.kind())},
              {"type", error.type()},
              {"message", error.what()},
              {"line", error.line()}}}};
  } catch (const Error& error) {
    return {{"error", {{"kind", "input"}, {"type", "Error"}, {"message", error.what()}}}};
  }
}

}  // namespace
}  // namespace sluice

int main() {
  try {
    for (std::string line; std::getline(std::cin, line);) {
      const sluice::Json item = sluice::parse_json_or_throw(line, "case");
      std::cout << sluice::dump_json(sluice::result_of(item)) << '\n';
    }
  } catch (const std::exception& error) {
    std::cerr << "render_templates: " << error.what() << '\n';
    return 2;
  }
  return 0;
}
