// The whole boundary between the program and the interpreter, as plain C: functions that the Python
// side (bridge.py) may call, and functions that it provides. Every function returns 0, or 1 after
// it stored an error that the caller must pass on. bridge.py repeats the layouts as ctypes
// structures, field by field.
#pragma once

#include <cstdint>

extern "C" {

// One call of an attention layer. Dense float32: q and out [tokens, heads, dim], k and v [tokens,
// kv_heads, dim].
struct SluiceAttention {
  std::int64_t layer;  // counted from 0 in the order of the calls
  std::int64_t tokens, heads, kv_heads, dim;
  const float *q, *k, *v;
  float* out;
  double scale;
  std::int64_t window;  // visible keys, the row itself included; 0: all
  double softcap;       // c: a score s becomes c tanh(s / c); 0: none
  const float* sinks;   // [heads] or null: a logit in each row's softmax that has no value
};

// One step, or (without `run_base`) only the head over hidden states of an earlier step.
struct SluiceStep {
  std::int64_t tokens;
  const std::int32_t* ids;        // [tokens]
  const std::int32_t* positions;  // [tokens]
  const float* embeddings;        // [tokens, hidden] or null: used instead of embedding ids
  float* hidden;  // [tokens, hidden]: the last hidden state; output with run_base, else input
  std::int64_t run_base;
  std::int64_t num_rows;
  const std::int32_t* rows;  // [num_rows] rows of hidden whose logits are computed
  float* logits;             // [num_rows, vocabulary]
};

struct SluiceHost {
  void* self;
  // Whether the checkpoint has a tensor. For random weights the answer is `by_config`.
  std::int32_t (*has)(void* self, const char* name, std::int32_t by_config);
  // The checkpoint's tensors by number; null after the last one, and for random weights.
  const char* (*name)(void* self, std::int64_t index);
  // Rank of a tensor of the checkpoint, whose extents go to shape[8]; -1 after an error.
  std::int32_t (*shape)(void* self, const char* name, std::int64_t* extents);
  // Reads rows [first, first + count) of a tensor's first axis at once, or all with count -1.
  // `dtype` is as in take().
  std::int32_t (*read)(void* self, const char* name, std::int32_t dtype, std::int64_t first,
                       std::int64_t count, void* address);
  // Memory that lives as long as the model. `dtype` 0: float32, 1: bfloat16, 2: float16, 3: int64,
  // 4: int32, 5: uint8, 6: bool.
  std::int32_t (*take)(void* self, std::int64_t elements, std::int32_t dtype, void** address);
  // Fills `address` with a tensor of the checkpoint before the first step. `init` for random
  // weights: 0 normal, 1 ones, 2 zeros.
  std::int32_t (*fill)(void* self, const char* name, std::int32_t dtype, const std::int64_t* shape,
                       std::int32_t rank, std::int32_t init, void* address);
  // Declares a GEMM with NAME.weight [rows, columns] (and NAME.bias).
  std::int32_t (*linear)(void* self, const char* name, std::int64_t rows, std::int64_t columns,
                         std::int32_t bias, std::int64_t* handle);
  // out [tokens, rows] float32 = x [tokens, columns] weight^T + bias; x is float32 or bfloat16 by
  // `dtype`.
  std::int32_t (*apply)(void* self, std::int64_t handle, std::int64_t tokens, const void* x,
                        std::int32_t dtype, float* out);
  std::int32_t (*attend)(void* self, const SluiceAttention* call);
  // While the model is probed: the shape of one layer, as SluiceAttention describes the call.
  std::int32_t (*describe)(void* self, const SluiceAttention* call);
  // Properties of the built model, and the functions that run and delete it; `table` is the address
  // of this structure.
  std::int32_t (*built)(void* self, std::int64_t hidden_size, std::int64_t vocab_size,
                        const char* description, std::int32_t (*probe)(),
                        std::int32_t (*step)(const SluiceStep*), void (*close)(void* table));
  // Stores `message` as the reason why the Python side gave up.
  void (*fail)(void* self, const char* message);
};

}  // extern "C"
