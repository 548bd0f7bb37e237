// The values of templates: plain data with Python's semantics, without access to the host (R16).
//
// Values are immutable and shared, except for namespaces and the few objects with a state of their
// own (iterators, loops, joiners), which live no longer than one render. A Value is used by one
// thread at a time.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/values/big_int.h"
#include "text/jinja/values/budget.h"
#include "text/jinja/values/error.h"

namespace sluice::jinja {

// Python's int, while it has at most 128 bits; beyond, a value holds a BigInt.
using Int = __int128;

enum class Type : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kBytes,
  kSequence,
  kDict,
  kRange,
  kIterator,
  kNamespace,
  kCallable,
  kLoop,
  kObject
};

enum class SequenceKind : std::uint8_t { kList, kTuple, kKeys, kValues, kItems, kGroup };

struct StringData;
struct SequenceData;
struct DictData;
struct RangeData;
struct IteratorData;
struct NamespaceData;
struct UndefinedData;
class Callable;
class Loop;

class Value {
 public:
  Value() = default;                                           // undefined, without a message
  Value(bool v) : type_(Type::kBool) { scalar_.integer = v; }  // NOLINT: implicit by intent
  Value(Int v) : type_(Type::kInt) { scalar_.integer = v; }    // NOLINT
  Value(int v) : Value(static_cast<Int>(v)) {}                 // NOLINT
  Value(std::size_t v) : Value(static_cast<Int>(v)) {}         // NOLINT
  Value(std::int64_t v) : Value(static_cast<Int>(v)) {}        // NOLINT
  Value(BigInt v);                                             // NOLINT
  Value(double v) : type_(Type::kFloat) { scalar_.real = v; }  // NOLINT
  Value(std::string text);                                     // NOLINT
  Value(std::string_view text) : Value(std::string(text)) {}   // NOLINT
  Value(const char* text) : Value(std::string(text)) {}        // NOLINT

  static Value none();
  static Value undefined(std::string message, bool forbidden = false);
  static Value markup(std::string text);
  static Value bytes(std::string data);
  static Value list(std::vector<Value> items, SequenceKind kind = SequenceKind::kList);
  static Value tuple(std::vector<Value> items) {
    return list(std::move(items), SequenceKind::kTuple);
  }
  // `error` (of a filter) is raised after the last item, when a template reads that far.
  static Value iterator(std::vector<Value> items, std::exception_ptr error = nullptr);
  static Value dict(DictData data);
  static Value range(std::int64_t start, std::int64_t stop, std::int64_t step);
  static Value name_space();
  static Value callable(std::shared_ptr<Callable> c);
  static Value loop(std::shared_ptr<Loop> l);
  static Value object(std::string representation);

  Type type() const { return type_; }
  bool is(Type t) const { return type_ == t; }
  bool is_undefined() const { return type_ == Type::kUndefined; }
  bool is_none() const { return type_ == Type::kNone; }
  bool is_string() const { return type_ == Type::kString; }
  bool is_dict() const { return type_ == Type::kDict; }
  bool is_sequence() const { return type_ == Type::kSequence; }
  bool is_integer() const { return type_ == Type::kInt || type_ == Type::kBool; }
  bool is_number() const { return is_integer() || type_ == Type::kFloat; }

  bool boolean() const { return scalar_.integer != 0; }
  // kInt and kBool; the nearest Int if the value is_big.
  Int integer() const { return scalar_.integer; }
  bool is_big() const { return type_ == Type::kInt && object_ != nullptr; }  // beyond an Int
  BigInt big() const { return is_big() ? *get<BigInt>() : BigInt(scalar_.integer); }
  // float() of a number; raises an OverflowError for an integer beyond the doubles.
  double real() const {
    if (type_ == Type::kFloat) return scalar_.real;
    return is_big() ? real_of_big() : static_cast<double>(scalar_.integer);
  }
  const StringData& string() const { return *get<StringData>(); }  // kString, kBytes, kObject
  const std::string& text() const;
  const SequenceData& sequence() const { return *get<SequenceData>(); }
  const std::vector<Value>& items() const;
  const DictData& dict() const { return *get<DictData>(); }
  const RangeData& range() const { return *get<RangeData>(); }
  IteratorData& iterator() const { return *get<IteratorData>(); }
  NamespaceData& name_space_data() const { return *get<NamespaceData>(); }
  Callable& callable() const { return *get<Callable>(); }
  Loop& loop() const { return *get<Loop>(); }
  const void* identity() const { return object_.get(); }

