// Says in errors what was at work: a program that reads two checkpoints says which one is wrong.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "base/error.h"

namespace sluice {

// What `body` returns. An Error of its own begins with `what`, unless it names an option already.
template <class Body>
decltype(auto) saying(std::string_view what, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const Error& error) {
    if (error.message().starts_with("--")) throw;
    throw Error(error.kind(), fmt::format("{}: {}", what, error.message()), error.where());
  }
}

}  // namespace sluice
