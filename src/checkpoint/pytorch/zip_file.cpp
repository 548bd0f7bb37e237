#include "checkpoint/pytorch/zip_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/error.h"

namespace sluice {
namespace {

constexpr std::uint32_t kLocalHeader = 0x04034B50, kDirectoryHeader = 0x02014B50, kEnd = 0x06054B50,
                        kEnd64 = 0x06064B50, kLocator64 = 0x07064B50;
constexpr std::uint64_t kLocalBytes = 30, kDirectoryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                        kLocatorBytes = 20;
constexpr std::uint64_t kMaxComment = 65535;
constexpr std::uint64_t kMaxDirectoryBytes = 32 << 20;
constexpr std::uint64_t kMaxEntries = 200'000;
constexpr std::size_t kMaxNameBytes = 512;
constexpr std::uint16_t kExtra64 = 1;
constexpr std::uint16_t kEncryptedFlags = 1u | 1u << 6 | 1u << 13;

template <class T>
T number_at(std::string_view bytes, std::uint64_t at) {
  T value;  // little-endian, the only byte order of this program
  check(at <= bytes.size() && sizeof(T) <= bytes.size() - at, "{} of {} bytes", at, bytes.size());
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

std::string printable(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, 120)) out += c >= ' ' && c < 127 ? c : '?';
  return out;
}

// Table 0 is that of single bytes.
constexpr std::array<std::array<std::uint32_t, 256>, 8> kCrcTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value & 1 ? 0xEDB88320u ^ value >> 1 : value >> 1;
    tables[0][i] = value;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t i = 0; i < 256; ++i)
      tables[k][i] = tables[0][tables[k - 1][i] & 255] ^ tables[k - 1][i] >> 8;
  return tables;
}();

// Sizes that do not fit into the 32 bits of a directory entry are in its extra field, in this
// order.
void widen_from_extra(std::string_view extra, std::initializer_list<std::uint64_t*> fields,
                      const std::string& what) {
  std::optional<std::string_view> wide;
  for (std::uint64_t at = 0; at + 4 <= extra.size();) {
    const std::uint64_t length = number_at<std::uint16_t>(extra, at + 2);
    require(length <= extra.size() - at - 4, "{} has an extra field that runs past its end", what);
    if (number_at<std::uint16_t>(extra, at) == kExtra64) wide = extra.substr(at + 4, length);
    at += 4 + length;
  }
  std::uint64_t at = 0;
  for (std::uint64_t* field : fields) {
    if (*field != 0xFFFFFFFFu) continue;
    require(wide && at + 8 <= wide->size(),
            "{} needs sizes of 64 bits, which its extra field does not have", what);
    *field = number_at<std::uint64_t>(*wide, at);
    at += 8;
  }
}

}  // namespace

std::uint32_t crc32(std::string_view bytes, std::uint32_t before) {
  std::uint32_t crc = ~before;
  // Eight bytes at a time: table k is the effect of a byte that is followed by k others.
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof word);
    word ^= crc;
    crc = 0;
    for (int i = 0; i < 8; ++i)
      crc ^= kCrcTables[static_cast<std::size_t>(7 - i)][word >> 8 * i & 255];
  }
  for (const char c : bytes)
    crc = kCrcTables[0][(crc ^ static_cast<unsigned char>(c)) & 255] ^ crc >> 8;
  return ~crc;
}

ZipFile::ZipFile(const File& file, std::string name)
    : file_(file), name_(std::move(name)), size_(file.size()) {
  read_directory(find_directory());
}

std::string ZipFile::bytes_at(std::uint64_t offset, std::uint64_t count) const {
  require(offset <= size_ && count <= size_ - offset,
          "{}: {} bytes at {} lie past the end of the file, which has {}; it is cut "
          "short or damaged",
          name_, count, offset, size_);
  std::string out(count, '\0');
  require(file_.read(offset, std::as_writable_bytes(std::span(out))),
          "{}: the file became shorter while it was read", name_);
  return out;
}

