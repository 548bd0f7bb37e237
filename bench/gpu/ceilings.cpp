// gpu_ceilings: the ceilings of this machine's GPU. They are bytes moved from device memory to
// device memory (read and written), GEMMs in bfloat16 and float32, and copies over the bus. Prints
// one JSON object.
#include "base/error.h"
#include "cli/bench/gpu_machine.h"

namespace {

using namespace sluice;

void run() {
  const Device device = choose_device("cuda");
  const DeviceInfo info = device_info(device);
  bench::Machine machine(device);
  constexpr std::int64_t kBus = 256 << 20;
  const double copy_rate = machine.copy_rate();
  double to_device = 0, to_host = 0;
  {
    const Buffer a(kBus, device), host = Buffer::staging(kBus, device);
    const Tensor there = a.tensor(DType::kU8, {kBus}), here = host.tensor(DType::kU8, {kBus});
    to_device = kBus / machine.seconds([&] { copy(machine.stream(), here, there); });
    to_host = kBus / machine.seconds([&] { copy(machine.stream(), there, here); });
  }
  fmt::print(
      "{{\"device\": \"{}\", \"sm\": {}, \"multiprocessors\": {}, \"total_bytes\": {}, \"driver\": "
      "{},\n",
      info.name, info.sm, info.num_sms, info.total_bytes, info.driver);
  fmt::print(
      " \"copy_bytes_per_s\": {:.4g}, \"to_device_bytes_per_s\": {:.4g}, \"to_host_bytes_per_s\": "
      "{:.4g},\n",
      copy_rate, to_device, to_host);
  fmt::print(" \"bf16_flops\": {:.4g}, \"f32_flops\": {:.4g}}}\n",
             machine.product(DType::kBF16, 8192), machine.product(DType::kF32, 4096));
}

}  // namespace

int main() {
  try {
    run();
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return exit_code(error.kind());
  }
}
