#include "text/jinja/values/value.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/values/callable.h"
#include "text/jinja/values/unicode.h"

namespace sluice::jinja {
namespace {

constexpr std::size_t kIndexedFrom = 12;  // smaller maps are searched linearly

template <class T>
int depth_of_all(const T& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, depth_of(item));
  return depth + 1;
}

int bounded_depth(int depth) {
  if (depth > Limits{}.max_value_depth) raise_recursion();
  return depth;
}

}  // namespace

void Budget::run_dry() {
  left_ = 0;
  throw TemplateError(
      ErrorKind::kFuel, "FuelError",
      "the template used up its budget of " + std::to_string(limits_.fuel) + " operations");
}

Value::Value(std::string text) : type_(Type::kString) {
  const std::size_t length = count_code_points(text);
  object_ = std::make_shared<StringData>(StringData{std::move(text), length});
}

Value::Value(BigInt v) : type_(Type::kInt) {
  if (v.fits()) {
    scalar_.integer = v.small();
    return;
  }
  const Int largest = static_cast<Int>(~static_cast<unsigned __int128>(0) >> 1);
  scalar_.integer = v.is_negative() ? -largest : largest;
  object_ = std::make_shared<BigInt>(std::move(v));
}

double Value::real_of_big() const {
  const double value = get<BigInt>()->real();
  if (std::isinf(value)) raise_python("OverflowError", "int too large to convert to float");
  return value;
}

Value Value::none() {
  Value v;
  v.type_ = Type::kNone;
  return v;
}

Value Value::undefined(std::string message, bool forbidden) {
  Value v;
  v.object_ = std::make_shared<UndefinedData>(UndefinedData{std::move(message), forbidden});
  return v;
}

Value Value::markup(std::string text) {
  Value v(std::move(text));
  v.get<StringData>()->markup = true;
  return v;
}

Value Value::bytes(std::string data) {
  Value v(std::move(data));
  v.type_ = Type::kBytes;
  return v;
}

Value Value::object(std::string representation) {
  Value v(std::move(representation));
  v.type_ = Type::kObject;
  return v;
}

Value Value::list(std::vector<Value> items, SequenceKind kind) {
  Value v;
  v.type_ = Type::kSequence;
  const int depth = bounded_depth(depth_of_all(items));
  v.object_ = std::make_shared<SequenceData>(SequenceData{kind, depth, std::move(items)});
  return v;
}

Value Value::iterator(std::vector<Value> items, std::exception_ptr error) {
  Value v;
  v.type_ = Type::kIterator;
  const int depth = bounded_depth(depth_of_all(items));
  v.object_ =
      std::make_shared<IteratorData>(IteratorData{std::move(items), depth, 0, std::move(error)});
  return v;
}

Value Value::dict(DictData data) {
  Value v;
  v.type_ = Type::kDict;
  for (const auto& [key, value] : data.entries)
    data.depth = std::max(data.depth, depth_of(value) + 1);
  bounded_depth(data.depth);
  v.object_ = std::make_shared<DictData>(std::move(data));
  return v;
}

Value Value::range(std::int64_t start, std::int64_t stop, std::int64_t step) {
  Value v;
  v.type_ = Type::kRange;
  v.object_ = std::make_shared<RangeData>(RangeData{start, stop, step});
  return v;
}

Value Value::name_space() {
  Value v;
  v.type_ = Type::kNamespace;
  v.object_ = std::make_shared<NamespaceData>();
  return v;
}

Value Value::callable(std::shared_ptr<Callable> c) {
  Value v;
  v.type_ = Type::kCallable;
  bounded_depth(c->depth());
  v.object_ = std::move(c);
  return v;
}

Value Value::loop(std::shared_ptr<Loop> l) {
  Value v;
  v.type_ = Type::kLoop;
  v.object_ = std::move(l);
  return v;
}

const std::string& Value::text() const {
  return string().text;
}
const std::vector<Value>& Value::items() const {
  return sequence().items;
}

void Value::fail_undefined() const {
  if (!object_) raise_undefined("value is undefined");
  const auto* data = get<UndefinedData>();
  if (data->forbidden) raise_security(data->message);
  raise_undefined(data->message);
}

std::size_t DictData::slot_of(const Value& key, std::uint64_t hash, Budget& budget) const {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t slot = hash & mask;; slot = (slot + 1) & mask) {
    budget.charge();
    const std::uint32_t index = slots_[slot];
    if (index == 0 || (hashes_[index - 1] == hash && equal(entries[index - 1].first, key, budget)))
      return slot;
  }
}

void DictData::grow() {
  std::size_t size = 32;
  while (size < entries.size() * 3) size *= 2;
  slots_.assign(size, 0);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    std::size_t slot = hashes_[i] & (size - 1);
    while (slots_[slot] != 0) slot = (slot + 1) & (size - 1);
    slots_[slot] = static_cast<std::uint32_t>(i + 1);
  }
}

const Value* DictData::find(const Value& key, Budget& budget) const {
  const std::uint64_t hash = hash_value(key, budget);
  if (slots_.empty()) {
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (hashes_[i] == hash && equal(entries[i].first, key, budget)) return &entries[i].second;
    return nullptr;
  }
  const std::uint32_t index = slots_[slot_of(key, hash, budget)];
  return index == 0 ? nullptr : &entries[index - 1].second;
}

const Value* DictData::find(std::string_view key) const {
  Budget budget{Limits{}};
  return find(Value(key), budget);
}

