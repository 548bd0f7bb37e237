#include "text/tokenizer/pre_tokenizer_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/unicode.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxPatternBytes = 64 * 1024;
constexpr std::uint32_t kMatchLimit = 100'000'000;
constexpr std::uint32_t kHeapLimitKib = 256 * 1024;
constexpr std::size_t kJitStackBytes = 64 * 1024 * 1024;
constexpr std::chrono::seconds kDeadline{2};
constexpr std::size_t kWindowBytes = 256;

constexpr int kProbeRepeats = 256;
constexpr std::uint64_t kLinearSteps = 100ull * kProbeRepeats;
constexpr std::uint64_t kQuadraticSteps = 32ull * kProbeRepeats * kProbeRepeats;

struct CodeFree {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct DataFree {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct ContextFree {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct StackFree {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};
struct CompileContextFree {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

using CodePtr = std::unique_ptr<pcre2_code, CodeFree>;

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

CodePtr compile(std::string_view pattern, std::uint32_t extra_options, std::string_view what) {
  const std::unique_ptr<pcre2_compile_context, CompileContextFree> context(
      pcre2_compile_context_create(nullptr));
  check(context != nullptr, "no memory for a compile context");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  CodePtr code(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | extra_options, &error,
      &offset, context.get()));
  require(code != nullptr, "{}: invalid regular expression near its character {}: {}", what, offset,
          code ? "" : message_of(error));
  return code;
}

int count_step(pcre2_callout_block*, void* steps_left) {
  auto& left = *static_cast<std::uint64_t*>(steps_left);
  if (left == 0) return PCRE2_ERROR_CALLOUT;
  --left;
  return 0;
}

// Texts that are hard for a backtracking engine. They are long runs of each character in the
// pattern, and of one character of each common class. Each run also ends with a character that fits
// nowhere.
std::vector<std::string> probe_texts(std::string_view pattern) {
  std::set<std::string> units = {" ",        "\n",           "a",  "A",  "1",  "!",
                                 "\xCC\x81", "\xE4\xB8\x80", "aA", "a ", "a1", "\r\n"};
  for (const char c : pattern)
    if (static_cast<unsigned char>(c) > ' ' && static_cast<unsigned char>(c) < 0x7F)
      units.insert(std::string(1, c));
  std::vector<std::string> texts;
  for (const std::string& unit : units) {
    std::string run;
    for (int i = 0; i < kProbeRepeats; ++i) run += unit;
    texts.push_back(run + "\x01");
    texts.push_back(run + "x!");
    texts.push_back(std::move(run));
  }
  return texts;
}

}  // namespace

struct SplitRegex::Code {
  CodePtr compiled;
};

struct SplitRegex::Scratch::State {
  std::unique_ptr<pcre2_match_data, DataFree> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, ContextFree> context{pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, StackFree> stack;
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();

  int match(const pcre2_code* code, std::string_view text, std::size_t from) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int rc = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data.get(),
                         context.get());
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !stack) {
      // The 32 KiB of the machine stack did not suffice. A separate stack is allocated on demand
      // and paged in as it is used.
      stack.reset(pcre2_jit_stack_create(64 * 1024, kJitStackBytes, nullptr));
      check(stack != nullptr, "no memory for a matching stack");
      pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
      rc = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data.get(),
                       context.get());
    }
    return rc;
  }
};

SplitRegex::Scratch::Scratch() : state_(std::make_unique<State>()) {
  check(state_->data != nullptr && state_->context != nullptr, "no memory for matching");
  pcre2_set_match_limit(state_->context.get(), kMatchLimit);
  pcre2_set_heap_limit(state_->context.get(), kHeapLimitKib);
}

SplitRegex::Scratch::~Scratch() = default;

SplitRegex::SplitRegex(std::string_view pattern, std::string_view what) : what_(what) {
  require(pattern.size() <= kMaxPatternBytes, "{}: a pattern of {} bytes; at most {} are allowed",
          what, pattern.size(), kMaxPatternBytes);
  const std::string translated = translate_oniguruma(pattern, what);
  code_ = std::make_unique<Code>(Code{compile(translated, PCRE2_USE_OFFSET_LIMIT, what)});
  // Without JIT (a kernel that forbids writable code pages) the interpreter gives the same matches,
  // more slowly.
  pcre2_jit_compile(code_->compiled.get(), PCRE2_JIT_COMPLETE);
  probe(translated);
}

SplitRegex::~SplitRegex() = default;
SplitRegex::SplitRegex(SplitRegex&&) noexcept = default;
SplitRegex& SplitRegex::operator=(SplitRegex&&) noexcept = default;

void SplitRegex::probe(std::string_view translated) {
  const CodePtr counted = compile(translated, PCRE2_AUTO_CALLOUT | PCRE2_NO_START_OPTIMIZE, what_);
  for (const std::string& text : probe_texts(translated)) {
    std::uint64_t left = kQuadraticSteps;
    Scratch scratch;
    pcre2_set_callout(scratch.state_->context.get(), count_step, &left);
    for (std::size_t from = 0; from < text.size();) {
      const int rc = scratch.state_->match(counted.get(), text, from);
      require(
          rc >= 0 || rc == PCRE2_ERROR_NOMATCH,
          "{}: catastrophic regular expression: on {} characters it takes more than {} steps ({})",
          what_, kProbeRepeats, kQuadraticSteps,
          rc == PCRE2_ERROR_CALLOUT ? "backtracking" : message_of(rc));
      if (rc < 0) break;
      const std::size_t end = pcre2_get_ovector_pointer(scratch.state_->data.get())[1];
      from = end > from ? end : from + utf8_length(static_cast<unsigned char>(text[from]));
    }
    if (kQuadraticSteps - left > kLinearSteps) superlinear_ = true;
  }
}

bool SplitRegex::find(std::string_view text, std::size_t from, Scratch& scratch,
                      Match& match) const {
  if (superlinear_) return find_within_deadline(text, from, scratch, match);
  pcre2_set_offset_limit(scratch.state_->context.get(), PCRE2_UNSET);
  const int rc = scratch.state_->match(code_->compiled.get(), text, from);
  if (rc == PCRE2_ERROR_NOMATCH) return false;
  require(rc >= 0, "{}: the text is too hard for this pattern: {}", what_,
          rc < 0 ? message_of(rc) : "");
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch.state_->data.get());
  match = {bounds[0], std::max(bounds[0], bounds[1])};
  return true;
}

// Tries the start positions in small windows and checks the clock between them.
bool SplitRegex::find_within_deadline(std::string_view text, std::size_t from, Scratch& scratch,
                                      Match& match) const {
  Scratch::State& state = *scratch.state_;
  while (from <= text.size()) {
    const std::size_t last = std::min(text.size(), from + kWindowBytes);
    pcre2_set_offset_limit(state.context.get(), last);
    const int rc = state.match(code_->compiled.get(), text, from);
    if (rc >= 0) {
      const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state.data.get());
      match = {bounds[0], std::max(bounds[0], bounds[1])};
      return true;
    }
    require(rc == PCRE2_ERROR_NOMATCH, "{}: the text is too hard for this pattern: {}", what_,
            message_of(rc));
    require(std::chrono::steady_clock::now() - state.begun < kDeadline,
            "{}: splitting the text took more than {} s; this pattern's time grows with the square "
            "of a "
            "run's length",
            what_, kDeadline.count());
    from = last + 1;
    while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
  }
  return false;
}

}  // namespace sluice
