#include "checkpoint/pytorch/pickle.h"

#include <cstring>

#include "base/error.h"
#include "checkpoint/pytorch/pickle_names.h"

namespace sluice {
namespace {

// Together these limits keep a pickle below some 60 MiB of memory. A tensor takes about 18 values,
// 12 of them memoized.
constexpr std::size_t kMaxNodes = 1'000'000;
constexpr std::size_t kMaxItems = 1'000'000;  // items of all tuples; also of all lists and dicts
constexpr std::size_t kMaxStack = 1'000'000;
constexpr std::size_t kMaxContainers = 200'000;
constexpr std::size_t kMaxTensors = 50'000;
constexpr std::size_t kMaxMarks = 1000;
constexpr int kMaxDepth = 64;

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 100)) out += c >= ' ' && c < 127 ? c : '?';
  return out;
}

// Opcodes that are known and refused, for messages.
struct Refused {
  std::uint8_t code;
  std::string_view name;
};
constexpr Refused kRefused[] = {
    {'o', "OBJ"},       {0x81, "NEWOBJ"},      {0x92, "NEWOBJ_EX"},
    {0x82, "EXT1"},     {0x83, "EXT2"},        {0x84, "EXT4"},
    {'P', "PERSID"},    {0x97, "NEXT_BUFFER"}, {0x98, "READONLY_BUFFER"},
    {'I', "INT"},       {'L', "LONG"},         {'F', "FLOAT"},
    {'S', "STRING"},    {'V', "UNICODE"},      {0x8f, "EMPTY_SET"},
    {0x90, "ADDITEMS"}, {0x91, "FROZENSET"}};

}  // namespace

Pickle::Pickle(std::string_view bytes, std::string what) : bytes_(bytes), what_(std::move(what)) {
  while (step()) {
  }
  if (stack_.size() != 1 || !marks_.empty())
    reject(fmt::format("it ends with {} values instead of one", stack_.size()));
  root_ = stack_.back();
  stack_ = {};
  memo_ = {};
}

void Pickle::push(Value value) {
  if (stack_.size() >= kMaxStack)
    reject(fmt::format("it holds more than {} values at once", kMaxStack));
  stack_.push_back(value);
}

void Pickle::reject(const std::string& problem) const {
  fail(ErrorKind::kBadInput, "{}: the pickle cannot be read as data: at byte {}: {}", what_, op_at_,
       problem);
}

template <class T>
T Pickle::take() {
  if (sizeof(T) > bytes_.size() - at_) reject("it is cut short");
  T value;
  std::memcpy(&value, bytes_.data() + at_, sizeof(T));
  at_ += sizeof(T);
  return value;
}

std::string_view Pickle::take_bytes(std::uint64_t count) {
  if (count > bytes_.size() - at_)
    reject(fmt::format("it claims {} bytes, and {} are left", count, bytes_.size() - at_));
  const std::string_view out = bytes_.substr(at_, count);
  at_ += count;
  return out;
}

std::string_view Pickle::take_line() {
  const std::size_t end = bytes_.substr(at_, 512).find('\n');
  if (end == std::string_view::npos) reject("a name does not end");
  const std::string_view line = bytes_.substr(at_, end);
  at_ += end + 1;
  return line;
}

Pickle::Value Pickle::add(PickleKind kind, std::uint32_t a, std::uint64_t b, std::uint8_t depth) {
  if (nodes_.size() >= kMaxNodes) reject(fmt::format("it has more than {} values", kMaxNodes));
  if (depth > kMaxDepth) reject(fmt::format("values nest deeper than {}", kMaxDepth));
  nodes_.push_back({kind, depth, a, b});
  return static_cast<Value>(nodes_.size() - 1);
}

Pickle::Value Pickle::add_container(PickleKind kind) {
  if (containers_.size() >= kMaxContainers)
    reject(fmt::format("it has more than {} lists and dicts", kMaxContainers));
  containers_.emplace_back();
  return add(kind, static_cast<std::uint32_t>(containers_.size() - 1), 0, 1);
}

