// The filter pprint: Python's pprint.pformat, lines of 80 characters, sorted keys.
#include <algorithm>

#include "text/jinja/filters_text.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/markup.h"
#include "text/jinja/values/unicode.h"

namespace sluice::jinja::filters {
namespace {

using Entry = std::pair<Value, Value>;

class Printer {
 public:
  explicit Printer(Budget& budget) : budget_(budget) {}

  // `indent`: columns used before the value. `allowance`: columns that must stay free after it.
  void write(const Value& value, int indent, int allowance, int level) {
    const std::string flat = one_line(value);
    if (columns(flat) <= kWidth - indent - allowance) {
      out += flat;
    } else if (value.is_dict()) {
      write_dict(value, indent, allowance + 1, level + 1);
    } else if (is_plain_sequence(value, SequenceKind::kList)) {
      out += '[';
      write_items(value.items(), indent, allowance + 1, level + 1);
      out += ']';
    } else if (is_plain_sequence(value, SequenceKind::kTuple)) {
      const std::string close = value.items().size() == 1 ? ",)" : ")";
      out += '(';
      write_items(value.items(), indent, allowance + static_cast<int>(close.size()), level + 1);
      out += close;
    } else if (value.is_string() && !is_markup(value)) {
      write_text(value.text(), indent, allowance, level + 1);
    } else {
      out += flat;
    }
  }

  std::string out;

 private:
  static constexpr int kWidth = 80;

  static int columns(std::string_view text) { return static_cast<int>(count_code_points(text)); }

  static bool is_plain_sequence(const Value& value, SequenceKind kind) {
    return value.is_sequence() && value.sequence().kind == kind;
  }

  std::string quoted(std::string_view text) const {
    std::string out;
    append_repr(out, text);
    budget_.charge_bytes(out.size());
    return out;
  }

  // Keys of types that have no order among each other are sorted by the names of their types.
  std::vector<Entry> sorted(const DictData& dict) const {
    std::vector<Entry> entries = dict.entries;
    std::stable_sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
      const bool numbers = a.first.is_number() && b.first.is_number();
      if (numbers || (a.first.is_string() && b.first.is_string()))
        return ordered(a.first, b.first, Order::kLess, budget_);
      return type_name(a.first) < type_name(b.first);
    });
    return entries;
  }

  std::string one_line(const Value& value) const {
    if (value.is_dict()) {
      std::string text = "{";
      for (const auto& [key, item] : sorted(value.dict()))
        text += (text.size() > 1 ? ", " : "") + one_line(key) + ": " + one_line(item);
      return text + "}";
    }
    const bool list = is_plain_sequence(value, SequenceKind::kList);
    if (!list && !is_plain_sequence(value, SequenceKind::kTuple)) return to_repr(value, budget_);
    std::string text = list ? "[" : "(";
    for (const Value& item : value.items()) text += (text.size() > 1 ? ", " : "") + one_line(item);
    budget_.charge_bytes(text.size());
    return text + (list ? "]" : value.items().size() == 1 ? ",)" : ")");
  }

  void new_line(int indent) {
    budget_.charge_bytes(static_cast<std::size_t>(indent));
    out += ",\n" + std::string(static_cast<std::size_t>(indent), ' ');
  }

  void write_dict(const Value& value, int indent, int allowance, int level) {
    out += '{';
    const std::vector<Entry> entries = sorted(value.dict());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) new_line(indent + 1);
      const std::string key = one_line(entries[i].first);
      out += key + ": ";
      write(entries[i].second, indent + 1 + columns(key) + 2,
            i + 1 == entries.size() ? allowance : 1, level);
    }
    out += '}';
  }

  void write_items(const std::vector<Value>& items, int indent, int allowance, int level) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) new_line(indent + 1);
      write(items[i], indent + 1, i + 1 == items.size() ? allowance : 1, level);
    }
  }

  // Where the run of other characters, then of white space, ends.
  static std::size_t part_end(std::string_view text, std::size_t pos) {
    for (const bool space : {false, true})
      while (pos < text.size()) {
        std::size_t next = pos;
        if (is_space(next_code_point(text, next)) != space) break;
        pos = next;
      }
    return pos;
  }

  // A long text becomes several literals: one a line, cut between words.
  void write_text(const std::string& text, int indent, int allowance, int level) {
    if (level == 1) {
      ++indent;
      ++allowance;
    }
    std::vector<std::string> chunks;
    for (std::size_t begin = 0; begin < text.size();) {
      std::size_t end = begin;
      while (end < text.size()) {
        const std::uint32_t code = next_code_point(text, end);
        if (code == '\r' && end < text.size() && text[end] == '\n') continue;
        if (is_line_end(code)) break;
      }
      const std::string_view line = std::string_view(text).substr(begin, end - begin);
      const bool last = end == text.size();
      begin = end;
      const std::string whole = quoted(line);
      if (columns(whole) <= kWidth - indent - (last ? allowance : 0)) {
        chunks.push_back(whole);
        continue;
      }
      std::string current;
      for (std::size_t pos = 0; pos < line.size();) {
        const std::size_t stop = part_end(line, pos);
        const std::string part(line.substr(pos, stop - pos));
        pos = stop;
        const int room = kWidth - indent - (last && pos == line.size() ? allowance : 0);
        if (columns(quoted(current + part)) > room) {
          if (!current.empty()) chunks.push_back(quoted(current));
          current = part;
        } else {
          current += part;
        }
      }
      if (!current.empty()) chunks.push_back(quoted(current));
    }
    const bool bracketed = level == 1 && chunks.size() > 1;
    if (bracketed) out += '(';
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      if (i > 0) out += "\n" + std::string(static_cast<std::size_t>(indent), ' ');
      out += chunks[i];
    }
    if (bracketed) out += ')';
  }

  Budget& budget_;
};

}  // namespace

Value pprint(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_pprint", {});
  Printer printer(in.budget());
  printer.write(v, 0, 0, 0);
  return Value(std::move(printer.out));
}

}  // namespace sluice::jinja::filters
