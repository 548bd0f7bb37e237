#include "text/parsers/tool_parser.h"

#include <algorithm>
#include <cctype>
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
constexpr std::size_t kMistralIdLetters = 9;

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

ToolParser::MakeId random_ids(std::string prefix, int letters) {
  return [engine = std::mt19937_64(std::random_device{}()), prefix = std::move(prefix),
          letters]() mutable {
    static constexpr std::string_view kLetters =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    std::uniform_int_distribution<std::size_t> pick(0, kLetters.size() - 1);
    std::string id = prefix;
    for (int i = 0; i < letters; ++i) id += kLetters[pick(engine)];
    return id;
  };
}

const char* type_of(const Json& value) {
  if (value.is_string()) return "string";
  if (value.is_boolean()) return "boolean";
  if (value.is_number_integer() || is_big_integer(value)) return "integer";
  if (value.is_number()) return "number";
  if (value.is_array()) return "array";
  return value.is_object() ? "object" : "null";
}

// The types that a schema states; `root` holds what its references name.
void add_types(const Json& schema, const Json& root, int depth, std::vector<std::string>& types) {
  constexpr int kMaxDepth = 8;
  if (!schema.is_object() || depth > kMaxDepth) return;
  const auto add = [&](const Json& type) {
    if (type.is_string()) types.push_back(type.get<std::string>());
  };
  const Json reference = schema.value("$ref", Json());
  for (const char* key : {"$defs", "definitions"}) {
    const std::string start = fmt::format("#/{}/", key);
    if (!reference.is_string() || !root.contains(key) || !root[key].is_object()) continue;
    const auto& name = reference.get_ref<const std::string&>();
    if (!name.starts_with(start)) continue;
    const auto named = root[key].find(name.substr(start.size()));
    if (named != root[key].end()) add_types(*named, root, depth + 1, types);
  }
  if (schema.contains("type")) {
    if (!schema["type"].is_array()) return add(schema["type"]);
    for (const Json& type : schema["type"]) add(type);
    return;
  }
  if (schema.contains("const")) types.emplace_back(type_of(schema["const"]));
  for (const char* key : {"enum", "anyOf", "oneOf", "allOf"})
    if (schema.contains(key) && schema[key].is_array())
      for (const Json& choice : schema[key]) {
        if (std::string_view(key) == "enum") {
          types.emplace_back(type_of(choice));
        } else {
          add_types(choice, root, depth + 1, types);
        }
      }
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
  if (format.syntax == ToolSyntax::kList) add({kMistralArgs, kMistralId});
  if (format.syntax == ToolSyntax::kDeepseek)
    add({kDeepseekCall, kDeepseekCallEnd, kDeepseekSeparator});
  return marks;
}