ZipFile::Directory ZipFile::find_directory() const {
  require(size_ >= kEndBytes, "{}: {} bytes are too few for a zip archive", name_, size_);
  const std::uint64_t tail_bytes = std::min(size_, kEndBytes + kMaxComment),
                      tail_at = size_ - tail_bytes;
  const std::string tail = bytes_at(tail_at, tail_bytes);
  std::uint64_t end = 0;
  bool found = false;
  for (std::uint64_t at = tail_bytes - kEndBytes + 1; at-- > 0 && !found;)
    if (number_at<std::uint32_t>(tail, at) == kEnd &&
        number_at<std::uint16_t>(tail, at + 20) == tail_bytes - at - kEndBytes) {
      end = at;
      found = true;
    }
  require(found, "{}: there is no end record of a zip archive; the file is cut short, or is none",
          name_);
  require(
      number_at<std::uint16_t>(tail, end + 4) == 0 && number_at<std::uint16_t>(tail, end + 6) == 0,
      "{}: the archive is spread over several files", name_);
  Directory directory{.offset = number_at<std::uint32_t>(tail, end + 16),
                      .bytes = number_at<std::uint32_t>(tail, end + 12),
                      .entries = number_at<std::uint16_t>(tail, end + 10),
                      .end = tail_at + end};
  const bool is_wide = directory.offset == 0xFFFFFFFFu || directory.bytes == 0xFFFFFFFFu ||
                       directory.entries == 0xFFFF;
  if (is_wide && directory.end >= kLocatorBytes) {
    const std::string locator = bytes_at(directory.end - kLocatorBytes, kLocatorBytes);
    if (number_at<std::uint32_t>(locator, 0) == kLocator64) {
      const auto at = number_at<std::uint64_t>(locator, 8);
      require(at <= directory.end && directory.end - at >= kLocatorBytes + kEnd64Bytes,
              "{}: the end record of 64 bits at {} does not lie before its locator", name_, at);
      const std::string wide = bytes_at(at, kEnd64Bytes);
      require(number_at<std::uint32_t>(wide, 0) == kEnd64,
              "{}: there is no end record of 64 bits at {}", name_, at);
      directory = {.offset = number_at<std::uint64_t>(wide, 48),
                   .bytes = number_at<std::uint64_t>(wide, 40),
                   .entries = number_at<std::uint64_t>(wide, 32),
                   .end = at};
    }
  }
  require(directory.bytes <= directory.end && directory.offset <= directory.end - directory.bytes,
          "{}: the directory of {} bytes at {} does not lie before its end record at {}", name_,
          directory.bytes, directory.offset, directory.end);
  require(
      directory.bytes <= kMaxDirectoryBytes && directory.entries <= kMaxEntries &&
          directory.entries <= directory.bytes / kDirectoryBytes,
      "{}: the directory claims {} entries in {} bytes; at most {} entries in {} bytes are allowed",
      name_, directory.entries, directory.bytes, kMaxEntries, kMaxDirectoryBytes);
  return directory;
}

