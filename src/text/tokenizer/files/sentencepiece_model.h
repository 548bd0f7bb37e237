// A SentencePiece `tokenizer.model` (also spiece.model, sentencepiece.bpe.model): a protobuf, read
// field by field. Source: sentencepiece `sentencepiece_model.proto`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct SentencePieceModel {
  enum Type : std::uint8_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };
  enum ModelType { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };

  struct Piece {
    std::string text;
    float score = 0;
    Type type = kNormal;
  };
  std::vector<Piece> pieces;  // by id

  // trainer_spec
  ModelType model_type = kUnigram;
  bool byte_fallback = false;
  bool treat_whitespace_as_suffix = false;
  std::int32_t unk_id = 0, bos_id = 1, eos_id = 2, pad_id = -1;  // -1: there is none
  std::string unk_surface = " \xE2\x81\x87 ";                    // the decoded text of unk

  // normalizer_spec
  std::string precompiled_charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

// Error{kBadInput}, naming `what` and the field: invalid protobuf bytes, a piece with an empty or
// invalid text, a score that is not finite, an unknown type or id, no piece, or more pieces than
// fit (TokenTable::kMaxId).
SentencePieceModel parse_sentencepiece(std::string_view bytes, std::string_view what);

}  // namespace sluice