Pickle::Value Pickle::pop() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back()))
    reject("it takes a value from an empty stack");
  const Value value = stack_.back();
  stack_.pop_back();
  return value;
}

std::size_t Pickle::pop_mark() {
  if (marks_.empty()) reject("it asks for a mark, and there is none");
  const std::size_t first = marks_.back();
  marks_.pop_back();
  return first;
}

// The last `count` values of the stack.
Pickle::Value Pickle::add_tuple(std::size_t count) {
  if (count > stack_.size() - (marks_.empty() ? 0 : marks_.back()))
    reject("it takes a value from an empty stack");
  if (pool_.size() + count > kMaxItems)
    reject(fmt::format("its tuples have more than {} values", kMaxItems));
  std::uint8_t depth = 0;
  const std::size_t begin = pool_.size();
  for (std::size_t i = stack_.size() - count; i < stack_.size(); ++i) {
    depth = std::max(depth, nodes_[stack_[i]].depth);
    pool_.push_back(stack_[i]);
  }
  stack_.resize(stack_.size() - count);
  return add(PickleKind::kTuple, static_cast<std::uint32_t>(count), begin,
             static_cast<std::uint8_t>(depth + 1));
}

// Moves the values from `first` on into the list or dict below them.
void Pickle::put_into(PickleKind wanted, std::size_t first) {
  if (first == 0 || first > stack_.size())
    reject(fmt::format("there is nothing to put values in, {} was expected", kind_name(wanted)));
  Node& target = nodes_[stack_[first - 1]];
  if (target.kind != wanted)
    reject(fmt::format("it puts values that are meant for {} into {}", kind_name(wanted),
                       kind_name(target.kind)));
  if (wanted == PickleKind::kDict && (stack_.size() - first) % 2 != 0) reject("a key has no value");
  num_items_ += stack_.size() - first;
  if (num_items_ > kMaxItems)
    reject(fmt::format("its lists and dicts have more than {} values", kMaxItems));
  for (std::size_t i = first; i < stack_.size(); ++i) {
    target.depth = std::max<std::uint8_t>(target.depth,
                                          static_cast<std::uint8_t>(nodes_[stack_[i]].depth + 1));
    if (target.depth > kMaxDepth) reject(fmt::format("values nest deeper than {}", kMaxDepth));
    containers_[target.a].push_back(stack_[i]);
  }
  stack_.resize(first);
}

void Pickle::remember(std::uint64_t index) {
  if (stack_.empty()) reject("it remembers a value of an empty stack");
  // Python counts its memo entries, so a larger number is invalid and would cost memory.
  if (index > memo_.size() || memo_.size() >= kMaxNodes)
    reject(fmt::format("it remembers value {} after {}", index, memo_.size()));
  if (index == memo_.size()) memo_.push_back(0);
  memo_[index] = stack_.back();
}

void Pickle::recall(std::uint64_t index) {
  if (index >= memo_.size())
    reject(fmt::format("it recalls value {}, which it never remembered", index));
  push(memo_[index]);
}

void Pickle::push_name(std::string_view module, std::string_view name) {
  const std::size_t row = find_pickle_name(module, name);
  if (row == kNoPickleName)
    reject(
        fmt::format("it names {}.{}, which is not among the names that a file of weights may use; "
                    "convert the file to "
                    "safetensors, or take one of tensors alone",
                    printable(module), printable(name)));
  push(add(PickleKind::kName, static_cast<std::uint32_t>(row)));
}

std::span<const Pickle::Value> Pickle::tuple_of(Value value, const char* wanted) const {
  if (kind(value) != PickleKind::kTuple)
    reject(fmt::format("{} is {}, not a tuple", wanted, kind_name(kind(value))));
  return items(value);
}

std::int64_t Pickle::integer_of(Value value, const char* wanted) const {
  if (kind(value) != PickleKind::kInteger)
    reject(fmt::format("{} is {}, not an integer", wanted, kind_name(kind(value))));
  return integer(value);
}