std::vector<std::string> tool_parser_openings(std::string_view name) {
  const ToolFormat& format = find_format(name);
  if (format.syntax == ToolSyntax::kBare) return {};
  std::vector<std::string> marks = {std::string(format.open)};
  if (format.syntax == ToolSyntax::kDeepseek) marks.emplace_back(kDeepseekCall);
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
  const ToolFormat& format = find_format(name);
  if (!make_id)
    make_id = format.syntax == ToolSyntax::kList ? random_ids("", kMistralIdLetters)
                                                 : random_ids("call_", 24);
  return ToolParser(format, tools, std::move(make_id));
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
        add_types(schema, parameters, 0, types[key]);
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

std::vector<ToolEvent> ToolParser::finish(bool is_cut) {
  if (state_ == State::kContent) {
    std::string plain;
    scanner_.flush(plain);
    content(plain);
  } else if (told_) {
    finish_told(is_cut);
  } else if (is_cut) {
    finish_cut();
  } else {
    finish_whole();
  }
  if (num_calls_ == 0 && !space_.empty()) {
    after_call_ = false;
    content(std::exchange(space_, {}));
  }
  begun_ = told_ = false;
  enter_content();
  return std::exchange(events_, {});
}

// States in which only marks and white space were read since the last call.
bool ToolParser::is_between_calls() const {
  return state_ == State::kAfterBlock || state_ == State::kAfterJson ||
         state_ == State::kDeepseekTail || (state_ == State::kDeepseekOuter && block_calls_ > 0);
}

// The end of the text in a call whose beginning is out already.
void ToolParser::finish_told(bool is_cut) {
  std::string rest;
  scanner_.flush(rest);
  if (format_.syntax == ToolSyntax::kGlm && state_ == State::kGlmNext && !is_cut &&
      trimmed(rest).empty()) {
    complete();
    return;
  }
  incomplete_ = true;
  if (state_ == State::kGlmValue)
    arguments(streams_string_ ? escape_json_string(value_ + rest) : value_ + rest);
  if (state_ == State::kRest) arguments(rest);
}

// The engine ended the text: a call whose name is known keeps the arguments so far.
void ToolParser::finish_cut() {
  if (is_between_calls()) return;
  // Without an opening mark the first call is known by its arguments alone.
  const bool is_bare = format_.syntax == ToolSyntax::kBare && raw_marker_ == 0 && block_calls_ == 0;
  if (state_ == State::kBroken || (is_bare && arguments_.empty())) {
    content(raw_);
  } else if (begun_) {
    const bool reads_value = state_ == State::kGlmValue;
    tell();
    incomplete_ = true;
    if (reads_value) finish_told(true);
  }
}

// The model ended the text: an unfinished call is whole but for its closing marks, or it is text.
void ToolParser::finish_whole() {
  bool in_string = false;
  if (is_between_calls()) return;
  switch (state_) {
    case State::kJson:
    case State::kBroken:
      if (mend(std::string_view(raw_).substr(json_at_), in_string)) return;
      break;
    case State::kGlmName:
      if (scanner_.holding() || !begin(std::string(trimmed(head_)))) break;
      [[fallthrough]];
    case State::kGlmNext:
      if (!format_.close.starts_with(scanner_.held()) || (first_argument_ && !is_tool(name_)))
        break;
      complete();
      return;
    case State::kMistralArguments:
    case State::kDeepseekFence:
      complete();
      return;
    case State::kDeepseekName:
      if (scanner_.holding() || !begin_deepseek()) break;
      complete();
      return;
    default:
      break;
  }
  content(raw_);
}

void ToolParser::enter(State state, std::vector<std::string_view> markers) {
  state_ = state;
  scanner_ = MarkerScanner(std::move(markers));
}

std::vector<std::string_view> ToolParser::open_marks() const {
  if (format_.syntax == ToolSyntax::kDeepseek) return {format_.open, kDeepseekCall};
  return {format_.open};
}

void ToolParser::enter_content() {
  raw_.clear();
  head_.clear();
  begun_ = told_ = false;
  std::vector<std::string_view> markers = open_marks();
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
  name_ = name;
  arguments_.clear();
  begun_ = first_argument_ = true;
  told_ = told_arguments_ = false;
  return true;
}

// The call's events go out: its name, and the arguments so far.
void ToolParser::tell() {
  if (told_) return;
  told_ = true;
  ToolEvent event;
  event.kind = ToolEvent::Kind::kBegin;
  event.index = num_calls_++;
  const bool keeps_id =
      format_.syntax == ToolSyntax::kList && id_.size() == kMistralIdLetters &&
      std::all_of(id_.begin(), id_.end(), [](unsigned char c) { return std::isalnum(c); });
  event.id = keeps_id && ids_.count(id_) == 0 ? id_ : make_id_();
  ids_.insert(event.id);
  event.name = name_;
  events_.push_back(std::move(event));
  raw_.clear();
  space_.clear();
  after_call_ = true;
  arguments(std::exchange(arguments_, {}));
}

// The call is whole.
void ToolParser::complete() {
  if (format_.syntax == ToolSyntax::kGlm && !first_argument_) arguments("}");
  if (!told_arguments_) arguments("{}");
  tell();
  begun_ = told_ = false;
  ++block_calls_;
  raw_.clear();
  raw_marker_ = 0;
  id_.clear();
}

void ToolParser::arguments(std::string_view text) {
  if (text.empty()) return;
  told_arguments_ = true;
  if (!told_) {
    arguments_ += text;
    return;
  }
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

// `text` is read once more, before the bytes that wait to be read again.
void ToolParser::replay(std::string_view text) {
  replay_ = std::string(text) + replay_.substr(std::min(replay_at_, replay_.size()));
  replay_at_ = 0;
}

// The bytes did not form a call, so they are content. With `again` the bytes after the opening mark
// are read once more, since a call may begin among them.
void ToolParser::give_up(bool again) {
  std::string raw = std::exchange(raw_, {});
  const std::size_t mark = std::min(raw_marker_, raw.size());
  enter_content();
  if (again && raw.size() - mark <= kMaxReplay && mark > 0) {
    replay(std::string_view(raw).substr(mark));
    raw.resize(mark);
  }
  content(raw);
}

void ToolParser::step(char c) {
  if (state_ == State::kContent) {
    step_content(c);
    return;
  }
  if (!told_ && !(raw_.empty() && is_blank(c))) raw_ += c;
  if (state_ == State::kBroken) {
    step_broken(c);
  } else if (state_ == State::kRest) {
    step_rest(c);
  } else if (format_.syntax == ToolSyntax::kGlm) {
    step_glm(c);
  } else if (format_.syntax == ToolSyntax::kDeepseek && state_ != State::kJson) {
    step_deepseek(c);
  } else {
    step_json_format(c);
  }
  if (begun_ && !told_ && state_ != State::kBroken && raw_.size() > kMaxHeldCall &&
      !arguments_.empty())
    tell();
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
  const int opens = static_cast<int>(open_marks().size());
  if (marker >= 0 && marker < opens) enter_call(marker);
  // The closing mark of a block that a call came from is dropped; any other closing mark is text.
  if (marker >= opens && !std::exchange(block_open_, false)) content(scanner_.marker(marker));
}

// `marker`: which of open_marks() was read; -1 for a call without one.
void ToolParser::enter_call(int marker) {
  raw_ = marker < 0 ? std::string() : std::string(open_marks()[static_cast<std::size_t>(marker)]);
  raw_marker_ = raw_.size();
  begun_ = told_ = in_list_ = block_open_ = false;
  block_calls_ = 0;
  id_.clear();
  head_.clear();
  switch (format_.syntax) {
    case ToolSyntax::kGlm:
      enter(State::kGlmName, {kGlmKey, format_.close});
      break;
    case ToolSyntax::kDeepseek:
      if (marker == 1) {
        enter(State::kDeepseekHead, {kDeepseekSeparator, kDeepseekCallEnd, format_.close});
      } else {
        enter(State::kDeepseekOuter, {kDeepseekCall, format_.close});
      }
      break;
    default:
      enter(State::kBeforeJson);
      break;
  }
}

}  // namespace sluice