  // Raises the error of using this undefined value.
  [[noreturn]] void fail_undefined() const;

 private:
  double real_of_big() const;

  template <class T>
  T* get() const {
    return static_cast<T*>(object_.get());
  }

  Type type_ = Type::kUndefined;
  union Scalar {
    Int integer;
    double real;
  } scalar_{};
  std::shared_ptr<void> object_;
};

struct UndefinedData {
  std::string message;
  bool forbidden;  // raises a SecurityError instead of an UndefinedError
};

struct StringData {
  std::string text;
  std::size_t length;  // code points
  bool markup = false;
  bool ascii() const { return length == text.size(); }
};

struct SequenceData {
  SequenceKind kind;
  int depth;
  std::vector<Value> items;
};

// Keeps the order of insertion, as Python's dict.
struct DictData {
  // The value of a key, or nullptr. Raises a TypeError for a key that cannot be hashed.
  const Value* find(const Value& key, Budget& budget) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, Value value, Budget& budget);

  std::vector<std::pair<Value, Value>> entries;
  int depth = 1;

 private:
  std::size_t slot_of(const Value& key, std::uint64_t hash, Budget& budget) const;
  void grow();
  // open addressing: index + 1 into entries, 0 when free; unused while small
  std::vector<std::uint32_t> slots_;
  std::vector<std::uint64_t> hashes_;  // hashes of the entries
};

struct RangeData {
  std::int64_t start, stop, step;
  std::int64_t size() const {
    if (step > 0) return start < stop ? (stop - start + step - 1) / step : 0;
    return start > stop ? (start - stop - step - 1) / -step : 0;
  }
  std::int64_t at(std::int64_t i) const { return start + i * step; }
};

struct IteratorData {
  std::vector<Value> items;
  int depth;
  std::size_t next = 0;
  std::exception_ptr error;
};

struct NamespaceData {
  std::vector<std::pair<std::string, Value>> fields;
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

// Nesting depth of containers below a value; 0 for scalars.
int depth_of(const Value& value);

// Python's names: "str", "list", "NoneType", ... `describe` returns the words of Jinja's messages:
// "dict object", "None".
std::string type_name(const Value& value);
std::string describe(const Value& value);

bool truthy(const Value& value);
std::string to_text(const Value& value, Budget& budget);    // str()
std::string to_repr(const Value& value, Budget& budget);    // repr()
void append_repr(std::string& out, std::string_view text);  // repr() of a str
std::string format_float(double value);                     // repr() of a float
std::string format_int(Int value);
// str() of an integer of any size; raises a ValueError beyond Python's limit of 4,300 digits.
std::string integer_text(const Value& value);
inline constexpr std::size_t kMaxIntegerDigits = 4300;

bool equal(const Value& a, const Value& b, Budget& budget);
// Python's `a < b` and so on; raises a TypeError for kinds without an order.
enum class Order { kLess, kLessEqual, kGreater, kGreaterEqual };
bool ordered(const Value& a, const Value& b, Order order, Budget& budget);
std::uint64_t hash_value(const Value& value, Budget& budget);
bool contains(const Value& container, const Value& item, Budget& budget);

// len(); raises a TypeError for values without a length.
std::size_t length_of(const Value& value);
// All items of an iterable; raises a TypeError. Consumes iterators.
std::vector<Value> iterate(const Value& value, Budget& budget);
bool is_iterable(const Value& value);

}  // namespace sluice::jinja
