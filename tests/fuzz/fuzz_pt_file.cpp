// checkpoint/pytorch/zip_file.h, pickle.h and pt_file.h: an untrusted PyTorch file, in memory.
// Every listed tensor can be read.
#include <sys/mman.h>
#include <unistd.h>

#include <span>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/pytorch/pt_file.h"
#include "checkpoint/testing/pt_writer.h"
#include "fuzz_support.h"
#include "fuzz_target.h"

namespace sluice::fuzz {
namespace {

// bytes read per tensor: the header is checked, the elements are only bytes
constexpr std::uint64_t kMaxRead = 1 << 20;

void read_file(std::string_view bytes) {
  const int descriptor = ::memfd_create("fuzz", MFD_CLOEXEC);
  must_hold(descriptor >= 0, "a file in memory");
  File file(descriptor);
  must_hold(::write(descriptor, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
            "written");
  try {
    const PtFile tensors(std::move(file), "x.bin");
    for (const TensorInfo& info : tensors.tensors()) {
      must_hold(info.bytes <= bytes.size(), "a tensor is no larger than its file");
      must_hold(static_cast<std::uint64_t>(info.numel()) *
                        static_cast<std::uint64_t>(dtype_size(info.dtype)) ==
                    info.bytes,
                "whole elements");
      std::vector<std::byte> out(std::min(info.bytes, kMaxRead) / 8 * 8);
      tensors.read(info, 0, out);
    }
  } catch (const Error& error) {
    must_hold(error.kind() == sluice::ErrorKind::kBadInput, error.what());
  }
}

std::string archive_of(std::string pickle) {
  ZipWriter zip;
  return zip.add("archive/data.pkl", std::move(pickle))
      .add("archive/data/0", std::string(24, '\1'))
      .bytes();
}

}  // namespace

// A mutated archive rarely has correct checksums. So half of the inputs are a pickle, and the
// target builds an archive around it.
void run_one(std::string_view input) {
  set_log_level(LogLevel::kOff);
  if (input.empty()) return;
  const bool is_file = static_cast<unsigned char>(input[0]) < 128;
  read_file(is_file ? std::string(input.substr(1)) : archive_of(std::string(input.substr(1))));
}

std::vector<std::string> seeds() {
  PickleWriter pickle;
  pickle.begin_dict().tensor("w", "FloatStorage", "0", 6, 0, {2, 3}, {3, 1});
  pickle.tensor("v", "HalfStorage", "0", 12, 2, {3, 2}, {1, 3})
      .tensor("none", "LongStorage", "0", 3, 0, {0, 4}, {4, 1});
  pickle.raw(
      PickleWriter::text("p") + PickleWriter::name("torch._utils", "_rebuild_parameter") + '(' +
      PickleWriter::tensor_value(PickleWriter::storage("ByteStorage", "0", 24), 4, {20}, {1}) +
      "\x89)tR");
  pickle.raw(PickleWriter::text("o") + "](K\1M\1\1J\1\1\1\1\x88NeX\1")
      .raw(std::string("\0\0\0a}", 5));
  const std::string body = pickle.bytes();
  using namespace std::string_literals;
  const std::string modern =
      "\x80\4\x95\x10\0\0\0\0\0\0\0}\x94\x8c\x05torch\x94\x8c\x04Size\x94\x93K\1K\2\x86\x85R."s;
  PickleWriter plain;
  plain.begin_dict().tensor("w", "FloatStorage", "0", 6, 0, {2, 3}, {3, 1}).end_dict();
  ZipWriter wide;
  wide.wide = true;
  wide.add("a/data.pkl", plain.bytes())
      .add("a/byteorder", "little")
      .add("a/data/0", std::string(24, '\2'));
  const std::string file = "\x01", pickle_only = "\xff";
  return {file + archive_of(plain.bytes()),
          file + wide.bytes(),
          pickle_only + body + "u.",
          pickle_only + plain.bytes(),
          pickle_only + modern,
          file + golden_text("../data/torch/zip.bin"),
          file + golden_text("../data/torch/legacy.bin")};
}

}  // namespace sluice::fuzz
