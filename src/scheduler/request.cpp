#include "scheduler/request.h"

#include "base/hash.h"

namespace sluice {

std::uint64_t choice_seed(std::uint64_t seed, int choice) {
  return choice == 0 ? seed : hash_combine(seed, static_cast<std::uint64_t>(choice));
}

}  // namespace sluice