void ZipFile::read_directory(const Directory& directory) {
  const std::string bytes = bytes_at(directory.offset, directory.bytes);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;  // header to end of data
  entries_.reserve(directory.entries);
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    const std::string number = fmt::format("{}: entry {} of the directory", name_, i);
    require(kDirectoryBytes <= bytes.size() - at &&
                number_at<std::uint32_t>(bytes, at) == kDirectoryHeader,
            "{} is cut short or damaged", number);
    const std::uint64_t name_bytes = number_at<std::uint16_t>(bytes, at + 28),
                        extra_bytes = number_at<std::uint16_t>(bytes, at + 30),
                        comment_bytes = number_at<std::uint16_t>(bytes, at + 32);
    require(name_bytes + extra_bytes + comment_bytes <= bytes.size() - at - kDirectoryBytes,
            "{} runs past its end", number);
    require(name_bytes > 0 && name_bytes <= kMaxNameBytes,
            "{} has a name of {} bytes; allowed are 1 to {}", number, name_bytes, kMaxNameBytes);
    ZipEntry entry;
    entry.name = bytes.substr(at + kDirectoryBytes, name_bytes);
    const std::string what = fmt::format("{}: the entry {}", name_, printable(entry.name));
    entry.crc = number_at<std::uint32_t>(bytes, at + 16);
    std::uint64_t stored = number_at<std::uint32_t>(bytes, at + 20),
                  header = number_at<std::uint32_t>(bytes, at + 42);
    entry.bytes = number_at<std::uint32_t>(bytes, at + 24);
    widen_from_extra(std::string_view(bytes).substr(at + kDirectoryBytes + name_bytes, extra_bytes),
                     {&entry.bytes, &stored, &header}, what);
    require((number_at<std::uint16_t>(bytes, at + 8) & kEncryptedFlags) == 0, "{} is encrypted",
            what);
    require(number_at<std::uint16_t>(bytes, at + 10) == 0 && stored == entry.bytes,
            "{} is compressed ({} bytes stored for {}); torch.save stores entries as they are, and "
            "only such are read",
            what, stored, entry.bytes);
    place(entry, header, directory.offset);
    spans.emplace_back(header, entry.offset + entry.bytes);
    entries_.push_back(std::move(entry));
    at += kDirectoryBytes + name_bytes + extra_bytes + comment_bytes;
  }
  require(at == bytes.size(), "{}: {} bytes follow the last entry of the directory", name_,
          bytes.size() - at);
  for (std::size_t i = 0; i < entries_.size(); ++i)
    require(index_.emplace(entries_[i].name, i).second, "{}: the entry {} appears twice", name_,
            printable(entries_[i].name));
  std::ranges::sort(spans);
  for (std::size_t i = 1; i < spans.size(); ++i)
    require(spans[i].first >= spans[i - 1].second, "{}: two entries overlap at {}", name_,
            spans[i].first);
}

// The bytes begin after the local header, whose name and extra field have their own lengths. They
// end before `end`.
void ZipFile::place(ZipEntry& entry, std::uint64_t header, std::uint64_t end) {
  const std::string what = fmt::format("{}: the entry {}", name_, printable(entry.name));
  require(header <= end && kLocalBytes + entry.name.size() <= end - header,
          "{} begins at {}, past the end of the entries at {}", what, header, end);
  const std::string local = bytes_at(header, kLocalBytes + entry.name.size());
  require(number_at<std::uint32_t>(local, 0) == kLocalHeader &&
              number_at<std::uint16_t>(local, 8) == 0 &&
              number_at<std::uint16_t>(local, 26) == entry.name.size() &&
              local.substr(kLocalBytes) == entry.name,
          "{} has another header where it begins, at {}", what, header);
  const std::uint64_t skipped =
      kLocalBytes + entry.name.size() + number_at<std::uint16_t>(local, 28);
  require(skipped <= end - header && entry.bytes <= end - header - skipped,
          "{} of {} bytes at {} runs past the end of the entries at {}", what, entry.bytes, header,
          end);
  entry.offset = header + skipped;
}

const ZipEntry* ZipFile::find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &entries_[it->second];
}

std::string ZipFile::read_checked(const ZipEntry& entry, std::uint64_t max_bytes) const {
  require(entry.bytes <= max_bytes, "{}: the entry {} has {} bytes; at most {} are allowed", name_,
          printable(entry.name), entry.bytes, max_bytes);
  std::string text = bytes_at(entry.offset, entry.bytes);
  require_crc(entry, crc32(text));
  return text;
}

void ZipFile::verify(const ZipEntry& entry) const {
  constexpr std::uint64_t kPieceBytes = 1 << 20;
  std::uint32_t crc = 0;
  for (std::uint64_t at = 0; at < entry.bytes; at += kPieceBytes)
    crc = crc32(bytes_at(entry.offset + at, std::min(kPieceBytes, entry.bytes - at)), crc);
  require_crc(entry, crc);
}

void ZipFile::require_crc(const ZipEntry& entry, std::uint32_t seen) const {
  require(seen == entry.crc,
          "{}: the entry {} is damaged: its CRC-32 is {:08x}, and the archive says {:08x}", name_,
          printable(entry.name), seen, entry.crc);
}

}  // namespace sluice
