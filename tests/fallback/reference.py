"""Writes a small random checkpoint of each class, and what the class itself computes with it.

    reference.py OUT [MODEL_TYPE ...]       # in a Python with torch and transformers

OUT/MODEL_TYPE/ gets the checkpoint, golden.json for `sluice verify`, and reference.pt: the log-probabilities of every
position. state.json says what went wrong where something did. Each class runs in a process of its own, with a time limit.
"""

import json
import os
import pathlib
import resource
import shutil
import signal
import sys
import traceback

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
from make_golden import reinit  # noqa: E402
from tiny_configs import tiny_config  # noqa: E402

PROMPTS, NEW_TOKENS, TOP = (11, 23), 6, 5
SECONDS, MEMORY, PARAMETERS = 240, 4 << 30, 20_000_000
MIN_MARGIN = 5e-3  # the best token of every step leads by this much, so that rounding does not choose


def classes():
    """{model type: (configuration class, name of the model class)} of every class that generates text alone."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

    return {kind: (CONFIG_MAPPING[kind], name if isinstance(name, str) else name[0]) for kind, name in NAMES.items()}


@torch.no_grad()
def whole(model, ids):
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()


@torch.no_grad()
def stepwise(model, prompts, outputs):
    """Prefill of a batch of prompts of one length, then token by token with the cache -> [batch, step, vocabulary]."""
    seen = lambda count: torch.ones(len(prompts), count, dtype=torch.long)
    length = len(prompts[0])
    out = model(input_ids=torch.tensor(prompts), attention_mask=seen(length), use_cache=True)
    steps = [out.logits[:, -1].float()]
    for i in range(len(outputs[0]) - 1):
        out = model(
            input_ids=torch.tensor([[o[i]] for o in outputs]), attention_mask=seen(length + 1 + i), use_cache=True,
            past_key_values=out.past_key_values,
        )
        steps.append(out.logits[:, -1].float())
    return torch.stack(steps, 1)


def draw(seed, length):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(5, 250, (length,), generator=generator).tolist()


def greedy(model, ids):
    """Greedy tokens by recomputation, and the smallest lead of a chosen one."""
    out, margin = [], float("inf")
    for _ in range(NEW_TOKENS):
        best = whole(model, ids + out)[-1].log_softmax(-1).topk(2)
        margin = min(margin, float(best.values[0] - best.values[1]))
        out.append(int(best.indices[0]))
    return out, margin


def record(model, length, seed):
    for attempt in range(12):
        ids = draw(seed + 1000 * attempt, length)
        output, margin = greedy(model, ids)
        if margin >= MIN_MARGIN:
            break
    logp = whole(model, ids + output).log_softmax(-1)
    if not torch.isfinite(logp).all():
        raise RuntimeError("its logits are not finite")
    top = logp[: len(ids)].topk(TOP, -1)
    chosen = [float(logp[len(ids) - 1 + i, token]) for i, token in enumerate(output)]
    entry = {
        "ids": ids, "top5_ids": top.indices.tolist(), "top5_logprobs": top.values.tolist(), "greedy": output,
        "greedy_logprobs": chosen, "min_margin": margin,
    }
    return entry, logp


def make(kind, config_class, folder):
    torch.manual_seed(1)
    config = tiny_config(config_class, kind)
    for name in ("is_decoder",):
        if hasattr(config, name):
            setattr(config, name, True)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    size = sum(p.numel() for p in model.parameters())
    if size > PARAMETERS:
        biggest = max(model.named_parameters(), key=lambda p: p[1].numel())
        raise RuntimeError(f"{size} parameters are not small; the largest is {biggest[0]} {list(biggest[1].shape)}")
    with torch.no_grad():
        reinit(model, 7, 0.15, 0.3)
    model.save_pretrained(folder)
    model, info = type(model).from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
    )
    model.eval()
    facts = {"architecture": type(model).__name__, "parameters": size}
    facts["missing"], facts["unexpected"] = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
    entries, logps = zip(*(record(model, length, seed) for seed, length in enumerate(PROMPTS)))
    golden = {"format": 1, "checks": {}, "prompts": list(entries)}
    (folder / "golden.json").write_text(json.dumps(golden))
    torch.save(list(logps), folder / "reference.pt")
    facts["margin"] = min(e["min_margin"] for e in entries)
    try:  # the class against itself: with its cache, in a batch of two
        pair = [e["ids"][: PROMPTS[0]] for e in entries]
        outputs = [e["greedy"] for e in entries]
        steps = stepwise(model, pair, outputs)
        full = torch.stack([whole(model, p + o)[PROMPTS[0] - 1 : -1] for p, o in zip(pair, outputs)])
        facts["cache_difference"] = float((steps - full).abs().max())
    except Exception as error:  # some classes have no cache
        facts["cache_error"] = f"{type(error).__name__}: {str(error)[:200]}"
    return facts


def in_child(kind, config_class, folder):
    """make() in a process of its own, whose death is a result too."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(SECONDS)
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            torch.set_num_threads(1)
            state = make(kind, config_class, folder)
            (folder / "state.json").write_text(json.dumps(state))
            status = 0
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {str(error).strip()[:600]} ({pathlib.Path(place.filename).name}:{place.lineno})"
            (folder / "state.json").write_text(json.dumps({"error": text}))
        os._exit(status)
    _, status = os.waitpid(child, 0)
    if not (folder / "state.json").exists():
        (folder / "state.json").write_text(json.dumps({"error": f"the process ended with status {status}"}))
    return json.loads((folder / "state.json").read_text())


def main():
    out, wanted = pathlib.Path(sys.argv[1]), sys.argv[2:]
    for kind, (config_class, name) in classes().items():
        if wanted and kind not in wanted:
            continue
        state = in_child(kind, config_class, out / kind)
        print(f"{kind}: {name}: {json.dumps(state)[:400]}", flush=True)


if __name__ == "__main__":
    main()
