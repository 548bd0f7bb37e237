// The page groups of the KV cache: how long their layers need a token, and how full the groups are.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

// How long the layers of a group need a token.
enum class Retention : std::uint8_t {
  kFull,    // for ever
  kWindow,  // position p reads the keys (p - span, p]
  kChunk,   // position p reads the keys [p / span * span, p]
  kState,   // recurrent layers: one "page" is the whole state of a sequence, updated in place
};

// Layers that need tokens equally long share pages.
struct PageGroup {
  std::string name;  // "full", "window", "chunk", "state"
  Retention retention = Retention::kFull;
  std::int64_t span = 0;       // tokens of the window or chunk; 0 for other groups
  std::int64_t num_pages = 0;  // number of pages of kPageSize tokens; for kState, of states

  // The first position whose key is still read when position `next` and later positions are
  // computed.
  std::int64_t keep_from(std::int64_t next) const {
    if (retention == Retention::kWindow) return next >= span ? next - span + 1 : 0;
    if (retention == Retention::kChunk) return next / span * span;
    return 0;
  }
};

// How full the pages of one group are; for kState, the number of states.
struct PageGroupStats {
  std::string name;
  Retention retention = Retention::kFull;
  std::int64_t total_pages = 0;
  std::int64_t used_pages = 0;    // named by sequences (or by steps in flight)
  std::int64_t cached_pages = 0;  // only in the prefix cache
  std::int64_t free_pages = 0;
};

}  // namespace sluice
