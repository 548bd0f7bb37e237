// checkpoint/files/safetensors.h: an untrusted weight file, in memory. Every listed tensor can be
// read.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <span>

#include "base/error.h"
#include "checkpoint/files/safetensors.h"
#include "fuzz_support.h"
#include "fuzz_target.h"

namespace sluice::fuzz {
namespace {

std::string file_of(std::string_view header, std::size_t data_bytes) {
  std::string text(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(text.data(), &length, 8);
  text += header;
  text.append(data_bytes, 'x');
  return text;
}

}  // namespace

void run_one(std::string_view input) {
  // Half of the mutations would fail at a wrong header length. So if the first byte is below 128,
  // the length is computed.
  std::string text(input.substr(input.empty() ? 0 : 1));
  if (!input.empty() && static_cast<unsigned char>(input[0]) < 128 && text.size() > 8) {
    const std::size_t end = text.rfind('}');
    const std::uint64_t length =
        end == std::string::npos || end < 8 ? text.size() - 8 : end + 1 - 8;
    std::memcpy(text.data(), &length, 8);
  }
  const int descriptor = ::memfd_create("fuzz", MFD_CLOEXEC);
  must_hold(descriptor >= 0, "a file in memory");
  File file(descriptor);
  must_hold(::write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size()),
            "written");
  try {
    const SafetensorsFile tensors(std::move(file), "model.safetensors");
    std::vector<std::byte> out;
    for (const TensorInfo& info : tensors.tensors()) {
      must_hold(info.offset + info.bytes <= text.size(), "a tensor lies in its file");
      out.resize(info.bytes);
      tensors.read(info, 0, out);
    }
  } catch (const Error& error) {
    must_hold(error.kind() == sluice::ErrorKind::kBadInput, error.what());
  }
}

std::vector<std::string> seeds() {
  std::vector<std::string> texts;
  for (const char* first : {"\x01", "\xff"}) {
    texts.push_back(first +
                    file_of(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", 16));
    texts.push_back(first +
                    file_of(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],)"
                            R"("data_offsets":[0,16]},)"
                            R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},)"
                            R"("c":{"dtype":"U8","shape":[],"data_offsets":[22,23]}})",
                            23));
    texts.push_back(first +
                    file_of(R"({"w":{"dtype":"F8_E4M3","shape":[0,7],"data_offsets":[0,0]},)"
                            R"("s":{"dtype":"I64","shape":[1,1,1,1],"data_offsets":[0,8]}}   )",
                            8));
    texts.push_back(first + file_of("{}", 0));
  }
  return texts;
}

}  // namespace sluice::fuzz
