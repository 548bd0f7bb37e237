// Calls whose JSON has a fault: they are mended, or they are text.
#include "text/parsers/tool_parser.h"

namespace sluice {
namespace {

constexpr std::string_view kFrame = "}],;` \n\r\t";

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
  if (!arguments && !members.is_closed) return false;  // they may be what is missing
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
  std::vector<Mark> marks;
  add_ends(marks);
  if (told_) {
    enter(State::kRest, std::move(marks));
    if (c != '\0') step_rest(c);
    return;
  }
  if (!is_marked() && !begun_) {
    give_up(false);
    return;
  }
  enter(State::kBroken, std::move(marks));
  const std::string raw = raw_;
  raw_.resize(json_at_);
  replay(std::string_view(raw).substr(json_at_));
}

void ToolParser::step_broken(char c) {
  std::string plain;
  const int marker = scanner_.push(c, plain);
  if (marker < 0) {
    if (raw_.size() <= kMaxHeldCall) return;
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
    if (mark.role == Role::kOpen) {
      enter_block(mark.text);
    } else if (mark.role == Role::kCallOpen) {
      enter_name(mark.text);
    } else if (mark.role == Role::kClose) {
      enter_text(false);
    } else {
      enter_between();
    }
  } else if (!in_string) {
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

// The bytes of a call that was told and has a fault: they go on as they are, up to its end.
void ToolParser::step_rest(char c) {
  std::string plain;
  const int marker = scanner_.push(c, plain);
  arguments(plain);
  if (marker < 0) return;
  const Mark mark = marks_[static_cast<std::size_t>(marker)];
  incomplete_ = true;
  begun_ = told_ = false;
  ++block_calls_;
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

}  // namespace sluice
