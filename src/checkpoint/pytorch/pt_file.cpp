#include "checkpoint/pytorch/pt_file.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/pytorch/pickle.h"
#include "checkpoint/pytorch/zip_file.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxPickleBytes = 64 << 20;
// size limit of the pickles before the elements
constexpr std::uint64_t kMaxLegacyBytes = 32 << 20;
constexpr std::uint64_t kWindowBytes = 4 << 20;  // maximum size of one read of a strided tensor
// The first pickle of the older form, a number of ten bytes (torch `serialization.py`,
// MAGIC_NUMBER).
constexpr std::string_view kMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);
constexpr std::int64_t kLegacyProtocol = 1001;

std::string printable(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, 200)) out += c >= ' ' && c < 127 ? c : '?';
  return out;
}

std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) strides[i] = stride;
  return strides;
}

}  // namespace

PtFile::PtFile(File file, std::string name, int index)
    : file_(std::move(file)), name_(std::move(name)), index_(index) {
  const std::uint64_t size = file_.size();
  std::array<char, 4> first{};
  require(size >= 4 && file_.read(0, std::as_writable_bytes(std::span(first))),
          "{}: {} bytes are too few for a file of torch.save", name_, size);
  if (std::memcmp(first.data(), "PK\3\4", 4) == 0) {
    read_archive();
    return;
  }
  require(static_cast<unsigned char>(first[0]) == 0x80,
          "{}: the file begins neither like a zip archive nor like a pickle, so torch.save did not "
          "write it",
          name_);
  read_legacy(size);
}

void PtFile::read_archive() {
  const ZipFile zip(file_, name_);
  constexpr std::string_view kPickle = "/data.pkl";
  std::string root;
  for (const ZipEntry& entry : zip.entries())
    if (entry.name.ends_with(kPickle) &&
        entry.name.find('/') == entry.name.size() - kPickle.size()) {
      require(root.empty(), "{}: the archive has two pickles, {} and {}", name_, printable(root),
              printable(entry.name));
      root = entry.name.substr(0, entry.name.size() - kPickle.size() + 1);
    }
  require(!root.empty(), "{}: the archive has no NAME/data.pkl, so it is no file of torch.save",
          name_);
  require(zip.find(root + "constants.pkl") == nullptr,
          "{}: this is a program of TorchScript, not a file of weights; take the weights that it "
          "was made from",
          name_);
  if (const ZipEntry* order = zip.find(root + "byteorder")) {
    const std::string text = zip.read_checked(*order, 16);
    require(text == "little",
            "{}: the elements are stored {}-endian; only little-endian files are read", name_,
            printable(text));
  }
  const std::string bytes = zip.read_checked(*zip.find(root + "data.pkl"), kMaxPickleBytes);
  const Pickle pickle(bytes, name_);
  require(pickle.end() == bytes.size(), "{}: {} bytes follow the pickle", name_,
          bytes.size() - pickle.end());
  std::unordered_map<std::string, Place> places;
  const std::string data = root + "data/";
  for (const ZipEntry& entry : zip.entries())
    if (entry.name.starts_with(data))
      places.emplace(entry.name.substr(data.size()), Place{entry.offset, entry.bytes});
  add_tensors(pickle, places);
}

void PtFile::check_storages() const {
  char first = 0;
  require(file_.read(0, std::as_writable_bytes(std::span(&first, 1))), "{}: the file is empty",
          name_);
  if (first != 'P') return;
  const ZipFile zip(file_, name_);
  for (const ZipEntry& entry : zip.entries()) zip.verify(entry);
}

