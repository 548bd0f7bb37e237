// The message of a refusal, for tests of bad files.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"

namespace sluice {

// The message of the Error{kBadInput} that `body` throws; "accepted" when it throws none.
inline std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << error.what();
    return error.message();
  }
  return "accepted";
}

}  // namespace sluice
