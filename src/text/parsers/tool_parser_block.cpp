// Blocks of calls: what stands before a call, its name, and what stands behind it.
#include <algorithm>
#include <cctype>

#include "text/parsers/tool_parser.h"

namespace sluice {
namespace {

bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || static_cast<unsigned char>(c) >= 0x80 ||
         std::string_view("_-.:/").find(c) != std::string_view::npos;
}

// Words before a name, as the marks that end them.
std::string_view type_mark(std::string_view type) {
  const std::size_t mark = type.find('<');
  return mark == std::string_view::npos ? std::string_view() : type.substr(mark);
}

// True for marks such as <|MARK|> and [MARK], false for <MARK>, of which a text may speak.
bool is_no_prose(std::string_view mark) {
  return !mark.starts_with('<') || mark.size() < 2 ||
         std::isalpha(static_cast<unsigned char>(mark[1])) == 0;
}

// functions.NAME:N, or NAME:N.
std::string name_in_id(std::string_view id) {
  constexpr std::string_view kSpace = "functions.";
  if (id.starts_with(kSpace)) id.remove_prefix(kSpace.size());
  const std::size_t colon = id.rfind(':');
  if (colon != std::string_view::npos && colon + 1 < id.size() &&
      id.find_first_not_of("0123456789", colon + 1) == std::string_view::npos)
    id = id.substr(0, colon);
  return std::string(id);
}

}  // namespace

// Marks at which any part of a call may end.
void ToolParser::add_ends(std::vector<Mark>& marks) const {
  for (const std::string_view close : {format_.call_close, format_.call_tail})
    marks.push_back({close, Role::kCallClose});
  for (const std::string_view close : {format_.close, format_.other_close})
    marks.push_back({close, Role::kClose});
  for (const std::string_view open : {format_.open, format_.other_opens[0], format_.other_opens[1]})
    marks.push_back({open, Role::kOpen});
  marks.push_back({attribute_free(format_.call_open), Role::kCallOpen});
}

// `mark`: the one that was read; empty for a block without one.
void ToolParser::enter_block(std::string_view mark) {
  raw_ = mark;
  raw_marker_ = raw_.size();
  is_marked_ = !mark.empty();
  begun_ = told_ = in_list_ = block_open_ = false;
  fence_ = Fence::kNone;
  block_calls_ = 0;
  id_.clear();
  head_.clear();
  enter_between();
}

// Nothing but opening marks and white space came since the text before the block.
bool ToolParser::is_empty_block() const {
  return block_calls_ == 0 && is_marked() && !in_list_ && fence_ == Fence::kNone;
}

void ToolParser::enter_between() {
  std::vector<Mark> marks;
  add_ends(marks);
  enter(State::kBlock, std::move(marks));
}

void ToolParser::step_block(char c) {
  std::string plain;
  const int marker = scanner_.push(c, plain);
  const Mark mark = marker < 0 ? Mark{{}, Role::kNone} : marks_[static_cast<std::size_t>(marker)];
  for (std::size_t i = 0; i < plain.size(); ++i) {
    if (is_blank(plain[i]) && fence_ != Fence::kFirstLine) continue;
    const std::string rest = plain.substr(i + 1) + std::string(mark.text) + scanner_.held();
    if (step_block_byte(plain[i], rest)) return;
  }
  switch (mark.role) {
    case Role::kCallOpen:
      enter_name(mark.text);
      return;
    case Role::kOpen:
      if (is_empty_block()) {
        raw_marker_ = raw_.size();  // a doubled mark is one
        return;
      }
      if (block_calls_ == 0) {
        raw_.resize(raw_.size() - mark.text.size());
        give_up(false);
      }
      enter_block(mark.text);
      return;
    case Role::kClose:
      if (block_calls_ == 0 && !(is_empty_block() && (after_call_ || is_no_prose(raw_)))) {
        give_up(true);
      } else {
        enter_text(false);
      }
      return;
    case Role::kCallClose:
      if (block_calls_ == 0)
        give_up(true);
      else
        raw_.clear();
      return;
    default:
      return;
  }
}

