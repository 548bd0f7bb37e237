#!/usr/bin/env python3
"""Makes reference drafts of layers that transformers has no class for: those of Qwen3.5 (`mtp.*`).

    python make_mtp.py                        # models/qwen3-5, models/qwen3-5-moe -> speculation/mtp-<name>/

The layer is a model of transformers with one layer of full attention, whose input is
fc([pre_fc_norm_embedding(embed(token i + 1)); pre_fc_norm_hidden(state i)]), and whose last norm is `mtp.norm`. What
leaves it is the next depth's state, and the target's head reads it. The order, the names and the use of full attention
are those of vLLM's qwen3_5_mtp.py. Every depth computes all rows again, so no cache takes part.

A folder has config.json, mtp.safetensors, an index over it and the target's file, and golden.json: `unit`, the layer
on given states; `prompts`, with the target in the loop. `sure` counts drafts with a lead of more than MIN_MARGIN.
"""
import argparse, base64, json, os, sys, tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)

HERE = os.path.dirname(os.path.abspath(__file__))
NEW_TOKENS, DEPTH, MIN_MARGIN = 16, 4, 1e-3


def one_layer(target, seed):
    """The layer and its norm with random weights in bfloat16, as float32, and the tensors of the checkpoint."""
    config = AutoConfig.from_pretrained(target)
    config.num_hidden_layers, config.layer_types = 1, ["full_attention"]
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, t in sorted(model.named_parameters()):
            scale = 0.1 if t.dim() == 1 else 1.2 * t.shape[-1] ** -0.5
            t.copy_(torch.randn(t.shape, generator=g) * scale)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        saved = load_file(os.path.join(folder, "model.safetensors"))
        layer = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tensors = {}
    for name, t in saved.items():
        if name.startswith("model.layers.0."):
            tensors[name.replace("model.layers.0.", "mtp.layers.0.")] = t
        elif name == "model.norm.weight":
            tensors["mtp.norm.weight"] = t
    h = config.hidden_size
    tensors["mtp.fc.weight"] = (torch.randn(h, 2 * h, generator=g) * (2 * h) ** -0.5).bfloat16()
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        tensors[f"mtp.{name}.weight"] = (torch.randn(h, generator=g) * 0.1).bfloat16()
    return layer, {k: v.contiguous() for k, v in tensors.items()}


