#include "text/jinja/values/error.h"

namespace sluice::jinja {

void raise_type_error(const std::string& message) {
  raise_python("TypeError", message);
}
void raise_value_error(const std::string& message) {
  raise_python("ValueError", message);
}
void raise_undefined(const std::string& message) {
  throw TemplateError(ErrorKind::kTemplate, "UndefinedError", message);
}
void raise_security(const std::string& message) {
  throw TemplateError(ErrorKind::kTemplate, "SecurityError", message);
}
void raise_runtime(const std::string& message) {
  throw TemplateError(ErrorKind::kTemplate, "TemplateRuntimeError", message);
}
void raise_syntax(const std::string& message, int line) {
  TemplateError error(ErrorKind::kTemplate, "TemplateSyntaxError", message);
  error.set_line(line);
  throw error;
}
void raise_assertion(const std::string& message, int line) {
  TemplateError error(ErrorKind::kTemplate, "TemplateAssertionError", message);
  error.set_line(line);
  throw error;
}
void raise_python(std::string_view type, const std::string& message) {
  throw TemplateError(ErrorKind::kPython, std::string(type), message);
}
void raise_recursion() {
  raise_python("RecursionError", "maximum recursion depth exceeded");
}

}  // namespace sluice::jinja