// A byte that is no white space and no mark; `rest` is what was read behind it. True if the state
// changed, or the bytes are dealt with.
bool ToolParser::step_block_byte(char p, std::string_view rest) {
  const bool is_first = block_calls_ == 0;
  if (fence_ == Fence::kFirstLine) {
    if (p == '`' || std::islower(static_cast<unsigned char>(p))) return false;
    fence_ = Fence::kInside;
    if (is_blank(p)) return false;
  }
  if (p == '{' && format_.takes_objects()) {
    unread(rest);
    begin_json(false);
    step_json(p);
    return true;
  }
  const bool may_open_list = is_marked() || format_.bare.find('[') != std::string_view::npos;
  if (p == '[' && is_first && !in_list_ && may_open_list &&
      (format_.takes_objects() || format_.is_list())) {
    in_list_ = true;
    return false;
  }
  if (p == ']' && in_list_ && (!is_first || is_marked())) {
    if (is_first) ++block_calls_;
    in_list_ = false;
    raw_.clear();
    if (format_.close.empty() && fence_ == Fence::kNone) {
      enter_text(false);
      unread(rest);
      return true;
    }
    return false;
  }
  if (p == '`' && is_first && !in_list_ && format_.takes_objects()) {
    fence_ = Fence::kFirstLine;
    return false;
  }
  const bool is_frame = !is_first && (p == '}' || p == ']' || p == ',' || p == ';' ||
                                      (p == '`' && fence_ != Fence::kNone));
  if (is_frame) {
    raw_.clear();
    return false;
  }
  const bool may_name = format_.call_open.empty() && format_.reads_names() && is_name_char(p) &&
                        (is_first || !format_.one_per_block);
  if (may_name) {
    std::string name(1, p);
    name += rest;
    enter_name({});
    unread(name);
    return true;
  }
  if (is_first) {
    give_up(true);
    return true;
  }
  // Text behind a call; the closing mark of the block may still come.
  const std::string left = std::exchange(raw_, {});
  enter_text(true);
  replay(left.empty() ? std::string(1, p) + std::string(rest) : left);
  return true;
}

void ToolParser::enter_name(std::string_view mark) {
  if (block_calls_ > 0) {
    raw_ = mark;
    raw_marker_ = raw_.size();
  }
  head_.clear();
  begun_ = has_type_ = false;
  fence_ = Fence::kNone;
  std::vector<Mark> marks;
  add_ends(marks);
  const std::string_view type = type_mark(format_.type.empty() ? format_.other_type : format_.type);
  std::string_view close = attribute_free(format_.name_close);
  if (!type.empty() && close == type) close = {};
  // Marks that begin with a line break are those of a fence: the name ends with its line.
  if (close.starts_with("\n")) close = {};
  marks.push_back({type, Role::kType});
  marks.push_back({close, Role::kNameClose});
  marks.push_back({format_.id_open, Role::kIdOpen});
  marks.push_back({attribute_free(format_.key_open), Role::kKeyOpen});
  switch (format_.syntax) {
    case CallSyntax::kKeywords:
      marks.push_back({"(", Role::kNameClose});
      break;
    case CallSyntax::kBraces:
      marks.push_back({"{", Role::kNameClose});
      break;
    case CallSyntax::kTagged:
      if (format_.call_open.empty()) marks.push_back({"{", Role::kBrace});
      break;
    default:
      if (format_.key_open.empty()) marks.push_back({"{", Role::kBrace});
      break;
  }
  enter(State::kName, std::move(marks));
}

// False: the byte cannot be part of a name.
bool ToolParser::add_to_name(char p) {
  const bool may_be_quoted = format_.call_open.ends_with('"');
  const bool is_quote = may_be_quoted && (p == '"' || p == '\'');
  const bool second_word = !head_.empty() && head_.back() == ' ' && !is_blank(p);
  if ((!is_name_char(p) && !is_blank(p) && !is_quote) || second_word || head_.size() > kMaxToolName)
    return false;
  if (!is_blank(p)) {
    head_ += p;
  } else if (!head_.empty()) {
    if (format_.syntax == CallSyntax::kKeywords) return false;
    if (head_.back() != ' ') head_ += ' ';
  }
  return true;
}