class Draft:
    def __init__(self, target, layer, tensors):
        self.target, self.layer = target, layer
        self.t = {k: v.float() for k, v in tensors.items()}
        self.eps = layer.config.rms_norm_eps

    def norm(self, x, name):
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return x * (1 + self.t[f"mtp.{name}.weight"])

    def states(self, ids):
        return self.target.model(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state[0]

    def run(self, states, tokens):
        """States [rows, hidden] and tokens [rows] -> the draft's states and logits."""
        embedded = self.target.get_input_embeddings()(torch.tensor(tokens))
        both = torch.cat([self.norm(embedded, "pre_fc_norm_embedding"), self.norm(states, "pre_fc_norm_hidden")], -1)
        x = both @ self.t["mtp.fc.weight"].T
        out = self.layer.model(inputs_embeds=x[None], use_cache=False).last_hidden_state[0]
        return out, self.target.lm_head(out)

    def chain(self, states, tokens):
        """Drafts behind the last row, and the rows' logits."""
        states, tokens, rows = states.clone(), list(tokens), []
        for _ in range(DEPTH):
            out, logits = self.run(states, tokens)
            rows.append(logits[-1])
            tokens.append(int(logits[-1].argmax()))
            states = torch.cat([states, out[-1:]])
        return tokens[-DEPTH:], rows


def b64(t):
    return base64.b64encode(t.contiguous().numpy().astype("<f4").tobytes()).decode()


def record(tokens, rows):
    tops = [r.log_softmax(-1).topk(5) for r in rows]
    margins = [float(t.values[0] - t.values[1]) for t in tops]
    return dict(tokens=tokens, top5_ids=[t.indices.tolist() for t in tops],
                top5_logprobs=[[round(float(x), 5) for x in t.values] for t in tops]), margins


def acceptance(output, table, k):
    j = steps = accepted = 0
    while j < len(output) - 1:
        right = 0
        while right < k and j + 1 + right < len(output) and table[j][right] == output[j + 1 + right]:
            right += 1
        emitted = min(right + 1, len(output) - 1 - j)
        steps, accepted, j = steps + 1, accepted + min(right, emitted), j + emitted
    return dict(steps=steps, accepted=accepted, emitted=len(output) - 1)


@torch.no_grad()
def make(name, source, out, seed):
    target = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, attn_implementation="eager").eval()
    layer, tensors = one_layer(source, seed)
    draft = Draft(target, layer, tensors)
    g = torch.Generator().manual_seed(seed + 1)
    prompts = []
    for size in (7, 33):
        ids = torch.randint(3, target.config.vocab_size, (size,), generator=g).tolist()
        known = list(ids)
        for _ in range(NEW_TOKENS):
            known.append(int(target(input_ids=torch.tensor([known]), use_cache=False).logits[0, -1].argmax()))
        greedy, states, drafts = known[size:], draft.states(known), []
        for after in range(NEW_TOKENS - 1):
            c = size + after
            rec, margins = record(*draft.chain(states[:c], known[1:c + 1]))
            sure = next((i for i, m in enumerate(margins) if m < MIN_MARGIN), DEPTH)
            drafts.append(dict(after=after, **rec, min_margin=round(min(margins), 5), sure=sure))
        table = [d["tokens"] for d in drafts]
        prompts.append(dict(ids=ids, greedy=greedy, accept={k: acceptance(greedy, table, int(k)) for k in "124"},
                            drafts=drafts))
    ids, first = prompts[-1]["ids"], prompts[-1]["greedy"][0]
    states, tokens = draft.states(ids), ids[1:] + [first]
    out_states, logits = draft.run(states, tokens)
    rec, _ = record(logits.argmax(-1).tolist(), list(logits))
    unit = dict(length=len(ids), tokens=tokens, state_width=states.shape[1], states_f32_b64=b64(states),
                argmax=rec["tokens"], top5_ids=rec["top5_ids"], top5_logprobs=rec["top5_logprobs"],
                last_logits_f32_b64=b64(logits[-1]), fed_back_last_f32_b64=b64(out_states[-1]),
                chain=record(*draft.chain(states, tokens))[0])
    folder = os.path.join(out, "mtp-" + name)
    os.makedirs(folder, exist_ok=True)
    save_file(tensors, os.path.join(folder, "mtp.safetensors"), metadata={"format": "pt"})
    config = json.load(open(os.path.join(source, "config.json")))
    json.dump(config, open(os.path.join(folder, "config.json"), "w"), indent=1)
    with safe_open(os.path.join(source, "model.safetensors"), "pt") as f:
        where = {k: "model.safetensors" for k in f.keys()}
    where.update({k: "mtp.safetensors" for k in tensors})
    json.dump(dict(metadata={}, weight_map=dict(sorted(where.items()))),
              open(os.path.join(folder, "model.safetensors.index.json"), "w"), indent=1)
    json.dump(dict(format=1, name="mtp-" + name, algorithm="NEXTN", target=name, draft="inside the target", unit=unit,
                   prompts=prompts), open(os.path.join(folder, "golden.json"), "w"))
    print(name, prompts[0]["accept"], min(d["min_margin"] for p in prompts for d in p["drafts"]))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--models", default=os.path.join(HERE, "models"), help="the folder of the targets")
    ap.add_argument("--out", default=os.path.join(HERE, "speculation"))
    a = ap.parse_args()
    for seed, name in enumerate(("qwen3-5", "qwen3-5-moe"), 41):
        make(name, os.path.join(a.models, name), a.out, seed)


if __name__ == "__main__":
    sys.exit(main())
