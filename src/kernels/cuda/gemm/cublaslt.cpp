#include "kernels/cuda/gemm/cublaslt.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <array>
#include <bit>
#include <map>
#include <optional>

#include "base/error.h"

namespace sluice::cuda {
namespace {

constexpr std::array kFileNames = {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13"};
// Maximum cached shapes (because prefill lengths vary without end).
constexpr std::size_t kMaxShapes = 4096;

struct Functions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoCheck) algorithm_check;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library, Functions& f) {
  return find(library, "cublasLtCreate", f.create) && find(library, "cublasLtDestroy", f.destroy) &&
         find(library, "cublasLtMatmul", f.matmul) &&
         find(library, "cublasLtMatmulAlgoGetHeuristic", f.heuristic) &&
         find(library, "cublasLtMatmulAlgoCheck", f.algorithm_check) &&
         find(library, "cublasLtMatmulDescCreate", f.desc_create) &&
         find(library, "cublasLtMatmulDescDestroy", f.desc_destroy) &&
         find(library, "cublasLtMatmulDescSetAttribute", f.desc_set) &&
         find(library, "cublasLtMatrixLayoutCreate", f.layout_create) &&
         find(library, "cublasLtMatrixLayoutDestroy", f.layout_destroy) &&
         find(library, "cublasLtMatrixLayoutSetAttribute", f.layout_set) &&
         find(library, "cublasLtMatmulPreferenceCreate", f.preference_create) &&
         find(library, "cublasLtMatmulPreferenceDestroy", f.preference_destroy) &&
         find(library, "cublasLtMatmulPreferenceSetAttribute", f.preference_set);
}

void expect_success(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(ErrorKind::kFatal, "cuBLASLt: {} gave status {}", what, static_cast<int>(status));
}

// m, n, k, batch, three row strides, three batch strides, types of inputs and output.
using ShapeKey = std::array<std::int64_t, 12>;

ShapeKey key_of(const GemmArgs& a) {
  return {a.m,
          a.n,
          a.k,
          a.batch,
          a.x_stride,
          a.w_stride,
          a.out_stride,
          a.x_batch,
          a.w_batch,
          a.out_batch,
          static_cast<std::int64_t>(a.x_type),
          static_cast<std::int64_t>(a.out_type)};
}

}  // namespace

// Row-major [rows, columns] is column-major [columns, rows]: out^T = w x^T, with w transposed.
struct CublasLt::Parts {
  struct Plan {
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t w = nullptr, x = nullptr, out = nullptr;
    std::optional<cublasLtMatmulAlgo_t> algorithm;
  };

  Functions f{};
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  std::map<ShapeKey, Plan> plans;
  // By shape with m rounded up to a power of two. There are few of these shapes, so warm-up meets
  // all of them: no choice of an algorithm and no load of a kernel happens later.
  std::map<ShapeKey, std::optional<cublasLtMatmulAlgo_t>> algorithms;

  ~Parts() {
    clear();
    if (handle != nullptr) f.destroy(handle);
  }

  void clear() {
    for (auto& [key, plan] : plans) destroy(plan);
    plans.clear();
  }

  void destroy(Plan& plan) const {
    for (const cublasLtMatrixLayout_t layout : {plan.w, plan.x, plan.out})
      if (layout != nullptr) f.layout_destroy(layout);
    if (plan.desc != nullptr) f.desc_destroy(plan.desc);
    plan = {};
  }