void ToolParser::step_name(char c) {
  std::string plain;
  const int marker = scanner_.push(c, plain);
  const Mark mark = marker < 0 ? Mark{{}, Role::kNone} : marks_[static_cast<std::size_t>(marker)];
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const char p = plain[i];
    const bool ends_line = p == '\n' && !trimmed(head_).empty();
    // A name that no mark ends, ends with its line, or at a fence.
    const bool is_line = format_.call_open.empty() ? !format_.key_open.empty()
                                                   : format_.syntax == CallSyntax::kNamed;
    const bool is_fence = p == '`' && format_.syntax == CallSyntax::kNamed && !head_.empty();
    if ((ends_line || is_fence) && is_line) {
      if (!begin_named()) {
        give_up(true);
        return;
      }
      const std::string rest = plain.substr(i + 1) + std::string(mark.text) + scanner_.held();
      if (format_.syntax == CallSyntax::kNamed) {
        end_name(Role::kNameClose, {});
      } else {
        enter_pairs();
      }
      unread(rest);
      return;
    }
    if (!add_to_name(p)) {
      give_up(true);
      return;
    }
  }
  if (mark.role == Role::kType && !has_type_) {
    const std::string& type = head_;
    const std::string spelled = std::string(trimmed(type)) + std::string(mark.text);
    if (spelled == format_.type || spelled == format_.other_type) {
      has_type_ = true;
      head_.clear();
      return;
    }
  }
  const bool is_opening = mark.role == Role::kOpen || mark.role == Role::kCallOpen;
  if (is_opening && !begun_ && !has_type_ && trimmed(head_).empty()) {
    raw_marker_ = raw_.size();  // a doubled mark is one
    head_.clear();
    return;
  }
  if (mark.role == Role::kOpen) {
    // The block had no call.
    raw_.resize(raw_.size() - std::min(raw_.size(), mark.text.size()));
    give_up(false);
    enter_block(mark.text);
    return;
  }
  if (mark.role != Role::kNone) end_name(mark.role, mark.text);
}

// The name is whole: `head_`, or the word before it where nothing followed.
bool ToolParser::begin_named() {
  std::string_view name = trimmed(head_);
  if (format_.call_open.ends_with('"') && name.size() >= 2 &&
      (name.front() == '"' || name.front() == '\'') && name.back() == name.front())
    name = name.substr(1, name.size() - 2);
  if (name.find_first_of("\"'") != std::string_view::npos) return false;
  if (name.empty() && has_type_) {
    const std::string_view type = format_.type.empty() ? format_.other_type : format_.type;
    name = type.substr(0, type.find('<'));
  }
  if (format_.ids == CallIds::kName) {
    id_ = std::string(name);
    return begin(name_in_id(name));
  }
  return begin(std::string(name));
}

bool ToolParser::begin(const std::string& name) {
  if (name.empty()) return false;
  name_ = name;
  arguments_.clear();
  begun_ = first_argument_ = true;
  told_ = told_arguments_ = false;
  return true;
}

// A mark behind the name.
void ToolParser::end_name(Role role, std::string_view mark) {
  const bool is_end = role == Role::kCallClose || role == Role::kClose || role == Role::kCallOpen;
  if (!begun_) {
    const bool has_arguments = format_.syntax == CallSyntax::kTagged ||
                               (format_.syntax == CallSyntax::kObject && !format_.key_open.empty());
    // Only tags and DeepSeek's names may end without arguments.
    const bool may_end = has_arguments || has_type_;
    if ((is_end && !may_end) || !begin_named() || (!is_marked() && !is_tool(name_))) {
      begun_ = false;
      give_up(true);
      return;
    }
  }
  if (is_end) {
    end_call(role, mark);
    return;
  }
  if (role == Role::kIdOpen) {
    enter(State::kId, {{format_.name_close, Role::kNameClose}, {"{", Role::kBrace}});
    return;
  }
  if (format_.syntax == CallSyntax::kKeywords || format_.syntax == CallSyntax::kBraces) {
    const auto style = format_.syntax == CallSyntax::kKeywords ? LiteralArguments::Style::kKeywords
                                                               : LiteralArguments::Style::kBraces;
    literals_ = LiteralArguments(style, format_.quote);
    enter(State::kLiterals);
    return;
  }
  if (!format_.key_open.empty()) {
    enter_pairs();
    if (role == Role::kKeyOpen || role == Role::kBrace) unread(mark);
    return;
  }
  if (role == Role::kBrace) {
    begin_json(true);
    step_json('{');
    return;
  }
  std::vector<Mark> marks;
  add_ends(marks);
  enter(State::kBeforeArguments, std::move(marks));
}

// name[CALL_ID]id[ARGS]{...}
void ToolParser::step_id(char c) {
  const Role role = scan(c, id_);
  const std::string_view id = trimmed(id_);
  if (id.size() > kMaxToolName || !std::ranges::all_of(id, is_name_char)) {
    give_up(true);
    return;
  }
  if (role == Role::kNone) return;
  id_ = std::string(id);
  end_name(role, {});
}

// A mark behind the arguments, or behind a name without any.
void ToolParser::end_call(Role role, std::string_view mark) {
  complete();
  switch (role) {
    case Role::kClose:
      enter_text(false);
      return;
    case Role::kOpen:
      enter_block(mark);
      return;
    case Role::kCallOpen:
      enter_name(mark);
      return;
    default:
      enter_between();
      return;
  }
}

}  // namespace sluice
