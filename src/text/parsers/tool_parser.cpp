#include "text/parsers/tool_parser.h"

#include <algorithm>
#include <iterator>
#include <random>

#include "base/error.h"
#include "text/parsers/tool_parser_format.h"

namespace sluice {
namespace {

// text/chat/chat_template.cpp, kToolMarks, finds the row of a template.
constexpr ToolFormat kFormats[] = {
    {"glm45", {"glm", "glm47", "glm4_moe"}, ToolSyntax::kGlm, "<tool_call>", "</tool_call>"},
    {"hermes", {"qwen", "qwen25", "qwen3"}, ToolSyntax::kBlock, "<tool_call>", "</tool_call>"},
    {"llama3", {"llama3_json", "llama4_json"}, ToolSyntax::kBare, "<|python_tag|>", ""},
    {"mistral", {}, ToolSyntax::kList, "[TOOL_CALLS]", ""},
    {"deepseekv3",
     {"deepseek_v3", "deepseek-v3", "deepseekv31", "deepseek_v31"},
     ToolSyntax::kDeepseek,
     "<｜tool▁calls▁begin｜>",
     "<｜tool▁calls▁end｜>"},
};

// Longer stretches are not read again, which keeps the work linear.
constexpr std::size_t kMaxReplay = 256;

const ToolFormat& find_format(std::string_view name) {
  for (const ToolFormat& format : kFormats)
    if (format.name == name ||
        (!name.empty() &&
         std::find(format.aliases.begin(), format.aliases.end(), name) != format.aliases.end()))
      return format;
  std::string known;
  for (const ToolFormat& format : kFormats)
    known += (known.empty() ? "" : ", ") + std::string(format.name);
  fail(ErrorKind::kBadInput, "unknown tool-call parser '{}'; known are: {}", name, known);
}

ToolParser::MakeId random_ids() {
  return [engine = std::mt19937_64(std::random_device{}())]() mutable {
    static constexpr std::string_view kLetters =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    std::uniform_int_distribution<std::size_t> pick(0, kLetters.size() - 1);
    std::string id = "call_";
    for (int i = 0; i < 24; ++i) id += kLetters[pick(engine)];
    return id;
  };
}

std::vector<std::string> stated_types(const Json& schema) {
  std::vector<std::string> types;
  if (!schema.is_object()) return types;
  const auto add = [&](const Json& type) {
    if (type.is_string()) types.push_back(type.get<std::string>());
  };
  if (schema.contains("type")) {
    if (schema["type"].is_array()) {
      for (const Json& type : schema["type"]) add(type);
    } else {
      add(schema["type"]);
    }
  } else if (schema.contains("enum") && schema["enum"].is_array()) {
    const bool texts = std::all_of(schema["enum"].begin(), schema["enum"].end(),
                                   [](const Json& v) { return v.is_string(); });
    if (texts) types.emplace_back("string");
  } else {
    for (const char* key : {"anyOf", "oneOf"})
      if (schema.contains(key) && schema[key].is_array())
        for (const Json& choice : schema[key])
          if (choice.is_object() && choice.contains("type")) add(choice["type"]);
  }
  return types;
}

bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

}  // namespace

std::vector<std::string> tool_parser_marks(std::string_view name) {
  const ToolFormat& format = find_format(name);
  std::vector<std::string> marks;
  auto add = [&](std::initializer_list<std::string_view> more) {
    marks.insert(marks.end(), more.begin(), more.end());
  };
  add({format.open});
  if (!format.close.empty()) add({format.close});
  if (format.syntax == ToolSyntax::kGlm) add({kGlmKey, kGlmEndKey, kGlmValue, kGlmEndValue});
  if (format.syntax == ToolSyntax::kList) add({kMistralArgs});
  if (format.syntax == ToolSyntax::kDeepseek)
    add({kDeepseekCall, kDeepseekCallEnd, kDeepseekSeparator});
  return marks;
}

std::vector<std::string> known_tool_parsers() {
  std::vector<std::string> names;
  for (const ToolFormat& format : kFormats) names.emplace_back(format.name);
  return names;
}

std::string tool_parser_name(std::string_view name) {
  return std::string(find_format(name).name);
}

ToolParser ToolParser::create(std::string_view name, const Json& tools, MakeId make_id) {
  return ToolParser(find_format(name), tools, make_id ? std::move(make_id) : random_ids());
}

ToolParser::ToolParser(const ToolFormat& format, const Json& tools, MakeId make_id)
    : format_(format), make_id_(std::move(make_id)) {
  if (tools.is_array()) {
    for (const Json& tool : tools) {
      const Json& function =
          tool.is_object() && tool.contains("function") ? tool["function"] : tool;
      if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
        continue;
      auto& types = schemas_[function["name"].get<std::string>()];
      if (!function.contains("parameters") || !function["parameters"].is_object()) continue;
      const Json& parameters = function["parameters"];
      if (!parameters.contains("properties") || !parameters["properties"].is_object()) continue;
      for (const auto& [key, schema] : parameters["properties"].items())
        types[key] = stated_types(schema);
    }
  }
  enter_content();
}

std::vector<ToolEvent> ToolParser::push(std::string_view text) {
  for (const char c : text) {
    step(c);
    while (replay_at_ < replay_.size()) {
      const char again = replay_[replay_at_++];
      step(again);
    }
    replay_.clear();
    replay_at_ = 0;
  }
  return std::exchange(events_, {});
}

std::vector<ToolEvent> ToolParser::finish() {
  std::string plain;
  if (state_ == State::kContent) {
    scanner_.flush(plain);
    content(plain);
  } else if (!begun_) {
    // After a whole call only marks were read. Otherwise nothing was reported yet, and the bytes
    // are text.
    const bool behind_call = state_ == State::kAfterBlock || state_ == State::kListNext ||
                             state_ == State::kDeepseekTail ||
                             (state_ == State::kDeepseekOuter && num_calls_ > 0);
    if (!behind_call) {
      incomplete_ = true;
      content(raw_);
    }
  } else {
    incomplete_ = true;
    if (state_ == State::kGlmValue) {
      scanner_.flush(value_);
      finish_value();
    }
  }
  if (num_calls_ == 0 && !space_.empty()) {
    after_call_ = false;
    content(std::exchange(space_, {}));
  }
  enter_content();
  return std::exchange(events_, {});
}

void ToolParser::enter(State state, std::vector<std::string_view> markers) {
  state_ = state;
  scanner_ = MarkerScanner(std::move(markers));
}

void ToolParser::enter_content() {
  raw_.clear();
  head_.clear();
  begun_ = false;
  std::vector<std::string_view> markers = {format_.open};
  if (!format_.close.empty()) markers.push_back(format_.close);
  enter(State::kContent, std::move(markers));
}

void ToolParser::content(std::string_view text) {
  if (text.empty()) return;
  if (after_call_) {
    // White space after a call is dropped unless text follows it.
    std::size_t blank = 0;
    while (blank < text.size() && is_blank(text[blank])) ++blank;
    space_ += text.substr(0, blank);
    if (blank == text.size()) return;
    const std::string all = std::exchange(space_, {}) + std::string(text.substr(blank));
    after_call_ = false;
    content(all);
    return;
  }
  started_ = started_ || !std::all_of(text.begin(), text.end(), is_blank);
  if (events_.empty() || events_.back().kind != ToolEvent::Kind::kContent) events_.emplace_back();
  events_.back().text += text;
}

bool ToolParser::begin(const std::string& name) {
  if (name.empty()) return false;
  ToolEvent event;
  event.kind = ToolEvent::Kind::kBegin;
  event.index = num_calls_++;
  event.id = make_id_();
  event.name = name;
  events_.push_back(std::move(event));
  name_ = name;
  begun_ = first_argument_ = true;
  told_arguments_ = false;
  raw_.clear();
  space_.clear();
  after_call_ = true;
  return true;
}

void ToolParser::arguments(std::string_view text) {
  if (text.empty()) return;
  told_arguments_ = true;
  const bool joins = !events_.empty() && events_.back().kind == ToolEvent::Kind::kArguments &&
                     events_.back().index == num_calls_ - 1;
  if (!joins) {
    ToolEvent event;
    event.kind = ToolEvent::Kind::kArguments;
    event.index = num_calls_ - 1;
    events_.push_back(std::move(event));
  }
  events_.back().text += text;
}

// The bytes did not form a call. If the call has not begun, its bytes are content. With `again` the
// bytes after the opening mark are read once more, since a call may begin among them.
void ToolParser::give_up(bool again) {
  const bool had_begun = begun_;
  std::string raw = std::exchange(raw_, {});
  const std::size_t mark = std::min(raw_marker_, raw.size());
  enter_content();
  if (had_begun) {
    incomplete_ = broken_ = true;
    return;
  }
  if (again && raw.size() - mark <= kMaxReplay && mark > 0) {
    replay_ = raw.substr(mark) + replay_.substr(std::min(replay_at_, replay_.size()));
    replay_at_ = 0;
    raw.resize(mark);
  }
  content(raw);
}

void ToolParser::step(char c) {
  if (state_ == State::kContent) {
    step_content(c);
    return;
  }
  if (!begun_ && !(raw_.empty() && is_blank(c))) raw_ += c;
  if (format_.syntax == ToolSyntax::kGlm) {
    step_glm(c);
  } else if (format_.syntax == ToolSyntax::kDeepseek && state_ != State::kJson) {
    step_deepseek(c);
  } else {
    step_json_format(c);
  }
}

void ToolParser::step_content(char c) {
  if (format_.syntax == ToolSyntax::kBare && !started_ && c == '{' && !scanner_.holding()) {
    enter_call(-1);
    raw_ = "{";
    begin_json(false);
    step_json(c);
    return;
  }
  std::string plain;
  const int marker = scanner_.push(c, plain);
  content(plain);
  if (marker == 0) enter_call(0);
  // The closing mark of a broken call is dropped with it; any other closing mark is text.
  if (marker == 1 && !std::exchange(broken_, false)) content(scanner_.marker(1));
}

void ToolParser::enter_call(int marker) {
  raw_ = marker == 0 ? std::string(format_.open) : std::string();
  raw_marker_ = raw_.size();
  begun_ = in_list_ = broken_ = false;
  head_.clear();
  switch (format_.syntax) {
    case ToolSyntax::kGlm:
      enter(State::kGlmName, {"<arg_key>", format_.close});
      break;
    case ToolSyntax::kDeepseek:
      enter(State::kDeepseekOuter, {kDeepseekCall, format_.close});
      break;
    default:
      enter(State::kBeforeJson);
      break;
  }
}

}  // namespace sluice
