// A model directory -> Tokenizer.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "text/tokenizer/files/lower_case.h"
#include "text/tokenizer/files/tokenizer_files.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxSideFileBytes = 64u << 20;
constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{512} << 20;

std::string read_file(const fs::path& path, std::uintmax_t max_bytes) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  require(!error, "{}: {}", path.string(), error.message());
  require(size <= max_bytes, "{}: {} bytes; at most {} are allowed", path.string(), size,
          max_bytes);
  std::ifstream stream(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(size), '\0');
  stream.read(text.data(), static_cast<std::streamsize>(size));
  require(stream && stream.gcount() == static_cast<std::streamsize>(size),
          "{}: cannot be read whole", path.string());
  return text;
}

Json read_side_file(const fs::path& path) {
  if (!fs::is_regular_file(path)) return Json::object();
  Json json = parse_json_or_throw(read_file(path, kMaxSideFileBytes), path.string());
  require(json.is_object(), "{}: must be an object", path.string());
  return json;
}

std::string id_token_of(const Json& file, const std::string& key, const TokenizerParts& parts) {
  const auto member = file.find(key);
  if (member == file.end()) return "";
  const Json& value = member->is_array() && !member->empty() ? member->front() : *member;
  if (!value.is_number_integer()) return "";
  const auto id = value.get<std::int64_t>();
  if (id < 0 || id > TokenTable::kMaxId) return "";
  const auto added = parts.added.find(static_cast<std::int32_t>(id));
  return added != parts.added.end() ? added->second.content
                                    : std::string(parts.vocab.text(static_cast<std::int32_t>(id)));
}

void find_ends(const fs::path& directory, TokenizerParts& parts) {
  // As in transformers, special_tokens_map.json is laid over tokenizer_config.json if that lists no
  // added tokens.
  const Json config = read_side_file(directory / "tokenizer_config.json");
  std::vector<const char*> files = {"tokenizer_config.json", "special_tokens_map.json"};
  if (!config.contains("added_tokens_decoder")) std::swap(files[0], files[1]);
  const auto resolve = [&](const std::string& name, std::string& token,
                           std::optional<std::int32_t>& id, std::string* place) {
    const auto take = [&](const char* file, const std::string& key, std::string text) {
      if (!token.empty() || text.empty()) return;
      token = std::move(text);
      if (place != nullptr) *place = fmt::format("{}: {}", file, key);
    };
    for (const char* file : files)
      take(file, name + "_token",
           token_text_of(read_side_file(directory / file), name + "_token",
                         (directory / file).string()));
    for (const char* file : {"generation_config.json", "config.json"})
      take(file, name + "_token_id",
           id_token_of(read_side_file(directory / file), name + "_token_id", parts));
    if (token.empty()) return;
    const auto added = parts.added_ids.find(token);
    id = added != parts.added_ids.end() ? std::optional(added->second) : parts.vocab.find(token);
  };
  resolve("bos", parts.bos_token, parts.bos_id, nullptr);
  resolve("eos", parts.eos_token, parts.eos_id, &parts.eos_place);
  if (parts.eos_place.empty()) parts.eos_place = "the tokenizer's own eos";
}

// The possible files of a tokenizer, and their readers.
enum class FileKind { kJson, kSentencePiece, kFairseq, kTiktoken, kTekken, kMerges, kVocab };
struct FileRow {
  const char* name;  // "*.x": the first file by name with this ending
  FileKind kind;
  bool auto_mode, slow, mistral;
};
constexpr FileRow kFiles[] = {
    {"tokenizer.json", FileKind::kJson, true, false, false},
    {"tekken.json", FileKind::kTekken, false, false, true},
    {"tokenizer.model", FileKind::kSentencePiece, true, true, true},
    {"*.model.v*", FileKind::kSentencePiece, false, false, true},
    {"spiece.model", FileKind::kSentencePiece, true, true, false},
    {"spm.model", FileKind::kSentencePiece, true, true, false},
    {"sentencepiece.bpe.model", FileKind::kFairseq, true, true, false},
    {"tiktoken.model", FileKind::kTiktoken, true, true, false},
    {"*.tiktoken", FileKind::kTiktoken, true, true, false},
    {"tekken.json", FileKind::kTekken, true, true, false},
    {"merges.txt", FileKind::kMerges, true, true, false},
    {"vocab.txt", FileKind::kVocab, true, true, false},
    {"tokenizer.json", FileKind::kJson, false, true, false},
};

bool fits(std::string_view file, std::string_view pattern) {
  if (!pattern.starts_with('*')) return file == pattern;
  pattern.remove_prefix(1);
  return pattern.ends_with('*')
             ? file.find(pattern.substr(0, pattern.size() - 1)) != std::string_view::npos
             : file.ends_with(pattern);
}

struct Found {
  fs::path path;
  FileKind kind = FileKind::kJson;
};

