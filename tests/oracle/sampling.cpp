// The beginning and the end of a step: inputs loaded from host memory, logit edits,
// log-probabilities. All are exact.
#include <cmath>
#include <cstring>
#include <memory>

#include "kernels/types/op_params.h"
#include "ops/graph_io.h"
#include "ops/logit_edits.h"
#include "ops/tokens.h"
#include "oracle.h"
#include "tensor/buffer.h"

namespace sluice::oracle {
namespace {

constexpr Allowed kExact{.exact = true};
constexpr std::int64_t kSlots = 9;

struct Extent {
  std::int64_t rows, n, pad, edit_lists;
};

void check_edits(Bench& bench) {
  for (const Extent& e : {Extent{1, 1, 0, 1}, Extent{3, 7, 2, 5}, Extent{5, 4093, 3, 600},
                          Extent{8, 151936, 0, 8192}}) {
    const std::string label = fmt::format("{} x {}, {} edit_lists", e.rows, e.n, e.edit_lists);
    Twin logits(bench, DType::kF32, {e.rows, e.n}, e.pad),
        logit_edits(bench, DType::kU8, {e.rows, sizeof(ops::LogitEdits)});
    Twin edit_lists(bench, DType::kU8, {kSlots, e.edit_lists, sizeof(ops::LogitEdit)}),
        lengths(bench, DType::kI32, {kSlots});
    Twin sampled_rows(bench, DType::kU8, {e.rows, sizeof(ops::SampledRow)}),
        tokens(bench, DType::kI32, {e.rows});
    const auto row_edits = [&](const auto& of_row) {
      for (std::int64_t i = 0; i < e.rows; ++i)
        ops::as_logit_edits(logit_edits.host)[i] = of_row(static_cast<std::int32_t>(i));
      logit_edits.keep();
    };
    const std::int64_t num_masks = (e.rows + 1) / 2;
    Twin mask_of_row(bench, DType::kI32, {e.rows}),
        masks(bench, DType::kI32, {num_masks, (e.n + 31) / 32});
    mask_of_row.set([&](std::int64_t i, std::int64_t, std::int64_t) {
      return i % 3 == 2 ? -1.0 : static_cast<double>((e.rows - 1 - i) % num_masks);
    });
    masks.set([](std::int64_t i, std::int64_t j, std::int64_t) {
      return static_cast<double>((j * 0x9E37 + i * 0x79B9) % 0x7FFF * 0xFFFD);
    });
    for (const bool ties : {false, true}) {
      logits.fill(51, 12);
      if (ties)  // and rows that are not finite
        logits.set([&](std::int64_t i, std::int64_t j, std::int64_t) {
          if (i % 4 == 1) return j == e.n - 1 ? static_cast<double>(NAN) : 1.0;
          if (i % 4 == 2) return j == e.n / 2 ? static_cast<double>(INFINITY) : 2.0;
          if (i % 8 == 3) return -static_cast<double>(INFINITY);
          return j % 3 == 0 ? -static_cast<double>(INFINITY)
                            : static_cast<double>((j * 7919 + i) % 5);
        });
      for (const int top : {-1, 0, 1, 5, 20}) {
        row_edits([&](std::int32_t i) {
          return ops::LogitEdits{.num_top_logprobs = i % 3 == 2 ? -1 : top};
        });
        bench.compare("read_logprobs",
                      label + fmt::format(", the best {}{}", top, ties ? ", ties" : ""),
                      {{&sampled_rows, kExact}}, [&](Context& ctx) {
                        ops::read_logprobs(ctx, logits(ctx), logit_edits(ctx), sampled_rows(ctx));
                      });
      }
      lengths.set([&](std::int64_t slot, std::int64_t, std::int64_t) {
        return slot == 2 ? 0 : e.edit_lists - (slot % 3 == 1 ? 1 : 0);
      });
      for (std::int64_t slot = 0; slot < kSlots; ++slot)
        for (std::int64_t k = 0; k < e.edit_lists; ++k)
          ops::as_logit_edit_list(edit_lists.host)[slot * e.edit_lists + k] = {
              .token = static_cast<std::int32_t>(k * (e.n / e.edit_lists)),
              .count = static_cast<std::int32_t>((k + slot) % 4) - 1,
              .bias = k % 3 == 0 ? 0.37f * static_cast<float>(k % 11 - 5) : 0,
              .banned = k % 7 == 3};
      edit_lists.keep();
      row_edits([&](std::int32_t i) {
        return ops::LogitEdits{
            .slot = i % 5 == 3 ? -1 : static_cast<std::int32_t>((i * 4 + 1) % kSlots),
            .repetition = 1.3f,
            .frequency = 0.21f,
            .presence = -0.7f,
            .bans = i % 2,
            .remembers = i % 4 != 0,
            .num_top_logprobs = i % 2 == 0 ? 3 : -1};
      });
      bench.compare("adjust_logits", label + (ties ? ", ties" : ""),
                    {{&logits, kExact}, {&edit_lists, kExact}}, [&](Context& ctx) {
                      ops::adjust_logits(ctx, logit_edits(ctx), edit_lists(ctx), lengths(ctx),
                                         logits(ctx));
                    });
      bench.compare(
          "mask_logits", label + (ties ? ", ties" : ""), {{&logits, kExact}},
          [&](Context& ctx) { ops::mask_logits(ctx, mask_of_row(ctx), masks(ctx), logits(ctx)); });
      for (const int step : {0, 1}) {  // tokens of the edits, and others
        tokens.set([&](std::int64_t i, std::int64_t, std::int64_t) {
          return i == 2 ? -1.0
                        : static_cast<double>(std::min(e.n - 1, i * (e.n / e.edit_lists) + step));
        });
        bench.compare("record_sampled_rows", label,
                      {{&sampled_rows, kExact}, {&edit_lists, kExact}, {&lengths, kExact}},
                      [&](Context& ctx) {
                        ops::read_logprobs(ctx, logits(ctx), logit_edits(ctx), sampled_rows(ctx));
                        ops::record_sampled_rows(ctx, tokens(ctx), logits(ctx), logit_edits(ctx),
                                                 edit_lists(ctx), lengths(ctx), sampled_rows(ctx));
                      });
      }
    }
  }
}

// Steps 6 and 7 of batches of different sizes; both sides use memory that both devices read.
void check_graph_io(Bench& bench) {
  struct Shape {
    std::int64_t seqs, max_pages, tables;
  };
  for (const Shape& s :
       {Shape{1, 1, 1}, Shape{1, 641, 1}, Shape{5, 33, 2}, Shape{256, 641, 1}, Shape{40, 100, 3}}) {
    const std::int64_t ids_at = 64, lengths_at = ids_at + (4 * s.seqs + 63) / 64 * 64,
                       head = lengths_at + (4 * s.seqs + 63) / 64 * 64;
    const std::int64_t table_bytes = 4 * s.seqs * s.max_pages,
                       bytes = head + s.tables * table_bytes;
    Buffer sides[2] = {Buffer::staging(bytes, bench.gpu.device),
                       Buffer::staging(bytes, bench.gpu.device)};
    Buffer boxes[2] = {Buffer::staging(4 * s.seqs, bench.gpu.device),
                       Buffer::staging(4 * s.seqs, bench.gpu.device)};
    const auto ints = [](const Buffer& memory, std::int64_t at) {
      return reinterpret_cast<std::int32_t*>(static_cast<std::byte*>(memory.data()) + at);
    };
    for (std::int64_t number : {6, 7}) {
      const Buffer& side = sides[number % 2];
      std::memcpy(side.data(), &number, sizeof number);
      for (std::int64_t i = 0; i < s.seqs; ++i) {
        ints(side, ids_at)[i] =
            static_cast<std::int32_t>(i % 3 == 1 ? -1 - (i + number) % 50 : i * number);
        ints(side, lengths_at)[i] =
            static_cast<std::int32_t>(1 + (i * 977 + number * 4000) % (64 * s.max_pages));
      }
      for (std::int64_t i = 0; i < s.tables * s.seqs * s.max_pages; ++i)
        ints(side, head)[i] = static_cast<std::int32_t>(i * 3 + number);
    }
    Twin inputs(bench, DType::kI32, {bytes / 4}), counter(bench, DType::kI64, {1}),
        slot_tokens(bench, DType::kI32, {50});
    Twin tokens(bench, DType::kI32, {s.seqs}), slots(bench, DType::kI32, {s.seqs}),
        seen(bench, DType::kI32, {s.seqs});
    slot_tokens.set([](std::int64_t i, std::int64_t, std::int64_t) { return 700 + i; });
    tokens.set([](std::int64_t i, std::int64_t, std::int64_t) { return i % 9 == 4 ? -1 : 30 + i; });
    slots.set(
        [](std::int64_t i, std::int64_t, std::int64_t) { return i < 50 && i % 4 != 2 ? i : -1; });
    const std::string label =
        fmt::format("{} sequences, {} pages, {} tables", s.seqs, s.max_pages, s.tables);
    for (const std::int64_t number : {6, 7}) {
      counter.set(
          [&](std::int64_t, std::int64_t, std::int64_t) { return static_cast<double>(number); });
      bench.compare("load_step_inputs", label, {{&inputs, kExact}}, [&](Context& ctx) {
        const Tensor all = inputs(ctx);
        const auto part = [&](std::int64_t at, std::initializer_list<std::int64_t> shape) {
          return Tensor::dense(static_cast<std::byte*>(all.data) + at, DType::kI32, shape,
                               all.device);
        };
        ops::StepInputs fetch;
        for (std::size_t i = 0; i < 2; ++i) fetch.sides[i] = sides[i].tensor(DType::kU8, {bytes});
        fetch.counter = counter(ctx);
        fetch.inputs = Tensor::dense(all.data, DType::kU8, {head}, all.device);
        fetch.ids = part(ids_at, {s.seqs});
        fetch.seq_lens = part(lengths_at, {s.seqs});
        for (std::int64_t t = 0; t < s.tables; ++t)
          fetch.page_tables.push_back(part(head + t * table_bytes, {s.seqs, s.max_pages}));
        fetch.slot_tokens = slot_tokens(ctx);
        ops::load_step_inputs(ctx, fetch);
      });
      bench.compare(
          "store_step_tokens", label, {{&slot_tokens, kExact}, {&counter, kExact}, {&seen, kExact}},
          [&](Context& ctx) {
            const Tensor first = boxes[0].tensor(DType::kI32, {s.seqs}),
                         second = boxes[1].tensor(DType::kI32, {s.seqs});
            std::memset(boxes[number % 2].data(), 0x55, static_cast<std::size_t>(4 * s.seqs));
            ops::store_step_tokens(ctx, tokens(ctx), slots(ctx), slot_tokens(ctx), counter(ctx),
                                   {first, second});
            copy(bench.stream, number % 2 == 0 ? first : second, seen(ctx));
          });
    }
  }
}

// Rounds of drafts: 1 to `most` rows a slot, some of slots that the host knows.
void check_rounds(Bench& bench) {
  struct Shape {
    std::int64_t rows, most, groups;
  };
  for (const Shape& s : {Shape{1, 1, 1}, Shape{4, 4, 1}, Shape{16, 8, 3}, Shape{300, 16, 2}}) {
    const std::int64_t slots = s.rows + 2, pages = 9;
    std::vector<std::int64_t> slot_of, place_of;  // of each row, and its place in the run
    for (std::int64_t run = 0; std::ssize(slot_of) < s.rows; ++run)
      for (std::int64_t k = 0; k <= run * 7 % s.most && std::ssize(slot_of) < s.rows; ++k) {
        slot_of.push_back(run % 5 == 3 ? -1 : slots - 1 - run);
        place_of.push_back(k);
      }
    const auto slot = [&](std::int64_t i) { return slot_of[static_cast<std::size_t>(i)]; };
    const auto place = [&](std::int64_t i) { return place_of[static_cast<std::size_t>(i)]; };
    const auto ints = [&](std::int64_t count) {
      return std::make_unique<Twin>(bench, DType::kI32, std::initializer_list{count});
    };
    const auto row_slots = ints(s.rows), moved_slots = ints(s.rows), ids = ints(s.rows),
               tokens = ints(s.rows), next = ints(s.rows), positions = ints(s.rows),
               seq_lens = ints(s.rows), logit_slots = ints(s.rows), sources = ints(s.rows),
               slot_tokens = ints(slots), wrong = ints(slots), wrong_first = ints(slots),
               wrong_next = ints(slots), last_rows = ints(slots);
    Twin target(bench, DType::kI32, {500, 1}), chances(bench, DType::kF64, {2}),
        keys(bench, DType::kU8, {s.rows, sizeof(ops::RowKey)}),
        sample_rows(bench, DType::kU8, {s.rows, sizeof(ops::SampleRow)});
    std::vector<std::unique_ptr<Twin>> tables, locs;
    using Index = std::int64_t;
    for (std::int64_t g = 0; g < s.groups; ++g) {
      tables.push_back(
          std::make_unique<Twin>(bench, DType::kI32, std::initializer_list{s.rows, pages}));
      tables.back()->set([&](Index i, Index j, Index) { return 1 + i * 100 + j * 3 + g; });
      locs.push_back(std::make_unique<Twin>(bench, DType::kI64, std::initializer_list{s.rows}));
    }
    row_slots->set([&](Index i, Index, Index) { return slot(i); });
    moved_slots->set([&](Index i, Index, Index) { return slot(i) % 3 == 1 ? -1 : slot(i); });
    ids->set([&](Index i, Index, Index) { return i % 11; });
    // What follows each row is mostly the next row's token.
    tokens->set([&](Index i, Index, Index) {
      return i % 13 == 12 ? -1 : place(i) > slot(i) % 4 ? 100 + i : (i + 1) % 11;
    });
    positions->set([&](Index i, Index, Index) { return 62 + i % 400 + place(i); });
    seq_lens->set([&](Index i, Index, Index) { return 63 + i % 400 + place(i); });
    logit_slots->set([&](Index i, Index, Index) { return i; });
    sources->set([&](Index i, Index, Index) { return i + 1; });
    slot_tokens->set([](Index i, Index, Index) { return 1000 + i; });
    wrong->set([](Index i, Index, Index) { return i % 4; });
    last_rows->set([&](Index i, Index, Index) { return i % s.rows; });
    target.set([](Index i, Index, Index) { return i * 5; });
    chances.host.ptr<double>()[0] = 0.7;
    chances.host.ptr<double>()[1] = 0.4;
    chances.keep();
    for (std::int64_t i = 0; i < s.rows; ++i) {
      ops::as_row_keys(keys.host)[i] = {.seed = static_cast<std::uint64_t>(i * 17 + 3),
                                        .position = static_cast<std::int32_t>(63 + i)};
      ops::as_sample_rows(sample_rows.host)[i] = {.temperature = 0.5f, .uniform = 0.25};
    }
    keys.keep();
    sample_rows.keep();
    const std::string label =
        fmt::format("{} rows, runs of up to {}, {} groups", s.rows, s.most, s.groups);
    for (const int kind : {0, 1, 2}) {  // of the step, of the draft's first run, and of the next
      std::vector<Output> outputs = {{positions.get(), kExact}, {seq_lens.get(), kExact}};
      for (const auto& one : locs) outputs.push_back({one.get(), kExact});
      if (kind == 0) outputs.push_back({&sample_rows, kExact});
      if (kind == 1) outputs.push_back({logit_slots.get(), kExact});
      if (kind == 2) outputs.push_back({sources.get(), kExact});
      bench.compare("place_rows", label + fmt::format(", kind {}", kind), outputs,
                    [&](Context& ctx) {
                      ops::RowPlaces places{.slots = (*row_slots)(ctx),
                                            .positions = (*positions)(ctx),
                                            .seq_lens = (*seq_lens)(ctx),
                                            .page_tables = {},
                                            .out_cache_locs = {}};
                      for (const auto& one : tables) places.page_tables.push_back((*one)(ctx));
                      for (const auto& one : locs) places.out_cache_locs.push_back((*one)(ctx));
                      if (kind == 0) {
                        places.row_keys = keys(ctx);
                        places.sample_rows = sample_rows(ctx);
                      }
                      if (kind == 1) places.logit_slots = (*logit_slots)(ctx);
                      if (kind == 2) places.sources = (*sources)(ctx);
                      ops::place_rows(ctx, places, (*wrong)(ctx), (*last_rows)(ctx));
                    });
    }
    for (const bool pretends : {false, true})
      bench.compare("accept_drafts", label + (pretends ? ", pretended" : ""),
                    {{tokens.get(), kExact},
                     {next.get(), kExact},
                     {slot_tokens.get(), kExact},
                     {wrong.get(), kExact},
                     {wrong_first.get(), kExact},
                     {wrong_next.get(), kExact},
                     {last_rows.get(), kExact}},
                    [&](Context& ctx) {
                      ops::accept_drafts(ctx,
                                         {.slots = (*row_slots)(ctx),
                                          .moved = (*moved_slots)(ctx),
                                          .ids = (*ids)(ctx),
                                          .tokens = (*tokens)(ctx),
                                          .next_tokens = (*next)(ctx),
                                          .slot_tokens = (*slot_tokens)(ctx),
                                          .chances = pretends ? chances(ctx) : Tensor{},
                                          .row_keys = keys(ctx)},
                                         {.wrong = (*wrong)(ctx),
                                          .wrong_first = (*wrong_first)(ctx),
                                          .wrong_next = (*wrong_next)(ctx),
                                          .last_rows = (*last_rows)(ctx)});
                    });
    for (const bool maps : {false, true})
      bench.compare("put_draft_tokens", label + (maps ? ", mapped" : ""),
                    {{slot_tokens.get(), kExact}}, [&](Context& ctx) {
                      // Slots of a draft's run are distinct where it has a place.
                      ops::put_draft_tokens(ctx, (*tokens)(ctx), (*logit_slots)(ctx),
                                            (*row_slots)(ctx), maps ? target(ctx) : Tensor{},
                                            (*slot_tokens)(ctx));
                    });
  }
}

}  // namespace

void check_sampled_rows(Bench& bench) {
  check_rounds(bench);
  check_edits(bench);
  check_graph_io(bench);
}

}  // namespace sluice::oracle
