#include "text/tokenizer/files/sentencepiece_model.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "text/tokenizer/bpe.h"
#include "text/unicode.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxPieceBytes = 4096;

// A field of a protobuf message: its number and, by its wire type, a number or bytes.
struct Field {
  enum Kind { kVarint, kFixed64, kBytes, kFixed32 };
  std::uint32_t number = 0;
  Kind kind = kVarint;
  std::uint64_t value = 0;
  std::string_view bytes;
};

// Reads the fields of a message one by one; a length cannot exceed the message.
class Message {
 public:
  Message(std::string_view bytes, std::string where) : rest_(bytes), where_(std::move(where)) {}

  const std::string& where() const { return where_; }

  bool next(Field& field) {
    if (rest_.empty()) return false;
    const std::uint64_t key = varint();
    require(key >> 3 >= 1 && key >> 3 < (1u << 29), "{}: field number {} is out of range", where_,
            key >> 3);
    field.number = static_cast<std::uint32_t>(key >> 3);
    switch (key & 7) {
      case 0:
        field.kind = Field::kVarint;
        field.value = varint();
        return true;
      case 1:
        field.kind = Field::kFixed64;
        field.value = fixed<std::uint64_t>();
        return true;
      case 2: {
        field.kind = Field::kBytes;
        const std::uint64_t size = varint();
        require(size <= rest_.size(),
                "{}: field {} says that it has {} bytes, of which {} are there", where_,
                field.number, size, rest_.size());
        field.bytes = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return true;
      }
      case 5:
        field.kind = Field::kFixed32;
        field.value = fixed<std::uint32_t>();
        return true;
      default:
        fail(ErrorKind::kBadInput,
             "{}: field {} has the wire type {}; this is no SentencePiece model", where_,
             field.number, key & 7);
    }
  }

  std::uint64_t number(const Field& field) const {
    require(field.kind == Field::kVarint, "{}: field {} must be a number", where_, field.number);
    return field.value;
  }
  bool flag(const Field& field) const { return number(field) != 0; }
  std::string_view bytes(const Field& field) const {
    require(field.kind == Field::kBytes, "{}: field {} must be bytes", where_, field.number);
    return field.bytes;
  }
  // Negative numbers are encoded as 64 bits.
  std::int32_t id(const Field& field) const {
    const auto value = static_cast<std::int64_t>(number(field));
    require(value >= -1 && value <= TokenTable::kMaxId,
            "{}: field {} is the id {}; allowed are -1 to {}", where_, field.number, value,
            TokenTable::kMaxId);
    return static_cast<std::int32_t>(value);
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      require(!rest_.empty(), "{}: the file ends inside a number", where_);
      const auto byte = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail(ErrorKind::kBadInput, "{}: a number of more than 64 bits", where_);
  }

  template <class T>
  T fixed() {
    require(rest_.size() >= sizeof(T), "{}: the file ends inside a number", where_);
    T value;
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }

  std::string_view rest_;
  std::string where_;
};

SentencePieceModel::Piece read_piece(std::string_view bytes, std::size_t index,
                                     std::string_view what) {
  Message message(bytes, fmt::format("{}: pieces[{}]", what, index));
  SentencePieceModel::Piece piece;
  for (Field field; message.next(field);) {
    if (field.number == 1) {
      piece.text = message.bytes(field);
    } else if (field.number == 2) {
      require(field.kind == Field::kFixed32, "{}: the score must be a float", message.where());
      const auto bits = static_cast<std::uint32_t>(field.value);
      std::memcpy(&piece.score, &bits, sizeof bits);
    } else if (field.number == 3) {
      const std::uint64_t type = message.number(field);
      require(type >= 1 && type <= 6, "{}: the type is {}; known are 1 to 6", message.where(),
              type);
      piece.type = static_cast<SentencePieceModel::Type>(type);
    }
  }
  require(!piece.text.empty() && piece.text.size() <= kMaxPieceBytes,
          "{}: a text of {} bytes; allowed are 1 to {}", message.where(), piece.text.size(),
          kMaxPieceBytes);
  require(is_valid_utf8(piece.text), "{}: the text is not UTF-8", message.where());
  require(std::isfinite(piece.score), "{}: the score is not finite", message.where());
  return piece;
}

void read_trainer(std::string_view bytes, std::string_view what, SentencePieceModel& model) {
  Message message(bytes, fmt::format("{}: trainer_spec", what));
  for (Field field; message.next(field);) {
    switch (field.number) {
      case 3: {
        const std::uint64_t type = message.number(field);
        require(type >= 1 && type <= 4,
                "{}: model_type is {}; known are 1 (unigram), 2 (BPE), 3 (word), 4 (char)",
                message.where(), type);
        model.model_type = static_cast<SentencePieceModel::ModelType>(type);
        break;
      }
      case 24:
        model.treat_whitespace_as_suffix = message.flag(field);
        break;
      case 35:
        model.byte_fallback = message.flag(field);
        break;
      case 40:
        model.unk_id = message.id(field);
        break;
      case 41:
        model.bos_id = message.id(field);
        break;
      case 42:
        model.eos_id = message.id(field);
        break;
      case 43:
        model.pad_id = message.id(field);
        break;
      case 44:
        model.unk_surface = message.bytes(field);
        require(is_valid_utf8(model.unk_surface), "{}: unk_surface is not UTF-8", message.where());
        break;
      default:
        break;
    }
  }
}

void read_normalizer(std::string_view bytes, std::string_view what, SentencePieceModel& model) {
  Message message(bytes, fmt::format("{}: normalizer_spec", what));
  for (Field field; message.next(field);) {
    switch (field.number) {
      case 2:
        model.precompiled_charsmap = message.bytes(field);
        break;
      case 3:
        model.add_dummy_prefix = message.flag(field);
        break;
      case 4:
        model.remove_extra_whitespaces = message.flag(field);
        break;
      case 5:
        model.escape_whitespaces = message.flag(field);
        break;
      default:
        break;
    }
  }
}

}  // namespace

SentencePieceModel parse_sentencepiece(std::string_view bytes, std::string_view what) {
  SentencePieceModel model;
  Message message(bytes, std::string(what));
  for (Field field; message.next(field);) {
    if (field.number == 1) {
      require(model.pieces.size() <= static_cast<std::size_t>(TokenTable::kMaxId),
              "{}: more than {} pieces", what, TokenTable::kMaxId + 1);
      model.pieces.push_back(read_piece(message.bytes(field), model.pieces.size(), what));
    } else if (field.number == 2) {
      read_trainer(message.bytes(field), what, model);
    } else if (field.number == 3) {
      read_normalizer(message.bytes(field), what, model);
    } else if (field.number == 5) {
      Message denormalizer(message.bytes(field), fmt::format("{}: denormalizer_spec", what));
      for (Field inner; denormalizer.next(inner);)
        require(inner.number != 2 || denormalizer.bytes(inner).empty(),
                "{}: a map for decoding is not supported", denormalizer.where());
    }
  }
  require(!model.pieces.empty(), "{}: there are no pieces; this is no SentencePiece model", what);
  return model;
}

}  // namespace sluice