bool is_read(const FileRow& row, TokenizerMode mode) {
  return mode == TokenizerMode::kAuto   ? row.auto_mode
         : mode == TokenizerMode::kSlow ? row.slow
                                        : row.mistral;
}

std::optional<Found> find_file(const fs::path& directory, TokenizerMode mode) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    if (it->is_regular_file(error)) names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  for (const FileRow& row : kFiles) {
    if (!is_read(row, mode)) continue;
    for (const std::string& name : names) {
      if (!fits(name, row.name)) continue;
      // merges.txt is useless without its vocabulary.
      if (row.kind == FileKind::kMerges && !fs::is_regular_file(directory / "vocab.json", error))
        continue;
      return Found{directory / name, row.kind};
    }
  }
  return std::nullopt;
}

[[noreturn]] void refuse(const fs::path& directory, TokenizerMode mode) {
  std::string names;
  for (const FileRow& row : kFiles)
    if (is_read(row, mode)) names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
  fail(ErrorKind::kBadInput, "{}: there is no tokenizer{}; looked for {}", directory.string(),
       mode == TokenizerMode::kMistral ? " in one of the forms of --tokenizer-mode mistral" : "",
       names);
}

TokenizerSideFiles read_side_files(const fs::path& directory) {
  TokenizerSideFiles side;
  side.config = read_side_file(directory / "tokenizer_config.json");
  side.special_tokens = read_side_file(directory / "special_tokens_map.json");
  side.added_tokens = read_side_file(directory / "added_tokens.json");
  const Json type = read_side_file(directory / "config.json").value("model_type", Json());
  if (type.is_string()) side.model_type = type.get<std::string>();
  return side;
}

// The same tokenizer.json with lower case before its own normalizer.
std::string lowered_first(const std::string& text, const std::string& what) {
  Json file = parse_json_or_throw(text, what);
  require(file.is_object(), "{} must be a JSON object", what);
  const Json lower = {{"type", "Lowercase"}}, own = file.value("normalizer", Json());
  file["normalizer"] = own.is_null()
                           ? lower
                           : Json{{"type", "Sequence"}, {"normalizers", Json::array({lower, own})}};
  return dump_json(file);
}

std::unique_ptr<TokenizerParts> read_parts(const fs::path& directory, const Found& found,
                                           bool lowers) {
  const std::string what = found.path.string();
  const std::string text = read_file(found.path, kMaxFileBytes);
  const TokenizerSideFiles side = read_side_files(directory);
  if (found.kind == FileKind::kJson)
    return parse_tokenizer_json(lowers ? lowered_first(text, what) : text, what, &side);
  require(!lowers, "{}: texts in lower case (do_lower_case) need a tokenizer.json", what);
  switch (found.kind) {
    case FileKind::kSentencePiece:
      if (!looks_like_tiktoken(text)) return sentencepiece_parts(text, what, side);
      [[fallthrough]];
    case FileKind::kTiktoken: {
      const fs::path settings = directory / "tiktoken_config.json";
      return tiktoken_parts(
          text, what, fs::is_regular_file(settings) ? read_side_file(settings) : Json(), side);
    }
    case FileKind::kFairseq:
      return fairseq_parts(text, what, side);
    case FileKind::kTekken:
      return tekken_parts(parse_json_or_throw(text, what), what);
    case FileKind::kMerges:
      return parse_tokenizer_json(
          vocab_merges_json(read_file(directory / "vocab.json", kMaxFileBytes), text, what, side),
          what);
    default:
      return parse_tokenizer_json(vocab_txt_json(text, what, side), what);
  }
}

}  // namespace

std::string Tokenizer::file_of(const std::string& directory, TokenizerMode mode) {
  const auto found = find_file(directory, mode);
  return found ? found->path.string() : std::string();
}

std::unique_ptr<Tokenizer> Tokenizer::from_sentencepiece(std::string_view bytes,
                                                         std::string_view what,
                                                         const Json& config) {
  TokenizerSideFiles side;
  side.config = config;
  return std::make_unique<Tokenizer>(sentencepiece_parts(bytes, what, side));
}

namespace {

std::unique_ptr<Tokenizer> load_file(const std::string& directory, TokenizerMode mode,
                                     bool lowers) {
  const auto found = find_file(directory, mode);
  if (!found) refuse(directory, mode);
  auto parts = read_parts(directory, *found, lowers);
  parts->split_special_tokens = flag_of(
      read_side_file(fs::path(directory) / "tokenizer_config.json"), "split_special_tokens", false);
  find_ends(directory, *parts);
  return std::make_unique<Tokenizer>(std::move(parts));
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::load(const std::string& directory, TokenizerMode mode) {
  return load_file(directory, mode, false);
}

std::unique_ptr<Tokenizer> load_lower_case_tokenizer(const std::string& directory,
                                                     TokenizerMode mode) {
  return load_file(directory, mode, true);
}

}  // namespace sluice
