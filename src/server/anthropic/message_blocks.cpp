// Content blocks of the Messages API.
#include "server/anthropic/message_tools.h"
#include "server/anthropic/messages_request.h"
#include "server/api/request_fields.h"
#include "server/api/unknown_fields.h"
#include "server/core/errors.h"

namespace sluice {
namespace {

constexpr std::string_view kText = "this server reads text only, and fetches nothing.";
constexpr std::size_t kMaxMessages = 4096;

void note_block(const Json& block, std::span<const std::string_view> known,
                std::vector<std::string>& ignored) {
  for (const char* key : {"cache_control", "citations"})
    if (!member_or_null(block, key).is_null())
      note_without_effect(fmt::format("messages.content.{}", key), ignored);
  std::vector<std::string_view> all(known.begin(), known.end());
  all.insert(all.end(), {"type", "cache_control", "citations"});
  note_unknown(block, all, "messages.content.", ignored);
}

// A document whose source is text.
Result<std::string> document_text(const Json& block, const std::string& path,
                                  std::vector<std::string>& ignored) {
  const Json& source = member_or_null(block, "source");
  if (!source.is_object()) return missing_field(path + ".source");
  if (member_or_null(source, "type") != "text") return unsupported(path + ".source.type", kText);
  static constexpr std::string_view kKnown[] = {"type", "media_type", "data"};
  note_unknown(source, kKnown, "messages.content.source.", ignored);
  Result<std::string> data = block_string(source, "data", path + ".source");
  if (!data) return data;
  std::string text;
  for (const char* key : {"title", "context"}) {
    const Json& more = member_or_null(block, key);
    if (more.is_string()) text += more.get<std::string>() + "\n";
  }
  return text + *data;
}

// Text of a block that the system, a user or a tool may send.
Result<std::string> input_text(const Json& block, const std::string& type, const std::string& path,
                               std::vector<std::string>& ignored) {
  if (type == "text") {
    static constexpr std::string_view kKnown[] = {"text"};
    note_block(block, kKnown, ignored);
    return block_string(block, "text", path);
  }
  if (type == "document") {
    static constexpr std::string_view kKnown[] = {"source", "title", "context"};
    note_block(block, kKnown, ignored);
    return document_text(block, path, ignored);
  }
  if (type == "image") return unsupported(path + ".type", kText);
  return invalid_value(path + ".type",
                       fmt::format("A block of the type {} has no place here; `text`, `document`, "
                                   "and in a user's message `tool_result` have.",
                                   shown_text(type)));
}

// Whose content the blocks are: changes of tools have their places.
enum class Place { kPlain, kResult, kSystemMessage };

// A string, or text blocks: as parts of a chat message.
Result<Json> text_parts(const Json& content, const std::string& path, Place place,
                        MessagesRequest& out) {
  if (content.is_string()) return content;
  if (!content.is_array())
    return wrong_type(path, "a string or an array of blocks", json_type_name(content));
  Json parts = Json::array();
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string block_path = fmt::format("{}.{}", path, i);
    Result<std::string> type = block_type(content[i], block_path);
    if (!type) return type.fault();
    if (place == Place::kSystemMessage && (*type == "tool_addition" || *type == "tool_removal")) {
      static constexpr std::string_view kChange[] = {"tool"};
      note_block(content[i], kChange, out.ignored);
      if (auto fault = read_tool_change(content[i], *type, block_path, out)) return *fault;
      continue;
    }
    const bool is_reference = place == Place::kResult && *type == "tool_reference";
    static constexpr std::string_view kReference[] = {"tool_name"};
    if (is_reference) note_block(content[i], kReference, out.ignored);
    Result<std::string> text = is_reference
                                   ? read_tool_reference(content[i], block_path, out)
                                   : input_text(content[i], *type, block_path, out.ignored);
    if (!text) return text.fault();
    parts.push_back(Json{{"type", "text"}, {"text", *std::move(text)}});
  }
  return parts;
}

// The same as one text, since templates look for that in a system message.
Result<Json> system_text(const Json& content, const std::string& path, Place place,
                         MessagesRequest& out) {
  Result<Json> parts = text_parts(content, path, place, out);
  if (!parts || parts->is_string()) return parts;
  std::string text;
  for (const Json& part : *parts) {
    if (!text.empty()) text += '\n';
    text += part["text"].get_ref<const std::string&>();
  }
  return Json(text);
}

class MessageReader {
 public:
  explicit MessageReader(MessagesRequest& out) : out_(out), list_(out.chat["messages"]) {
    list_ = Json::array();
  }