// REDUCE: a name, and the tuple of its arguments.
void Pickle::call() {
  const Value given = pop(), called = pop();
  const std::span<const Value> arguments = tuple_of(given, "what it calls with");
  if (kind(called) != PickleKind::kName)
    reject(fmt::format("it calls {}", kind_name(kind(called))));
  const PickleName& name = pickle_name(nodes_[called].a);
  const auto wrong = [&] {
    reject(fmt::format("{}.{} is called with {} values that do not fit it", name.module, name.name,
                       arguments.size()));
  };
  switch (name.meaning) {
    case PickleMeaning::kDict:
      if (!arguments.empty()) wrong();
      return push(add_container(PickleKind::kDict));
    case PickleMeaning::kSize:
      if (arguments.size() != 1 || kind(arguments[0]) != PickleKind::kTuple) wrong();
      return push(arguments[0]);
    case PickleMeaning::kParameter:  // tensor, requires_grad, hooks
      if (arguments.size() != 3 || kind(arguments[0]) != PickleKind::kTensor) wrong();
      return push(arguments[0]);
    case PickleMeaning::kTensor:  // storage, offset, size, stride, requires_grad, hooks [,
                                  // metadata]
      if (arguments.size() < 4 || arguments.size() > 7) wrong();
      return rebuild_tensor(arguments, false);
    case PickleMeaning::kTypedTensor:  // as kTensor, but the seventh argument is the element type
      if (arguments.size() < 7 || arguments.size() > 8) wrong();
      return rebuild_tensor(arguments, true);
    case PickleMeaning::kStorageType:
    case PickleMeaning::kElementType:
      wrong();
  }
}

void Pickle::rebuild_tensor(std::span<const Value> arguments, bool has_dtype) {
  if (kind(arguments[0]) != PickleKind::kStorage)
    reject(fmt::format("a tensor lies in {}, not in a storage", kind_name(kind(arguments[0]))));
  if (tensors_.size() >= kMaxTensors)
    reject(fmt::format("it has more than {} tensors", kMaxTensors));
  PickledTensor tensor;
  tensor.storage = nodes_[arguments[0]].a;
  tensor.dtype = storages_[tensor.storage].dtype;
  if (has_dtype) {
    const Value type = arguments[6];
    if (kind(type) != PickleKind::kName ||
        pickle_name(nodes_[type].a).meaning != PickleMeaning::kElementType)
      reject("the type of a tensor's elements is no such type");
    tensor.dtype = pickle_name(nodes_[type].a).dtype;
  }
  if (storages_[tensor.storage].is_untyped != has_dtype)
    reject("a tensor and its storage do not agree about their type");
  tensor.offset = integer_of(arguments[1], "the offset of a tensor");
  const std::span<const Value> shape = tuple_of(arguments[2], "the shape of a tensor");
  const std::span<const Value> strides = tuple_of(arguments[3], "the strides of a tensor");
  if (shape.size() > PickledTensor::kMaxRank || strides.size() != shape.size())
    reject(fmt::format("a tensor has {} extents and {} strides; at most {} of each are allowed",
                       shape.size(), strides.size(), PickledTensor::kMaxRank));
  tensor.rank = static_cast<int>(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) {
    tensor.shape[i] = integer_of(shape[i], "an extent");
    tensor.strides[i] = integer_of(strides[i], "a stride");
  }
  tensors_.push_back(tensor);
  push(add(PickleKind::kTensor, static_cast<std::uint32_t>(tensors_.size() - 1)));
}

// Attributes of a state dict (_metadata) are set here; they do not describe tensors.
void Pickle::build() {
  pop();
  if (stack_.empty()) reject("it takes a value from an empty stack");
  const PickleKind target = kind(stack_.back());
  if (target != PickleKind::kDict)
    reject(fmt::format("it sets attributes of {}", kind_name(target)));
}