  cublasLtMatrixLayout_t layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                                std::int64_t stride, std::int64_t batch,
                                std::int64_t batch_stride) const {
    cublasLtMatrixLayout_t made = nullptr;
    expect_success(f.layout_create(&made, type, static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), stride),
                   "MatrixLayoutCreate");
    const auto count = static_cast<std::int32_t>(batch);
    if (batch > 1) {
      expect_success(f.layout_set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
                     "batch count");
      expect_success(f.layout_set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride,
                                  sizeof(batch_stride)),
                     "batch stride");
    }
    return made;
  }

  void describe(const GemmArgs& a, Plan& plan) const {
    const cudaDataType_t type = a.x_type == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F;
    expect_success(f.desc_create(&plan.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "MatmulDescCreate");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    expect_success(
        f.desc_set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
        "transposition");
    plan.w = layout(type, a.k, a.n, a.w_stride, a.batch, a.w_batch);
    plan.x = layout(type, a.k, a.m, a.x_stride, a.batch, a.x_batch);
    plan.out = layout(a.out_type == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F, a.n, a.m, a.out_stride,
                      a.batch, a.out_batch);
  }

  // The first heuristic of the library.
  std::optional<cublasLtMatmulAlgo_t> search(const Plan& plan) const {
    cublasLtMatmulPreference_t preference = nullptr;
    expect_success(f.preference_create(&preference), "MatmulPreferenceCreate");
    cublasStatus_t status = f.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace_bytes, sizeof(workspace_bytes));
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    if (status == CUBLAS_STATUS_SUCCESS)
      status = f.heuristic(handle, plan.desc, plan.w, plan.x, plan.out, plan.out, preference, 1,
                           &best, &found);
    f.preference_destroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0 || best.state != CUBLAS_STATUS_SUCCESS)
      return std::nullopt;
    return best.algo;
  }

  bool can_do(const cublasLtMatmulAlgo_t& algorithm, const Plan& plan) const {
    cublasLtMatmulHeuristicResult_t result{};
    return f.algorithm_check(handle, plan.desc, plan.w, plan.x, plan.out, plan.out, &algorithm,
                             &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= workspace_bytes;
  }

  std::optional<cublasLtMatmulAlgo_t> algorithm_for(const GemmArgs& args, const Plan& plan) {
    GemmArgs rounded = args;
    rounded.m = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(args.m)));
    const auto [place, is_new] = algorithms.try_emplace(key_of(rounded));
    if (is_new) {
      Plan wide;
      describe(rounded, wide);
      place->second = search(wide);
      destroy(wide);
    }
    if (place->second && can_do(*place->second, plan)) return place->second;
    return search(plan);
  }

  const Plan& plan_for(const GemmArgs& args) {
    const ShapeKey key = key_of(args);
    const auto known = plans.find(key);
    if (known != plans.end()) return known->second;
    if (plans.size() >= kMaxShapes) clear();
    Plan& plan = plans[key];
    describe(args, plan);
    plan.algorithm = algorithm_for(args, plan);
    return plan;
  }
};

CublasLt::CublasLt(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
CublasLt::~CublasLt() = default;

std::unique_ptr<CublasLt> CublasLt::open(void* workspace, std::int64_t workspace_bytes,
                                         std::string& why) {
  void* library = nullptr;
  for (const char* name : kFileNames) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr && why.empty()) why = dlerror();
  }
  if (library == nullptr)
    return nullptr;  // never closed, because the library keeps process-wide state
  auto parts = std::make_unique<Parts>();
  if (!find_all(library, parts->f)) {
    why = "it lacks a function that is needed";
    return nullptr;
  }
  const cublasStatus_t status = parts->f.create(&parts->handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    why = fmt::format("cublasLtCreate gave status {}", static_cast<int>(status));
    parts->handle = nullptr;
    return nullptr;
  }
  parts->workspace = workspace;
  parts->workspace_bytes = static_cast<std::size_t>(workspace_bytes);
  return std::unique_ptr<CublasLt>(new CublasLt(std::move(parts)));
}

bool CublasLt::multiply(Context& ctx, const GemmArgs& args) {
  const Parts::Plan& plan = parts_->plan_for(args);
  if (!plan.algorithm) return false;
  const float one = 1, old = args.add ? 1 : 0;
  const auto stream =
      static_cast<cudaStream_t>(ctx.stream == nullptr ? nullptr : ctx.stream->handle());
  expect_success(parts_->f.matmul(parts_->handle, plan.desc, &one, args.w, plan.w, args.x, plan.x,
                                  &old, args.out, plan.out, args.out, plan.out, &*plan.algorithm,
                                  parts_->workspace, parts_->workspace_bytes, stream),
                 "Matmul");
  return true;
}

}  // namespace sluice::cuda
