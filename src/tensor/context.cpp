#include "tensor/context.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace sluice {
namespace {

// Whether AMX tiles may be used: the processor has the instructions, and the kernel saves the
// registers. The kernel does so only after a request.
bool enable_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25,
                     kAll = kBf16 | kTile | kInt8;
  if ((d & kAll) != kAll) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

CpuIsa detect_cpu_isa() {
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (!avx512) return CpuIsa::kAvx2;
  if (!__builtin_cpu_supports("avx512vnni")) return CpuIsa::kAvx512;
  // A virtual machine may hide instructions of its processor.
  if (!__builtin_cpu_supports("avx512bf16")) return CpuIsa::kAvx512Vnni;
  static const bool amx = enable_amx();
  return amx ? CpuIsa::kAmx : CpuIsa::kAvx512Bf16;
}

std::string_view cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx2:
      return "AVX2";
    case CpuIsa::kAvx512:
      return "AVX-512";
    case CpuIsa::kAvx512Vnni:
      return "AVX-512 VNNI";
    case CpuIsa::kAvx512Bf16:
      return "AVX-512 BF16";
    case CpuIsa::kAmx:
      return "AMX";
  }
  return "?";
}

}  // namespace sluice
