// Seeded damage to texts: the same seed and corpus give the same inputs on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"

namespace sluice::fuzz {

class Mutator {
 public:
  // Words of the corpus become pieces to insert, together with numbers at the limits of types and
  // invalid UTF-8.
  Mutator(const std::vector<std::string>& corpus, std::uint64_t seed, std::size_t max_bytes);

  // A text of the corpus with one to eight edits, at most max_bytes long.
  std::string next();

 private:
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : mix64(state_++) % bound; }
  void edit(std::string& text);

  const std::vector<std::string>& corpus_;
  std::vector<std::string_view> words_;  // words of the corpus
  std::uint64_t state_;
  std::size_t max_bytes_;
};

}  // namespace sluice::fuzz
