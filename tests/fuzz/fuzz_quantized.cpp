// checkpoint/quantized/*.h: the tensors of an untrusted quantised checkpoint, and its config.json.
// Every listed matrix can be read whole, or an error blames the file.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/testing/safetensors_writer.h"
#include "checkpoint/weight_source.h"
#include "config/config_reader.h"
#include "fuzz_support.h"
#include "fuzz_target.h"

namespace sluice::fuzz {
namespace {

constexpr char kConfigEnd = '\n';

class Place {
 public:
  Place() {
    std::string name = (std::filesystem::temp_directory_path() / "sluice-fuzz-XXXXXX").string();
    must_hold(::mkdtemp(name.data()) != nullptr, "a folder for the input");
    folder_ = name;
  }
  ~Place() { std::filesystem::remove_all(folder_); }
  const std::string& write(std::string_view bytes) const {
    std::ofstream file(folder_ + "/model.safetensors", std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    must_hold(file.flush().good(), "written");
    return folder_;
  }

 private:
  std::string folder_;
};

void read(const std::string& folder, const QuantizationConfig& config) {
  const WeightSource source = WeightSource::checkpoint(folder, {.quantization = config});
  for (const std::string& name : source.names()) {
    const TensorInfo* info = source.find(name);
    must_hold(info != nullptr, "a tensor that is listed is found");
    try {
      const WeightRequest request{.name = name, .shape = info->shape};
      const std::int64_t count = request.numel();
      if (count > 1 << 20) continue;
      std::vector<std::byte> values(static_cast<std::size_t>(count) * 4);
      source.load(request, DType::kF32, values);
      const sluice::QuantMatrix* matrix = source.find_integers(name);
      if (matrix == nullptr) continue;
      // All columns, none, and some that begin and end within a group.
      const std::int64_t columns = matrix->columns(),
                         some = std::clamp<std::int64_t>(columns - 1, 0, 3);
      for (const auto& [first, n] : {std::pair<std::int64_t, std::int64_t>{0, columns},
                                     {0, 0},
                                     {some, (columns - some) / 2}}) {
        sluice::QuantCodes codes;
        source.read_codes(*matrix, {matrix->matrices() - 1, 0, matrix->rows(), first, n}, codes);
        must_hold(codes.codes.size() == static_cast<std::size_t>(matrix->rows() * n),
                  "a tile has other codes than were asked for");
      }
    } catch (const Error& error) {
      must_hold(error.kind() == sluice::ErrorKind::kBadInput, error.what());
    }
  }
}

// The quantization_config in one line, then a safetensors file.
std::string input_of(const std::string& config, const SafetensorsWriter& writer) {
  return "{\"quantization_config\":" + config + '}' + kConfigEnd + writer.bytes();
}

}  // namespace

void run_one(std::string_view input) {
  set_log_level(LogLevel::kOff);
  static const Place place;
  const std::size_t end = input.find(kConfigEnd);
  if (end == std::string_view::npos) return;
  std::string file(input.substr(end + 1));
  if (file.size() > 8) {  // the header length, which a mutation of the header would invalidate
    const std::size_t brace = file.find("]}}", 8);
    if (brace != std::string::npos) {
      const std::uint64_t length = brace + 3 - 8;
      std::memcpy(file.data(), &length, 8);
    }
  }
  try {
    const Json json = parse_config_text(input.substr(0, end), "config.json");
    if (!json.is_object()) return;
    const auto config = read_quantization(ConfigReader(json, "config.json"));
    if (config) read(place.write(file), *config);
  } catch (const Error& error) {
    must_hold(error.kind() == sluice::ErrorKind::kBadInput, error.what());
  }
}

std::vector<std::string> seeds() {
  using Bytes = std::vector<std::uint8_t>;
  const auto bytes = [](std::size_t count) { return Bytes(count, 0x13); };
  const std::string group = R"({"num_bits":4,"type":"int","strategy":"group"})";
  SafetensorsWriter fp8, awq, gptq, packed, mx, int8;
  fp8.add("w", "F8_E4M3", {5, 6}, bytes(30))
      .add("w_scale_inv", "F32", {3, 2}, bytes(24))
      .add("b", "BF16", {2}, bytes(4));
  awq.add("x.qweight", "I32", {8, 2}, bytes(64))
      .add("x.qzeros", "I32", {2, 2}, bytes(16))
      .add("x.scales", "F16", {2, 16}, bytes(64));
  gptq.add("x.qweight", "I32", {3, 8}, bytes(96))
      .add("x.qzeros", "I32", {2, 1}, bytes(8))
      .add("x.scales", "F16", {2, 8}, bytes(32))
      .add("x.g_idx", "I32", {24}, std::vector<std::int32_t>(24, 1));
  packed.add("x.weight_packed", "I32", {3, 2}, bytes(24))
      .add("x.weight_scale", "BF16", {3, 2}, bytes(12))
      .add("x.weight_shape", "I64", {2}, std::vector<std::int64_t>{3, 12})
      .add("x.weight_zero_point", "I32", {1, 2}, bytes(8))
      .add("x.weight_g_idx", "I32", {12}, std::vector<std::int32_t>(12, 1));
  mx.add("e_blocks", "U8", {2, 2, 2, 16}, bytes(128)).add("e_scales", "U8", {2, 2, 2}, bytes(8));
  int8.add("x.weight", "I8", {3, 4}, bytes(12)).add("x.weight_scale", "F32", {3, 1}, bytes(12));
  return {input_of(R"({"quant_method":"fp8","weight_block_size":[2,3]})", fp8),
          input_of(R"({"quant_method":"awq","bits":4})", awq),
          input_of(R"({"quant_method":"gptq","checkpoint_format":"gptq"})", gptq),
          input_of(R"({"quant_method":"mxfp4"})", mx),
          input_of(R"({"quant_method":"compressed-tensors","format":"pack-quantized",)"
                   R"("config_groups":{"g":{"weights":)" +
                       group + "}}}",
                   packed),
          input_of(R"({"quant_method":"compressed-tensors","format":"int-quantized",)"
                   R"("config_groups":{"g":{"weights":{"num_bits":8}}}})",
                   int8)};
}

}  // namespace sluice::fuzz