  void add(Json message, const std::string& path) {
    out_.names.add(fmt::format("messages.{}", list_.size()), path);
    list_.push_back(std::move(message));
  }

  // Results of tools become messages of their own, in their order.
  std::optional<Fault> add_user(const Json& content, const std::string& path) {
    if (!content.is_array()) {
      Result<Json> text = text_parts(content, path + ".content", Place::kPlain, out_);
      if (!text) return text.fault();
      add(Json{{"role", "user"}, {"content", *std::move(text)}}, path);
      return std::nullopt;
    }
    Json parts = Json::array();
    const auto flush = [&] {
      if (!parts.empty()) add(Json{{"role", "user"}, {"content", parts}}, path);
      parts = Json::array();
    };
    for (std::size_t i = 0; i < content.size(); ++i) {
      const std::string block_path = fmt::format("{}.content.{}", path, i);
      Result<std::string> type = block_type(content[i], block_path);
      if (!type) return type.fault();
      if (*type == "tool_result") {
        flush();
        if (auto fault = add_result(content[i], block_path)) return fault;
        continue;
      }
      Result<std::string> text = input_text(content[i], *type, block_path, out_.ignored);
      if (!text) return text.fault();
      parts.push_back(Json{{"type", "text"}, {"text", *std::move(text)}});
    }
    if (content.empty()) add(Json{{"role", "user"}, {"content", ""}}, path);
    flush();
    return std::nullopt;
  }

  std::optional<Fault> add_assistant(const Json& content, const std::string& path) {
    Json message{{"role", "assistant"}};
    has_call_ = false;
    if (content.is_string()) {
      message["content"] = content;
      add(std::move(message), path);
      return std::nullopt;
    }
    if (!content.is_array())
      return wrong_type(path + ".content", "a string or an array of blocks",
                        json_type_name(content));
    Json parts = Json::array(), calls = Json::array();
    std::string thoughts;
    for (std::size_t i = 0; i < content.size(); ++i)
      if (auto fault = read_answer(content[i], fmt::format("{}.content.{}", path, i), parts, calls,
                                   thoughts))
        return fault;
    message["content"] = parts.empty() ? Json("") : std::move(parts);
    if (!thoughts.empty()) message["reasoning_content"] = std::move(thoughts);
    has_call_ = !calls.empty();
    if (has_call_) message["tool_calls"] = std::move(calls);
    add(std::move(message), path);
    return std::nullopt;
  }

  bool ends_with_call() const { return has_call_; }

 private:
  std::optional<Fault> add_result(const Json& block, const std::string& path) {
    static constexpr std::string_view kKnown[] = {"tool_use_id", "content", "is_error"};
    note_block(block, kKnown, out_.ignored);
    Result<std::string> id = block_string(block, "tool_use_id", path);
    if (!id) return id.fault();
    std::optional<bool> is_error;
    if (auto fault = read_member(block, "is_error", path + ".is_error", is_error)) return fault;
    const Json& content = member_or_null(block, "content");
    Json text = "";
    if (!content.is_null()) {
      Result<Json> parts = text_parts(content, path + ".content", Place::kResult, out_);
      if (!parts) return parts.fault();
      text = *std::move(parts);
    }
    // Templates have no place for the flag, so the text says it.
    if (is_error.value_or(false)) {
      if (text.is_string())
        text = "Error: " + text.get<std::string>();
      else
        text.insert(text.begin(), Json{{"type", "text"}, {"text", "Error: "}});
    }
    add(Json{{"role", "tool"}, {"tool_call_id", *id}, {"content", std::move(text)}}, path);
    return std::nullopt;
  }

