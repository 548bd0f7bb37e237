#include "checkpoint/files_digest.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "checkpoint/files/weight_choice.h"

namespace sluice {
namespace {

constexpr std::uint64_t kPieces = 16, kPieceBytes = 4096;

std::uint64_t digest_of(const File& file, const std::string& name) {
  const std::uint64_t size = file.size();
  std::uint64_t hash = hash_combine(hash_bytes(name), size);
  std::array<std::byte, kPieceBytes> piece;
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    // The first piece lies at the start, the last one at the end.
    const std::uint64_t count = std::min(size, kPieceBytes);
    const std::uint64_t offset = (size - count) * i / (kPieces - 1);
    require(file.read(offset, std::span(piece).first(count)), "{} changed while it was read", name);
    hash = hash_bytes(piece.data(), count, hash);
  }
  return hash;
}

}  // namespace

std::uint64_t digest_of_files(const std::string& path, LoadFormat format) {
  if (path.ends_with(".gguf")) return digest_of(open_regular_file(path), "");
  std::vector<std::string> names = {"config.json", "hf_quant_config.json"};
  std::vector<WeightFormat> formats;
  if (format != LoadFormat::kPt) formats.push_back(WeightFormat::kSafetensors);
  if (format != LoadFormat::kSafetensors) formats.push_back(WeightFormat::kPickle);
  const std::vector<std::string> there = names_in(path);
  if (const auto choice = choose_weights(there, formats, "")) {
    const SettledWeights files = settle_weights(*choice, path, there);
    if (!files.index.empty()) names.push_back(files.index);
    names.insert(names.end(), files.names.begin(), files.names.end());
  }
  std::uint64_t hash = 0;
  for (const std::string& name : names)
    if (const std::optional<File> file = open_beneath(path, name))
      hash = hash_combine(hash, digest_of(*file, name));
  return hash;
}

}  // namespace sluice
