// checkpoint/gguf/*.h: an untrusted GGUF file. Every tensor in its header lies in the file and can
// be read, under the names and in the row order of models. Its values become a configuration and a
// tokenizer, or an error that blames the file.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/gguf/gguf_text.h"
#include "checkpoint/load_config.h"
#include "checkpoint/testing/gguf_writer.h"
#include "checkpoint/weight_source.h"
#include "fuzz_support.h"
#include "fuzz_target.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice::fuzz {
namespace {

// The readers open paths, so one file is rewritten for every input.
class Place {
 public:
  Place() {
    std::string name = (std::filesystem::temp_directory_path() / "sluice-fuzz-XXXXXX").string();
    must_hold(::mkdtemp(name.data()) != nullptr, "a folder for the input");
    folder_ = name;
  }
  ~Place() { std::filesystem::remove_all(folder_); }
  std::string write(std::string_view bytes) const {
    const std::string path = folder_ + "/x.gguf";
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    must_hold(file.flush().good(), "written");
    return path;
  }

 private:
  std::string folder_;
};

// Runs `body`; an Error must blame the file.
template <class Body>
void attempt(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    must_hold(error.kind() == sluice::ErrorKind::kBadInput, error.what());
  }
}

void read_tensors(const std::string& path, std::uint64_t size) {
  const GgufFile file(open_regular_file(path), path);
  std::vector<std::byte> bytes;
  for (const GgufTensor& tensor : file.tensors()) {
    must_hold(tensor.offset <= size && tensor.bytes <= size - tensor.offset,
              "a tensor lies in its file");
    must_hold(tensor.row_bytes() * static_cast<std::uint64_t>(tensor.rows()) == tensor.bytes,
              "whole rows");
    bytes.resize(tensor.bytes);
    file.read(tensor, 0, bytes);
  }
}

void read_weights(const std::string& path) {
  const WeightSource source = WeightSource::checkpoint(path);
  for (const std::string& name : source.names()) {
    const TensorInfo* info = source.find(name);
    must_hold(info != nullptr, "a tensor that is listed is found");
    attempt([&] {
      const WeightRequest request{.name = name, .shape = info->shape};
      std::vector<std::byte> values(static_cast<std::size_t>(request.numel()) * 4);
      source.load(request, DType::kF32, values);
      if (!info->blocks) return;
      values.resize(static_cast<std::size_t>(request.numel() / block_values(*info->blocks) *
                                             block_bytes(*info->blocks)));
      source.load_blocks(request, values);
    });
  }
}

void read_config(const std::string& path) {
  const ModelConfig config = load_model_config(path);
  must_hold(config.layers.size() == static_cast<std::size_t>(config.num_layers),
            "one entry a layer");
  must_hold(config.vocab_size > 0 && config.hidden_size > 0 && config.num_heads > 0 &&
                config.head_dim > 0,
            "sizes above 0");
}

void read_text(const std::string& path) {
  const GgufText text = read_gguf_text(path);
  const auto tokenizer =
      text.sentencepiece.empty()
          ? Tokenizer::from_json(text.tokenizer_json, "x.gguf", text.bos_token, text.eos_token)
          : Tokenizer::from_sentencepiece(text.sentencepiece, "x.gguf", text.tokenizer_config);
  for (const std::int32_t id : tokenizer->encode(" Hello,  w\xC3\xB6rld 123!\n<s> it's\xFF"))
    must_hold(id >= 0 && id < tokenizer->size(), "ids lie below size()");
}

GgufWriter model(const std::string& arch, std::uint32_t experts) {
  GgufWriter writer;
  writer.text("general.architecture", arch).number("general.alignment", std::uint32_t{32});
  const auto set = [&](const char* key, std::uint32_t value) {
    writer.number(arch + '.' + key, value);
  };
  set("block_count", 1);
  set("context_length", 64);
  set("embedding_length", 32);
  set("feed_forward_length", 32);
  set("attention.head_count", 2);
  set("attention.head_count_kv", arch == "deepseek2" ? 2 : 1);
  writer.number(arch + ".attention.layer_norm_rms_epsilon", 1e-5f)
      .number(arch + ".rope.freq_base", 10000.0f);
  if (experts > 0) {
    set("expert_count", experts);
    set("expert_used_count", 1);
    set("expert_feed_forward_length", 32);
  }
  if (arch == "deepseek2") {
    set("attention.kv_lora_rank", 4);
    set("attention.key_length", 6);
    set("attention.value_length", 3);
    set("rope.dimension_count", 2);
    set("expert_shared_count", 1);
    set("leading_dense_block_count", 0);
    writer.floats("blk.0.attn_k_b.weight", {2, 4, 4}, std::vector<float>(32, 0.5f));
    writer.floats("blk.0.attn_v_b.weight", {2, 3, 4}, std::vector<float>(24, 0.5f));
  }
  return writer;
}