  std::optional<Fault> read_answer(const Json& block, const std::string& path, Json& parts,
                                   Json& calls, std::string& thoughts) {
    Result<std::string> type = block_type(block, path);
    if (!type) return type.fault();
    if (*type == "redacted_thinking") return std::nullopt;  // encrypted: nothing to read
    if (*type == "thinking") {
      static constexpr std::string_view kKnown[] = {"thinking", "signature"};
      note_block(block, kKnown, out_.ignored);
      Result<std::string> text = block_string(block, "thinking", path);
      if (!text) return text.fault();
      if (!thoughts.empty() && !text->empty()) thoughts += '\n';
      thoughts += *text;
      return std::nullopt;
    }
    if (*type == "tool_use") {
      static constexpr std::string_view kKnown[] = {"id", "name", "input", "caller"};
      note_block(block, kKnown, out_.ignored);
      Result<std::string> id = block_string(block, "id", path);
      if (!id) return id.fault();
      Result<std::string> name = block_string(block, "name", path);
      if (!name) return name.fault();
      const Json& input = member_or_null(block, "input");
      if (!input.is_null() && !input.is_object())
        return wrong_type(path + ".input", "an object", json_type_name(input));
      calls.push_back(
          Json{{"id", *id},
               {"type", "function"},
               {"function",
                {{"name", *name}, {"arguments", input.is_null() ? Json::object() : input}}}});
      return std::nullopt;
    }
    if (*type != "text")
      return invalid_value(path + ".type",
                           fmt::format("A block of the type {} has no place in an assistant's "
                                       "message; `text`, `thinking`, `redacted_thinking` and "
                                       "`tool_use` have.",
                                       shown_text(*type)));
    Result<std::string> text = input_text(block, *type, path, out_.ignored);
    if (!text) return text.fault();
    parts.push_back(Json{{"type", "text"}, {"text", *std::move(text)}});
    return std::nullopt;
  }

  MessagesRequest& out_;
  Json& list_;
  bool has_call_ = false;
};

}  // namespace

std::optional<Fault> read_anthropic_messages(const Json& body, MessagesRequest& out) {
  MessageReader reader(out);
  const Json& system = member_or_null(body, "system");
  if (!system.is_null()) {
    Result<Json> text = system_text(system, "system", Place::kPlain, out);
    if (!text) return text.fault();
    if (*text != "") reader.add(Json{{"role", "system"}, {"content", *std::move(text)}}, "system");
  }
  const Json& messages = member_or_null(body, "messages");
  if (messages.is_null()) return missing_field("messages");
  if (!messages.is_array()) return wrong_type("messages", "an array", json_type_name(messages));
  if (messages.empty())
    return Fault{400, "invalid_messages", "messages", "`messages` needs at least one message."};
  if (messages.size() > kMaxMessages)
    return Fault{400, "invalid_messages", "messages",
                 fmt::format("`messages` has {} items; at most {} are allowed.", messages.size(),
                             kMaxMessages)};
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string path = fmt::format("messages.{}", i);
    const Json& message = messages[i];
    if (!message.is_object()) return wrong_type(path, "an object", json_type_name(message));
    const Json& role = member_or_null(message, "role");
    const Json& content = member_or_null(message, "content");
    if (role.is_null()) return missing_field(path + ".role");
    if (content.is_null()) return missing_field(path + ".content");
    static constexpr std::string_view kKnown[] = {"role", "content"};
    note_unknown(message, kKnown, "messages.", out.ignored);
    std::optional<Fault> fault;
    if (role == "user") {
      fault = reader.add_user(content, path);
    } else if (role == "assistant") {
      fault = reader.add_assistant(content, path);
    } else if (role == "system") {
      Result<Json> text = system_text(content, path + ".content", Place::kSystemMessage, out);
      if (!text) return text.fault();
      // A message that changes tools alone has nothing to say.
      if (*text != "" || out.tool_changes.empty())
        reader.add(Json{{"role", "system"}, {"content", *std::move(text)}}, path);
    } else {
      fault = invalid_value(path + ".role",
                            fmt::format("`{}.role` must be `user` or `assistant`.", path));
    }
    if (fault) return fault;
    if (i + 1 < messages.size() || role != "assistant") continue;
    // The answer goes on with the last message.
    if (reader.ends_with_call())
      return Fault{400, "invalid_messages", path + ".content",
                   "The last message has calls without results; send their `tool_result` blocks."};
    out.chat["continue_final_message"] = true;
    out.names.add("continue_final_message", path);
  }
  return std::nullopt;
}

}  // namespace sluice
