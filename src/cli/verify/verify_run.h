// Running reference cases through an Engine in the modes of `sluice verify`.
//
//   whole     prompt and reference output, prefilled in one step
//   passes    one request for each token of the output: all tokens before it, prefilled in one
//   step, nothing kept from
//             one to the next. It is how a golden.json whose "greedy_by" is "recompute" was made,
//             and the only mode that must equal one where the rotation depends on the length
//             (--rope-by-length)
//   chunk:N   as whole, in chunks of N tokens; every chunk but the last must have N
//   cached:N  the first N tokens as a request of their own, then all; N tokens must come from the
//   prefix cache decode    the prompt; as many tokens are generated as the reference has mixed all
//   cases at once with small chunks, each again when its first token is out; at least one MIXED
//   step
//
// Without N, `cached` takes half of the prompt.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/verify/verify_golden.h"
#include "engine/engine.h"

namespace sluice {

struct VerifyMode {
  enum Kind { kWhole, kPasses, kChunk, kCached, kMixed, kDecode } kind = kWhole;
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
  // [first + rows] tokens that the rows follow on, and the last one chosen
  std::vector<std::int32_t> tokens;
  bool teacher_forced = false;  // the reference's output was given, not generated
  int cached_tokens = 0;
};

struct ModeRun {
  VerifyMode mode;
  std::vector<CaseRun> cases;
  std::vector<std::string> problems;  // what did not happen although the mode asks for it
  RunReport report;
  std::int64_t cached_tokens = 0;
};

// Makes an engine for the mode from `options` and runs every case. Throws what Engine::create and
// submit throw.
ModeRun run_mode(const VerifyMode& mode, Options options, const GoldenFile& golden);

}  // namespace sluice
