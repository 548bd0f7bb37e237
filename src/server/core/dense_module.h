// A dense module of sentence-transformers: a linear layer and an activation, applied to the vector
// of a whole text.
//
//   DenseModule dense = DenseModule::load(directory, "2_Dense", config, 768);
//   dense.apply(rows);  // rows of 768 numbers become rows of dense.width() numbers
//
// Source: the class Dense of sentence-transformers. Immutable after load: any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace sluice {

// Functions of a dense module, by the names of torch's classes.
enum class DenseActivation : std::uint8_t { kIdentity, kTanh, kRelu, kGelu, kSilu, kSigmoid };

class DenseModule {
 public:
  // `config` is FOLDER/config.json, `width` the length of a vector before the module. Weights come
  // from FOLDER/model.safetensors or FOLDER/pytorch_model.bin. Error{kBadInput} names the file and
  // the key or the tensor.
  static DenseModule load(const std::string& directory, std::string_view folder, const Json& config,
                          std::int64_t width);
  std::int64_t width() const { return num_outputs_; }
  // Replaces each row. The bits of a row do not depend on the other rows.
  void apply(std::span<std::vector<float>> rows) const;

 private:
  void read_weights(const std::string& directory, std::string_view folder, bool has_bias);

  std::int64_t num_inputs_ = 0, num_outputs_ = 0;
  DenseActivation activation_ = DenseActivation::kTanh;
  bool adds_input_ = false;               // use_residual
  std::vector<float> weight_, residual_;  // [outputs, inputs]; residual_: empty where it is a copy
  std::vector<float> bias_;               // [outputs]
};

}  // namespace sluice
