#include "text/parsers/harmony_parser.h"

#include <algorithm>
#include <utility>

#include "text/parsers/lenient_json.h"
#include "text/parsers/tool_format.h"

namespace sluice {
namespace {

constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>", kMessage = "<|message|>",
                           kEnd = "<|end|>", kCall = "<|call|>", kReturn = "<|return|>",
                           kConstrain = "<|constrain|>";
constexpr std::string_view kAssistant = "assistant", kTo = "to=", kFunctions = "functions.";
constexpr std::size_t kMaxHeader = 512;
// So much text behind the beginning of another message shows that the string was left open.
constexpr std::size_t kMaxLate = 4096;

MarkerScanner header_scanner() {
  return MarkerScanner({kMessage, kChannel, kStart, kEnd, kCall, kReturn, kConstrain});
}

MarkerScanner body_scanner() {
  return MarkerScanner({kEnd, kCall, kReturn, kStart});
}

// The word of a header that follows `key`; empty: there is none.
std::string_view word_behind(std::string_view header, std::string_view key) {
  const std::size_t at = header.find(key);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = header.substr(at + key.size());
  return rest.substr(0, rest.find_first_of(" \n\t<"));
}

// Text before the first mark of a header: the role, or a recipient.
bool may_be_header(std::string_view text) {
  text = trimmed(text);
  for (const std::string_view word : {kAssistant, kTo})
    if (text.starts_with(word) || word.starts_with(text)) return true;
  return false;
}

}  // namespace

HarmonyParser::HarmonyParser(bool reads_calls, ToolParser::MakeId make_id)
    : reads_calls_(reads_calls),
      make_id_(make_id ? std::move(make_id) : random_call_ids(find_tool_format("openai"))),
      scanner_(header_scanner()) {}

void HarmonyParser::start_behind(std::string_view prompt) {
  const std::size_t at = prompt.rfind(kStart);
  if (at == std::string_view::npos) return;
  push(prompt.substr(at + kStart.size()));
  has_text_[0] = has_text_[1] = false;
  num_read_ = 0;
  thoughts_.clear();
  if (in_reasoning()) thoughts_.emplace_back();
}

std::vector<ToolEvent> HarmonyParser::push(std::string_view text) {
  for (const char c : text) {
    ++num_read_;
    step(c);
    step_again();
  }
  return std::exchange(events_, {});
}

void HarmonyParser::step(char c) {
  switch (state_) {
    case State::kHeader:
      step_header(c);
      return;
    case State::kBody:
      step_body(c);
      return;
    case State::kArguments:
      step_arguments(c);
      return;
    case State::kBroken:
    case State::kTail:
      step_broken(c);
      return;
  }
}

void HarmonyParser::begin_header(std::string_view mark) {
  head_ = mark;
  is_marked_ = !mark.empty();
  state_ = State::kHeader;
  scanner_ = header_scanner();
}

void HarmonyParser::step_header(char c) {
  std::string plain;
  const int marker = scanner_.push(c, plain);
  head_ += plain;
  const std::string_view mark = marker < 0 ? std::string_view() : scanner_.marker(marker);
  if ((!is_marked_ && !may_be_header(head_)) || head_.size() > kMaxHeader) {
    // Text without a header.
    state_ = State::kBody;
    body_ = Body::kContent;
    is_new_body_ = true;
    const std::string left = std::exchange(head_, {}) + std::string(mark) + scanner_.held();
    scanner_ = body_scanner();
    for (const char again : left) step_body(again);
    return;
  }
  if (marker < 0) return;
  if (mark == kMessage) {
    begin_message();
  } else if (mark == kEnd || mark == kCall || mark == kReturn) {
    if (trimmed(head_).empty()) return begin_header({});
    text(Body::kContent, head_ + std::string(mark));
    begin_header({});
  } else if (mark == kStart) {
    if (is_marked_ && head_.find(kChannel) != std::string::npos) text(Body::kContent, head_);
    begin_header(kStart);
  } else {
    head_ += mark;
    is_marked_ = true;
  }
}

// The header is whole.
void HarmonyParser::begin_message() {
  std::string_view recipient = word_behind(head_, kTo);
  if (recipient == kAssistant || recipient == "user") recipient = {};
  // A call without a name is none: its message is text.
  if (reads_calls_ && recipient == kFunctions) recipient = {};
  const std::string_view channel = word_behind(head_, kChannel);
  scanner_ = body_scanner();
  is_new_body_ = true;
  state_ = State::kBody;
  if (recipient.empty()) {
    body_ = channel == "analysis" ? Body::kReasoning : Body::kContent;
    if (in_reasoning()) thoughts_.push_back({.begin = position()});
    return;
  }
  if (!reads_calls_) {
    body_ = Body::kRaw;
    text(body_, head_ + std::string(kMessage));
    return;
  }
  if (recipient.starts_with(kFunctions)) recipient.remove_prefix(kFunctions.size());
  name_ = recipient;
  arguments_.clear();
  raw_.clear();
  json_ = JsonCall(true);
  late_.clear();
  late_arguments_.clear();
  told_ = began_ = false;
  state_ = State::kArguments;
}

void HarmonyParser::end_message(std::string_view mark) {
  if (in_reasoning()) thoughts_.back().end = position() - std::min(position(), mark.size());
  if (state_ == State::kBody && body_ == Body::kRaw && mark != kStart) text(body_, mark);
  begin_header(mark == kStart ? mark : std::string_view());
}

void HarmonyParser::step_body(char c) {
  std::string plain;
  const int marker = scanner_.push(c, plain);
  text(body_, plain);
  if (marker >= 0) end_message(scanner_.marker(marker));
}

void HarmonyParser::text(Body body, std::string_view part) {
  if (part.empty()) return;
  const bool is_reasoning = body == Body::kReasoning;
  const auto kind = is_reasoning ? ToolEvent::Kind::kReasoning : ToolEvent::Kind::kContent;
  if (events_.empty() || events_.back().kind != kind) {
    events_.emplace_back();
    events_.back().kind = kind;
  }
  bool& has_text = has_text_[is_reasoning ? 1 : 0];
  if (is_new_body_ && has_text) events_.back().text += '\n';
  is_new_body_ = false;
  has_text = true;
  events_.back().text += part;
}

void HarmonyParser::step_arguments(char c) {
  if (!began_ && is_blank(c)) return;
  if (!began_ && c != '{') {
    state_ = State::kBroken;
    raw_.clear();
    step_broken(c);
    return;
  }
  began_ = true;
  if (!late_.empty()) {
    step_late(c);
  } else if (json_.in_string() || scanner_.holding()) {
    step_string(c);
  } else if (read_json(c) == JsonCall::Status::kInvalid) {
    state_ = State::kBroken;
    replay(std::string_view(&c, 1));
  }
}

// A string may hold the text of marks.
void HarmonyParser::step_string(char c) {
  std::string plain;
  const int marker = scanner_.push(c, plain);
  const std::string mark(marker < 0 ? std::string_view() : scanner_.marker(marker));
  const bool is_text = mark.empty() || mark == kStart;
  if (is_text) plain += mark;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const JsonCall::Status status = read_json(plain[i]);
    if (status == JsonCall::Status::kMore) continue;
    const std::size_t next = status == JsonCall::Status::kDone ? i + 1 : i;
    const std::string left = plain.substr(next) + (is_text ? "" : mark) + scanner_.held();
    scanner_ = body_scanner();
    if (status == JsonCall::Status::kInvalid) state_ = State::kBroken;
    replay(left);
    return;
  }
  if (is_text) return;
  if (!json_.in_string()) {
    state_ = State::kBroken;
    replay(mark);
    return;
  }
  late_mark_ = mark.size();
  for (const char m : mark) step_late(m);
}

