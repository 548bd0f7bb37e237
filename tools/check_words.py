#!/usr/bin/env python3
"""Checks that code and comments use the field's words: docs/glossary.md, and the rules of docs/style.md.

Each row of WORDS is a pattern that may not occur under src/, and what to write instead. Prints each violation and exits
with 1 if there is one.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
KERNELS = ("src/kernels/", "src/ops/")
EVERYWHERE = ("src/",)

WORDS = [  # pattern, folders, what to write
    (r"kJoinedRows|ops/joined|joins\(\)", EVERYWHERE, "fused, can_fuse()"),
    (r"\bbent\b|attention_bent", EVERYWHERE, "has_score_mods, attention_general"),
    (r"DecoderEnds|models/ends", EVERYWHERE, "EmbeddingAndHead, models/embed_head"),
    (r"WantedRows|(?<!Last)LayerRows", EVERYWHERE, "OutputRows, LastLayerRows"),
    (r"RowDraw|choose_tokens|\brow_draws\b", EVERYWHERE, "SampleRow, sample_tokens"),
    (r"RowAsk|\brow_asks\b", EVERYWHERE, "LogitEdits"),
    (r"TokenRule|DeviceRules", EVERYWHERE, "LogitEdit, DeviceLogitEdits"),
    (r"RowChoice", EVERYWHERE, "SampledRow"),
    (r"DeviceTokens|replayed_for_nobody", EVERYWHERE, "DeviceSampler, discard_replay"),
    (r"step_mail|StepMail|fetch_step|hand_out_tokens", EVERYWHERE, "graph_io, load_step_inputs, store_step_tokens"),
    (r"telling_layers", EVERYWHERE, "representative_layers"),
    (r"rows_lie_alone|\blend\(|\bborrow\(", EVERYWHERE, "rows_are_contiguous, with_mapping, reads_mapped"),
    (r"BulkMemory|make_pages|\bpays\(", EVERYWHERE, "HugePageArena, prefault, is_worthwhile"),
    (r"grow_queries|QueryGrowth", EVERYWHERE, "scale_queries, QueryScaling"),
    (r"SharedBooks|struct Live\b|struct Flight\b", ("src/engine/", "src/scheduler/dp_"), "SchedulerCounters, LiveRequest"),
    (r"Bringer|\bbring\(|Multiplier|Copier", EVERYWHERE, "Producer, produce(), MmaConsumer, TmaLoader"),
    (r"tensor_copy|copy_box|copy_async16|multiply16", EVERYWHERE, "tma, tma_load, cp_async_16, mma_m16n8k16"),
    (r"leaves_first", EVERYWHERE, "l2_evict_first"),
    (r"weight_ring|WeightRing", EVERYWHERE, "weight_pipeline"),
    (r"tiles_feed|tiles_runs", EVERYWHERE, "attention_sm90_loader, attention_sm90_schedule"),
    (r"gemm_anchored|gemm_gated\b|gated_plan|anchored_plan", EVERYWHERE, "gemm_batch_invariant, gemm_swiglu"),
    (r"\bkRound\b|\bkScore\b|kSoften|\bkWeigh\b", EVERYWHERE, "kCastQueries, kScores, kSoftmax, kValues"),
    (r"twin_row", EVERYWHERE, "paired_row"),
    (r"\bkMost\w*|\bmost_\w+", EVERYWHERE, "kMax..., max_..."),
    (r"[mM]ultiprocessors?\b", EVERYWHERE, "SM"),
    (r"\bfacts\b|\w+Facts\b", EVERYWHERE, "inputs, info; ...Inputs"),
    (r"[gG]ates and ups", EVERYWHERE, "gate/up projections"),
    (r"heads that share (?:keys|a key)", EVERYWHERE, "GQA group"),
    (r"(?<!dot )(?<!matrix )(?<!cross )\bproducts?\b(?! of the shape)", ("src/kernels/cuda/",), "GEMM, dot product"),
    (r"\bjoined\b|\bjoins\b", KERNELS, "fused, merged"),
    (r"\bbrings?\b|\bbrought\b", ("src/kernels/cuda/",), "load, produce"),
]
CODE = {".h", ".cpp", ".cu", ".cuh", ".txt"}


def main():
    compiled = [(re.compile(pattern), folders, better) for pattern, folders, better in WORDS]
    problems = []
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in CODE or not path.is_file():
            continue
        name = path.relative_to(ROOT).as_posix()
        rows = [(pattern, better) for pattern, folders, better in compiled if name.startswith(folders)]
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            for pattern, better in rows:
                found = pattern.search(line)
                if found:
                    problems.append(f"{name}:{number}: '{found.group(0)}'; write {better}")
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
