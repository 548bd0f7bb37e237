#include "text/chat/content_format.h"

#include <optional>
#include <utility>
#include <vector>

namespace sluice {
namespace {

constexpr const char* kFirstText = "SluiceProbe";
constexpr const char* kSecondText = "ProbeOfSluice";
// A key of every probed part. Its name in a prompt shows that a part was printed as it stands.
constexpr const char* kPartKey = "sluice_part_key";

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

Json text_part(std::string text) {
  return Json{{"type", "text"}, {"text", std::move(text)}};
}

Json probe_part(const char* text) {
  Json part = text_part(text);
  part[kPartKey] = 1;
  return part;
}

Json message_of(const char* role, Json content) {
  return Json{{"role", role}, {"content", std::move(content)}};
}

Json one_tool() {
  const Json schema{{"type", "object"}, {"properties", Json::object()}};
  return Json::array(
      {Json{{"type", "function"},
            {"function", {{"name", "f"}, {"description", "x"}, {"parameters", schema}}}}});
}

// A conversation with the content at one place.
using Conversation = std::function<Json(Json content)>;
// Spellings of one conversation. A template may fail on all but one.
using Place = std::vector<Conversation>;

// Which contents of a place are in the prompt.
struct Shown {
  bool text = false;
  bool first_part = false;
  bool all_parts = false;

  bool any() const { return text || first_part; }
  void add(const Shown& other) {
    text = text || other.text;
    first_part = first_part || other.first_part;
    all_parts = all_parts || other.all_parts;
  }
};

class ContentProbe {
 public:
  ContentProbe(const RenderProbe& renders, ProbeTools use) : renders_(renders) {
    if (use.without) tools_.push_back(nullptr);
    if (use.with) tools_.push_back(one_tool());
  }

  ContentFormats formats() {
    const Place question = {
        [](Json content) { return Json::array({message_of("user", std::move(content))}); }};
    ContentFormats out;
    out.user = format_of({question}).value_or(ContentFormat::kString);
    user_ = message_of("user", content_of("x", out.user));
    const bool is_list =
        out.user == ContentFormat::kPartsOnly || out.user == ContentFormat::kOnePart;
    empty_ = is_list ? content_of("", out.user) : Json("");
    const auto found = [&](const std::vector<Place>& places) {
      return format_of(places).value_or(is_list ? ContentFormat::kPartsOnly
                                                : ContentFormat::kString);
    };
    out.system = found(instructions("system"));
    out.developer = found(instructions("developer"));
    out.tool = found({results()});
    out.assistant =
        found({{[&](Json content) {
                 return Json::array({user_, message_of("assistant", std::move(content)), user_});
               }},
               words_beside_calls(content_of("y", out.tool))});
    return out;
  }

 private:
  std::vector<Place> instructions(const char* role) const {
    return {{[=, this](Json content) {
              return Json::array({message_of(role, std::move(content)), user_});
            }},
            {[=, this](Json content) {
              return Json::array({user_, message_of(role, std::move(content)), user_});
            }}};
  }

  Json history(const Json& arguments, Json words, Json result) const {
    const Json function{{"name", "f"}, {"arguments", arguments}};
    Json answer = message_of("assistant", std::move(words));
    answer["tool_calls"] =
        Json::array({Json{{"id", "abcdefgh1"}, {"type", "function"}, {"function", function}}});
    Json output = message_of("tool", std::move(result));
    output["tool_call_id"] = "abcdefgh1";
    output["name"] = "f";
    return Json::array({user_, std::move(answer), std::move(output)});
  }

  Place results() const {
    Place out;
    for (const Json& arguments : arguments_)
      for (const Json& words : {Json(nullptr), empty_})
        out.push_back(
            [=, this](Json content) { return history(arguments, words, std::move(content)); });
    return out;
  }

  Place words_beside_calls(const Json& result) const {
    Place out;
    for (const Json& arguments : arguments_)
      out.push_back(
          [=, this](Json content) { return history(arguments, std::move(content), result); });
    return out;
  }

  Shown shown(const Conversation& conversation, const Json& tools) const {
    const auto prompt = [&](Json content) {
      std::string text = renders_(conversation(std::move(content)), tools);
      return has(text, kPartKey) ? std::string() : text;
    };
    const std::string of_text = prompt(kFirstText);
    const std::string of_parts =
        prompt(Json::array({probe_part(kFirstText), probe_part(kSecondText)}));
    Shown out{.text = has(of_text, kFirstText), .first_part = has(of_parts, kFirstText)};
    out.all_parts = out.first_part && has(of_parts, kSecondText);
    return out;
  }

  // A form that every place shows. Places that show nothing do not count. None: no place does.
  std::optional<ContentFormat> format_of(const std::vector<Place>& places) const {
    Shown every{true, true, true};
    bool any = false;
    for (const Place& place : places)
      for (const Json& tools : tools_) {
        Shown here;
        for (const Conversation& conversation : place) here.add(shown(conversation, tools));
        if (!here.any()) continue;
        any = true;
        every = {every.text && here.text, every.first_part && here.first_part,
                 every.all_parts && here.all_parts};
      }
    if (!any) return std::nullopt;
    if (every.text) return every.all_parts ? ContentFormat::kParts : ContentFormat::kString;
    if (every.all_parts) return ContentFormat::kPartsOnly;
    return every.first_part ? ContentFormat::kOnePart : ContentFormat::kString;
  }

  const RenderProbe& renders_;
  std::vector<Json> tools_;
  const std::vector<Json> arguments_ = {Json{{"probe", 1}}, Json("{\"probe\": 1}")};
  Json user_;   // a message of the user
  Json empty_;  // content without a word
};

std::string joined_text(const Json& parts) {
  std::string text;
  bool any = false;
  for (const Json& part : parts) {
    if (!part.is_object() || !part.contains("text") || !part["text"].is_string()) continue;
    if (any) text += '\n';
    any = true;
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

}  // namespace

ContentFormat ContentFormats::of(std::string_view role) const {
  if (role == "system") return system;
  if (role == "developer") return developer;
  if (role == "assistant") return assistant;
  return role == "tool" ? tool : user;
}

ContentFormats probe_content(const RenderProbe& renders, ProbeTools use) {
  return ContentProbe(renders, use).formats();
}

Json content_of(std::string text, ContentFormat format) {
  if (format == ContentFormat::kString || format == ContentFormat::kParts) return text;
  return Json::array({text_part(std::move(text))});
}

void adapt_content(Json& message, const ContentFormats& formats) {
  const auto content = message.find("content");
  if (content == message.end()) return;
  const auto role = message.find("role");
  const ContentFormat format = role != message.end() && role->is_string()
                                   ? formats.of(role->get_ref<const std::string&>())
                                   : formats.user;
  if (content->is_string()) {
    *content = content_of(content->get<std::string>(), format);
  } else if (content->is_array()) {
    const bool is_shown = format == ContentFormat::kParts || format == ContentFormat::kPartsOnly ||
                          (format == ContentFormat::kOnePart && content->size() < 2);
    if (!is_shown) *content = content_of(joined_text(*content), format);
  }
}

}  // namespace sluice