void add_text(GgufWriter& writer) {
  writer.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "smollm");
  writer.texts("tokenizer.ggml.tokens",
               {"<s>", "</s>", "H", "e", "l", "o", "He", "ll", "\xC4\xA0"});
  writer.texts("tokenizer.ggml.merges", {"H e", "l l"});
  writer.numbers("tokenizer.ggml.token_type", std::vector<std::int32_t>{3, 3, 1, 1, 1, 1, 1, 1, 1});
  writer.number("tokenizer.ggml.bos_token_id", std::uint32_t{0})
      .number("tokenizer.ggml.eos_token_id", std::uint32_t{1});
  writer.number("tokenizer.ggml.add_bos_token", true)
      .text("tokenizer.chat_template", "{{ messages }}");
}

// SentencePiece's vocabulary: `model` is llama or t5.
void add_pieces(GgufWriter& writer, const char* model) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "\xE2\x96\x81", "H", "e",
                                     "He",    "  ",  "l"};
  std::vector<std::int32_t> types = {2, 3, 3, 1, 1, 1, 1, 4, 1};
  for (int byte = 0; byte < 256; ++byte) {
    constexpr const char* kDigits = "0123456789ABCDEF";
    tokens.push_back(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + '>');
    types.push_back(6);
  }
  std::vector<float> scores(tokens.size());
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = -static_cast<float>(i);
  writer.text("tokenizer.ggml.model", model)
      .texts("tokenizer.ggml.tokens", tokens)
      .numbers("tokenizer.ggml.scores", scores);
  writer.numbers("tokenizer.ggml.token_type", types)
      .number("tokenizer.ggml.add_space_prefix", true);
}

}  // namespace

void run_one(std::string_view input) {
  set_log_level(LogLevel::kOff);
  static const Place place;
  const std::string path = place.write(input);
  attempt([&] { read_tensors(path, input.size()); });
  attempt([&] { read_weights(path); });
  attempt([&] { read_config(path); });
  attempt([&] { read_text(path); });
}

std::vector<std::string> seeds() {
  std::vector<std::string> files;
  GgufWriter llama = model("llama", 0);
  add_text(llama);
  llama.tensor("token_embd.weight", {9, 32}, 1, std::string(9 * 64, '\x11'));
  llama.tensor("blk.0.attn_q.weight", {32, 32}, 3,
               std::string(32 * 20, '\x22'));  // Q4_1, rows in pairs
  llama.tensor("blk.0.attn_k.weight", {16, 32}, 2, std::string(16 * 18, '\x23'));  // Q4_0
  llama.tensor("blk.0.ffn_up.weight", {2, 32}, 8, std::string(2 * 34, '\x24'));    // Q8_0
  llama.tensor("blk.0.ffn_norm.weight", {32}, 30, std::string(64, '\x3f'));        // BF16
  llama.floats("output_norm.weight", {32}, std::vector<float>(32, 1.0f));
  files.push_back(llama.bytes());
  GgufWriter experts = model("qwen3moe", 2);
  experts.tensor("blk.0.ffn_up_exps.weight", {2, 2, 32}, 8, std::string(4 * 34, '\x25'));
  experts.floats("blk.0.ffn_gate_inp.weight", {2, 32}, std::vector<float>(64, 0.1f));
  experts.tensor("token_embd.weight", {3, 32}, 0, std::string(3 * 128, '\0'));
  add_pieces(experts, "llama");
  files.push_back(experts.bytes());
  GgufWriter blocks = model("qwen3", 0);  // the types with 256 values, and with a fifth bit
  const std::pair<std::uint32_t, std::size_t> types[] = {{6, 22 * 8}, {7, 24 * 8}, {20, 18 * 8},
                                                         {10, 84},    {11, 110},   {12, 144},
                                                         {13, 176},   {14, 210},   {23, 136}};
  for (const auto& [type, bytes] : types)
    blocks.tensor("t" + std::to_string(type), {1, 256}, type, std::string(bytes, '\x27'));
  files.push_back(blocks.bytes());
  GgufWriter latent = model("deepseek2", 2);
  latent.tensor("token_embd.weight", {3, 32}, 0, std::string(3 * 128, '\0'));
  add_pieces(latent, "t5");
  files.push_back(latent.bytes());
  GgufWriter values;  // every value type, and nested arrays
  values.number("a", std::uint8_t{1})
      .number("b", std::int8_t{-1})
      .number("c", std::uint16_t{2})
      .number("d", std::int16_t{-2});
  values.number("e", std::int32_t{-3})
      .number("f", std::uint64_t{4})
      .number("g", std::int64_t{-4})
      .number("h", 0.5);
  values.numbers("i", std::vector<float>{1, 2}).texts("j", {"", "x"});
  values.value("k", 9,
               GgufWriter::raw(std::uint32_t{9}) + GgufWriter::raw(std::uint64_t{1}) +
                   GgufWriter::raw(std::uint32_t{0}) + GgufWriter::raw(std::uint64_t{2}) + "xy");
  files.push_back(values.bytes());
  files.push_back(GgufWriter().bytes());
  return files;
}

}  // namespace sluice::fuzz
