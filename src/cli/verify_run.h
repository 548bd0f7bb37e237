// Running reference cases through an Engine in the modes of `sluice verify`.
//
// | mode     | what runs                                                               | what must have
// happened             |
// |----------|-------------------------------------------------------------------------|-------------------------------------|
// | whole    | prompt and reference output, prefilled in one step                      | one prefill step a
// case             | | chunk:N  | the same in chunks of N tokens                                          |
// every chunk but the last has N      | | cached:N | the first N tokens as a request of their own, then all
// | N tokens came from the prefix cache | | decode   | the prompt; the output is generated | as many tokens
// as the reference has | | mixed    | all cases at once with small chunks, each again when its first token is
// | at least one MIXED step             | |          | out |                                     |
//
// Without N, `cached` takes half of the prompt.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/verify_golden.h"
#include "engine/engine.h"

namespace sluice {

struct VerifyMode {
  enum Kind { kWhole, kChunk, kCached, kMixed, kDecode } kind = kWhole;
  int size = 0;  // of chunk and cached; 0: none given
  int threads = 0;
  std::string name;  // as given, with ", N threads" where threads was
};

// "whole,chunk:7,cached"; UsageError names what is wrong.
std::vector<VerifyMode> parse_modes(const std::string& text);

// What one request brought: rows[i] is the row of position first + i.
struct CaseRun {
  std::size_t case_index = 0;
  std::size_t first = 0;
  std::vector<RowLogprobs> rows;
  std::vector<std::int32_t> tokens;  // [first + rows] tokens that the rows follow on, and the last one chosen
  bool teacher_forced = false;       // the reference's output was given, not generated
  int cached_tokens = 0;
};

struct ModeRun {
  VerifyMode mode;
  std::vector<CaseRun> cases;
  std::vector<std::string> problems;  // what did not happen although the mode asks for it
  RunReport report;
  std::int64_t cached_tokens = 0;
};

// Makes an engine for the mode from `options` and runs every case. Throws what Engine::create and submit
// throw.
ModeRun run_mode(const VerifyMode& mode, Options options, const GoldenFile& golden);

}  // namespace sluice
