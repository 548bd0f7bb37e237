// Finds tool calls in a model's output, piece by piece.
//
//   ToolParser parser = ToolParser::create("glm45", request_tools);
//   // any cut of the text gives the same whole
//   for (const ToolEvent& event : parser.push(text)) ...
//   for (const ToolEvent& event : parser.finish()) ...
//
// Text before, between and after calls is content; white space next to calls is dropped. A call
// comes whole, with the text of a JSON object as its arguments, or its bytes are content. A short
// call comes when it is whole; a longer one streams, as pieces of its arguments. Then a fault in
// its JSON can no longer make it text, and `incomplete()` says so. Work is linear in the text for
// any input (R14). One thread uses a parser.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
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
  // random letters and digits, and 9 of them for Mistral, whose templates refuse other ids.
  // Error{kBadInput} for an unknown name lists the known ones.
  static ToolParser create(std::string_view name, const Json& tools, MakeId make_id = {});

  std::vector<ToolEvent> push(std::string_view text);
  // The end of the text. `is_cut`: the engine ended it (max_tokens, an abort), not the model. Then
  // a call whose name is known comes with the arguments so far, and the beginning of a call without
  // a name is dropped. Otherwise an unfinished call is text.
  std::vector<ToolEvent> finish(bool is_cut = false);

  int num_calls() const { return num_calls_; }
  // The arguments of a call are not a whole JSON object.
  bool incomplete() const { return incomplete_; }
  // The last bytes belong to a call, or may turn out to.
  bool in_call() const { return state_ != State::kContent || scanner_.holding(); }

 private:
  enum class State {
    kContent,
    kBeforeJson,
    kJson,
    kAfterJson,
    kAfterBlock,
    kMistralName,
    kMistralId,
    kMistralArguments,
    kDeepseekOuter,
    kDeepseekHead,
    kDeepseekName,
    kDeepseekFence,
    kDeepseekTail,
    kGlmName,
    kGlmNext,
    kGlmKey,
    kGlmBeforeValue,
    kGlmValue,
    kBroken,  // the JSON of a call has a fault; its end decides whether it can be mended
    kRest     // the same, for a call that was told: its bytes go on as arguments
  };

  ToolParser(const ToolFormat& format, const Json& tools, MakeId make_id);
  void step(char c);
  void step_content(char c);
  void step_json_format(char c);
  void step_before_json(char c);
  void step_after_json(char c);
  void step_after_block(char c);
  void step_mistral(char c);
  void step_json(char c);
  void step_deepseek(char c);
  void step_deepseek_name(char c);
  bool begin_deepseek();
  void after_deepseek(int marker);
  void step_glm(char c);
  void step_glm_name(char c);
  void step_glm_value(char c);
  void break_glm(const std::string& plain);
  void step_broken(char c);
  void step_rest(char c);
  void begin_json(bool bare_arguments);
  void json_done();
  void after_call();
  void enter(State state, std::vector<std::string_view> markers = {});
  void enter_content();
  void enter_call(int marker);

  void content(std::string_view text);
  bool begin(const std::string& name);
  void tell();
  void complete();
  void arguments(std::string_view text);
  void replay(std::string_view text);
  void give_up(bool again);
  void break_call(char c);
  bool mend(std::string_view region, bool& in_string);
  void finish_told(bool is_cut);
  void finish_whole();
  void finish_cut();
  bool is_between_calls() const;
  std::vector<std::string_view> end_marks() const;
  std::vector<std::string_view> open_marks() const;
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
  std::string raw_;             // bytes of the call so far, until it is told
  std::size_t raw_marker_ = 0;  // length of the opening mark in raw_
  std::size_t json_at_ = 0;     // where the call's JSON begins in raw_
  std::string head_;            // name or key being read
  std::string key_, value_;
  JsonCall json_;
  bool bare_arguments_ = false;  // the JSON is the arguments alone
  bool in_list_ = false, streams_string_ = false, first_argument_ = true;

  std::string name_, id_, arguments_;  // of the call that has begun; id_: the model's, if any
  bool begun_ = false;                 // the name is known
  bool told_ = false;                  // events of the call are out
  bool told_arguments_ = false;
  int block_calls_ = 0;      // calls since the opening mark
  bool block_open_ = false;  // text follows a call before its closing mark, which is dropped
  bool incomplete_ = false;
  bool started_ = false;    // content other than white space has come
  bool after_call_ = true;  // at the start, or after a call: white space is held back
  std::string space_;       // dropped unless text follows
  std::set<std::string> ids_;
  int num_calls_ = 0;
};

// The table's name for a name or an alias; Error{kBadInput} for an unknown one.
std::string tool_parser_name(std::string_view name);
std::vector<std::string> known_tool_parsers();
// The marks that begin a call; none if a call may begin without one.
std::vector<std::string> tool_parser_openings(std::string_view name);
// The marks of a parser. In many models these are special tokens, which must then stay in the text.
std::vector<std::string> tool_parser_marks(std::string_view name);

}  // namespace sluice
