// Errors.
//
// Three ways to fail, by who is at fault:
//   check(cond, ...)    a bug in Sluice: throws Error{kBug}.
//   require(cond, ...)  a bad file, flag or configuration: throws Error{kBadInput}; exit status 2.
//   Result<T>           a fault of one request: a value that becomes a 4xx answer; never throws.
// The format string is fmt's. The message says what was seen, what is allowed, and what to change.
#pragma once

#include <fmt/format.h>

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace sluice {

// Whose fault an Error is; `exit_code` maps it to the program's exit status (docs/rules.md, Exit
// codes).
enum class ErrorKind { kBug, kBadInput, kNoResources, kNoDevice, kFatal };

int exit_code(ErrorKind kind);

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string message,
        std::source_location where = std::source_location::current());

  ErrorKind kind() const { return kind_; }
  // The message without the source position, fit for a user.
  const std::string& message() const { return message_; }
  const std::source_location& where() const { return where_; }

 private:
  ErrorKind kind_;
  std::string message_;
  std::source_location where_;
};

// A format string that also records its source location.
template <class... Args>
struct LocatedFormat {
  template <class S>
  consteval LocatedFormat(const S& text,
                          std::source_location here = std::source_location::current())
      : format(text), where(here) {}
  fmt::format_string<Args...> format;
  std::source_location where;
};

[[noreturn]] void throw_error(ErrorKind kind, std::string message, std::source_location where);

template <class... Args>
void check(bool condition, LocatedFormat<std::type_identity_t<Args>...> message, Args&&... args) {
  if (!condition) [[unlikely]]
    throw_error(ErrorKind::kBug, fmt::format(message.format, std::forward<Args>(args)...),
                message.where);
}

template <class... Args>
void require(bool condition, LocatedFormat<std::type_identity_t<Args>...> message, Args&&... args) {
  if (!condition) [[unlikely]]
    throw_error(ErrorKind::kBadInput, fmt::format(message.format, std::forward<Args>(args)...),
                message.where);
}

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, LocatedFormat<std::type_identity_t<Args>...> message,
                       Args&&... args) {
  throw_error(kind, fmt::format(message.format, std::forward<Args>(args)...), message.where);
}

// The fault of one request. `status` is the HTTP status, `code` a stable word, `param` the dotted
// name of the field at fault (empty: none). The text never holds addresses, paths, prompt text or
// exception text (R9).
struct Fault {
  int status = 400;
  std::string code;
  std::string param;
  std::string message;
};

// A value or a Fault.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT: implicit by intent
  Result(Fault fault) : state_(std::move(fault)) {}  // NOLINT: implicit by intent

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Fault& fault() const { return std::get<1>(state_); }

 private:
  std::variant<T, Fault> state_;
};

struct Ok {};

}  // namespace sluice
