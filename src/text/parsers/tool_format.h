// The table of tool-call formats: how each family of models writes calls, as data.
//
//   const ToolFormat& format = find_tool_format("qwen3_coder");
//   format.open       // "<tool_call>"
//
// ToolParser reads calls by these rows. Text that a row spells is what the family's template
// writes; the parser reads more than that: other white space, other quotes, clear faults.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace sluice {

// How the inside of a call is spelled.
enum class CallSyntax {
  kObject,    // {"name": NAME, "arguments": {...}}
  kNamed,     // NAME name_close {...}
  kTagged,    // NAME name_close, then key_open KEY key_close value_open VALUE value_close for each
  kKeywords,  // NAME(KEY=LITERAL, ...), literals of Python or JSON
  kBraces,    // NAME{KEY:VALUE, ...}, strings between two `quote`
  kChannels,  // messages of harmony: header, `name_close`, arguments, `call_close`
};

// Where the id of a call comes from.
enum class CallIds {
  kOurs,         // "call_" and 24 letters and digits
  kNineLetters,  // 9 letters and digits, the model's own where it gives one (Mistral)
  kName,         // the model's own, which holds the name: functions.NAME:N (Kimi)
};

// A turn with calls is, for every block of calls:
//   open list_open before_call CALL between_calls CALL ... after_call list_close close
// and a CALL is:
//   call_open type NAME [id_open ID] name_close ARGUMENTS arguments_close call_close call_tail
struct ToolFormat {
  std::string_view name = {};
  std::array<std::string_view, 6> aliases = {};  // names of SGLang and vLLM, and older ones
  CallSyntax syntax = CallSyntax::kObject;

  // Marks of a block. Empty: there is none.
  std::string_view open = {}, close = {};
  std::array<std::string_view, 2> other_opens = {};  // spellings that are read, too
  std::string_view other_close = {};
  // The bytes with which an answer may begin that is a block without `open`. Then only a tool of
  // the request makes it a call. Empty: calls need their mark.
  std::string_view bare = {};
  std::string_view list_open = {}, list_close = {};  // brackets around the calls of a block, with
                                                     // commas between; empty: none
  bool one_per_block = false;                        // each call has a block of its own

  // White space as templates write it. All of it may be missing, or be more.
  std::string_view before_call = {}, between_calls = {}, after_call = {}, between_blocks = {};

  // Marks of a call.
  std::string_view call_open = {}, name_close = {}, call_close = {};
  std::string_view call_tail = {};        // behind call_close
  std::string_view arguments_close = {};  // between arguments and call_close
  std::string_view type = {};             // stands before the name
  std::string_view other_type = {};       // is read there, too
  std::string_view id_open = {};          // an id may stand behind the name
  bool is_open_optional = false;          // call_open alone begins a block, too
  std::string_view name_key = "name";     // kObject: the members of a call
  std::string_view arguments_key = "arguments";
  std::string_view id_key = {};  // kObject: a member in front of the name that numbers the call
  bool reads_objects = false;    // calls as objects are read, whatever `syntax` says
  CallIds ids = CallIds::kOurs;

  // kTagged, or a second spelling beside kObject.
  std::string_view key_open = {}, key_close = {}, value_open = {}, value_close = {};
  std::string_view after_name = {}, after_key = {}, after_pair = {};  // white space of templates
  std::string_view string_key_close = {};  // key_close of a value that is a string; empty: the
                                           // schema says which values are strings
  bool pads_values = false;                // a newline at each end of a value belongs to the frame

  std::string_view quote = {};     // kBraces: both ends of a string
  bool writes_json_words = false;  // kKeywords: true and null, not True and None

  // A frame around the answer's text, which is dropped. Empty: none.
  std::string_view answer_open = {}, answer_close = {};
  // Special tokens of the format that no other field names: they stay in the text.
  std::array<std::string_view, 4> more_marks = {};

  bool reads_names() const {
    return syntax != CallSyntax::kObject || !key_open.empty() || !id_open.empty();
  }
  bool is_list() const { return !list_open.empty(); }
  bool takes_objects() const { return syntax == CallSyntax::kObject || reads_objects; }
};

// A mark without the quotes of an attribute: models write them in several ways.
// <invoke name=" gives <invoke name= and "> gives >
std::string_view attribute_free(std::string_view mark);

std::span<const ToolFormat> tool_formats();
// By its name or an alias; Error{kBadInput} for an unknown one lists the known ones.
const ToolFormat& find_tool_format(std::string_view name);

}  // namespace sluice