// Behind a mark in a string. Where another message begins, the string was left open, unless the
// arguments end as they should. Elsewhere the mark is text.
void HarmonyParser::step_late(char c) {
  late_ += c;
  const JsonCall::Status status = json_.push(c);
  late_arguments_ += json_.take_arguments();
  const std::string_view behind =
      trimmed(std::string_view(late_).substr(std::min(late_mark_, late_.size())));
  const bool may_end = behind.starts_with(kStart) || kStart.starts_with(behind);
  if (status == JsonCall::Status::kDone) {
    release_late();
    end_json();
  } else if (may_end && (status == JsonCall::Status::kInvalid || late_.size() > kMaxLate)) {
    state_ = State::kBroken;
    late_arguments_.clear();
    replay(std::exchange(late_, {}));
  } else if (!may_end) {
    if (status == JsonCall::Status::kInvalid) {
      state_ = State::kBroken;
      late_.pop_back();
      replay(std::string_view(&c, 1));
    }
    release_late();
  }
}

// The mark is text of the string.
void HarmonyParser::release_late() {
  arguments(std::exchange(late_arguments_, {}));
  if (!told_) raw_ += late_;
  late_.clear();
}

// A byte that is not kept by the scanner. kInvalid: the byte is not read.
JsonCall::Status HarmonyParser::read_json(char c) {
  const JsonCall::Status status = json_.push(c);
  arguments(json_.take_arguments());
  if (status == JsonCall::Status::kInvalid) return status;
  if (!told_) raw_ += c;
  if (status == JsonCall::Status::kDone) {
    end_json();
  } else if (!told_ && arguments_.size() > max_held_) {
    tell();
    raw_.clear();
  }
  return status;
}

