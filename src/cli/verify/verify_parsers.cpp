// `sluice verify --parsers`: what models write, through the parsers of chat answers, whole and cut.
#include <algorithm>
#include <filesystem>
#include <random>

#include "cli/verbs.h"
#include "cli/verify/parser_cases.h"
#include "engine/options_parse.h"

namespace sluice {
namespace {

// Long texts are cut in two at this many places only.
constexpr std::size_t kMaxCuts = 4096;
constexpr std::size_t kLongCuts = 64;
constexpr int kMaxSplits = 1'000'000;

std::vector<std::string> files_of(const std::string& list) {
  std::vector<std::string> paths, files;
  option_parse::append_list(paths, list);
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> inside;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      const std::string file = entry.path().string();
      if (file.ends_with(".jsonl") || file.ends_with(".jsonl.gz")) inside.push_back(file);
    }
    std::ranges::sort(inside);
    require(!inside.empty(), "{}: there is no *.jsonl or *.jsonl.gz in it", path);
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

// Pieces of random lengths: short ones, long ones, or both.
std::vector<std::string_view> random_pieces(std::string_view text, std::mt19937& random) {
  const std::size_t longest = std::size_t{1} << (random() % 9);
  const std::size_t scale = text.size() > kMaxCuts && random() % 2 == 0 ? text.size() / 16 : 1;
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const std::size_t size = std::min<std::size_t>(text.size(), (1 + random() % longest) * scale);
    pieces.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return pieces;
}

struct Tally {
  int right = 0, total = 0, differences = 0;
  std::pair<int, int> own_text;
};

// Prints what is wrong with a case.
void check_case(const ParserCase& one, int splits, std::mt19937& random, Tally& tally) {
  const std::string_view text = one.text;
  const ParserResult whole = run_parsers(one, {text}, one.is_cut);
  std::vector<std::string> problems = check_result(one, whole);
  int differences = 0;
  const auto compare = [&](const std::vector<std::string_view>& pieces, const std::string& how) {
    if (run_parsers(one, pieces, one.is_cut) == whole) return;
    if (differences++ == 0) problems.push_back("differs " + how);
  };
  std::vector<std::string_view> bytes;
  for (std::size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
  compare(bytes, "byte by byte");
  if (!one.chunks.empty()) compare({one.chunks.begin(), one.chunks.end()}, "in the case's pieces");
  const std::size_t step =
      text.size() <= kMaxCuts ? 1 : std::max<std::size_t>(1, text.size() / kLongCuts);
  for (std::size_t at = 1; at < text.size(); at += step)
    compare({text.substr(0, at), text.substr(at)}, fmt::format("cut in two at byte {}", at));
  for (int i = 0; i < splits; ++i) compare(random_pieces(text, random), "in random pieces");
  for (std::size_t size = 1; !one.cuts.is_null() && size < text.size(); ++size) {
    if ((static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) continue;
    const ParserResult cut = run_parsers(one, {text.substr(0, size)}, true);
    for (const std::string& problem : check_cut(one, size, cut, whole))
      problems.push_back(fmt::format("truncated at {}: {}", size, problem));
  }
  ++tally.total;
  tally.right += problems.empty() ? 1 : 0;
  tally.differences += differences;
  const auto [texts, own] = count_own_text(one, whole);
  tally.own_text.first += texts;
  tally.own_text.second += own;
  constexpr std::size_t kMaxProblems = 4;
  for (std::size_t i = 0; i < std::min(problems.size(), kMaxProblems); ++i)
    fmt::print("{} {}: {}\n", one.id, one.kind, problems[i]);
}

}  // namespace

int verify_parsers(const Arguments& arguments) {
  const int splits =
      static_cast<int>(option_parse::integer(arguments.get("splits", "20"), 0, kMaxSplits));
  Tally tally;
  std::mt19937 random(1);
  for (const std::string& file : files_of(arguments.get("parsers")))
    for (const ParserCase& one : read_parser_cases(file)) check_case(one, splits, random, tally);
  fmt::print("arguments in the model's own text: {} of {}\n", tally.own_text.second,
             tally.own_text.first);
  fmt::print("parsers: {}/{}, split differences {}\n", tally.right, tally.total, tally.differences);
  return tally.right == tally.total && tally.differences == 0 && tally.total > 0 ? 0 : 1;
}

}  // namespace sluice