// The order is: magic, protocol, sizes of C types, the dict, the keys of the storages, and the
// storages in the order of the keys. A storage is an element count of 64 bits, then the elements.
void PtFile::read_legacy(std::uint64_t size) {
  std::string head(std::min(size, kMaxLegacyBytes), '\0');
  require(file_.read(0, std::as_writable_bytes(std::span(head))),
          "{}: the file became shorter while it was read", name_);
  std::string_view rest = head;
  const auto next = [&] {
    Pickle pickle(rest, name_);
    rest.remove_prefix(pickle.end());
    return pickle;
  };
  const Pickle magic = next();
  require(magic.kind(magic.root()) == PickleKind::kLong && magic.text(magic.root()) == kMagic,
          "{}: the file is a pickle, but not one of torch.save", name_);
  const Pickle protocol = next();
  require(protocol.kind(protocol.root()) == PickleKind::kInteger &&
              protocol.integer(protocol.root()) == kLegacyProtocol,
          "{}: the form of torch.save is not {}; save the file again with a newer torch", name_,
          kLegacyProtocol);
  const Pickle sizes = next();
  require(sizes.kind(sizes.root()) == PickleKind::kDict, "{}: the sizes of types are missing",
          name_);
  const Pickle pickle = next();
  const Pickle keys = next();
  require(keys.kind(keys.root()) == PickleKind::kList, "{}: the list of storages is missing",
          name_);
  std::unordered_map<std::string_view, const PickledStorage*> known;
  for (const PickledStorage& storage : pickle.storages()) {
    const auto [it, is_new] = known.emplace(storage.key, &storage);
    require(is_new || (it->second->dtype == storage.dtype &&
                       it->second->num_elements == storage.num_elements),
            "{}: the storage {} is described in two ways", name_, printable(storage.key));
  }
  std::unordered_map<std::string, Place> places;
  std::uint64_t at = head.size() - rest.size();
  for (const Pickle::Value key : keys.items(keys.root())) {
    require(keys.kind(key) == PickleKind::kText,
            "{}: the list of storages has something else than keys", name_);
    const auto it = known.find(keys.text(key));
    require(it != known.end(), "{}: no tensor lies in the storage {}", name_,
            printable(keys.text(key)));
    std::uint64_t count = 0, bytes = 0;
    require(at <= size && size - at >= sizeof(count) &&
                file_.read(at, std::as_writable_bytes(std::span(&count, 1))),
            "{}: the file ends before the storage {}; it is cut short", name_,
            printable(it->first));
    at += sizeof(count);
    require(count == static_cast<std::uint64_t>(it->second->num_elements) &&
                !__builtin_mul_overflow(
                    count, static_cast<std::uint64_t>(dtype_size(it->second->dtype)), &bytes) &&
                bytes <= size - at,
            "{}: the storage {} of {} elements at {} does not fit its description or the file",
            name_, printable(it->first), count, at);
    require(places.emplace(it->first, Place{at, bytes}).second, "{}: the storage {} appears twice",
            name_, printable(it->first));
    at += bytes;
  }
  require(at == size, "{}: {} bytes follow the last storage", name_, size - at);
  add_tensors(pickle, places);
}

void PtFile::add_tensors(const Pickle& pickle,
                         const std::unordered_map<std::string, Place>& places) {
  require(pickle.kind(pickle.root()) == PickleKind::kDict,
          "{}: the file does not hold a dict of tensors", name_);
  std::unordered_set<std::string_view> seen;
  std::size_t num_others = 0;
  for (const auto& [key, value] : pickle.dict(pickle.root())) {
    require(pickle.kind(key) == PickleKind::kText, "{}: a key of the dict is no text", name_);
    const std::string_view name = pickle.text(key);
    require(name.size() <= 1024, "{}: the name of a tensor has {} bytes; at most 1024 are allowed",
            name_, name.size());
    require(seen.insert(name).second, "{}: the tensor {} appears twice", name_, printable(name));
    if (pickle.kind(value) != PickleKind::kTensor) {
      ++num_others;
      continue;
    }
    const PickledTensor& tensor = pickle.tensor(value);
    const PickledStorage& storage = pickle.storages()[tensor.storage];
    const auto place = places.find(std::string(storage.key));
    require(place != places.end(),
            "{}: the tensor {} lies in the storage {}, which the file does not have", name_,
            printable(name), printable(storage.key));
    add_tensor(name, tensor, storage, place->second);
  }
  require(!tensors_.empty() || num_others == 0,
          "{}: none of the {} values of the dict is a tensor; save the state_dict itself", name_,
          num_others);
  if (num_others > 0)
    log_warning("{}: {} values that are no tensors are ignored", name_, num_others);
}

