// Calls whose JSON has a fault: they are mended, or they are text.
#include <algorithm>
#include <utility>

#include "text/parsers/tool_parser.h"

namespace sluice {
namespace {

constexpr std::string_view kFrame = "}],;` \n\r\t";
// The end of a broken call is looked for at so many marks, which keeps the work linear.
constexpr int kMaxMends = 64;

// Without blanks, code fences and an opening bracket.
std::string_view without_frame(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with("```")) {
    text.remove_prefix(3);
    if (text.starts_with("json")) text.remove_prefix(4);
    text = trimmed(text);
  }
  if (text.starts_with("[")) text.remove_prefix(1);
  return trimmed(text);
}

struct FoundCall {
  std::string name, arguments, id;
};

// A call without arguments has no other member in which they may stand.
bool is_bare_name(const JsonMembers& members, const ToolFormat& format, const JsonText* name) {
  for (const auto& [key, value] : members.members)
    if (key != "type" && key != "id" && key != format.id_key && &value != name) return false;
  return true;
}

// {"name", "arguments"}, or {"function": {...}}, or {"function": "name", "arguments"}.
bool read_call(const JsonMembers& members, const ToolFormat& format, FoundCall& out) {
  const JsonText* function = members.find("function");
  const JsonText* name = members.find("name");
  if (!name && function && function->kind == JsonKind::kObject) {
    JsonMembers inner;
    return read_json_members(function->text, inner) == MembersStatus::kWhole &&
           !inner.find("function") && read_call(inner, format, out);
  }
  if (!name) name = members.find(format.name_key);
  if (!name) name = function;
  const std::optional<std::string> text = name ? decode_json_string(name->text) : std::nullopt;
  if (!text || text->empty()) return false;
  out.name = *text;
  const JsonText* arguments = members.find("arguments");
  if (!arguments) arguments = members.find("parameters");
  // They may be what is missing, or they have another name.
  if (!arguments && (!members.is_closed || !is_bare_name(members, format, name))) return false;
  const std::optional<std::string> object = arguments ? call_arguments(*arguments) : "{}";
  if (!object) return false;
  out.arguments = *object;
  if (const JsonText* id = members.find("id")) out.id = decode_json_string(id->text).value_or("");
  return true;
}

}  // namespace

// `c`, the last byte read, cannot be: the bytes since the opening mark are read again, in search of
// the call's end. A call that was told goes on as it is.
void ToolParser::break_call(char c) {
  if (told_) {
    break_told_call(c);
    return;
  }
  if (!is_marked() && !begun_) {
    give_up(false);
    return;
  }
  std::vector<Mark> marks;
  add_ends(marks);
  enter(State::kBroken, std::move(marks));
  mends_left_ = kMaxMends;
  const std::string raw = raw_;
  raw_.resize(json_at_);
  replay(std::string_view(raw).substr(json_at_));
}

// Whole arguments make a whole call, whatever follows.
void ToolParser::break_told_call(char c) {
  const bool is_json = state_ == State::kJson;
  if (is_json && !bare_arguments_ && json_.has_whole_arguments()) {
    complete();
    enter_between();
    replay(std::string_view(&c, 1));
    return;
  }
  std::vector<Mark> marks;
  add_ends(marks);
  enter(State::kRest, std::move(marks));
  tail_.clear();
  const std::size_t outer = bare_arguments_ ? 0 : 1;
  open_rest_ = is_json ? json_.depth() - std::min(json_.depth(), outer) : std::string::npos / 2;
  step_rest(c);
}

// A long call with a fault that is mended as it streams. False: its fault is another one.
bool ToolParser::resume_mended() {
  JsonCall mended(bare_arguments_, format_);
  mended.mend();
  for (const char c : std::string_view(raw_).substr(json_at_))
    if (mended.push(c) != JsonCall::Status::kMore) return false;
  std::string arguments = mended.take_arguments();
  const std::string name = bare_arguments_ ? name_ : mended.name();
  if (arguments.empty() || (!is_marked() && !is_tool(name)) || !begin(name)) return false;
  if (id_.empty()) id_ = mended.id();
  arguments_ = std::move(arguments);
  told_arguments_ = true;
  json_ = std::move(mended);
  enter(State::kJson);
  tell();
  return true;
}

