#include "base/error.h"

namespace sluice {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kBadInput:
      return 2;
    case ErrorKind::kNoResources:
      return 3;
    case ErrorKind::kNoDevice:
      return 5;
    case ErrorKind::kBug:
    case ErrorKind::kFatal:
      return 4;
  }
  return 4;
}

namespace {

// The path below src/: messages do not reveal where the program was built.
std::string_view source_name(std::string_view path) {
  const std::size_t at = path.rfind("/src/");
  return at == std::string_view::npos ? path : path.substr(at + 5);
}

}  // namespace

Error::Error(ErrorKind kind, std::string message, std::source_location where)
    : std::runtime_error(
          kind == ErrorKind::kBug
              ? fmt::format("{} [{}:{}]", message, source_name(where.file_name()), where.line())
              : message),
      kind_(kind),
      message_(std::move(message)),
      where_(where) {}

void throw_error(ErrorKind kind, std::string message, std::source_location where) {
  throw Error(kind, std::move(message), where);
}

}  // namespace sluice
