// Finds tool calls in a model's output, piece by piece.
//
//   ToolParser parser = ToolParser::create("glm45", request_tools);
//   // any cut of the text gives the same whole
//   for (const ToolEvent& event : parser.push(text)) ...
//   for (const ToolEvent& event : parser.finish()) ...
//
// One machine reads every row of tool_format.h. Text before, between and after calls is content;
// white space next to calls is dropped. A call comes whole, with the text of a JSON object as its
// arguments, or its bytes are content. A short call comes when it is whole; a longer one streams,
// as pieces of its arguments. Clear faults are mended in both. Any other fault in a call that
// streams can no longer make it text, and `incomplete()` says so. Work is linear in the text for
// any input (R14). One thread uses a parser.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/parsers/literal_arguments.h"
#include "text/parsers/tool_events.h"
#include "text/parsers/tool_format.h"
#include "text/parsers/tool_parser_json.h"
#include "text/parsers/tool_parser_scan.h"
#include "text/parsers/tool_schemas.h"

namespace sluice {

class ToolParser {
 public:
  using MakeId = std::function<std::string()>;

  // `tools` are OpenAI's; their schemas type the values of tagged formats. In formats without
  // marks only a name among them makes a call. `make_id` makes ids; the default is "call_" and 24
  // random letters and digits, and 9 of them for Mistral, whose templates refuse other ids.
  // Error{kBadInput} for an unknown name lists the known ones. kChannels rows are not for this
  // class but for HarmonyParser.
  static ToolParser create(std::string_view name, const Json& tools, MakeId make_id = {});

  std::vector<ToolEvent> push(std::string_view text);
  // Before finish(true): a stop string, which is no part of the text, stands behind it. Where it
  // closes a call whose name and values are whole, the call is whole. Its text is never told.
  std::vector<ToolEvent> push_stop(std::string_view stop);
  // The end of the text. `is_cut`: the model did not end it (max_tokens, an abort, a stop string).
  // Then a call whose name is known comes with the arguments so far, and the beginning of a call
  // without a name is dropped. Otherwise an unfinished call is text.
  std::vector<ToolEvent> finish(bool is_cut = false);

  // Calls are held until they are whole, whatever their length: for an answer that is told at once.
  void hold_calls() { max_held_ = std::string::npos; }

  int num_calls() const { return num_calls_; }
  // The arguments of a call are not a whole JSON object.
  bool incomplete() const { return incomplete_; }
  // finish(true) came inside a call.
  bool is_cut_off() const { return is_cut_off_; }
  // The last bytes belong to a call, or may turn out to.
  bool in_call() const { return state_ != State::kText || scanner_.holding(); }

 private:
  enum class State {
    kText,
    kBlock,            // behind an opening mark or a call, before the next one
    kName,             // of kNamed, kTagged, kKeywords and kBraces
    kId,               // between id_open and name_close
    kBeforeArguments,  // of kNamed
    kJson,             // a call as an object, or the arguments of kNamed
    kLiterals,         // the arguments of kKeywords and kBraces
    kPairs,            // of kTagged: between values
    kKey,
    kBeforeValue,
    kValue,
    kBehindValue,  // behind the end of a call that stands in a value
    kBroken,       // the JSON of a call has a fault; its end decides whether it can be mended
    kRest          // the same, for a call that was told: its bytes go on as arguments
  };
  enum class Role {
    kNone,
    kOpen,
    kClose,
    kCallOpen,
    kCallClose,
    kNameClose,
    kType,
    kIdOpen,
    kBrace,
    kKeyOpen,
    kKeyClose,
    kValueOpen,
    kValueClose
  };
  struct Mark {
    std::string_view text;
    Role role;
  };

  ToolParser(const ToolFormat& format, const Json& tools, MakeId make_id);
  void step(char c);
  void step_again();

  // tool_parser.cpp
  void enter(State state, std::vector<Mark> marks = {});
  Role scan(char c, std::string& plain);
  void enter_text(bool block_is_open);
  void step_text(char c);
  void content(std::string_view text);
  void tell();
  void complete();
  void arguments(std::string_view text);
  void replay(std::string_view text);
  void unread(std::string_view text);
  void give_up(bool again);
  void finish_told(bool is_cut);
  void finish_whole();
  void finish_cut();
  void finish_cut_broken();

