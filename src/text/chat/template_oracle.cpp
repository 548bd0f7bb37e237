#include "text/chat/template_oracle.h"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>

#include "text/chat/chat_render.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxMessages = 20;

jinja::Clock clock_of(const Json& file) {
  jinja::Clock clock;
  const std::string now = file.value("now", std::string());
  require(std::sscanf(now.c_str(), "%d-%d-%dT%d:%d:%d", &clock.year, &clock.month, &clock.day,
                      &clock.hour, &clock.minute, &clock.second) == 6,
          "template oracle: 'now' is '{}', which is no YYYY-MM-DDTHH:MM:SS", now);
  return clock;
}

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

// The result of a render: a text, or an error.
struct Outcome {
  std::string text;
  std::vector<std::pair<std::size_t, std::size_t>> spans;
  std::string kind, type, message;  // for an error; empty otherwise
};

template <class F>
Outcome outcome_of(F&& render) {
  Outcome out;
  try {
    jinja::Rendered rendered = render();
    out.text = std::move(rendered.text);
    out.spans = std::move(rendered.generation_spans);
  } catch (const jinja::TemplateError& error) {
    out.kind = kind_name(error.kind());
    out.type = error.type();
    out.message = error.what();
  }
  return out;
}

void record(OracleReport& report, const std::string& name, const std::string& difference) {
  ++report.cases;
  if (difference.empty()) return;
  ++report.failures;
  if (report.messages.size() < kMaxMessages) report.messages.push_back(name + ": " + difference);
}

std::string text_difference(const std::string& got, const std::string& wanted) {
  if (got == wanted) return {};
  std::size_t at = 0;
  while (at < got.size() && at < wanted.size() && got[at] == wanted[at]) ++at;
  const std::size_t from = at < 20 ? 0 : at - 20;
  return fmt::format("differs at byte {}: got {} wanted {}", at, dump_json(got.substr(from, 80)),
                     dump_json(wanted.substr(from, 80)));
}

std::string case_difference(const Outcome& got, const Json& wanted) {
  if (!wanted.contains("error")) {
    if (!got.kind.empty()) return fmt::format("failed with {}: {}", got.type, got.message);
    const std::string difference =
        text_difference(got.text, wanted.at("expected").get<std::string>());
    if (!difference.empty() || !wanted.contains("generation_spans")) return difference;
    Json spans = Json::array();
    for (const auto& [begin, end] : got.spans) spans.push_back(Json::array({begin, end}));
    return spans == wanted["generation_spans"]
               ? ""
               : fmt::format("generation spans {} wanted {}", spans.dump(),
                             wanted["generation_spans"].dump());
  }
  const Json& error = wanted["error"];
  const std::string kind = error.value("kind", std::string()),
                    type = error.value("type", std::string());
  if (got.kind.empty()) return fmt::format("rendered, but {} was wanted", type);
  if (!kind.empty() && kind != got.kind)
    return fmt::format("failed as {} ({}), wanted {}", got.kind, got.message, kind);
  const bool raised = kind == "raise_exception" || type == "TemplateError";
  if (raised && error.value("message", std::string()) != got.message)
    return fmt::format("raised '{}', wanted '{}'", got.message,
                       error.value("message", std::string()));
  return got.type == type
             ? ""
             : fmt::format("failed with {} ({}), wanted {}", got.type, got.message, type);
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "template oracle: cannot read {}", path);
  return {std::istreambuf_iterator<char>(file), {}};
}

Json take(Json& map, const char* key, Json otherwise) {
  const auto at = map.find(key);
  if (at == map.end()) return otherwise;
  Json value = std::move(*at);
  map.erase(at);
  return value;
}

}  // namespace

OracleReport check_chat_template_oracle(const std::string& directory, const Json& file) {
  require(file.is_object() && file.contains("cases") && file.contains("special_tokens"),
          "template oracle: expected an object with 'cases' and 'special_tokens'");
  const jinja::Clock now = clock_of(file);
  std::map<std::string, std::string> sources;
  if (file.contains("templates")) {
    for (const auto& [name, path] : file["templates"].items())
      sources[name] = read_text(directory + "/" + path.get<std::string>());
  } else {
    sources["default"] = read_text(directory + "/chat_template.jinja");
  }
  OracleReport report;
  for (const Json& item : file["cases"]) {
    const std::string name = item.value("name", std::string()),
                      which = item.value("template", std::string("default"));
    require(sources.count(which) == 1, "template oracle: case '{}' wants the unknown template '{}'",
            name, which);
    const Outcome got = outcome_of([&] {
      ChatRenderInput input;
      input.messages = item.at("messages");
      Json arguments = item.at("arguments");
      input.tools = take(arguments, "tools", nullptr);
      input.documents = take(arguments, "documents", nullptr);
      input.add_generation_prompt = take(arguments, "add_generation_prompt", false).get<bool>();
      input.continue_final_message = take(arguments, "continue_final_message", false).get<bool>();
      input.variables = file["special_tokens"];
      for (const auto& [key, value] : arguments.items()) input.variables[key] = value;
      input.now = now;
      return render_chat_template(jinja::Template::compile(sources[which]), std::move(input));
    });
    record(report, which == "default" ? name : which + "/" + name, case_difference(got, item));
  }
  return report;
}

OracleReport check_snippets(const Json& file) {
  require(file.is_object() && file.contains("snippets") && file.contains("context"),
          "template oracle: expected an object with 'context' and 'snippets'");
  const jinja::Clock now = clock_of(file);
  OracleReport report;
  for (const Json& item : file["snippets"]) {
    const std::string source = item.at("template").get<std::string>();
    const Outcome got = outcome_of(
        [&] { return jinja::Template::compile(source).render(file["context"], {}, now); });
    record(report, source.substr(0, 60), case_difference(got, item));
  }
  return report;
}

}  // namespace sluice
