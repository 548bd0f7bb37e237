#include "small_tokenizers.h"

#include <cstdint>
#include <cstring>
#include <set>
#include <string_view>

#include "base/json.h"
#include "fuzz_support.h"

namespace sluice::fuzz {
namespace {

constexpr std::size_t kTokens = 24;  // kept from the beginning of a vocabulary
constexpr std::size_t kMerges = 8;
constexpr std::size_t kPieces = 40;
// a vocabulary of this size begins with the byte alphabet
constexpr std::size_t kWithAllBytes = 256;

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i)
      group = group << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (std::size_t i = 0; i < 4; ++i)
      out += at + i <= bytes.size() ? kDigits[group >> (18 - 6 * i) & 63] : '=';
  }
  return out;
}

// The two parts of a merge, "a b" or ["a", "b"], and their concatenation.
std::vector<std::string> texts_of(const Json& merge) {
  std::vector<std::string> texts;
  if (merge.is_string()) {
    const std::string both = merge.get<std::string>();
    const std::size_t space = both.find(' ');
    texts = {both.substr(0, space), both.substr(space + 1)};
  } else {
    texts = {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  texts.push_back(texts[0] + texts[1]);
  return texts;
}

// Tokens that the rest of the file names.
std::set<std::string> named_tokens(const Json& file) {
  std::set<std::string> names = {"<0x0A>", "<0xC3>"};
  for (const Json& token : file.value("added_tokens", Json::array()))
    names.insert(token["content"].get<std::string>());
  const Json unk = file["model"].value("unk_token", Json());
  if (unk.is_string()) names.insert(unk.get<std::string>());
  return names;
}

void cut_vocabulary(Json& file, std::size_t num_tokens) {
  Json& model = file["model"];
  if (model["vocab"].is_array()) {  // Unigram: the index is the id
    Json first = Json::array();
    for (std::size_t i = 0; i < std::min(kPieces, model["vocab"].size()); ++i)
      first.push_back(model["vocab"][i]);
    model["vocab"] = first;
    return;
  }
  std::set<std::string> kept = named_tokens(file);
  Json merges = Json::array();
  for (const Json& merge : model.value("merges", Json::array())) {
    if (merges.size() == kMerges) break;
    for (const std::string& text : texts_of(merge)) kept.insert(text);
    merges.push_back(merge);
  }
  Json vocab = Json::object();
  for (const auto& [text, id] : model["vocab"].items())
    if (kept.contains(text) || id.get<std::size_t>() < num_tokens) vocab[text] = id;
  if (model.contains("merges")) model["merges"] = merges;
  model["vocab"] = vocab;
}

void replace_charsmaps(Json& value) {
  if (value.is_object() && value.contains("precompiled_charsmap"))
    value["precompiled_charsmap"] = base64(small_charsmap());
  if (value.is_structured())
    for (Json& item : value) replace_charsmaps(item);
}

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

std::uint64_t take_varint(std::string_view& rest) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    must_hold(!rest.empty(), "a fixture ends inside a number");
    const auto byte = static_cast<unsigned char>(rest[0]);
    rest.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) break;
  }
  return value;
}

// A copy of a protobuf message. For each field of bytes the copy has the output of `edit(number,
// bytes, out)`.
template <class Edit>
std::string copy_message(std::string_view rest, Edit edit) {
  std::string out;
  while (!rest.empty()) {
    const std::string_view field = rest;
    const std::uint64_t key = take_varint(rest);
    if ((key & 7) == 2) {
      const std::uint64_t size = take_varint(rest);
      must_hold(size <= rest.size(), "a fixture ends inside a field");
      edit(static_cast<int>(key >> 3), rest.substr(0, size), out);
      rest.remove_prefix(size);
    } else {
      if ((key & 7) == 0)
        take_varint(rest);
      else
        rest.remove_prefix((key & 7) == 1 ? 8 : 4);
      out += field.substr(0, field.size() - rest.size());
    }
  }
  return out;
}

