// The fields of a protocol whose requests become chat requests of OpenAI's, so that one table of
// ranges (request_fields.h) serves all.
//
//   constexpr ProtocolField kFields[] = {same_field("top_p"), renamed_field("stop_sequences",
//   "stop")}; FieldNames names; if (auto fault = translate_fields(body, kFields, "", chat, names,
//   ignored)) return fault; if (auto fault = read_fields(chat, kChatApi, "", context, fields))
//   return names.own(*fault);
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace sluice {

enum class FieldUse {
  kChat,     // `text` is the name of the chat field
  kOwn,      // other code reads it
  kIgnored,  // has no effect
  kRefused,  // `text` says why
};

struct ProtocolField {
  std::string_view name;
  FieldUse use;
  std::string_view text = {};
};

constexpr ProtocolField same_field(std::string_view name) {
  return {name, FieldUse::kChat, name};
}
constexpr ProtocolField renamed_field(std::string_view name, std::string_view chat_name) {
  return {name, FieldUse::kChat, chat_name};
}
constexpr ProtocolField own_field(std::string_view name) {
  return {name, FieldUse::kOwn};
}
constexpr ProtocolField ignored_field(std::string_view name) {
  return {name, FieldUse::kIgnored};
}
constexpr ProtocolField refused_field(std::string_view name, std::string_view why) {
  return {name, FieldUse::kRefused, why};
}

// What constrains an answer: every protocol takes it by the names of the chat request.
inline constexpr ProtocolField kGrammarFields[] = {same_field("structured_outputs"),
                                                   same_field("guided_json"),
                                                   same_field("guided_regex"),
                                                   same_field("guided_choice"),
                                                   same_field("guided_grammar"),
                                                   same_field("json_schema"),
                                                   same_field("regex"),
                                                   same_field("ebnf"),
                                                   same_field("grammar"),
                                                   same_field("structural_tag")};

// The rows of a protocol, then those.
template <std::size_t N>
constexpr auto with_grammar_fields(const ProtocolField (&own)[N]) {
  std::array<ProtocolField, N + std::size(kGrammarFields)> all{};
  std::ranges::copy(kGrammarFields, std::ranges::copy(own, all.begin()).out);
  return all;
}

// From dotted paths of the chat request to those that the client wrote.
class FieldNames {
 public:
  void add(std::string chat, std::string own) {
    if (chat != own) names_.emplace_back(std::move(chat), std::move(own));
  }
  // The client's name of a path in the chat request, or the path itself.
  std::string own(const std::string& path) const;
  // The fault of a chat request in the client's names, in `param` and in the message.
  Fault own(Fault fault) const;
  // Paths of chat fields in the client's names. A JSON pointer may follow a path, behind `#`.
  void own(std::vector<std::string>& paths) const;

 private:
  std::vector<std::pair<std::string, std::string>> names_;
};

// Copies the fields of `object` to `chat`, refuses those that are refused, unless they ask for
// nothing (null, false, empty), and notes ignored and unknown ones.
std::optional<Fault> translate_fields(const Json& object, std::span<const ProtocolField> rows,
                                      std::string_view prefix, Json& chat, FieldNames& names,
                                      std::vector<std::string>& ignored);

// The member of that name, or null.
const Json& member_or_null(const Json& object, std::string_view name);

// Reads an optional member of one type. Absent and null leave `out` alone.
std::optional<Fault> read_member(const Json& object, std::string_view name, std::string_view path,
                                 std::optional<bool>& out);
std::optional<Fault> read_member(const Json& object, std::string_view name, std::string_view path,
                                 std::optional<std::string>& out);

}  // namespace sluice
