// One body an operation of ops/, with the same signature on every device: kernels/cpu/cpu.h and
// kernels/cuda/cuda.h include this list inside their namespaces. ops/ documents the arguments.
//
// Callers have checked shapes, dtypes and device. Values in index tensors are checked by the body.
// No include guard: it is read once for each device.

void rms_norm(Context& ctx, const Tensor& x, const Tensor& weight, float eps, const Tensor& out);
void add_rms_norm(Context& ctx, const Tensor& x, const Tensor& residual, const Tensor& weight,
                  float eps, const Tensor& out);
void layer_norm(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                const Tensor& out);

void rope_cos_sin(Context& ctx, const Tensor& positions, const Tensor& inv_freq,
                  float attention_factor, const Tensor& cos_sin);
void rope(Context& ctx, const Tensor& cos_sin, const Tensor& x, bool interleaved);

void act_and_mul(Context& ctx, Activation activation, const Tensor& gate_up, const Tensor& out);
void activate(Context& ctx, Activation activation, const Tensor& x, const Tensor& out);
void xielu(Context& ctx, const Tensor& x, const Tensor& params, const Tensor& out);
void sigmoid_mul(Context& ctx, const Tensor& x, const Tensor& gate, const Tensor& out);

void add(Context& ctx, const Tensor& a, const Tensor& b, const Tensor& out);
void scale(Context& ctx, const Tensor& x, float factor, const Tensor& out);
void clamp(Context& ctx, const Tensor& x, float limit, const Tensor& out);
void softcap(Context& ctx, const Tensor& x, float cap, const Tensor& out);
void scale_queries(Context& ctx, const Tensor& positions, float beta, std::int64_t length,
                   std::int64_t offset, const Tensor& q);
void convert(Context& ctx, const Tensor& x, const Tensor& out);
void gather_rows(Context& ctx, const Tensor& x, const Tensor& rows, const Tensor& out);
void embedding(Context& ctx, const Tensor& ids, const Tensor& table, const Tensor& out);

void linear(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& out);
void linear_heads(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& out);

void kv_gather(Context& ctx, const Tensor& plane, const Tensor& slots, const Tensor& out);

void mla_attention(Context& ctx, const Tensor& q_latent, const Tensor& q_rope,
                   const Tensor& latent_plane, const PagedRows& rows, float scale,
                   const Tensor& out);
void mla_sparse_attention(Context& ctx, const Tensor& q_latent, const Tensor& q_rope,
                          const Tensor& latent_plane, const PagedRows& rows, const Tensor& indices,
                          float scale, const Tensor& out);
void mha_attention(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                   const Tensor& ks, const Tensor& ke, float scale, const Tensor& out,
                   const Tensor& lse);
void merge_state(Context& ctx, const Tensor& out_a, const Tensor& lse_a, const Tensor& out_b,
                 const Tensor& lse_b, const Tensor& out, const Tensor& lse);

void hadamard(Context& ctx, const Tensor& x);

void route(Context& ctx, const Tensor& logits, const Tensor& correction_bias,
           const RouterParams& params, const Tensor& weights, const Tensor& ids);
void fused_experts(Context& ctx, const Tensor& x, const Tensor& w13, const Tensor& w2,
                   const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                   const MoeWorkspace& workspace, const Tensor& out);

void causal_conv(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, bool silu,
                 const ops::SequenceRows& rows, const Tensor& state, const Tensor& out);
void recurrent_scan(Context& ctx, const ops::ScanInputs& in, const ops::SequenceRows& rows,
                    const Tensor& state, const Tensor& out);
void decay_gates(Context& ctx, const Tensor& x, const Tensor& bias, const Tensor& rate,
                 float min_step, float max_step, const Tensor& step, const Tensor& decay);
void sigmoid(Context& ctx, const Tensor& x, const Tensor& out);
void gated_mul(Context& ctx, ops::Gate fn, const Tensor& x, const Tensor& gate, const Tensor& out);

void sample_tokens(Context& ctx, const Tensor& logits, const Tensor& sample_rows,
                   const Tensor& tokens);
void take_slot_tokens(Context& ctx, const Tensor& slot_tokens, const Tensor& ids);
void put_slot_tokens(Context& ctx, const Tensor& tokens, const Tensor& slots,
                     const Tensor& slot_tokens);

void load_step_inputs(Context& ctx, const ops::StepInputs& fetch);
void store_step_tokens(Context& ctx, const Tensor& tokens, const Tensor& slots,
                       const Tensor& slot_tokens, const Tensor& counter,
                       const std::array<Tensor, 2>& boxes);

void read_logprobs(Context& ctx, const Tensor& logits, const Tensor& logit_edits,
                   const Tensor& sampled_rows);
void adjust_logits(Context& ctx, const Tensor& logit_edits, const Tensor& edit_lists,
                   const Tensor& lengths, const Tensor& logits);
void mask_logits(Context& ctx, const Tensor& mask_of_row, const Tensor& masks,
                 const Tensor& logits);
void record_sampled_rows(Context& ctx, const Tensor& tokens, const Tensor& logits,
                         const Tensor& logit_edits, const Tensor& edit_lists, const Tensor& lengths,
                         const Tensor& sampled_rows);

void norm_and_rotate_heads(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& q_weight,
                           const Tensor& k_weight, float eps, const Tensor& cos_sin,
                           bool interleaved);