void DictData::set(const Value& key, Value value, Budget& budget) {
  const std::uint64_t hash = hash_value(key, budget);
  if (const Value* found = find(key, budget)) {
    *const_cast<Value*>(found) = std::move(value);
    return;
  }
  entries.emplace_back(key, std::move(value));
  hashes_.push_back(hash);
  if (entries.size() <= kIndexedFrom) return;
  if (entries.size() * 2 > slots_.size()) {
    grow();
  } else {
    slots_[slot_of(key, hash, budget)] = static_cast<std::uint32_t>(entries.size());
  }
}

const Value* NamespaceData::find(std::string_view name) const {
  for (const auto& [key, value] : fields)
    if (key == name) return &value;
  return nullptr;
}

void NamespaceData::set(std::string_view name, Value value) {
  for (auto& [key, old] : fields) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  fields.emplace_back(std::string(name), std::move(value));
}

int depth_of(const Value& value) {
  if (value.is_sequence()) return value.sequence().depth;
  if (value.is_dict()) return value.dict().depth;
  if (value.is(Type::kIterator)) return value.iterator().depth;
  if (value.is(Type::kCallable)) return value.callable().depth();
  return 0;
}

std::string type_name(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
      return "Undefined";
    case Type::kNone:
      return "NoneType";
    case Type::kBool:
      return "bool";
    case Type::kInt:
      return "int";
    case Type::kFloat:
      return "float";
    case Type::kString:
      return value.string().markup ? "Markup" : "str";
    case Type::kBytes:
      return "bytes";
    case Type::kDict:
      return "dict";
    case Type::kRange:
      return "range";
    case Type::kIterator:
      return "generator";
    case Type::kNamespace:
      return "Namespace";
    case Type::kCallable:
      return value.callable().is_macro() ? "Macro" : "builtin_function_or_method";
    case Type::kLoop:
      return "LoopContext";
    case Type::kObject:
      return "object";
    case Type::kSequence:
      break;
  }
  switch (value.sequence().kind) {
    case SequenceKind::kList:
      return "list";
    case SequenceKind::kTuple:
      return "tuple";
    case SequenceKind::kKeys:
      return "dict_keys";
    case SequenceKind::kValues:
      return "dict_values";
    case SequenceKind::kItems:
      return "dict_items";
    case SequenceKind::kGroup:
      return "_GroupTuple";
  }
  return "object";
}

std::string describe(const Value& value) {
  if (value.is_none()) return "None";
  if (value.is(Type::kLoop)) return "jinja2.runtime.LoopContext object";
  if (value.is(Type::kNamespace)) return "jinja2.utils.Namespace object";
  return type_name(value) + " object";
}

bool truthy(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
    case Type::kNone:
      return false;
    case Type::kBool:
    case Type::kInt:
      return value.integer() != 0;
    case Type::kFloat:
      return value.real() != 0;
    case Type::kString:
    case Type::kBytes:
      return !value.text().empty();
    case Type::kSequence:
      return !value.items().empty();
    case Type::kDict:
      return !value.dict().entries.empty();
    case Type::kRange:
      return value.range().size() != 0;
    default:
      return true;
  }
}

std::size_t length_of(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
      return 0;
    case Type::kString:
      return value.string().length;
    case Type::kBytes:
      return value.text().size();
    case Type::kSequence:
      return value.items().size();
    case Type::kDict:
      return value.dict().entries.size();
    case Type::kRange:
      return static_cast<std::size_t>(value.range().size());
    case Type::kLoop:
      return value.loop().length();
    default:
      raise_type_error("object of type '" + type_name(value) + "' has no len()");
  }
}

bool is_iterable(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
    case Type::kString:
    case Type::kBytes:
    case Type::kSequence:
    case Type::kDict:
    case Type::kRange:
    case Type::kLoop:
    case Type::kIterator:
      return true;
    default:
      return false;
  }
}

std::vector<Value> iterate(const Value& value, Budget& budget) {
  std::vector<Value> out;
  switch (value.type()) {
    case Type::kUndefined:
      return out;
    case Type::kBytes:
      for (const char c : value.text())
        out.emplace_back(static_cast<int>(static_cast<unsigned char>(c)));
      budget.charge(out.size() * 2);
      return out;
    case Type::kString: {
      const std::string& text = value.text();
      budget.charge(value.string().length * 4);
      out.reserve(value.string().length);
      for (std::size_t pos = 0; pos < text.size();) {
        const std::size_t begin = pos;
        next_code_point(text, pos);
        out.emplace_back(text.substr(begin, pos - begin));
      }
      return out;
    }
    case Type::kSequence:
      budget.charge(value.items().size());
      return value.items();
    case Type::kDict:
      budget.charge(value.dict().entries.size());
      for (const auto& entry : value.dict().entries) out.push_back(entry.first);
      return out;
    case Type::kRange: {
      const RangeData& range = value.range();
      budget.charge(static_cast<std::size_t>(range.size()) * 2);
      out.reserve(static_cast<std::size_t>(range.size()));
      for (std::int64_t i = 0; i < range.size(); ++i) out.emplace_back(range.at(i));
      return out;
    }
    case Type::kIterator: {
      IteratorData& data = value.iterator();
      budget.charge(data.items.size() - data.next);
      out.assign(data.items.begin() + static_cast<std::ptrdiff_t>(data.next), data.items.end());
      data.next = data.items.size();
      if (data.error) std::rethrow_exception(std::exchange(data.error, nullptr));
      return out;
    }
    default:
      raise_type_error("'" + type_name(value) + "' object is not iterable");
  }
}

}  // namespace sluice::jinja
