#include "text/parsers/thought_calls.h"

#include <algorithm>
#include <utility>

#include "text/parsers/tool_parser_scan.h"

namespace sluice {
namespace {

// A call that so much text follows was only thought of.
constexpr std::size_t kMaxAfter = 256;

}  // namespace

ThoughtCalls::ThoughtCalls(std::string tool_parser, const Json& tools, std::string close)
    : tool_parser_(std::move(tool_parser)),
      close_(std::move(close)),
      tools_(tools),
      openings_(tool_parser_openings(tool_parser_)),
      scanner_(std::vector<std::string_view>(openings_.begin(), openings_.end())) {}

void ThoughtCalls::start(std::string_view mark) {
  held_ = mark;
  after_.clear();
  parser_.emplace(ToolParser::create(tool_parser_, tools_, [] { return std::string("id"); }));
  probe(mark);
}

void ThoughtCalls::probe(std::string_view text) {
  for (const ToolEvent& event : parser_->push(text)) {
    if (event.kind == ToolEvent::Kind::kContent) {
      after_ += event.text;
    } else {
      after_.clear();
    }
  }
}

std::string ThoughtCalls::push(char c) {
  std::string out;
  if (held_.empty()) {
    const int marker = scanner_.push(c, out);
    if (marker >= 0) start(openings_[static_cast<std::size_t>(marker)]);
    return out;
  }
  const bool has_text = !trimmed(after_).empty();
  const bool is_closed = after_.find(close_) != std::string::npos;
  held_ += c;
  if (is_closed && !is_blank(c)) return take();
  if (has_text && !is_closed) {
    // Text, and another call: the one before was only thought of.
    const int marker = scanner_.push(c, out);
    if (marker >= 0) {
      const std::string& mark = openings_[static_cast<std::size_t>(marker)];
      out = held_.substr(0, held_.size() - mark.size());
      start(mark);
      return out;
    }
    out.clear();
  }
  probe(std::string_view(&c, 1));
  const bool is_no_call = parser_->num_calls() == 0 && !parser_->in_call();
  if (is_no_call || after_.size() > kMaxAfter) return take();
  return out;
}

std::string ThoughtCalls::take() {
  std::string out = std::exchange(held_, {});
  // Without a call, the held bytes are the beginning of a mark.
  if (out.empty()) out = scanner_.held();
  scanner_ = MarkerScanner(std::vector<std::string_view>(openings_.begin(), openings_.end()));
  parser_.reset();
  after_.clear();
  return out;
}

ThoughtCalls::End ThoughtCalls::finish(bool is_cut) {
  End end;
  if (held_.empty()) {
    end.thought = take();
    return end;
  }
  const std::size_t close = after_.find(close_);
  const bool has_text = !trimmed(after_).empty();
  // What a finished parser adds are calls without their closing marks.
  int calls = parser_->num_calls();
  for (const ToolEvent& event : parser_->finish(is_cut))
    calls += event.kind == ToolEvent::Kind::kBegin ? 1 : 0;
  const bool is_closed = close != std::string::npos;
  // A cut call without a name is dropped there, so it is made here, too.
  const bool is_made = is_cut ? (!has_text || is_closed) : calls > 0;
  std::string held = take();
  if (!is_made) {
    end.thought = std::move(held);
  } else if (is_closed) {
    end.calls = held.substr(0, held.rfind(close_));
  } else {
    end.calls = std::move(held);
  }
  return end;
}

}  // namespace sluice
