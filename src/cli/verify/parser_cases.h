// Cases of parsers: what a model wrote, and what a client must get.
//
//   for (const ParserCase& one : read_parser_cases(path)) {
//     ParserResult whole = run_parsers(one, {one.text}, false);
//     std::vector<std::string> problems = check_result(one, whole);
//   }
//
// A file, gzipped or not, holds one JSON object a line: id, kind, tool_parser, reasoning_parser,
// prompt, kwargs, tools, text, macros, finish, expect, accept, chunks, cuts. "tools": "std" are
// those of tools.json beside the file or above it. Errors of files are Error{kBadInput} with the
// line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace sluice {

struct ParserCase {
  std::string id, kind, tool_parser, reasoning_parser, prompt, text, doubt;
  bool is_thinking_off = false;
  bool is_cut = false;  // the engine ended the text
  Json tools;           // null: none
  Json expect, accept;  // an answer, and a list of others
  std::vector<std::string> chunks;
  Json cuts;  // of a truncated text; null: none
};

struct ParsedCall {
  std::string id, name, arguments;
};

// What a client puts together.
struct ParserResult {
  std::string reasoning, content, finish_reason;
  std::vector<ParsedCall> calls;
  std::string fault;  // of the order in which the pieces came; empty: none
  // But for ids, which are random.
  bool operator==(const ParserResult& other) const;
};

std::vector<ParserCase> read_parser_cases(const std::string& path);

// Runs the parsers of a case over `pieces`.
ParserResult run_parsers(const ParserCase& one, const std::vector<std::string_view>& pieces,
                         bool is_cut);

// What is wrong with the result of the whole text; empty: nothing.
std::vector<std::string> check_result(const ParserCase& one, const ParserResult& got);
// What is wrong with the result of a truncated text of `size` bytes. `full`: of the whole text.
std::vector<std::string> check_cut(const ParserCase& one, std::size_t size, const ParserResult& got,
                                   const ParserResult& full);
// Calls whose arguments are passed on: how many there are, and how many are the model's own text.
std::pair<int, int> count_own_text(const ParserCase& one, const ParserResult& got);

}  // namespace sluice
