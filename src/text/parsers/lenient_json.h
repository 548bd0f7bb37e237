// JSON text as models write it: strict JSON stays byte for byte, near misses are mended.
//
//   std::optional<JsonText> value = read_json_text("{'a': [1, None],}");
//   value->text      // {"a": [1, null]}
//
// Mended is only what has one meaning: Python's literals and quotes, a comma before a closing
// bracket, raw control characters in strings. Numbers keep their digits. Everything else is
// refused: unquoted words, NaN, comments, missing commas. No function here throws.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {

enum class JsonKind { kObject, kArray, kString, kInteger, kNumber, kBoolean, kNull };

struct JsonText {
  JsonKind kind = JsonKind::kNull;
  std::string text;       // strict JSON
  bool is_strict = true;  // the source was strict JSON, and `text` is the source without blanks
};

// The whole of `source` as one value, with white space around it.
std::optional<JsonText> read_json_text(std::string_view source);

struct JsonMembers {
  std::vector<std::pair<std::string, JsonText>> members;  // keys decoded, in order
  bool is_closed = false;                                 // the closing brace was there
  std::size_t length = 0;                                 // bytes of the object
  const JsonText* find(std::string_view key) const;       // the first member of that key, or null
};

enum class MembersStatus { kWhole, kOpenString, kBroken };

// The members of the object at the start of `source`, after blanks. `source` may go on behind the
// object, or end before its closing brace, directly after a member. kOpenString: the source ends
// inside a string.
MembersStatus read_json_members(std::string_view source, JsonMembers& out);

// The text of a JSON string, decoded; nullopt if `text` is no JSON string.
std::optional<std::string> decode_json_string(std::string_view text);

// The inside of a JSON string of this text. Bytes of UTF-8 pass unchanged.
std::string escape_json_string(std::string_view text);

}  // namespace sluice
