// The rotation of a GGUF file as the rope_scaling of a config.json. Private to checkpoint/gguf/.
#pragma once

#include <optional>
#include <span>

#include "base/json.h"
#include "checkpoint/gguf/gguf_file.h"

namespace sluice {

// The parameters of Llama 3's rotation. low_freq_factor is 1 by convention: scaling all three
// lengths and factors together changes nothing.
struct Llama3Scaling {
  double factor = 1;
  double high_freq_factor = 4;
  double original_max_position = 8192;
};

// Finds the parameters that give these divisors of the frequencies theta^(-2i/r), i < r/2. Nothing
// if none fit within 1 part in 10^4. A file stores only the divisors (rope_freqs.weight).
std::optional<Llama3Scaling> fit_llama3_scaling(std::span<const float> divisors, double theta);

// `arch` is general.architecture. Null for a rotation without scaling.
Json gguf_rope_scaling(const GgufFile& file, const std::string& arch, double theta);

}  // namespace sluice
