#include "config/modules/name_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>

namespace sluice {
namespace {

constexpr std::size_t kMaxPattern = 4096;
constexpr std::uint32_t kMatchLimit = 100'000;  // of backtracking, for a name

struct DataFree {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct ContextFree {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

PCRE2_SPTR bytes_of(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

}  // namespace

struct NameRegex::Code {
  pcre2_code* compiled;
  ~Code() { pcre2_code_free(compiled); }
};

std::optional<NameRegex> NameRegex::read(std::string_view pattern) {
  if (pattern.size() > kMaxPattern) return std::nullopt;
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* const compiled =
      pcre2_compile(bytes_of(pattern), pattern.size(), PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C,
                    &error, &at, nullptr);
  if (compiled == nullptr) return std::nullopt;
  NameRegex regex;
  regex.code_ = std::make_shared<const Code>(compiled);
  return regex;
}

bool NameRegex::matches(std::string_view name) const {
  const std::unique_ptr<pcre2_match_context, ContextFree> context(
      pcre2_match_context_create(nullptr));
  const std::unique_ptr<pcre2_match_data, DataFree> data(pcre2_match_data_create(1, nullptr));
  if (!context || !data) return false;
  pcre2_set_match_limit(context.get(), kMatchLimit);
  return pcre2_match(code_->compiled, bytes_of(name), name.size(), 0, 0, data.get(),
                     context.get()) >= 0;
}

}  // namespace sluice
