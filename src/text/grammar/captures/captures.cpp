#include "text/grammar/captures/captures.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "text/grammar/left_recursion.h"
#include "text/grammar/machine.h"

namespace sluice::grammar {
namespace {

// Bytes that the machine reads and places that the walk passes, for one text.
constexpr std::uint64_t kMaxSteps = 1'000'000;
constexpr std::uint64_t kMaxMachineBytes = 32 << 20;

class Walk {
 public:
  Walk(const Program& program, LanguageStore store, std::string_view text, bool is_whole)
      : program_(program),
        machine_(program, std::move(store), {.max_step_work = kMaxSteps}),
        text_(text),
        is_whole_(is_whole) {
    machine_.restart_work();
  }

  // A mark of the program, and where in the text it was passed.
  struct Event {
    std::uint32_t mark;
    std::size_t at;
  };

  // The marks of the first way through the text; nothing where there is none.
  std::optional<std::vector<Event>> run() {
    at_ = {{program_.begin, 0, 0}, 0};
    if (!leads_to_end(at_)) return std::nullopt;
    while (!is_over_) {
      if (is_exhausted()) return std::nullopt;
      if (!advance() && !go_back()) return std::nullopt;
    }
    return std::move(events_);
  }

  bool is_exhausted() const {
    return steps_ > kMaxSteps || machine_.is_exhausted() || machine_.bytes() > kMaxMachineBytes;
  }

 private:
  using Op = Instruction::Op;
  static constexpr Place kCut = ~Place{0};  // the text ends inside the part

  struct Point {
    Item item;
    std::size_t at = 0;
  };
  // A place with several ways on, and the one that was taken.
  struct Choice {
    Point from;
    std::uint32_t way;
    std::size_t num_events;
  };

  bool is_at_cut() const { return !is_whole_ && at_.at == text_.size(); }
  Text before(std::size_t at) const { return {text_.substr(0, at), true}; }

  // One place on; false: this way leads nowhere.
  bool advance() {
    ++steps_;
    Item& item = at_.item;
    const Instruction& instruction = program_.code[item.place];
    switch (instruction.op) {
      case Op::kAccept:
        is_over_ = at_.at == text_.size();
        return is_over_;
      case Op::kEnd:
        item = machine_.return_of(item.context);
        return true;
      case Op::kJump:
        item.place = instruction.a;
        return true;
      case Op::kMark:
        events_.push_back({instruction.a, at_.at});
        ++item.place;
        return true;
      case Op::kCall:
        item = called(instruction.a, {item.place + 1, 0, item.context});
        return true;
      case Op::kBytes: {
        const std::string& bytes = program_.strings[instruction.a];
        const std::string_view rest = text_.substr(at_.at);
        if (!is_whole_ && rest.size() < bytes.size()) {
          is_over_ = bytes.starts_with(rest);
          return is_over_;
        }
        if (!rest.starts_with(bytes)) return false;
        at_.at += bytes.size();
        ++item.place;
        return true;
      }
      default:
        return choose(0);
    }
  }

  Item called(Place body, const Item& back) { return {body, 0, machine_.context_of(back)}; }

  // Takes the first way from `first` on that leads to the end.
  bool choose(std::uint32_t first) {
    if (is_at_cut()) return is_over_ = true;
    const Point from = at_;
    const std::vector<Point> ways = ways_of(from);
    bool is_sure = first == 0;  // some way leads to the end
    for (std::uint32_t way = first; way < ways.size(); ++way) {
      if (is_idle_round(from, ways[way], way)) {
        is_sure = false;
        continue;
      }
      const bool is_cut = ways[way].item.place == kCut;
      const bool is_last = is_sure && way + 1 == ways.size() && ways[way].item.place != kNowhere;
      if (!is_cut && !is_last && !leads_to_end(ways[way])) continue;
      choices_.push_back({from, way, events_.size()});
      at_ = ways[way];
      is_over_ = is_cut;
      return true;
    }
    return false;
  }

  // To the last choice that has another way.
  bool go_back() {
    while (!choices_.empty()) {
      const Choice last = choices_.back();
      choices_.pop_back();
      events_.resize(last.num_events);
      at_ = last.from;
      if (choose(last.way + 1)) return true;
    }
    return false;
  }

  // A round without a byte is the last one.
  bool is_idle_round(const Point& from, const Point& to, std::uint32_t way) const {
    const Op op = program_.code[from.item.place].op;
    if (op == Op::kRepeated) return to.item.place != from.item.place + 1 && is_taken(from, way);
    const bool is_round =
        op == Op::kLoop && (to.item.place < from.item.place ||
                            (to.item.place == from.item.place + 1 && !is_behind(from.item.place)));
    return is_round && is_taken(from, way);
  }
  // Whether a loop's first round stands in front of its choice.
  bool is_behind(Place loop) const {
    const Instruction& instruction = program_.code[loop];
    return program_.targets[instruction.a] < loop || program_.targets[instruction.a + 1] < loop;
  }
  // Whether the way was taken since the last byte.
  bool is_taken(const Point& from, std::uint32_t way) const {
    for (auto it = choices_.rbegin(); it != choices_.rend() && it->from.at == from.at; ++it)
      if (it->way == way && it->from.item.place == from.item.place &&
          it->from.item.context == from.item.context)
        return true;
    return false;
  }

