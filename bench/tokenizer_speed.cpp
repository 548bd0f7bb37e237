// Times Tokenizer::encode on one thread: tokenizer_speed DIRECTORY TEXT_FILE
//
// Reads a line for each round. Answers with the seconds of one encode of the whole text, the number
// of ids and a hash of them. So bench/tokenizer_speed.py can alternate with another program.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <string>

#include "base/error.h"
#include "text/tokenizer/tokenizer.h"

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: tokenizer_speed DIRECTORY TEXT_FILE\n");
    return 2;
  }
  const auto begun = std::chrono::steady_clock::now();
  const auto tokenizer = sluice::Tokenizer::load(argv[1]);
  const std::chrono::duration<double> load = std::chrono::steady_clock::now() - begun;
  std::ifstream file(argv[2], std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  fmt::print("{:.6f}\n", load.count());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    const auto start = std::chrono::steady_clock::now();
    const auto ids = tokenizer->encode(text, {.add_special_tokens = false});
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::uint64_t hash = 14695981039346656037ull;  // FNV-1a over the ids
    for (const std::int32_t id : ids)
      hash = (hash ^ static_cast<std::uint32_t>(id)) * 1099511628211ull;
    fmt::print("{:.6f} {} {}\n", took.count(), ids.size(), hash);
    std::fflush(stdout);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "tokenizer_speed: %s\n", error.what());
  return 2;
}