void HarmonyParser::end_json() {
  tell();
  raw_.clear();
  state_ = State::kTail;
}

// `text` is read once more, before the bytes that wait to be read again.
void HarmonyParser::replay(std::string_view text) {
  replay_ = std::string(text) + replay_.substr(std::min(replay_at_, replay_.size()));
  replay_at_ = 0;
}

void HarmonyParser::step_again() {
  while (replay_at_ < replay_.size()) {
    const char again = replay_[replay_at_++];
    step(again);
  }
  replay_.clear();
  replay_at_ = 0;
}

// The rest of a call's message: behind its arguments it is dropped.
void HarmonyParser::step_broken(char c) {
  std::string plain;
  const int marker = scanner_.push(c, plain);
  if (state_ == State::kBroken) {
    if (told_) {
      arguments(plain);
    } else {
      raw_ += plain;
    }
  }
  if (marker < 0) return;
  const std::string_view mark = scanner_.marker(marker);
  if (state_ == State::kBroken) end_broken();
  end_message(mark);
}

// Arguments with a fault: mended where the meaning is clear, else as they are.
void HarmonyParser::end_broken() {
  if (told_) {
    incomplete_ = true;
    return;
  }
  const std::string_view source = trimmed(raw_);
  arguments_.clear();
  const std::optional<JsonText> value = read_json_text(source);
  const std::optional<std::string> object = source.empty() ? std::optional<std::string>("{}")
                                            : value        ? call_arguments(*value)
                                                           : std::nullopt;
  JsonMembers members;
  if (object) {
    arguments(*object);
  } else if (read_json_members(source, members) == MembersStatus::kWhole && !members.is_closed &&
             read_json_text(std::string(source) + "}")) {
    arguments(read_json_text(std::string(source) + "}")->text);
  } else {
    arguments(source);
    incomplete_ = true;
  }
  tell();
}

void HarmonyParser::tell() {
  if (told_) return;
  told_ = true;
  json_.mend();
  ToolEvent event;
  event.kind = ToolEvent::Kind::kBegin;
  event.index = num_calls_++;
  event.id = make_id_();
  event.name = name_;
  events_.push_back(std::move(event));
  arguments(std::exchange(arguments_, {}));
}

void HarmonyParser::arguments(std::string_view part) {
  if (part.empty()) return;
  if (!told_) {
    arguments_ += part;
    return;
  }
  const bool joins = !events_.empty() && events_.back().kind == ToolEvent::Kind::kArguments &&
                     events_.back().index == num_calls_ - 1;
  if (!joins) {
    events_.emplace_back();
    events_.back().kind = ToolEvent::Kind::kArguments;
    events_.back().index = num_calls_ - 1;
  }
  events_.back().text += part;
}

std::vector<ToolEvent> HarmonyParser::finish(bool is_cut) {
  while (state_ == State::kArguments && !late_.empty()) {
    // The mark at the end of the text ends the message.
    state_ = State::kBroken;
    late_arguments_.clear();
    replay(std::exchange(late_, {}));
    step_again();
  }
  std::string held;
  scanner_.flush(held);
  switch (state_) {
    case State::kHeader:
      head_ += held;
      is_cut_off_ = is_cut && reads_calls_ && !word_behind(head_, kTo).empty();
      if (!is_cut && head_.find(kChannel) != std::string::npos) text(Body::kContent, head_);
      if (!is_marked_ && !trimmed(head_).empty() && !is_cut) text(Body::kContent, head_);
      break;
    case State::kBody:
      text(body_, held);
      break;
    case State::kArguments:
      for (const char c : held)
        if (read_json(c) == JsonCall::Status::kInvalid) arguments(std::string_view(&c, 1));
      if (is_cut) {
        tell();
        incomplete_ = is_cut_off_ = true;
      } else {
        end_broken();
      }
      break;
    case State::kBroken:
      if (told_) arguments(held);
      raw_ += held;
      end_broken();
      is_cut_off_ = is_cut && incomplete_;
      break;
    case State::kTail:
      break;
  }
  begin_header({});
  return std::exchange(events_, {});
}

}  // namespace sluice
