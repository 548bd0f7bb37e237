// Bodies of ops/tokens.h, with the same signature on every device: kernels/cpu/sampling/rounds.h
// and kernels/cuda/sampling/rounds.h include this list inside their namespaces, as op_bodies.h.
// No include guard: it is read once for each device.

void place_rows(Context& ctx, const ops::RowPlaces& rows, const Tensor& moved,
                const Tensor& last_rows);
void accept_drafts(Context& ctx, const ops::RoundRows& rows, const ops::RoundState& state);
void put_draft_tokens(Context& ctx, const Tensor& tokens, const Tensor& slots, const Tensor& places,
                      const Tensor& map, const Tensor& slot_tokens);