void ToolParser::step_broken(char c) {
  std::string plain;
  const int marker = scanner_.push(c, plain);
  if (marker < 0) {
    if (raw_.size() <= max_held_ || resume_mended()) return;
    // The last bytes may begin a mark.
    const std::string held = scanner_.held();
    raw_.resize(raw_.size() - held.size());
    give_up(false);
    replay(held);
    return;
  }
  const Mark mark = marks_[static_cast<std::size_t>(marker)];
  const bool is_open = mark.role == Role::kOpen || mark.role == Role::kCallOpen;
  bool in_string = false;
  const std::string region = raw_.substr(json_at_, raw_.size() - mark.text.size() - json_at_);
  if (mend(region, in_string)) {
    go_on_behind(mark);
  } else if (!in_string || --mends_left_ == 0) {
    if (is_open) raw_.resize(raw_.size() - mark.text.size());
    const int calls = block_calls_;
    begun_ = false;
    give_up(false);
    if (mark.role == Role::kOpen) {
      enter_block(mark.text);
    } else if (mark.role == Role::kCallOpen) {
      block_calls_ = calls;
      if (calls == 0) raw_ = mark.text;
      enter_name(mark.text);
    } else if (mark.role == Role::kClose) {
      enter_text(false);
    }
  }
}

// Tells the calls that `region` holds, or none. `in_string`: the region ends inside a string, so
// the mark behind it may be part of the string.
bool ToolParser::mend(std::string_view region, bool& in_string) {
  std::vector<FoundCall> found;
  region = without_frame(region);
  if (bare_arguments_) {
    FoundCall call{name_, "{}", id_};
    if (!region.empty() && region != "null") {
      JsonMembers members;
      const MembersStatus status = read_json_members(region, members);
      in_string = status == MembersStatus::kOpenString;
      const bool is_text = region.front() == '"';
      if (is_text) {
        // The arguments may stand in a string.
        const std::optional<JsonText> text = read_json_text(region);
        const std::optional<std::string> object = text ? call_arguments(*text) : std::nullopt;
        in_string = !text;
        if (!object) return false;
        call.arguments = *object;
      } else {
        if (status != MembersStatus::kWhole || !members.is_closed) return false;
        const std::optional<JsonText> object = read_json_text(region.substr(0, members.length));
        if (!object || region.find_first_not_of(kFrame, members.length) != std::string_view::npos)
          return false;
        call.arguments = object->text;
      }
    }
    found.push_back(std::move(call));
  }
  while (!bare_arguments_ && (found.empty() || !region.empty())) {
    JsonMembers members;
    const MembersStatus status = read_json_members(region, members);
    in_string = status == MembersStatus::kOpenString;
    FoundCall call;
    if (status != MembersStatus::kWhole || !read_call(members, format_, call)) return false;
    if (!is_marked() && !is_tool(call.name)) return false;
    found.push_back(std::move(call));
    const std::size_t next = region.find_first_not_of(kFrame, members.length);
    region = next == std::string_view::npos ? std::string_view() : region.substr(next);
  }
  for (FoundCall& call : found) {
    begin(call.name);
    id_ = std::move(call.id);
    arguments(call.arguments);
    complete();
  }
  return true;
}

// Behind a call with a fault.
void ToolParser::go_on_behind(const Mark& mark) {
  if (mark.role == Role::kOpen) {
    enter_block(mark.text);
  } else if (mark.role == Role::kCallOpen) {
    enter_name(mark.text);
  } else if (mark.role == Role::kClose) {
    enter_text(false);
  } else {
    raw_.clear();
    raw_marker_ = 0;
    enter_between();
  }
}

// The bytes of a call that was told and has a fault: they go on as they are, up to its end.
void ToolParser::step_rest(char c) {
  std::string plain;
  const int marker = scanner_.push(c, plain);
  add_rest(plain);
  if (marker < 0) return;
  const Mark mark = marks_[static_cast<std::size_t>(marker)];
  end_rest();
  incomplete_ = true;
  begun_ = told_ = false;
  ++block_calls_;
  go_on_behind(mark);
}

void ToolParser::add_rest(std::string_view text) {
  for (const char c : text) {
    tail_ += c;
    if (kFrame.find(c) != std::string_view::npos) continue;
    for (const char t : tail_) {
      if (t == '{' || t == '[') ++open_rest_;
      if ((t == '}' || t == ']') && open_rest_ > 0) --open_rest_;
    }
    arguments(std::exchange(tail_, {}));
  }
}

// Of the last brackets, those that close the arguments are theirs. The others close the call.
void ToolParser::end_rest() {
  std::size_t end = 0;
  for (std::size_t i = 0; i < tail_.size() && open_rest_ > 0; ++i) {
    if (tail_[i] != '}' && tail_[i] != ']') continue;
    --open_rest_;
    end = i + 1;
  }
  arguments(std::string_view(tail_).substr(0, end));
  tail_.clear();
}

}  // namespace sluice
