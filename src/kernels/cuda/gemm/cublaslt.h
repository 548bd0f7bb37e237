// Matrix products by cuBLASLt, which is opened at run time: linking it costs every start 0.35 s and
// 210 MB.
#pragma once

#include <memory>
#include <string>

#include "kernels/cuda/gemm/gemm.h"

namespace sluice::cuda {

class CublasLt {
 public:
  // Null, with the reason, when the library is not there or refuses the device. The workspace is
  // the caller's, on the device, and used by multiply() alone while that runs.
  static std::unique_ptr<CublasLt> open(void* workspace, std::int64_t workspace_bytes,
                                        std::string& why);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // out = x w^T with float32 sums, no TF32; types x_type == w_type, f32 or bf16. The bias is the
  // caller's. The choice of algorithm is made once for each shape. False when the library has none
  // for it; nothing was launched then.
  bool multiply(Context& ctx, const GemmArgs& args);

 private:
  struct Parts;
  explicit CublasLt(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace sluice::cuda
