// Finds tool calls in a model's output, piece by piece.
//
//   ToolParser parser = ToolParser::create("glm45", request_tools);
//   // any cut of the text gives the same whole
//   for (const ToolEvent& event : parser.push(text)) ...
//   for (const ToolEvent& event : parser.finish()) ...
//
// Text before, between and after calls is content; white space next to calls is dropped. The
// argument fragments of a call concatenate to valid JSON unless `incomplete()`. Work is linear in
// the text for any input (R14). Text that only looked like a call becomes content. One thread uses
// a parser.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/parsers/tool_parser_json.h"
#include "text/parsers/tool_parser_scan.h"

namespace sluice {

struct ToolEvent {
  enum class Kind { kContent, kBegin, kArguments };
  Kind kind = Kind::kContent;
  int index = 0;         // number of the call, from 0; kBegin and kArguments
  std::string id, name;  // kBegin
  std::string text;      // kContent, kArguments
};

struct ToolFormat;

class ToolParser {
 public:
  using MakeId = std::function<std::string()>;

  // `tools` are OpenAI's. The GLM format types argument values by their schemas. Bare JSON (Llama)
  // is a call only if it names one of the tools. `make_id` makes ids; the default is "call_" and 24
  // random letters and digits. Error{kBadInput} for an unknown name lists the known ones.
  static ToolParser create(std::string_view name, const Json& tools, MakeId make_id = {});

  std::vector<ToolEvent> push(std::string_view text);
  std::vector<ToolEvent> finish();

  int num_calls() const { return num_calls_; }
  // True after finish() or a broken call: a call's arguments are not a whole JSON text, or text was
  // left inside unclosed marks.
  bool incomplete() const { return incomplete_; }

 private:
  enum class State {
    kContent,
    kBeforeJson,
    kJson,
    kListNext,
    kAfterBlock,
    kMistralName,
    kDeepseekOuter,
    kDeepseekHead,
    kDeepseekName,
    kDeepseekFence,
    kDeepseekTail,
    kGlmName,
    kGlmNext,
    kGlmKey,
    kGlmBeforeValue,
    kGlmValue
  };

  ToolParser(const ToolFormat& format, const Json& tools, MakeId make_id);
  void step(char c);
  void step_content(char c);
  void step_json_format(char c);
  void step_json(char c);
  void step_deepseek(char c);
  void step_glm(char c);
  void step_glm_name(char c);
  void step_glm_value(char c);
  void begin_json(bool bare_arguments);
  void json_done();
  void forward_json();
  void enter(State state, std::vector<std::string_view> markers = {});
  void enter_content();
  void enter_call(int marker);

  void content(std::string_view text);
  bool begin(const std::string& name);
  void arguments(std::string_view text);
  void give_up(bool again);
  void finish_value();
  bool is_tool(const std::string& name) const { return schemas_.count(name) == 1; }
  const std::vector<std::string>* types_of(const std::string& key) const;

  const ToolFormat& format_;
  MakeId make_id_;
  // Types by tool and property; empty: not stated.
  std::map<std::string, std::map<std::string, std::vector<std::string>>> schemas_;

  State state_ = State::kContent;
  MarkerScanner scanner_;
  std::vector<ToolEvent> events_;
  std::string replay_;  // bytes to read again, before later bytes
  std::size_t replay_at_ = 0;
  std::string raw_;             // bytes of the call so far, until it has begun
  std::size_t raw_marker_ = 0;  // length of the opening mark in raw_
  std::string head_;            // name or key being read
  std::string name_, key_, value_;
  JsonCall json_;
  bool in_list_ = false, streams_string_ = false, first_argument_ = true, told_arguments_ = false;
  bool begun_ = false, broken_ = false, incomplete_ = false;
  bool started_ = false;    // content other than white space has come
  bool after_call_ = true;  // at the start, or after a call: white space is held back
  std::string space_;       // dropped unless text follows
  int num_calls_ = 0;
};

// The table's name for a name or an alias; Error{kBadInput} for an unknown one.
std::string tool_parser_name(std::string_view name);
std::vector<std::string> known_tool_parsers();
// The marks of a parser. In many models these are special tokens, which must then stay in the text.
std::vector<std::string> tool_parser_marks(std::string_view name);

}  // namespace sluice
