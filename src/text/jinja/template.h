// A chat template: compiled once, rendered by any number of threads.
//
//   const jinja::Template t = jinja::Template::compile(source);
//   jinja::Rendered r = t.render({{"messages", messages}, {"tools", nullptr}});
//
// The language is that of jinja2 3.1 in the environment that `transformers` makes for chat
// templates (utils/chat_template_utils.py): trim_blocks, lstrip_blocks, loop controls, generation
// blocks, an immutable sandbox. Values are plain data; nothing of the host is reachable. Every
// render has a budget (R16). Errors: TemplateError (text/jinja/values/error.h) with Python's class
// name, message and line.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/values/budget.h"
#include "text/jinja/values/error.h"

namespace sluice::jinja {

struct Rendered {
  std::string text;
  // Code point ranges of the generation blocks.
  std::vector<std::pair<std::size_t, std::size_t>> generation_spans;
  std::int64_t fuel_used = 0;
};

class Template {
 public:
  // At most 1 MiB of source.
  static Template compile(std::string_view source);

  // `variables` is a map; its values keep their order of keys. A variable hides a function of the
  // same name.
  Rendered render(const Json& variables, const Limits& limits = {}, const Clock& clock = {}) const;

  const std::string& source() const { return source_; }

 private:
  std::string source_;
  std::shared_ptr<const Program> program_;
};

Value from_json(const Json& json);

}  // namespace sluice::jinja