std::string bytes_field(int number, std::string_view bytes) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(bytes.size()) +
         std::string(bytes);
}

std::string cut_model(std::string_view model) {
  std::size_t num_pieces = 0;
  return copy_message(model, [&](int number, std::string_view bytes, std::string& out) {
    if (number == 1) {
      // Byte fallback needs all 256 bytes.
      if (num_pieces++ < kPieces || bytes.find("<0x") != std::string_view::npos)
        out += bytes_field(number, bytes);
    } else if (number == 3) {
      out += bytes_field(
          number, copy_message(bytes, [](int inner, std::string_view text, std::string& spec) {
            const bool is_map = inner == 2 && !text.empty();
            spec += bytes_field(inner, is_map ? std::string_view(small_charsmap()) : text);
          }));
    } else if (number == 2) {
      // The arguments of the training are long and unused.
      out += bytes_field(
          number, copy_message(bytes, [](int inner, std::string_view text, std::string& spec) {
            if (text.size() <= 64) spec += bytes_field(inner, text);
          }));
    }  // drops the texts of the self-test
  });
}

}  // namespace

std::vector<std::string> small_tokenizer_jsons() {
  std::vector<std::string> all;
  for (const std::string& text : golden_texts("tokenizers", "tokenizer.json", 1 << 20)) {
    Json file = parse_json_or_throw(text, "a fixture's tokenizer.json");
    // A few tokenizers keep all bytes, because the handling of texts in the byte alphabet depends
    // on them.
    cut_vocabulary(file, all.size() % 4 == 2 ? kWithAllBytes : kTokens);
    if (file.contains("normalizer")) replace_charsmaps(file["normalizer"]);
    all.push_back(dump_json(file));
  }
  return all;
}

std::vector<std::string> small_sentencepiece_models() {
  std::vector<std::string> all;
  for (const std::string& model : golden_texts("tokenizers", "tokenizer.model", 1 << 20))
    all.push_back(cut_model(model));
  return all;
}

std::string small_charsmap() {
  // A double array: the child of a node for a byte is at the node's offset XOR that byte, and has
  // the byte as its label.
  std::uint32_t units[512] = {};
  constexpr std::uint32_t kLeaf = 1u << 8;
  const auto node = [&](std::size_t at, unsigned char byte, std::uint32_t offset, bool leaf) {
    units[at] = byte | offset << 10 | (leaf ? kLeaf : 0u);
  };
  const auto value = [&](std::size_t at, std::uint32_t place) { units[at] = 1u << 31 | place; };
  units[0] = 256u << 10;  // children of the root are at 256 XOR their byte
  node(256 ^ 'A', 'A', 1, true);
  value(256 ^ 'A' ^ 1, 0);
  node(256 ^ 0xEF, 0xEF, 0x100, false);  // children of EF are at EF XOR the byte
  node(0xEF ^ 0xBC, 0xBC, 0x40, false);
  node(0xEF ^ 0xBC ^ 0x40 ^ 0xA1, 0xA1, 1, true);
  value(0xEF ^ 0xBC ^ 0x40 ^ 0xA1 ^ 1, 3);
  node(256 ^ 0xE3, 0xE3, 0x120, false);
  node(0xE3 ^ 0x20 ^ 0x80, 0x80, 0x140, false);
  node(0xE3 ^ 0x20 ^ 0x80 ^ 0x140 ^ 0x80, 0x80, 1, true);
  value(0xE3 ^ 0x20 ^ 0x80 ^ 0x140 ^ 0x80 ^ 1, 5);
  const std::uint32_t size = sizeof units;
  std::string blob(4 + size, '\0');
  std::memcpy(blob.data(), &size, 4);
  std::memcpy(blob.data() + 4, units, size);
  using namespace std::literals;
  return blob + "bc\0A\0 \0"s;
}

}  // namespace sluice::fuzz
