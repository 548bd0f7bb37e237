// Why a choice ended.
#pragma once

#include <cstdint>

namespace sluice {

enum class FinishReason : std::uint8_t {
  kNone,    // not ended
  kStop,    // an end token, a stop token or a stop string
  kLength,  // max_new_tokens or the context length
  kAbort,   // the client or the operator ended it
  kError,   // a Fault says why
};

}  // namespace sluice
