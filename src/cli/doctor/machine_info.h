// What `sluice doctor` says of the machine.
#pragma once

#include <string>
#include <vector>

namespace sluice {

enum class Verdict { kOk, kNote, kBad };  // good; worth knowing; what was asked for cannot work
std::string_view verdict_name(Verdict verdict);

struct MachineFact {
  std::string name;
  Verdict verdict = Verdict::kOk;
  std::string text;
};

// Processor, memory, huge pages, GPU, and the libraries that are opened on demand. `device` as
// --device: with "cuda" a missing GPU is kBad.
std::vector<MachineFact> machine_info(const std::string& device, int threads);

}  // namespace sluice
