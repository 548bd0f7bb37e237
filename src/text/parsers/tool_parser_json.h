// JSON that arrives byte by byte: checked incrementally and read as a tool call.
#pragma once

#include <string>
#include <string_view>

#include "text/parsers/lenient_json.h"
#include "text/parsers/tool_format.h"

namespace sluice {

// Checks one JSON object. At most 64 levels.
class JsonMachine {
 public:
  enum class Status { kMore, kDone, kInvalid };

  Status push(char c);
  int depth() const { return static_cast<int>(stack_.size()); }
  bool in_string() const {
    return token_ == Token::kString || token_ == Token::kEscape || token_ == Token::kUnicode;
  }
  // Inside a string, and not in an escape of it.
  bool in_plain_string() const { return token_ == Token::kString; }
  // Directly behind an opening bracket.
  bool at_first() const { return expect_ == Expect::kValueOrEnd || expect_ == Expect::kKeyOrEnd; }
  // Inside or before a key of the innermost object.
  bool at_key() const { return expect_ == Expect::kKey || expect_ == Expect::kKeyOrEnd; }
  bool at_value() const { return expect_ == Expect::kValue || expect_ == Expect::kValueOrEnd; }
  bool after_value() const { return expect_ == Expect::kCommaOrEnd || expect_ == Expect::kDone; }

 private:
  enum class Expect { kValue, kValueOrEnd, kKeyOrEnd, kKey, kColon, kCommaOrEnd, kDone };
  enum class Token { kNone, kString, kEscape, kUnicode, kNumber, kLiteral };
  enum class Number {
    kMinus,
    kZero,
    kWhole,
    kDot,
    kFraction,
    kExponent,
    kExponentSign,
    kExponentDigits
  };

  Status structure(char c);
  Status string(char c);
  Status begin_value(char c);
  bool number(char c);
  bool number_ends() const;
  void end_value() { expect_ = stack_.empty() ? Expect::kDone : Expect::kCommaOrEnd; }

  Expect expect_ = Expect::kValue;
  Token token_ = Token::kNone;
  Number number_ = Number::kMinus;
  int unicode_left_ = 0;
  std::string_view literal_;
  std::string stack_;
};

// The arguments of a call as the text of an object: an object's own text; {} for null and for a
// blank string; a string that holds an object gives that object. nullopt: anything else.
std::optional<std::string> call_arguments(const JsonText& value);

// One call: {"name": ..., "arguments": {...}} in any order ("parameters" is accepted, too), or the
// bare arguments. After `mend` these are read as JSON: a comma before a closing bracket, Python's
// words and quotes.
class JsonCall {
 public:
  using Status = JsonMachine::Status;

  explicit JsonCall(bool bare_arguments = false) : bare_(bare_arguments) {}
  // The keys of `format` are read besides "name", "arguments" and "parameters".
  JsonCall(bool bare_arguments, const ToolFormat& format)
      : bare_(bare_arguments),
        name_key_(format.name_key),
        arguments_key_(format.arguments_key),
        id_key_(format.id_key) {}

  // kInvalid: the arguments hold what came before the byte.
  Status push(char c);
  void mend() { mends_ = true; }
  std::size_t depth() const { return static_cast<std::size_t>(machine_.depth()); }
  bool in_string() const { return machine_.in_string() || !escape_.empty(); }
  bool has_name() const { return has_name_; }
  const std::string& name() const { return name_; }
  const std::string& id() const { return id_; }
  // Argument text since the previous call, in order.
  std::string take_arguments();
  bool has_arguments() const { return has_arguments_ || part_ == Part::kArguments; }
  bool has_whole_arguments() const { return has_arguments_ && part_ != Part::kArguments; }
  // The arguments are no object, and stand for none: a list, a number, a text.
  bool has_odd_arguments() const { return has_odd_arguments_; }
  // A member that no call has.
  bool has_odd_member() const { return has_odd_member_; }

 private:
  enum class Part { kNone, kKey, kName, kId, kArguments, kOther };
  Status read(char c);
  Status read(std::string_view text);
  Status mended(char c);
  Status in_word(char c);
  Status in_quotes(char c);
  bool is_passed_on() const { return bare_ || (part_ == Part::kArguments && streams_); }
  void take(char c);
  void end_part();

  JsonMachine machine_;
  bool bare_;
  std::string_view name_key_ = "name", arguments_key_ = "arguments", id_key_;
  Part part_ = Part::kNone;
  std::string text_;  // the key or value being read
  std::string key_;
  std::string arguments_;
  std::string name_, id_;
  bool streams_ = false;  // the arguments are an object: passed on as they come
  bool has_name_ = false, has_arguments_ = false;
  bool has_odd_arguments_ = false, has_odd_member_ = false;
  bool mends_ = false;
  std::string comma_;       // a comma and white space, up to the next byte
  std::string word_;        // of Python, while it is read
  std::string escape_;      // a backslash, up to the next byte
  bool is_single_ = false;  // the string stands between single quotes
};

}  // namespace sluice