  std::vector<Point> ways_of(const Point& from) {
    const Item& item = from.item;
    const Instruction& instruction = program_.code[item.place];
    const auto place = [&](Place to) { return Point{{to, 0, item.context}, from.at}; };
    switch (instruction.op) {
      case Op::kSplit:
      case Op::kLoop: {
        std::vector<Point> ways;
        for (std::uint32_t i = 0; i < instruction.b; ++i)
          ways.push_back(place(program_.targets[instruction.a + i]));
        return ways;
      }
      case Op::kRepeat:
      case Op::kRepeated: {
        const RepeatLoop& loop = program_.repeats[instruction.a];
        const bool is_first = instruction.op == Op::kRepeat;
        std::uint32_t rounds = is_first ? 0 : item.data + 1;
        if (loop.max == RepeatLoop::kMany) rounds = std::min(rounds, loop.min);
        const Place repeated = is_first ? item.place + 1 : item.place;
        const std::uint32_t round = loop.is_lazy ? 1 : 0;
        const Point none{{kNowhere, 0, 0}, from.at};
        std::vector<Point> ways = {none, none};
        if (rounds < loop.max)
          ways[round].item = called(loop.body, {repeated, rounds, item.context});
        // rounds that are missing may be as empty as the last one
        if (rounds >= loop.min || is_taken(from, round)) ways[1 - round] = place(repeated + 1);
        return ways;
      }
      case Op::kOpaque:
        return ends_of(from, instruction.a);
      default:
        check(false, "an instruction {} of captures", static_cast<int>(instruction.op));
    }
    return {};
  }

  // The ends of a body without captures, the last first.
  std::vector<Point> ends_of(const Point& from, Place body) {
    std::vector<Point> ends;
    std::size_t at = from.at;
    StateId state = machine_.state_at({body, 0, 0}, before(at));
    for (;; ++at) {
      if (is_exhausted()) return {};
      if (machine_.can_end(state))
        ends.push_back({{from.item.place + 1, 0, from.item.context}, at});
      if (at == text_.size()) break;
      state = machine_.step(state, static_cast<unsigned char>(text_[at]), before(at + 1));
      ++steps_;
      if (state == Machine::kDead) break;
    }
    if (!is_whole_ && at == text_.size() && !machine_.items(state).empty())
      ends.push_back({{kCut, 0, 0}, at});
    std::ranges::reverse(ends);
    return ends;
  }

  bool leads_to_end(const Point& from) {
    if (from.item.place == kNowhere) return false;
    StateId state = machine_.state_at(from.item, before(from.at));
    path_.clear();
    bool leads = false;
    for (std::size_t at = from.at;; ++at) {
      if (is_exhausted()) return false;
      if (at == text_.size()) {
        leads = machine_.can_end(state) || (!is_whole_ && state != Machine::kDead);
        break;
      }
      const std::uint64_t key = std::uint64_t{state} << 32 | at;
      if (const auto known = known_.find(key); known != known_.end()) {
        leads = known->second;
        break;
      }
      path_.push_back(key);
      state = machine_.step(state, static_cast<unsigned char>(text_[at]), before(at + 1));
      ++steps_;
      if (state == Machine::kDead) break;
    }
    for (const std::uint64_t key : path_) known_.emplace(key, leads);
    return leads;
  }

  static constexpr Place kNowhere = kCut - 1;

  const Program& program_;
  Machine machine_;
  const std::string_view text_;
  const bool is_whole_;
  Point at_;
  bool is_over_ = false;
  std::uint64_t steps_ = 0;
  std::vector<Event> events_;
  std::vector<Choice> choices_;
  std::unordered_map<std::uint64_t, bool> known_;  // by state and place in the text
  std::vector<std::uint64_t> path_;
};

}  // namespace

Result<std::shared_ptr<const CaptureReader>> CaptureReader::make(Grammar grammar, NodeId root) {
  for (const Grammar::Rule& rule : grammar.rules())
    if (!rule.is_defined)
      return Fault{
          400, "undefined_rule", "",
          fmt::format("The grammar uses the rule '{}', which it does not define.", rule.name)};
  const bool has_names = std::ranges::any_of(grammar.captures(), [](const Grammar::Capture& one) {
    return one.kind == Grammar::CaptureKind::kNamed;
  });
  if (!has_names)
    return Fault{400, "no_captures", "",
                 "The grammar names no part: use (?P<name>...) in a regular expression, "
                 "rule[capture] in a grammar, or `capture` in a structural tag."};
  const Result<Ok> removed = remove_left_recursion(grammar);
  if (!removed) return removed.fault();
  Result<Program> program = make_program(grammar, root);
  if (!program) return program.fault();
  return std::make_shared<const CaptureReader>(
      std::move(*program), grammar.languages().store().without_automata(), grammar.captures());
}

Result<CaptureReader::Found> CaptureReader::read(std::string_view text, bool is_whole) const {
  Walk walk(program_, store_, text, is_whole);
  const auto events = walk.run();
  if (walk.is_exhausted())
    return Fault{400, "captures_too_long", "", "The captures of the text take too many steps."};
  if (!events) return Fault{400, "not_of_the_grammar", "", "The text is none of the grammar."};
  Found found;
  std::vector<std::size_t> open;
  std::size_t skipped_begin = 0, skipped_end = 0;
  for (const auto& [mark, at] : *events) {
    const Grammar::Capture& capture = captures_[mark / 2];
    if (mark % 2 == 0) {
      open.push_back(at);
      if (capture.kind == Grammar::CaptureKind::kAnswer) found.answer_begin = at;
      continue;
    }
    const std::size_t begin = open.back();
    open.pop_back();
    if (capture.kind == Grammar::CaptureKind::kSkipped) {
      skipped_begin = begin;
      skipped_end = at;
    } else if (capture.kind == Grammar::CaptureKind::kNamed) {
      const bool ends_skipped = skipped_end == at && skipped_begin >= begin;
      found.captures.push_back({mark / 2, begin, ends_skipped ? skipped_begin : at});
    }
  }
  return found;
}

}  // namespace sluice::grammar
