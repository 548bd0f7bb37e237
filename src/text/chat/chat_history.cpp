#include "text/chat/chat_history.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <vector>

#include "base/hash.h"
#include "text/parsers/lenient_json.h"

namespace sluice {
namespace {

constexpr std::string_view kProbeText = "SluiceProbe";
constexpr std::size_t kShortId = 9;

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// One question, one call and its result.
Json probe_messages(const char* name, Json arguments, Json content, const ContentFormats& formats) {
  const Json function{{"name", name}, {"arguments", std::move(arguments)}};
  const Json call{{"id", "abcdefgh1"}, {"type", "function"}, {"function", function}};
  return Json::array({Json{{"role", "user"}, {"content", content_of("x", formats.user)}},
                      Json{{"role", "assistant"},
                           {"content", std::move(content)},
                           {"tool_calls", Json::array({call})}},
                      Json{{"role", "tool"},
                           {"tool_call_id", "abcdefgh1"},
                           {"name", name},
                           {"content", content_of("y", formats.tool)}}});
}

bool is_blank_text(std::string_view text) {
  return text.find_first_not_of(" \n\r\t") == std::string_view::npos;
}

// Members that are no JSON stay as text.
Json object_of(const JsonMembers& members) {
  Json object = Json::object();
  for (const auto& [key, value] : members.members) {
    Result<Json> read = parse_json(value.text, kArgumentsJson);
    object[key] = read ? *std::move(read) : Json(value.text);  // the last of several equal keys
  }
  return object;
}

// Null: the text is no object, and holds no whole member of one.
Json read_object(const std::string& text) {
  if (is_blank_text(text)) return Json::object();
  Result<Json> strict = parse_json(text, kArgumentsJson);
  if (strict && strict->is_object()) return *std::move(strict);
  if (strict && (strict->is_null() || *strict == Json::array())) return Json::object();
  return nullptr;
}

Json mended_object(const std::string& text) {
  JsonMembers members;
  const bool is_whole = read_json_members(text, members) == MembersStatus::kWhole;
  if (!is_whole && members.members.empty()) return Json{{"arguments", text}};
  return object_of(members);
}

bool is_short_id(std::string_view id) {
  return id.size() == kShortId &&
         std::all_of(id.begin(), id.end(), [](unsigned char c) { return std::isalnum(c); });
}

// Nine letters and digits that follow from `id`.
std::string short_id(std::string_view id) {
  static constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  std::uint64_t hash = hash_bytes(id);
  std::string out;
  for (std::size_t i = 0; i < kShortId; ++i, hash = mix64(hash))
    out += kLetters[hash % kLetters.size()];
  return out;
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

HistoryRules probe_history(const std::function<std::string(Json)>& renders,
                           const ContentFormats& formats) {
  const std::string probe(kProbeText);
  HistoryRules rules;
  const auto shows = [&](Json arguments, Json content) {
    return renders(
        probe_messages("SluiceProbe", std::move(arguments), std::move(content), formats));
  };
  const Json empty = content_of("", formats.assistant);
  // How well a history is rendered: not at all, without the call, with it.
  const auto quality = [&](const std::string& text) {
    return text.empty() ? 0 : has(text, probe) ? 2 : 1;
  };
  const auto best = [&](const Json& arguments) {
    return std::max(quality(shows(arguments, nullptr)), quality(shows(arguments, empty)));
  };
  Json arguments = Json{{"probe", 1}};
  if (best("{\"probe\": 1}") > best(arguments)) {
    rules.text_arguments = true;
    arguments = "{\"probe\": 1}";
  }
  const std::string with_null = shows(arguments, nullptr), with_empty = shows(arguments, empty);
  rules.null_is_empty = quality(with_empty) > quality(with_null) ||
                        (has(with_null, "None") && !has(with_empty, "None") && !with_empty.empty());
  rules.empty_is_null = quality(with_null) > quality(with_empty);
  const std::string text =
      renders(probe_messages("f", probe, rules.empty_is_null ? Json(nullptr) : empty, formats));
  rules.takes_text = has(text, probe);
  return rules;
}

void adapt_calls(Json& message, const HistoryRules& rules) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array() || calls->empty()) return;
  const auto content = message.find("content");
  if (content != message.end()) {
    if (rules.null_is_empty && content->is_null()) *content = "";
    if (rules.empty_is_null && *content == "") *content = nullptr;
  }
  for (Json& call : *calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    Json& function = call["function"];
    const auto arguments = function.find("arguments");
    if (arguments == function.end()) continue;
    if (arguments->is_string()) {
      const std::string text = arguments->get<std::string>();
      Json object = read_object(text);
      if (!object.is_null()) {
        if (!rules.text_arguments) *arguments = std::move(object);
        if (rules.text_arguments && object.empty()) *arguments = "{}";
      } else if (!rules.takes_text && !rules.text_arguments) {
        *arguments = mended_object(text);
      }
    } else if (rules.text_arguments) {
      *arguments = dump_json(*arguments);
    }
  }
}

bool fit_system(Json& messages) {
  std::vector<Json> contents;
  Json others = Json::array();
  bool is_list = false, moves = false;
  for (const Json& message : messages) {
    const std::string role = text_of(message, "role");
    if (role != "system" && role != "developer") {
      others.push_back(message);
      continue;
    }
    const auto content = message.find("content");
    const bool is_parts = content != message.end() && content->is_array();
    if (content != message.end() && !is_parts && !content->is_string()) continue;
    moves = moves || role == "developer" || !contents.empty() || !others.empty();
    is_list = is_list || is_parts;
    contents.push_back(content == message.end() ? Json("") : *content);
  }
  if (!moves) return false;
  Json joined = is_list ? Json::array() : Json("");
  for (const Json& content : contents) {
    if (!is_list) {
      const std::string text = joined.get<std::string>();
      joined = text + (text.empty() ? "" : "\n\n") + content.get<std::string>();
    } else if (content.is_array()) {
      for (const Json& part : content) joined.push_back(part);
    } else {
      joined.push_back(Json{{"type", "text"}, {"text", content}});
    }
  }
  Json out = Json::array({Json{{"role", "system"}, {"content", std::move(joined)}}});
  for (Json& message : others) out.push_back(std::move(message));
  messages = std::move(out);
  return true;
}

bool fit_ids(Json& messages) {
  bool changed = false;
  std::set<std::string> used;
  std::map<std::string, std::string> fitted;              // by the client's id
  std::vector<std::pair<std::string, std::string>> open;  // calls without a result: id, name
  int unnamed = 0;
  const auto fit = [&](const std::string& id) {
    const auto known = fitted.find(id);
    if (known != fitted.end()) return known->second;
    std::string out = is_short_id(id) ? id : short_id(id);
    while (!used.insert(out).second) out = short_id(out);
    return fitted[id] = out;
  };
  const auto set = [&](Json& object, const char* key, const std::string& value) {
    if (text_of(object, key) == value) return;
    object[key] = value;
    changed = true;
  };
  for (Json& message : messages) {
    if (message.contains("tool_calls") && message["tool_calls"].is_array()) {
      open.clear();
      for (Json& call : message["tool_calls"]) {
        if (!call.is_object()) continue;
        std::string id = text_of(call, "id");
        if (id.empty()) id = "unnamed " + std::to_string(unnamed++);
        const std::string name = call.contains("function") && call["function"].is_object()
                                     ? text_of(call["function"], "name")
                                     : "";
        open.emplace_back(fit(id), name);
        set(call, "id", open.back().first);
      }
    } else if (text_of(message, "role") == "tool") {
      const std::string given = text_of(message, "tool_call_id");
      std::string id = given.empty() && !open.empty() ? open.front().first
                                                      : fit(given.empty() ? "unnamed" : given);
      const auto at = std::find_if(open.begin(), open.end(),
                                   [&](const auto& call) { return call.first == id; });
      set(message, "tool_call_id", id);
      if (at == open.end()) continue;
      if (text_of(message, "name").empty() && !at->second.empty()) set(message, "name", at->second);
      open.erase(at);
    }
  }
  return changed;
}

}  // namespace sluice
