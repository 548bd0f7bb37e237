// JSON that arrives byte by byte: checked incrementally and read as a tool call.
#pragma once

#include <string>
#include <string_view>

#include "text/parsers/lenient_json.h"

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
// bare arguments.
class JsonCall {
 public:
  using Status = JsonMachine::Status;

  // The keys are names of members that are read besides "name", "arguments" and "parameters";
  // they are static storage.
  explicit JsonCall(bool bare_arguments = false, std::string_view name_key = "name",
                    std::string_view arguments_key = "arguments")
      : bare_(bare_arguments), name_key_(name_key), arguments_key_(arguments_key) {}

  Status push(char c);
  bool has_name() const { return has_name_; }
  const std::string& name() const { return name_; }
  const std::string& id() const { return id_; }
  // Argument text since the previous call, in order.
  std::string take_arguments();
  bool has_arguments() const { return has_arguments_ || part_ == Part::kArguments; }
  // The arguments are no object, and stand for none: a list, a number, a text.
  bool has_odd_arguments() const { return has_odd_arguments_; }
  // A member that no call has.
  bool has_odd_member() const { return has_odd_member_; }

 private:
  enum class Part { kNone, kKey, kName, kId, kArguments, kOther };
  void take(char c);
  void end_part();

  JsonMachine machine_;
  bool bare_;
  std::string_view name_key_, arguments_key_;
  Part part_ = Part::kNone;
  std::string text_;  // the key or value being read
  std::string key_;
  std::string arguments_;
  std::string name_, id_;
  bool streams_ = false;  // the arguments are an object: passed on as they come
  bool has_name_ = false, has_arguments_ = false;
  bool has_odd_arguments_ = false, has_odd_member_ = false;
};

}  // namespace sluice
