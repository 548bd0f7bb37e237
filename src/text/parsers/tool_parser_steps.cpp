// The formats whose calls are JSON objects: a block, a list, or bare JSON; and Mistral's names
// before the arguments.
#include <algorithm>

#include "text/parsers/tool_parser.h"
#include "text/parsers/tool_parser_format.h"

namespace sluice {
namespace {

// Bytes that a model may leave behind a call's JSON: they belong to the frame.
bool is_frame(char c, std::string_view others) {
  return c == '}' || c == ']' || others.find(c) != std::string_view::npos;
}

// A name that stands without quotes.
bool is_name_char(char c) {
  return static_cast<unsigned char>(c) > 0x20 &&
         std::string_view("[]{}\"'<>(),`").find(c) == std::string_view::npos;
}

}  // namespace

// The byte that follows is the JSON's first one, which raw_ holds already.
void ToolParser::begin_json(bool bare_arguments) {
  json_ = JsonCall(bare_arguments);
  bare_arguments_ = bare_arguments;
  json_at_ = raw_.empty() ? 0 : raw_.size() - 1;
  state_ = State::kJson;
}

void ToolParser::step_json(char c) {
  const JsonCall::Status status = json_.push(c);
  if (status == JsonCall::Status::kInvalid) {
    break_call(c);
    return;
  }
  const bool is_bare = format_.syntax == ToolSyntax::kBare;
  if (!bare_arguments_ && !begun_ && json_.has_name()) {
    if ((is_bare && !is_tool(json_.name())) || !begin(json_.name())) {
      give_up(false);
      return;
    }
  }
  if (begun_) arguments(json_.take_arguments());
  if (status == JsonCall::Status::kDone) {
    json_done();
  } else if (is_bare && !begun_ && !json_.has_arguments() &&
             (json_.has_odd_member() || raw_.size() > kMaxHeldCall)) {
    give_up(false);  // an object of the answer: it streams on as text
  }
}

void ToolParser::json_done() {
  const bool is_bare = format_.syntax == ToolSyntax::kBare;
  const bool is_call = begun_ && !json_.has_odd_arguments() &&
                       !(is_bare && !json_.has_arguments() && json_.has_odd_member());
  if (!is_call) {
    if (is_bare) {
      give_up(false);
    } else {
      break_call('\0');
    }
    return;
  }
  if (id_.empty()) id_ = json_.id();
  complete();
  after_call();
}

// A call is whole; its closing marks may follow.
void ToolParser::after_call() {
  if (format_.syntax == ToolSyntax::kDeepseek) {
    enter(State::kDeepseekTail, {kDeepseekCallEnd, kDeepseekCall, format_.close});
  } else if (format_.syntax == ToolSyntax::kBlock && !in_list_) {
    enter(State::kAfterBlock, {format_.close, format_.open});
  } else {
    enter(State::kAfterJson);
  }
}

void ToolParser::step_json_format(char c) {
  switch (state_) {
    case State::kBeforeJson:
      step_before_json(c);
      return;
    case State::kMistralName:
    case State::kMistralId:
    case State::kMistralArguments:
      step_mistral(c);
      return;
    case State::kJson:
      step_json(c);
      return;
    case State::kAfterJson:
      step_after_json(c);
      return;
    case State::kAfterBlock:
      step_after_block(c);
      return;
    default:
      return;
  }
}

void ToolParser::step_before_json(char c) {
  const bool is_list = format_.syntax == ToolSyntax::kList;
  if (is_blank(c)) return;
  if (c == '{') {
    begin_json(false);
    step_json(c);
  } else if (c == '[' && format_.syntax != ToolSyntax::kBare && !in_list_) {
    in_list_ = true;
  } else if (c == ']' && in_list_ && block_calls_ > 0) {
    step_after_json(c);
  } else if (c == '`' && format_.syntax == ToolSyntax::kBlock && !in_list_) {
    json_at_ = raw_.size() - 1;
    bare_arguments_ = false;
    break_call(c);
  } else if (is_list && !in_list_) {
    enter(State::kMistralName, {kMistralId, kMistralArgs, "{"});
    step_mistral(c);
  } else {
    give_up(true);
  }
}

// name{...}, name[ARGS]{...} or name[CALL_ID]id[ARGS]{...}
void ToolParser::step_mistral(char c) {
  if (state_ == State::kMistralArguments) {
    std::string plain;
    if (scanner_.push(c, plain) == 0) {
      complete();
      enter_call(0);
      return;
    }
    const auto text = std::find_if_not(plain.begin(), plain.end(), is_blank);
    if (text == plain.end()) return;
    if (*text == '{' && plain.size() == static_cast<std::size_t>(text - plain.begin()) + 1) {
      begin_json(true);
      step_json('{');
    } else {
      json_at_ = raw_.size() - plain.size() - scanner_.held().size();
      bare_arguments_ = true;
      break_call(c);
    }
    return;
  }
  std::string& word = state_ == State::kMistralName ? head_ : id_;
  const int marker = scanner_.push(c, word);
  const std::string_view name = trimmed(word);
  if (!std::all_of(name.begin(), name.end(), is_name_char) || name.size() > kMaxToolName) {
    give_up(true);
    return;
  }
  if (marker < 0) return;
  if (state_ == State::kMistralName && !begin(std::string(name))) {
    give_up(true);
    return;
  }
  const std::string_view mark = scanner_.marker(marker);
  if (mark == kMistralId) {
    enter(State::kMistralId, {kMistralArgs, "{"});
    return;
  }
  id_ = std::string(trimmed(id_));
  if (mark == kMistralArgs) {
    enter(State::kMistralArguments, {format_.open});
  } else {
    begin_json(true);
    step_json('{');
  }
}

// Behind a call of a list, or behind bare JSON.
void ToolParser::step_after_json(char c) {
  const bool is_bare = format_.syntax == ToolSyntax::kBare;
  if (is_blank(c)) return;
  if (c == ']' && in_list_) {
    in_list_ = false;
    if (format_.syntax == ToolSyntax::kBlock) {
      raw_.clear();
      enter(State::kAfterBlock, {format_.close, format_.open});
    } else {
      enter_content();
    }
  } else if (c == ',' && in_list_) {
    raw_.clear();
    enter(State::kBeforeJson);
  } else if (c == '{' && (in_list_ || is_bare)) {
    raw_marker_ = 0;
    begin_json(false);
    step_json(c);
  } else if (is_frame(c, is_bare || in_list_ ? ",;" : "")) {
    raw_.clear();
  } else {
    const std::string left = raw_;
    enter_content();
    replay(left);
  }
}

// Behind the JSON of a block, before its closing mark.
void ToolParser::step_after_block(char c) {
  std::string plain;
  const int marker = scanner_.push(c, plain);
  const auto text = std::find_if_not(plain.begin(), plain.end(), is_blank);
  if (text != plain.end()) {
    if (is_frame(*text, ",;`") && text + 1 == plain.end()) {
      raw_.clear();
    } else if (*text == '{' && text + 1 == plain.end()) {
      raw_ = "{";
      raw_marker_ = 0;
      begin_json(false);
      step_json(c);
    } else {
      // The closing mark may still come; until then this is text, or another call.
      const std::string left = raw_;
      enter_content();
      block_open_ = true;
      replay(left);
    }
    return;
  }
  if (marker == 0) enter_content();
  if (marker == 1) enter_call(0);
}

}  // namespace sluice
