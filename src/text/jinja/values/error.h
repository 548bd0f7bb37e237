// The errors of a template, under the names of Python and Jinja.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace sluice::jinja {

enum class ErrorKind {
  kRaised,     // the template called raise_exception
  kTemplate,   // bad syntax, an undefined value, or something forbidden by the sandbox
  kPython,     // a Python error, for example a TypeError
  kArguments,  // refused outside the render: continue_final_message has no message to continue
  kFuel,       // the render used up its budget
};

// Thrown inside the interpreter and by Template. `type` is the class that Jinja or Python would
// raise.
class TemplateError : public std::runtime_error {
 public:
  TemplateError(ErrorKind kind, std::string type, const std::string& message)
      : std::runtime_error(message), kind_(kind), type_(std::move(type)) {}

  ErrorKind kind() const { return kind_; }
  const std::string& type() const { return type_; }
  // 1-based line of the template, 0 when unknown.
  int line() const { return line_; }
  void set_line(int line) { line_ = line; }

 private:
  ErrorKind kind_;
  std::string type_;
  int line_ = 0;
};

[[noreturn]] void raise_type_error(const std::string& message);
[[noreturn]] void raise_value_error(const std::string& message);
[[noreturn]] void raise_undefined(const std::string& message);
[[noreturn]] void raise_security(const std::string& message);
[[noreturn]] void raise_runtime(const std::string& message);
[[noreturn]] void raise_syntax(const std::string& message, int line);
[[noreturn]] void raise_assertion(const std::string& message, int line);
[[noreturn]] void raise_python(std::string_view type, const std::string& message);
[[noreturn]] void raise_recursion();

}  // namespace sluice::jinja
