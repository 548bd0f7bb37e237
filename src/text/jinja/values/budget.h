// The fuel of one render (R16): one number pays for evaluated nodes, produced items and built
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::jinja {

struct Limits {
  // Operations: an item is one, a loop's round two, 32 built bytes one.
  std::int64_t fuel = 5'000'000;
  std::size_t max_output_bytes = 4u << 20;  // size of the rendered text
  std::int64_t max_range = 100'000;         // as Jinja's sandbox
  int max_depth = 1'500;                    // nested evaluations
  int max_call_depth = 150;                 // nested macro, caller and loop() calls
  int max_value_depth = 200;                // nested lists and maps
};

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits), left_(limits.fuel) {}

  void charge(std::size_t operations = 1) {
    if (operations > static_cast<std::size_t>(left_)) [[unlikely]]
      run_dry();
    left_ -= static_cast<std::int64_t>(operations);
  }
  void charge_bytes(std::size_t bytes) { charge(1 + bytes / 32); }

  const Limits& limits() const { return limits_; }
  std::int64_t used() const { return limits_.fuel - left_; }

 private:
  [[noreturn]] void run_dry();

  Limits limits_;
  std::int64_t left_;
};

}  // namespace sluice::jinja
