// A JSON text as a flat tree that keeps numbers as they are written and keys in their order.
//
//   const Result<ExactJson> text = ExactJson::parse(R"({"minimum": 0.1})", {});
//   const JsonId minimum = text->member(0, "minimum");   // -1 where there is none
//   text->text(minimum);                                 // "0.1"
//
// JSON Schema needs exact numbers (`minimum`, `multipleOf`, `const`), which doubles are not. The
// tree is immutable and may be read from any thread. Nothing recurses (R10).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace sluice::grammar {

enum class JsonKind : std::uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };

using JsonId = std::int32_t;  // 0 is the root
inline constexpr JsonId kNoJson = -1;

struct ExactJsonLimits {
  int max_depth = 512;
  std::size_t max_bytes = 16 << 20;
  std::size_t max_values = 1'000'000;
  bool repeated_keys = false;  // whether an object may have a key twice
};

class ExactJson {
 public:
  // Strict JSON: no comments, no trailing text, no lone surrogates, valid UTF-8. Faults: 400 with
  // code invalid_json, json_too_deep, json_too_large or duplicate_key.
  static Result<ExactJson> parse(std::string_view text, const ExactJsonLimits& limits);

  JsonKind kind(JsonId id) const { return node(id).kind; }
  bool is(JsonId id, JsonKind kind) const { return node(id).kind == kind; }
  bool is_boolean(JsonId id) const { return is(id, JsonKind::kTrue) || is(id, JsonKind::kFalse); }
  // A string's characters in UTF-8, or a number as it was written.
  std::string_view text(JsonId id) const { return view(node(id).text); }
  // Characters of a string, in code points.
  std::size_t length(JsonId id) const;
  // The key of an object's member; empty for others.
  std::string_view key(JsonId id) const { return view(node(id).key); }
  // Members or items in order: first, next, next, ... until kNoJson.
  JsonId first(JsonId id) const { return node(id).first; }
  JsonId next(JsonId id) const { return node(id).next; }
  std::size_t count(JsonId id) const { return node(id).count; }
  JsonId parent(JsonId id) const { return node(id).parent; }
  // Place among the members or items of the parent.
  std::size_t index(JsonId id) const { return node(id).index; }
  JsonId member(JsonId object, std::string_view key) const;
  std::size_t size() const { return nodes_.size(); }
  // RFC 6901: "" is the root, "/a~1b/0" the first item of member "a/b".
  std::string pointer(JsonId id) const;
  // The value that an unescaped pointer names, from `from`; kNoJson where there is none.
  JsonId find(JsonId from, std::string_view pointer) const;
  // A text that is equal for equal values: 1 and 1.0, any order of members, any escapes.
  std::string canonical(JsonId id) const;
  // Strict JSON without spaces, with numbers as written.
  std::string dump(JsonId id) const;

 private:
  friend class ExactJsonReader;
  struct Piece {
    std::uint32_t begin = 0;
    std::uint32_t size = 0;
  };
  struct Node {
    JsonKind kind = JsonKind::kNull;
    JsonId first = kNoJson;
    JsonId next = kNoJson;
    JsonId parent = kNoJson;
    std::uint32_t count = 0;
    std::uint32_t index = 0;
    Piece text;
    Piece key;
  };
  const Node& node(JsonId id) const { return nodes_[static_cast<std::size_t>(id)]; }
  std::string_view view(Piece piece) const {
    return std::string_view(pool_).substr(piece.begin, piece.size);
  }

  std::vector<Node> nodes_;
  std::string pool_;
};

// A JSON string literal, with quotes; only what must be escaped is.
std::string quote_json(std::string_view text);
// Appends `token` of a JSON pointer with ~ and / escaped, after a slash.
void append_pointer(std::string& pointer, std::string_view token);
// Characters of valid UTF-8.
std::size_t count_characters(std::string_view text);

}  // namespace sluice::grammar
