// How a model's states become vectors: what the files of sentence-transformers in the model's
// directory say (docs/embeddings.md).
//
//   modules.json                       the modules in their order
//   sentence_bert_config.json          the longest text
//   1_Pooling/config.json              the pooling
//   2_Dense/                           a dense layer behind it
//   config_sentence_transformers.json  prompts
//
// Immutable after load: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "batch/pooling.h"
#include "engine/engine.h"
#include "models/encoders/encoder_config.h"
#include "server/core/dense_module.h"
#include "server/core/pair_template.h"

namespace sluice {

// How a pair of texts gets a score.
enum class ScoreKind : std::uint8_t {
  kNone,
  kHead,    // by the encoder's head, from both texts at once
  kTokens,  // by the probabilities of two tokens behind a template of both texts
  kCosine,  // of the vectors of both
};

// A module behind the pooling: a dense layer, or a norm to length 1 where `dense` is null.
struct VectorModule {
  std::shared_ptr<const DenseModule> dense;
};

struct PoolingModel {
  Pooling pooling = Pooling::kLast;
  bool normalizes = true;                                    // vectors have length 1
  bool includes_prompt = true;                               // the prompt's tokens count
  std::vector<std::pair<std::string, std::string>> prompts;  // name, text before the input
  std::string default_prompt;                                // a name; empty: none
  int max_tokens = 0;                                        // of a text, with special tokens
  std::int64_t state_dimension = 0;                          // of a token's state
  std::int64_t dimension = 0;                                // of a whole vector
  // Behind the pooling, in their order; without the last norm, which is `normalizes`.
  std::vector<VectorModule> modules;
  std::vector<std::int64_t> cut_dimensions;  // that vectors may be cut to; empty: any
  bool can_be_cut = true;
  std::string refusal;  // why the model gives no vectors; empty: it does
  std::string source;   // which files said so, for the log
  // Scores
  ScoreKind score = ScoreKind::kNone;
  std::string score_refusal;        // why there are none
  std::vector<std::string> labels;  // of the head; empty: the model has none
  bool is_multi_label = false;      // labels exclude each other not
  bool has_sigmoid = true;          // a score of one label is between 0 and 1
  PairTemplate pair;                // of kHead
  // Of kTokens: the tokens that mean yes and no, and what the chat template is given beside the
  // texts.
  std::int32_t yes_token = -1, no_token = -1;
  Json template_kwargs = Json::object();
  bool adds_generation_prompt = false;

  // The text of a prompt by name; null: there is no such name.
  const std::string* prompt(std::string_view name) const;
};

// `directory` is the model's, a folder or a GGUF file; `text_directory` is the tokenizer's.
// `encoder`: null for a decoder. What the files ask for and is not there becomes a refusal.
// Error{kBadInput} instead where nothing but vectors is served.
PoolingModel load_pooling_model(const Options& options, const std::string& directory,
                                const std::string& text_directory, const Engine& engine,
                                const EncoderConfig* encoder);

// Whether the model's files want texts in lower case (`do_lower_case`), which is the tokenizer's
// task. False where load_pooling_model() refuses the files.
bool wants_lower_case(const std::string& directory);

// Pooled states become the vectors that are sent: through the modules, then cut to `dimensions` (0:
// whole), then of length 1 where `normalizes`.
void finish_vectors(const PoolingModel& model, std::int64_t dimensions, bool normalizes,
                    std::span<std::vector<float>> rows);

std::string_view pooling_name(Pooling pooling);

}  // namespace sluice
