// The text around calls, what goes out, and the end of the text.
#include "text/parsers/tool_parser.h"

#include <algorithm>
#include <cctype>
#include <random>
#include <utility>

#include "base/error.h"

namespace sluice {
namespace {

// Longer stretches are not read again, which keeps the work linear.
constexpr std::size_t kMaxReplay = 256;
constexpr std::size_t kNineLetters = 9;

ToolParser::MakeId random_ids(std::string prefix, std::size_t letters) {
  return [engine = std::mt19937_64(std::random_device{}()), prefix = std::move(prefix),
          letters]() mutable {
    static constexpr std::string_view kLetters =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    std::uniform_int_distribution<std::size_t> pick(0, kLetters.size() - 1);
    std::string id = prefix;
    for (std::size_t i = 0; i < letters; ++i) id += kLetters[pick(engine)];
    return id;
  };
}

bool keeps_id(CallIds ids, const std::string& id) {
  if (ids == CallIds::kName) return !id.empty();
  return ids == CallIds::kNineLetters && id.size() == kNineLetters &&
         std::ranges::all_of(id, [](unsigned char c) { return std::isalnum(c) != 0; });
}

}  // namespace

ToolParser::MakeId random_call_ids(const ToolFormat& format) {
  return format.ids == CallIds::kNineLetters ? random_ids("", kNineLetters)
                                             : random_ids("call_", 24);
}

ToolParser ToolParser::create(std::string_view name, const Json& tools, MakeId make_id) {
  const ToolFormat& format = find_tool_format(name);
  check(format.syntax != CallSyntax::kChannels, "{}: HarmonyParser reads channels", name);
  return ToolParser(format, tools, make_id ? std::move(make_id) : random_call_ids(format));
}

ToolParser::ToolParser(const ToolFormat& format, const Json& tools, MakeId make_id)
    : format_(format), make_id_(std::move(make_id)), schemas_(tools), json_(false, format) {
  enter_text(false);
}

std::vector<ToolEvent> ToolParser::push(std::string_view text) {
  for (const char c : text) {
    step(c);
    step_again();
  }
  return std::exchange(events_, {});
}

// The bytes that wait to be read once more.
void ToolParser::step_again() {
  while (replay_at_ < replay_.size()) {
    const char again = replay_[replay_at_++];
    step(again);
  }
  replay_.clear();
  replay_at_ = 0;
}

void ToolParser::step(char c) {
  if (state_ == State::kText) {
    step_text(c);
    return;
  }
  if (!told_ && !(raw_.empty() && is_blank(c))) raw_ += c;
  switch (state_) {
    case State::kText:
      break;
    case State::kBlock:
      step_block(c);
      break;
    case State::kName:
      step_name(c);
      break;
    case State::kId:
      step_id(c);
      break;
    case State::kBeforeArguments:
      step_before_arguments(c);
      break;
    case State::kJson:
      step_json(c);
      break;
    case State::kLiterals:
      step_literals(c);
      break;
    case State::kPairs:
      step_pairs(c);
      break;
    case State::kKey:
      step_key(c);
      break;
    case State::kBeforeValue:
      step_before_value(c);
      break;
    case State::kValue:
      step_value(c);
      break;
    case State::kBehindValue:
      step_behind_value(c);
      break;
    case State::kBroken:
      step_broken(c);
      break;
    case State::kRest:
      step_rest(c);
      break;
  }
  if (begun_ && !told_ && state_ != State::kBroken && raw_.size() > max_held_ &&
      !arguments_.empty())
    tell();
}

void ToolParser::enter(State state, std::vector<Mark> marks) {
  state_ = state;
  std::erase_if(marks, [](const Mark& mark) { return mark.text.empty(); });
  std::vector<std::string_view> texts;
  texts.reserve(marks.size());
  for (const Mark& mark : marks) texts.push_back(mark.text);
  marks_ = std::move(marks);
  scanner_ = MarkerScanner(std::move(texts));
}

ToolParser::Role ToolParser::scan(char c, std::string& plain) {
  const int marker = scanner_.push(c, plain);
  return marker < 0 ? Role::kNone : marks_[static_cast<std::size_t>(marker)].role;
}

// `block_is_open`: text follows a call before the closing marks of its block, which are dropped.
// Closing marks that only white space parts from a call are dropped, too.
void ToolParser::enter_text(bool block_is_open) {
  raw_.clear();
  head_.clear();
  begun_ = told_ = false;
  block_open_ = block_is_open;
  std::vector<Mark> marks = {{format_.open, Role::kOpen}};
  for (const std::string_view open : format_.other_opens) marks.push_back({open, Role::kOpen});
  if (block_is_open || format_.is_open_optional)
    marks.push_back({attribute_free(format_.call_open), Role::kCallOpen});
  for (const std::string_view close : {format_.close, format_.other_close})
    marks.push_back({close, Role::kClose});
  if (block_is_open || num_calls_ > 0)
    for (const std::string_view close : {format_.call_close, format_.call_tail})
      marks.push_back({close, Role::kCallClose});
  enter(State::kText, std::move(marks));
}

void ToolParser::step_text(char c) {
  if (!started_ && !scanner_.holding() && format_.bare.find(c) != std::string_view::npos) {
    enter_block({});
    step(c);
    return;
  }
  std::string plain;
  const int marker = scanner_.push(c, plain);
  content(plain);
  if (marker < 0) return;
  const Mark mark = marks_[static_cast<std::size_t>(marker)];
  if (mark.role == Role::kOpen || mark.role == Role::kCallOpen) {
    enter_block(mark.text);
    if (mark.role == Role::kCallOpen) enter_name(mark.text);
    return;
  }
  // The closing mark of a block that a call came from is dropped, and those behind it; any other
  // one is text.
  const bool is_behind_call = num_calls_ > 0 && after_call_;
  if (!block_open_ && !is_behind_call) {
    content(mark.text);
  } else if (mark.role == Role::kClose && block_open_) {
    enter_text(false);
  }
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
  started_ = started_ || !std::ranges::all_of(text, is_blank);
  if (events_.empty() || events_.back().kind != ToolEvent::Kind::kContent) events_.emplace_back();
  events_.back().text += text;
}

// The call's events go out: its name, and the arguments so far.
void ToolParser::tell() {
  if (told_) return;
  told_ = true;
  json_.mend();
  ToolEvent event;
  event.kind = ToolEvent::Kind::kBegin;
  event.index = num_calls_++;
  event.id = keeps_id(format_.ids, id_) && ids_.count(id_) == 0 ? id_ : make_id_();
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
  if (!told_arguments_) arguments("{}");
  tell();
  begun_ = told_ = false;
  ++block_calls_;
  ++whole_calls_;
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

// The last bytes read belong to what follows.
void ToolParser::unread(std::string_view text) {
  if (text.empty()) return;
  raw_.resize(raw_.size() - std::min(text.size(), raw_.size()));
  replay(text);
}

// The bytes did not form a call, so they are content. With `again` the bytes after the opening mark
// are read once more, since a call may begin among them.
void ToolParser::give_up(bool again) {
  std::string raw = std::exchange(raw_, {});
  const std::size_t mark = std::min(raw_marker_, raw.size());
  enter_text(block_calls_ > 0);
  if (again && raw.size() - mark <= kMaxReplay && mark > 0) {
    replay(std::string_view(raw).substr(mark));
    raw.resize(mark);
  }
  content(raw);
}

std::vector<ToolEvent> ToolParser::push_stop(std::string_view stop) {
  if (state_ == State::kText || state_ == State::kBlock) return {};
  ToolParser probe = *this;
  std::vector<ToolEvent> events;
  for (std::size_t i = 0; i < stop.size() && probe.whole_calls_ == whole_calls_; ++i)
    for (ToolEvent& event : probe.push(stop.substr(i, 1))) events.push_back(std::move(event));
  const std::string name = begun_ ? name_ : std::string(trimmed(head_));
  if (probe.whole_calls_ == whole_calls_ || probe.name_ != name) return {};
  std::erase_if(events, [](const ToolEvent& e) { return e.kind == ToolEvent::Kind::kContent; });
  std::string arguments;
  for (const ToolEvent& event : events)
    if (event.kind == ToolEvent::Kind::kArguments) arguments += event.text;
  // More than the brackets around the values would be text of the stop string.
  const std::size_t known = begun_ ? arguments_.size() : 0;
  if (arguments.find_first_not_of("{} \n\r\t", known) != std::string::npos) return {};
  enter_text(false);
  whole_calls_ = probe.whole_calls_;
  num_calls_ = probe.num_calls_;
  after_call_ = true;
  space_.clear();
  return events;
}

std::vector<ToolEvent> ToolParser::finish(bool is_cut) {
  const int whole_calls = whole_calls_;
  if (state_ == State::kBehindValue) {
    end_open_value();
    step_again();
  }
  if (state_ == State::kText) {
    std::string plain;
    scanner_.flush(plain);
    content(plain);
  } else if (told_) {
    finish_told(is_cut);
    is_cut_off_ = is_cut && whole_calls_ == whole_calls;
  } else if (state_ == State::kBlock &&
             (block_calls_ > 0 || (num_calls_ > 0 && after_call_ && is_empty_block()))) {
    // Only marks and white space came behind the last call.
  } else if (is_cut) {
    finish_cut();
    is_cut_off_ = whole_calls_ == whole_calls;
  } else {
    finish_whole();
  }
  if (num_calls_ == 0 && !space_.empty()) {
    after_call_ = false;
    content(std::exchange(space_, {}));
  }
  enter_text(false);
  return std::exchange(events_, {});
}

// The end of the text in a call whose beginning is out already.
void ToolParser::finish_told(bool is_cut) {
  std::string rest;
  scanner_.flush(rest);
  if (state_ == State::kPairs && !is_cut && trimmed(rest).empty()) {
    arguments("}");
    complete();
    return;
  }
  if (state_ == State::kJson && !is_cut && !bare_arguments_ && json_.has_whole_arguments()) {
    complete();
    return;
  }
  incomplete_ = true;
  // Where the engine cut the text, what is held may be the beginning of a mark.
  if (state_ == State::kValue && streams_value_ && !is_cut)
    arguments(escape_json_string(held_newline_ + rest));
  if (state_ == State::kRest) {
    add_rest(rest);
    end_rest();
  }
}

// The engine ended the text: a call whose name is known keeps the arguments so far.
void ToolParser::finish_cut() {
  // Without an opening mark the first call is known by its arguments alone.
  const bool is_bare = !is_marked() && block_calls_ == 0;
  if (is_bare && (state_ == State::kBroken || arguments_.empty())) {
    content(raw_);
  } else if (state_ == State::kBroken) {
    finish_cut_broken();
  } else if (begun_) {
    tell();
    finish_told(true);
  }
}

// A call whose faults can be mended is told like one without them.
void ToolParser::finish_cut_broken() {
  bool in_string = false;
  if (mend(std::string_view(raw_).substr(json_at_), in_string)) return;
  const std::string raw = raw_;
  raw_.resize(raw_.size() - scanner_.held().size());  // the beginning of a mark, perhaps
  if (resume_mended())
    finish_told(true);
  else
    content(raw);
}

// The model ended the text: an unfinished call is whole but for its closing marks, or it is text.
void ToolParser::finish_whole() {
  bool in_string = false;
  switch (state_) {
    case State::kJson:
    case State::kBroken:
      if (mend(std::string_view(raw_).substr(json_at_), in_string)) return;
      break;
    case State::kName:
      if (scanner_.holding() && !format_.close.starts_with(scanner_.held())) break;
      if (!format_.call_open.empty() || format_.syntax != CallSyntax::kTagged) break;
      if (!begin(std::string(trimmed(head_)))) break;
      [[fallthrough]];
    case State::kPairs:
      if (!trimmed(scanner_.held()).empty() && !format_.close.starts_with(scanner_.held()) &&
          !format_.call_close.starts_with(scanner_.held()))
        break;
      if (first_argument_ && !is_tool(name_)) break;
      if (!first_argument_) arguments("}");
      complete();
      return;
    case State::kBeforeArguments:
      complete();
      return;
    default:
      break;
  }
  content(raw_);
}

std::vector<std::string> tool_parser_marks(std::string_view name) {
  const ToolFormat& format = find_tool_format(name);
  std::vector<std::string> marks;
  const auto add = [&](std::string_view mark) {
    mark = trimmed(mark);
    if (!mark.empty() && std::ranges::find(marks, mark) == marks.end()) marks.emplace_back(mark);
  };
  for (const std::string_view mark :
       {format.open, format.other_opens[0], format.other_opens[1], format.close, format.other_close,
        format.call_open, format.name_close, format.call_close, format.call_tail, format.id_open,
        format.key_open, format.key_close, format.value_open, format.value_close, format.quote,
        format.answer_open, format.answer_close})
    add(mark);
  // A type is a word with its mark.
  for (const std::string_view type : {format.type, format.other_type})
    if (const std::size_t mark = type.find('<'); mark != std::string_view::npos)
      add(type.substr(mark));
  for (const std::string_view mark : format.more_marks) add(mark);
  return marks;
}

std::vector<std::string> tool_parser_openings(std::string_view name) {
  const ToolFormat& format = find_tool_format(name);
  if (!format.bare.empty()) return {};
  std::vector<std::string> marks;
  for (const std::string_view mark : {format.open, format.other_opens[0], format.other_opens[1]})
    if (!mark.empty()) marks.emplace_back(mark);
  if (format.is_open_optional) marks.emplace_back(format.call_open);
  return marks;
}

std::vector<std::string> known_tool_parsers() {
  std::vector<std::string> names;
  for (const ToolFormat& format : tool_formats()) names.emplace_back(format.name);
  return names;
}

std::string tool_parser_name(std::string_view name) {
  return std::string(find_tool_format(name).name);
}

}  // namespace sluice