void PtFile::add_tensor(std::string_view key, const PickledTensor& tensor,
                        const PickledStorage& storage, const Place& place) {
  const std::string what = fmt::format("{}: the tensor {}", name_, printable(key));
  const auto size = static_cast<std::uint64_t>(dtype_size(tensor.dtype));
  std::uint64_t storage_bytes = 0;
  require(storage.num_elements >= 0 &&
              !__builtin_mul_overflow(static_cast<std::uint64_t>(storage.num_elements),
                                      static_cast<std::uint64_t>(dtype_size(storage.dtype)),
                                      &storage_bytes) &&
              storage_bytes <= place.bytes,
          "{} lies in the storage {} of {} elements, for which the file has {} bytes", what,
          printable(storage.key), storage.num_elements, place.bytes);
  TensorInfo info;
  info.name = key;
  info.dtype = tensor.dtype;
  info.file = index_;
  std::uint64_t count = 1,
                // in elements: offset of the last element
      last = static_cast<std::uint64_t>(tensor.offset);
  bool overflow = tensor.offset < 0;
  for (int i = 0; i < tensor.rank; ++i) {
    const auto at = static_cast<std::size_t>(i);
    require(tensor.shape[at] >= 0 && tensor.strides[at] >= 0,
            "{} has an extent or a stride below 0", what);
    const auto extent = static_cast<std::uint64_t>(tensor.shape[at]);
    overflow |= __builtin_mul_overflow(count, extent, &count);
    std::uint64_t reach = 0;
    overflow |=
        extent > 0 &&
        __builtin_mul_overflow(extent - 1, static_cast<std::uint64_t>(tensor.strides[at]), &reach);
    overflow |= __builtin_add_overflow(last, reach, &last);
    info.shape.push_back(tensor.shape[at]);
  }
  const std::uint64_t held = storage_bytes / size;
  require(!overflow && (count == 0 || last < held),
          "{} [{}] reaches element {} of its storage, which has {}", what,
          fmt::join(info.shape, ", "),
          overflow ? std::string("2^64 or more") : std::to_string(last), held);
  require(count <= held, "{} [{}] repeats elements of its storage of {}; save a copy of it", what,
          fmt::join(info.shape, ", "), held);
  info.bytes = count * size;
  info.offset = place.offset + (count == 0 ? 0 : static_cast<std::uint64_t>(tensor.offset) * size);
  bool is_dense = true;
  if (count > 0) {  // so that no multiplication of extents overflows
    const std::vector<std::int64_t> dense = dense_strides(info.shape);
    for (std::size_t i = 0; i < info.shape.size(); ++i)
      is_dense &= info.shape[i] == 1 || tensor.strides[i] == dense[i];
  }
  if (!is_dense)
    strides_.emplace(info.name,
                     std::vector(tensor.strides.begin(), tensor.strides.begin() + tensor.rank));
  tensors_.push_back(std::move(info));
}

std::optional<MappedBytes> PtFile::map(const TensorInfo& info, std::uint64_t begin,
                                       std::uint64_t bytes) const {
  info.check_range(begin, bytes);
  if (strides_.contains(info.name)) return std::nullopt;
  return file_.map(info.offset + begin, bytes);
}

void PtFile::read(const TensorInfo& info, std::uint64_t begin, std::span<std::byte> out) const {
  info.check_range(begin, out.size());
  if (!strides_.empty())
    if (const auto it = strides_.find(info.name); it != strides_.end())
      return read_strided(info, it->second, begin, out);
  require(file_.read(info.offset + begin, out),
          "{}: the tensor {} is cut short: the file became shorter", name_, info.name);
}

// Moves a window over the stretch of the storage that holds the requested elements. It copies from
// each window the elements in it.
void PtFile::read_strided(const TensorInfo& info, const std::vector<std::int64_t>& strides,
                          std::uint64_t begin, std::span<std::byte> out) const {
  const auto size = static_cast<std::uint64_t>(dtype_size(info.dtype));
  check(begin % size == 0 && out.size() % size == 0, "{} bytes at {} of {} are no elements",
        out.size(), begin, info.name);
  const std::vector<std::int64_t> dense = dense_strides(info.shape);
  const auto element_at = [&](std::uint64_t i) {
    std::uint64_t at = 0;
    for (std::size_t axis = 0; axis < dense.size(); ++axis) {
      at += i / static_cast<std::uint64_t>(dense[axis]) * static_cast<std::uint64_t>(strides[axis]);
      i %= static_cast<std::uint64_t>(dense[axis]);
    }
    return at;
  };
  const std::uint64_t first = begin / size, count = out.size() / size;
  if (count == 0) return;
  std::uint64_t low = ~std::uint64_t{0}, high = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = element_at(first + i);
    low = std::min(low, at);
    high = std::max(high, at);
  }
  const std::uint64_t window = kWindowBytes / size;
  std::vector<std::byte> bytes(std::min(window, high - low + 1) * size);
  for (std::uint64_t at = low; at <= high; at += window) {
    const std::uint64_t held = std::min(window, high - at + 1);
    require(file_.read(info.offset + at * size, std::span(bytes).first(held * size)),
            "{}: the tensor {} is cut short: the file became shorter", name_, info.name);
    for (std::uint64_t i = 0; i < count; ++i)
      if (const std::uint64_t place = element_at(first + i); place >= at && place - at < held)
        std::memcpy(out.data() + i * size, bytes.data() + (place - at) * size, size);
  }
}

}  // namespace sluice
