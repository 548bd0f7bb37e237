// Walks through the grammar of calls, for tests, over a vocabulary of bytes and marks.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/grammar/constraint.h"
#include "text/grammar/sources/call_grammar.h"
#include "text/grammar/sources/grammar_source.h"
#include "text/parsers/tool_format.h"
#include "text/parsers/tool_parser.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice::grammar {

// The characters by which byte-level tokenizers name bytes.
inline std::string byte_name(int byte) {
  const bool is_plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  int code = byte;
  if (!is_plain) {
    code = 256;
    for (int other = 0; other < byte; ++other)
      code +=
          (other >= 33 && other <= 126) || (other >= 161 && other <= 172) || other >= 174 ? 0 : 1;
  }
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
}

// A token a byte, a special token a mark, and <end>.
inline std::unique_ptr<Tokenizer> byte_tokenizer(const std::vector<std::string>& marks) {
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[byte_name(byte)] = byte;
  Json added = Json::array();
  std::vector<std::string> specials = {"<end>"};
  for (const std::string& mark : marks)
    if (mark.starts_with('<') || mark.starts_with('[')) specials.push_back(mark);
  for (std::size_t i = 0; i < specials.size(); ++i)
    added.push_back({{"id", 256 + i},
                     {"content", specials[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const Json json = {
      {"added_tokens", added},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
  return Tokenizer::from_json(dump_json(json), "test", {}, "<end>");
}

// Random walks through the masks of calls.
class Walker {
 public:
  Walker(const CallSource& calls, const std::vector<std::string>& marks, GrammarSource source = {})
      : tokenizer_(byte_tokenizer(marks)),
        vocabulary_(std::make_shared<const Vocabulary>(*tokenizer_, 512)) {
    source.max_white_space = 1;
    source.calls = calls;
    source.plain_integers = true;
    auto compiled = compile(source, vocabulary_, {}, {}, &unenforced_);
    if (!compiled)
      ADD_FAILURE() << calls.format << ": " << compiled.fault().message;
    else
      compiled_ = *compiled;
  }

  // A text of the grammar; empty where the walk did not end.
  std::string walk(std::mt19937& random) {
    Constraint constraint(compiled_, {kEnd});
    std::vector<std::uint32_t> bits(vocabulary_->num_words());
    std::string text;
    for (int step = 0; step < 4000; ++step) {
      EXPECT_TRUE(constraint.fill(bits));
      std::vector<std::int32_t> any, closing;
      for (std::int32_t token = 0; token < 512; ++token) {
        if (!has_bit(bits, token)) continue;
        any.push_back(token);
        if (token >= 256 || token == '"' || token == '}' || token == ']' || token == ')')
          closing.push_back(token);
      }
      if (any.empty()) {
        ADD_FAILURE() << "no token behind " << text;
        return {};
      }
      const auto& from = closing.empty() || random() % 3 == 0 ? any : closing;
      const std::int32_t token = from[random() % from.size()];
      EXPECT_TRUE(constraint.accept(token));
      if (token == kEnd) return text;
      const std::string_view bytes = vocabulary_->bytes(token);
      text += token >= 256 ? bytes.substr(1) : bytes;
    }
    return {};
  }
  bool accepts(std::string_view text) {
    Constraint constraint(compiled_, {kEnd});
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = vocabulary_->special_at(text.substr(at));
      std::int32_t token = static_cast<unsigned char>(text[at]);
      for (std::int32_t id = 256; size > 0 && id < 512; ++id)
        if (vocabulary_->bytes(id) == special(text.substr(at, size))) token = id;
      if (!constraint.accept(token)) return false;
      at += size > 0 ? size : 1;
    }
    return constraint.can_end();
  }
  std::vector<Unenforced> unenforced_;

 private:
  static constexpr std::int32_t kEnd = 256;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::shared_ptr<CompiledGrammar> compiled_;
};

inline std::vector<std::string> marks_of(const ToolFormat& format) {
  if (format.syntax != CallSyntax::kChannels) return tool_parser_marks(format.name);
  return {"<|channel|>", "<|message|>", "<|call|>", "<|start|>", "<|end|>", "<|constrain|>"};
}

}  // namespace sluice::grammar