// BINPERSID: ("storage", its type, key, device, elements [, view]).
void Pickle::load_storage() {
  const std::span<const Value> fields = tuple_of(pop(), "what stands for a storage");
  if (fields.size() < 5 || fields.size() > 6 || kind(fields[0]) != PickleKind::kText ||
      text(fields[0]) != "storage" || kind(fields[1]) != PickleKind::kName ||
      pickle_name(nodes_[fields[1]].a).meaning != PickleMeaning::kStorageType ||
      kind(fields[2]) != PickleKind::kText)
    reject("what stands for a storage is not (\"storage\", type, key, place, elements)");
  if (fields.size() == 6 && kind(fields[5]) != PickleKind::kNone)
    reject("a storage that is a view of another is not read");
  if (storages_.size() >= kMaxTensors)
    reject(fmt::format("it has more than {} storages", kMaxTensors));
  const PickleName& type = pickle_name(nodes_[fields[1]].a);
  storages_.push_back({type.dtype, type.is_untyped, text(fields[2]),
                       integer_of(fields[4], "the length of a storage")});
  push(add(PickleKind::kStorage, static_cast<std::uint32_t>(storages_.size() - 1)));
}

// Runs one opcode; false after STOP.
bool Pickle::step() {
  op_at_ = at_;
  const auto code = take<std::uint8_t>();
  const auto counted = [&](PickleKind kind, std::uint64_t count) {
    const std::string_view bytes = take_bytes(count);
    push(add(kind, static_cast<std::uint32_t>(bytes.size()),
             static_cast<std::uint64_t>(bytes.data() - bytes_.data())));
  };
  const auto integer = [&](std::int64_t value) {
    push(add(PickleKind::kInteger, 0, static_cast<std::uint64_t>(value)));
  };
  switch (code) {
    case 0x80:  // PROTO
      if (const auto protocol = take<std::uint8_t>(); protocol < 2 || protocol > 5)
        reject(fmt::format("its protocol is {}; 2 to 5 are read", protocol));
      break;
    case 0x95:  // FRAME
      if (const auto length = take<std::uint64_t>(); length > bytes_.size() - at_)
        reject(
            fmt::format("a frame claims {} bytes, and {} are left", length, bytes_.size() - at_));
      break;
    case '.':
      return false;  // STOP
    case '(':        // MARK
      if (marks_.size() >= kMaxMarks)
        reject(fmt::format("it has more than {} marks at once", kMaxMarks));
      marks_.push_back(stack_.size());
      break;
    case '0':
      pop();
      break;  // POP
    case '1':
      stack_.resize(pop_mark());
      break;  // POP_MARK
    case 'N':
      push(add(PickleKind::kNone));
      break;  // NONE
    case 0x88:
      push(add(PickleKind::kBool, 1));
      break;  // NEWTRUE
    case 0x89:
      push(add(PickleKind::kBool, 0));
      break;  // NEWFALSE
    case 'J':
      integer(take<std::int32_t>());
      break;  // BININT
    case 'K':
      integer(take<std::uint8_t>());
      break;  // BININT1
    case 'M':
      integer(take<std::uint16_t>());
      break;      // BININT2
    case 0x8a: {  // LONG1: two's complement
      const std::string_view digits = take_bytes(take<std::uint8_t>());
      if (digits.size() > 8) {
        push(add(PickleKind::kLong, static_cast<std::uint32_t>(digits.size()),
                 static_cast<std::uint64_t>(digits.data() - bytes_.data())));
        break;
      }
      std::int64_t value = !digits.empty() && static_cast<signed char>(digits.back()) < 0 ? -1 : 0;
      std::memcpy(&value, digits.data(), digits.size());
      integer(value);
      break;
    }
    case 'G':
      push(add(PickleKind::kFloat, 0, __builtin_bswap64(take<std::uint64_t>())));
      break;  // BINFLOAT, big-endian
    case 0x8c:
      counted(PickleKind::kText, take<std::uint8_t>());
      break;  // SHORT_BINUNICODE
    case 'X':
      counted(PickleKind::kText, take<std::uint32_t>());
      break;      // BINUNICODE
    case 0x8d: {  // BINUNICODE8
      const auto count = take<std::uint64_t>();
      if (count > 0xFFFFFFFFu) reject(fmt::format("a text claims {} bytes", count));
      counted(PickleKind::kText, count);
      break;
    }
    case 'U':
      counted(PickleKind::kBytes, take<std::uint8_t>());
      break;  // SHORT_BINSTRING
    case 'T':
      counted(PickleKind::kBytes, take<std::uint32_t>());
      break;  // BINSTRING
    case 'C':
      counted(PickleKind::kBytes, take<std::uint8_t>());
      break;  // SHORT_BINBYTES
    case 'B':
      counted(PickleKind::kBytes, take<std::uint32_t>());
      break;  // BINBYTES
    case 0x8e:
    case 0x96: {  // BINBYTES8, BYTEARRAY8
      const auto count = take<std::uint64_t>();
      if (count > bytes_.size() - at_)
        reject(fmt::format("it claims {} bytes, and {} are left", count, bytes_.size() - at_));
      counted(PickleKind::kBytes, count);
      break;
    }
    case ']':
      push(add_container(PickleKind::kList));
      break;     // EMPTY_LIST
    case 'a': {  // APPEND
      const Value item = pop();
      push(item);
      put_into(PickleKind::kList, stack_.size() - 1);
      break;
    }
    case 'e':
      put_into(PickleKind::kList, pop_mark());
      break;  // APPENDS
    case ')':
      push(add(PickleKind::kTuple, 0, pool_.size(), 1));
      break;  // EMPTY_TUPLE
    case 't':
      push(add_tuple(stack_.size() - pop_mark()));
      break;  // TUPLE
    case 0x85:
      push(add_tuple(1));
      break;
    case 0x86:
      push(add_tuple(2));
      break;
    case 0x87:
      push(add_tuple(3));
      break;
    case '}':
      push(add_container(PickleKind::kDict));
      break;   // EMPTY_DICT
    case 's':  // SETITEM
      if (stack_.size() < (marks_.empty() ? 0 : marks_.back()) + 3)
        reject("it takes a value from an empty stack");
      put_into(PickleKind::kDict, stack_.size() - 2);
      break;
    case 'u':
      put_into(PickleKind::kDict, pop_mark());
      break;  // SETITEMS
    case 'q':
      remember(take<std::uint8_t>());
      break;  // BINPUT
    case 'r':
      remember(take<std::uint32_t>());
      break;  // LONG_BINPUT
    case 0x94:
      remember(memo_.size());
      break;  // MEMOIZE
    case 'h':
      recall(take<std::uint8_t>());
      break;  // BINGET
    case 'j':
      recall(take<std::uint32_t>());
      break;     // LONG_BINGET
    case 'c': {  // GLOBAL
      const std::string_view module = take_line();
      push_name(module, take_line());
      break;
    }
    case 'i': {  // INST: a name that would be called at once
      const std::string_view module = take_line(), name = take_line();
      reject(fmt::format("the opcode INST would call {}.{}", printable(module), printable(name)));
    }
    case 0x93: {  // STACK_GLOBAL
      const Value name = pop(), module = pop();
      if (kind(name) != PickleKind::kText || kind(module) != PickleKind::kText)
        reject("a name is not made of texts");
      push_name(text(module), text(name));
      break;
    }
    case 'R':
      call();
      break;  // REDUCE
    case 'b':
      build();
      break;  // BUILD
    case 'Q':
      load_storage();
      break;  // BINPERSID
    default:
      for (const Refused& row : kRefused)
        if (row.code == code)
          reject(fmt::format("the opcode {} is not read: tensors do not need it", row.name));
      reject(fmt::format("0x{:02x} is no opcode that is read", code));
  }
  return true;
}

}  // namespace sluice
