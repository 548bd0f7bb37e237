#include "tensor/context.h"

namespace sluice {

CpuIsa detect_cpu_isa() {
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  // Every CPU with BF16 has VNNI too; a virtual machine may hide either.
  if (avx512 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni")) return CpuIsa::kAvx512Bf16;
  return avx512 ? CpuIsa::kAvx512 : CpuIsa::kAvx2;
}

std::string_view cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx2: return "AVX2";
    case CpuIsa::kAvx512: return "AVX-512";
    case CpuIsa::kAvx512Bf16: return "AVX-512 BF16";
  }
  return "?";
}

}  // namespace sluice
