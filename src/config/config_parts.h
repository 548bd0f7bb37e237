// The parts of a ModelConfig with rules of their own. Private to config/.
#pragma once

#include "config/config_families.h"
#include "config/config_reader.h"
#include "config/model_config.h"

namespace sluice {

// Fills in model.residual, positions and the factors; reads model.hidden_size.
void read_block_form(const ConfigReader& config, const FamilyDefaults& family, ModelConfig& model);

// Fills in model.rope, local_rope and query_scaling. `head_dim` is the part of a head that may
// rotate: qk_rope_head_dim for MLA.
void read_rope(const ConfigReader& config, const FamilyDefaults& family, int head_dim,
               ModelConfig& model);

// Nothing for a dense model.
std::optional<MoeConfig> read_moe(const ConfigReader& config, const FamilyDefaults& family);

// Whether each layer is a mixture; for models with mixtures.
std::vector<bool> read_moe_layers(const ConfigReader& config, const FamilyDefaults& family,
                                  int num_layers);

// Window, MLP kind and indexer role of each of model.num_layers layers; reads model.moe and
// model.indexer.
std::vector<LayerConfig> read_layers(const ConfigReader& config, const FamilyDefaults& family,
                                     const ModelConfig& model);

// Sets model.recurrent and says which layers are recurrent; for families with a RecurrentRule.
// Reads model.num_layers and model.hidden_size.
std::vector<bool> read_recurrent(const ConfigReader& config, const FamilyDefaults& family,
                                 ModelConfig& model);

// LFM2 states the width of its MLPs before a factor and a rounding. Returns the width of the
// matrices.
int short_conv_mlp_width(const ConfigReader& config);

// architectures[0], or empty.
std::string read_architecture(const ConfigReader& config);
// The weights' type by `dtype` or `torch_dtype`; bfloat16 if both are missing.
DType read_dtype(const ConfigReader& config);

// Whether a row of family_table() has this architecture, or, if that is empty, this model_type.
bool has_native_class(std::string_view architecture, std::string_view model_type);
// The known part of a model under the Transformers plugin: sizes under any of their usual names,
// end tokens, type.
ModelConfig read_fallback_config(const Json& file, std::string_view what);

}  // namespace sluice
