// Writes the keys of a config.json from those of a GGUF file. Private to checkpoint/gguf/.
//
// GgufConfigWriter::run() writes what the keys of every architecture say, then calls the function
// of the architecture's row. The functions below are these: they change or add what their families
// have beyond that. Error{kBadInput}: a key is missing or of another type, or the file says what
// the family cannot be.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "checkpoint/gguf/gguf_architecture.h"
#include "checkpoint/gguf/gguf_file.h"

namespace sluice {

class GgufConfigWriter {
 public:
  explicit GgufConfigWriter(const GgufFile& file);
  Json run();

  // Values of keys below the architecture's name.
  std::string key(std::string_view name) const { return arch + '.' + std::string(name); }
  std::optional<std::int64_t> integer(std::string_view name) const {
    return file.find_integer(key(name));
  }
  std::int64_t required(std::string_view name) const { return file.required_integer(key(name)); }
  std::optional<double> number(std::string_view name) const { return file.find_number(key(name)); }
  std::optional<bool> flag(std::string_view name) const { return file.find_bool(key(name)); }
  // One value a layer, which a file may state once for all; empty where there is no key.
  std::vector<std::int64_t> by_layer(std::string_view name) const;
  // The keys become these of the configuration, where they are.
  void copy_number(std::string_view name, const std::string& hf);
  void copy_integer(std::string_view name, const std::string& hf);
  std::int64_t width_of_experts() const;

  const GgufFile& file;
  const GgufArchitecture& architecture;
  const std::string arch;
  Json out = Json::object();
  std::int64_t num_layers = 0;  // without layers that predict further tokens

 private:
  std::string dtype() const;
  void write_sizes();
  void write_heads();
  void write_latent_attention();
  void write_feed_forward();
  void write_rope();
  void write_tokens();
};

// sliding_window, and layer_types where the file has a pattern of layers.
void gguf_write_windows(GgufConfigWriter& w);
// Experts' width is intermediate_size.
void gguf_narrow_experts(GgufConfigWriter& w);
void gguf_parallel_residual(GgufConfigWriter& w);
void gguf_mistral3(GgufConfigWriter& w);
void gguf_qwen2moe(GgufConfigWriter& w);
void gguf_qwen3moe(GgufConfigWriter& w);
void gguf_deepseek2(GgufConfigWriter& w);
void gguf_sparse_attention(GgufConfigWriter& w);
void gguf_glm4moe(GgufConfigWriter& w);
void gguf_ernie_moe(GgufConfigWriter& w);
void gguf_gemma2(GgufConfigWriter& w);
void gguf_gemma3(GgufConfigWriter& w);
void gguf_phi3(GgufConfigWriter& w);
void gguf_phimoe(GgufConfigWriter& w);
void gguf_cohere(GgufConfigWriter& w);
void gguf_olmo(GgufConfigWriter& w);
void gguf_olmoe(GgufConfigWriter& w);
void gguf_granite(GgufConfigWriter& w);
void gguf_stablelm(GgufConfigWriter& w);
void gguf_starcoder(GgufConfigWriter& w);
void gguf_falcon(GgufConfigWriter& w);
void gguf_exaone4(GgufConfigWriter& w);
void gguf_gpt_oss(GgufConfigWriter& w);
void gguf_llama4(GgufConfigWriter& w);
void gguf_mimo2(GgufConfigWriter& w);
void gguf_qwen_recurrent(GgufConfigWriter& w);
void gguf_kimi_linear(GgufConfigWriter& w);
void gguf_mamba2(GgufConfigWriter& w);
void gguf_lfm2(GgufConfigWriter& w);

}  // namespace sluice
