// The parser's guard of its own stack (R10): one level during its lifetime.
#pragma once

#include "text/jinja/parser.h"

namespace sluice::jinja {

class Parser::Nest {
 public:
  explicit Nest(Parser& parser) : parser_(parser) {
    if (++parser_.nest_ > kMaxNest) {
      --parser_.nest_;
      parser_.fail("the template nests more than " + std::to_string(kMaxNest) + " levels");
    }
  }
  ~Nest() { --parser_.nest_; }
  Nest(const Nest&) = delete;
  Nest& operator=(const Nest&) = delete;

 private:
  static constexpr int kMaxNest = 100;
  Parser& parser_;
};

}  // namespace sluice::jinja
