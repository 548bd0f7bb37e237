// Random damage: reading any config.json or safetensors file ends, and either works or throws
// Error.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/testing/folder.h"
#include "base/testing/source_dir.h"
#include "checkpoint/files/checkpoint.h"
#include "config/model_config.h"

namespace sluice {
namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::size_t below(std::size_t bound) { return mix64(state_++) % bound; }

 private:
  std::uint64_t state_;
};

constexpr std::string_view kPieces[] = {"0",
                                        "-1",
                                        "1e400",
                                        "NaN",
                                        "null",
                                        "true",
                                        "{}",
                                        "[]",
                                        "\"\"",
                                        "18446744073709551615",
                                        "9223372036854775807",
                                        "4294967296",
                                        "0.5",
                                        "-",
                                        "[",
                                        "{",
                                        "]",
                                        "}",
                                        "\"",
                                        "\\",
                                        ",",
                                        ":",
                                        "\"F32\"",
                                        "\"sliding_attention\"",
                                        "1048576",
                                        "\xFF"};

// One to `max_edits` edits: change a byte, cut, repeat a part, or insert a piece (half of the time
// where a value begins).
std::string mutate(std::string text, Random& random, std::size_t max_edits) {
  for (std::size_t edits = 1 + random.below(max_edits); edits > 0 && !text.empty(); --edits) {
    const std::size_t at = random.below(text.size());
    const std::size_t length = 1 + random.below(std::min<std::size_t>(24, text.size() - at));
    const std::string_view piece = kPieces[random.below(std::size(kPieces))];
    switch (random.below(5)) {
      case 0:
        text[at] = static_cast<char>(random.below(256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(random.below(text.size()), length));
        break;
      case 3:
        text.insert(at, piece);
        break;
      default: {  // replace a whole value
        const std::size_t colon = text.find(':', at);
        if (colon == std::string::npos) break;
        const std::size_t end = text.find_first_of(",}", colon);
        text.replace(colon + 1, (end == std::string::npos ? text.size() : end) - colon - 1, piece);
      }
    }
  }
  return text;
}

struct Counts {
  int accepted = 0;
  int refused = 0;
};

template <class Body>
void attempt(Counts& counts, const std::string& input, Body&& body) {
  try {
    body();
    ++counts.accepted;
  } catch (const Error& error) {
    ASSERT_EQ(error.kind(), ErrorKind::kBadInput) << error.what() << "\n" << input;
    ASSERT_FALSE(error.message().empty());
    ++counts.refused;
  } catch (const std::exception& error) {
    FAIL() << error.what() << "\n" << input;
  }
}

TEST(Mutations, ConfigsAreReadOrRefused) {
  set_log_level(LogLevel::kOff);
  std::vector<std::string> seeds;
  for (const auto& entry :
       std::filesystem::directory_iterator(source_dir() + "/tests/golden/models"))
    seeds.push_back(read_text_beneath(entry.path().string(), "config.json", 1 << 20).value());
  Random random(1);
  Counts counts;
  for (int i = 0; i < 10'000; ++i) {
    const std::string text = mutate(seeds[random.below(seeds.size())], random, 4);
    attempt(counts, text, [&] {
      const ModelConfig config = parse_model_config(text, "config.json");
      check(config.layers.size() == static_cast<std::size_t>(config.num_layers), "layers");
    });
    if (HasFatalFailure()) return;
  }
  set_log_level(LogLevel::kInfo);
  EXPECT_GT(counts.accepted, 100);  // so the damage reaches every stage
  EXPECT_GT(counts.refused, 1000);
}

TEST(Mutations, SafetensorsAreReadOrRefused) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},"c":{"dtype":"U8","shape":[],)"
      R"("data_offsets":[22,23]}})";
  const TestFolder folder;
  Random random(2);
  Counts counts;
  for (int i = 0; i < 10'000; ++i) {
    std::string text = mutate(header, random, 2);
    std::uint64_t length = random.below(8) == 0 ? mix64(i) >> random.below(64) : text.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    bytes += text;
    bytes.append(random.below(8) == 0 ? random.below(40) : 23, 'x');
    folder.write("model.safetensors", bytes);
    attempt(counts, bytes, [&] {
      const Checkpoint checkpoint(folder.path());
      std::vector<std::byte> out;
      for (const std::string& name : checkpoint.names()) {
        const TensorInfo& info = *checkpoint.find(name);
        out.resize(info.bytes);  // checked against the file, so never larger
        ASSERT_LE(info.offset + info.bytes, bytes.size());
        checkpoint.read(info, 0, out);
      }
    });
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(counts.accepted, 100);
  EXPECT_GT(counts.refused, 1000);
}

}  // namespace
}  // namespace sluice