  // tool_parser_block.cpp
  void add_ends(std::vector<Mark>& marks) const;
  void enter_block(std::string_view mark);
  void enter_between();
  void step_block(char c);
  bool step_block_byte(char p, std::string_view rest);
  void enter_name(std::string_view mark);
  void step_name(char c);
  void step_id(char c);
  bool add_to_name(char p);
  bool begin(const std::string& name);
  bool begin_named();
  void end_name(Role role, std::string_view mark);
  void end_call(Role role, std::string_view mark);

  // tool_parser_json_calls.cpp
  void step_before_arguments(char c);
  void begin_json(bool bare_arguments);
  void step_json(char c);
  void json_done();
  void step_literals(char c);

  // tool_parser_tags.cpp
  void enter_pairs();
  void step_pairs(char c);
  void enter_key();
  void step_key(char c);
  void step_before_value(char c);
  void begin_value();
  void enter_value();
  void step_value(char c);
  void step_behind_value(char c);
  void end_open_value();
  void stream_value();
  void end_value();
  void add_value(std::string_view text);
  void break_tags(const std::string& plain);

  // tool_parser_broken.cpp
  void break_call(char c);
  void break_told_call(char c);
  void step_broken(char c);
  bool resume_mended();
  void go_on_behind(const Mark& mark);
  void step_rest(char c);
  void add_rest(std::string_view text);
  void end_rest();
  bool mend(std::string_view region, bool& in_string);

  bool is_empty_block() const;
  bool is_marked() const { return is_marked_; }
  bool is_tool(const std::string& name) const { return schemas_.has_tool(name); }

  const ToolFormat& format_;
  MakeId make_id_;
  ToolSchemas schemas_;

  State state_ = State::kText;
  MarkerScanner scanner_;
  std::vector<Mark> marks_;  // those of the scanner
  std::vector<ToolEvent> events_;
  std::string replay_;  // bytes to read again, before later bytes
  std::size_t replay_at_ = 0;
  std::string raw_;             // bytes of the call so far, until it is told
  std::size_t raw_marker_ = 0;  // length of the opening mark in raw_
  std::size_t json_at_ = 0;     // where the call's JSON begins in raw_
  std::string head_;            // name or key being read
  std::string key_, value_;
  JsonCall json_;
  LiteralArguments literals_;
  bool bare_arguments_ = false;  // the JSON is the arguments alone
  bool is_marked_ = false;       // the block began with a mark
  bool in_list_ = false, first_argument_ = true;
  enum class Fence { kNone, kFirstLine, kInside } fence_ = Fence::kNone;
  bool has_type_ = false;  // the word before the name was read

  // kTagged: the value that is read.
  bool streams_value_ = false, value_is_string_ = false;
  bool value_began_ = false;     // its first byte came
  std::string held_newline_;     // it may be the frame's
  std::string behind_value_;     // the end of the call in a value, and what follows it
  bool is_behind_call_ = false;  // another call began behind it

  std::string name_, id_, arguments_;  // of the call that has begun; id_: the model's, if any
  bool begun_ = false;                 // the name is known
  bool told_ = false;                  // events of the call are out
  bool told_arguments_ = false;
  int block_calls_ = 0;      // calls, or an empty list, since the opening mark
  bool block_open_ = false;  // text follows a call before its closing mark, which is dropped
  int whole_calls_ = 0;      // in the whole text
  bool incomplete_ = false, is_cut_off_ = false;
  bool started_ = false;    // content other than white space has come
  bool after_call_ = true;  // at the start, or after a call: white space is held back
  std::string space_;       // dropped unless text follows
  std::set<std::string> ids_;
  int num_calls_ = 0;
  std::size_t max_held_ = kMaxHeldCall;
  int mends_left_ = 0;         // how often the end of a broken call may be looked for
  std::string tail_;           // kRest: brackets and blanks that may be the call's own end
  std::size_t open_rest_ = 0;  // kRest: brackets of the arguments that are open
};

// The table's name for a name or an alias; Error{kBadInput} for an unknown one.
std::string tool_parser_name(std::string_view name);
std::vector<std::string> known_tool_parsers();
// The marks that begin a call; none if a call may begin without one.
std::vector<std::string> tool_parser_openings(std::string_view name);
// The marks of a parser. In many models these are special tokens, which must then stay in the text.
std::vector<std::string> tool_parser_marks(std::string_view name);
// What makes the ids of a format's calls.
ToolParser::MakeId random_call_ids(const ToolFormat& format);

}  // namespace sluice
