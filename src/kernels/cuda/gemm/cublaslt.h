// GEMM by cuBLASLt, which is opened at run time: linking it would cost every start 0.35 s and 210
// MB.
#pragma once

#include <memory>
#include <string>

#include "kernels/cuda/gemm/gemm.h"

namespace sluice::cuda {

class CublasLt {
 public:
  // Null, with the reason, if the library is missing or refuses the device. The caller owns the
  // workspace, which is on the device; only multiply() uses it.
  static std::unique_ptr<CublasLt> open(void* workspace, std::int64_t workspace_bytes,
                                        std::string& why);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // out = x w^T with float32 sums, no TF32; x_type == w_type, f32 or bf16. The caller adds the
  // bias. The algorithm is chosen once for each shape. False if the library has none; then nothing
  // was launched.
  bool multiply(Context& ctx, const GemmArgs& args);

 private:
  struct Parts;
  explicit CublasLt(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace sluice::cuda
