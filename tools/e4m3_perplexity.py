#!/usr/bin/env python3
"""What e4m3 itself costs a model, in float32 by transformers: the perplexity with rounded weights, with rounded rows of x, and
with weights that GPTQ rounds so that the errors of columns cancel.

    build/venv-transformers/bin/python tools/e4m3_perplexity.py FILE.gguf TEXT...      # also needs gguf and accelerate

Linear layers but the head are rounded. The texts are read one behind the other; windows are spread over them. GPTQ sees the
tokens between the windows. Each line has the change against the weights of the file, and its standard error.
"""

import argparse
import math
import pathlib

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

LARGEST = 448


def rounded(x, scale):
    return (x / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn).to(x.dtype) * scale


def by_row(x):
    return rounded(x, x.abs().amax(-1, keepdim=True).clamp(min=1e-12) / LARGEST)


def by_group(x, group=128):
    padded = torch.nn.functional.pad(x, (0, -x.shape[-1] % group)).unflatten(-1, (-1, group))
    return by_row(padded).flatten(-2)[..., : x.shape[-1]]


def gptq(weight, squares):
    """Rounds columns one after the other; the later ones make up for the error of each. squares: x^T x of the layer."""
    columns = len(squares)
    squares = squares + torch.eye(columns, dtype=squares.dtype) * 0.01 * squares.diag().mean()
    order = torch.argsort(squares.diag(), descending=True)
    inverse = torch.linalg.cholesky(torch.linalg.inv(squares[order][:, order]), upper=True)
    scale = weight.abs().amax(1).double() / LARGEST
    left, out = weight.double()[:, order].clone(), torch.empty_like(weight)
    for i in range(columns):
        column = rounded(left[:, i].float(), scale.float())
        left[:, i:] -= torch.outer((left[:, i] - column) / inverse[i, i], inverse[i, i:])
        out[:, order[i]] = column
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("texts", type=pathlib.Path, nargs="+")
    parser.add_argument("--window", type=int, default=1000, help="tokens")
    parser.add_argument("--windows", type=int, default=16)
    args = parser.parse_args()
    file = {"gguf_file": args.model.name}
    model = AutoModelForCausalLM.from_pretrained(args.model.parent, dtype=torch.float32, **file).eval()
    text = "".join(path.read_text() for path in args.texts)
    ids = AutoTokenizer.from_pretrained(args.model.parent, **file)(text, return_tensors="pt").input_ids[0]
    step = (len(ids) - args.window) // args.windows
    windows = [ids[i * step:i * step + args.window] for i in range(args.windows)]
    between = [ids[i * step + args.window:(i + 1) * step][:args.window] for i in range(args.windows)]
    layers = [layer for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear) and name != "lm_head"]
    weights = [layer.weight.data for layer in layers]

    @torch.no_grad()
    def logprobs(of_weights, of_x=None):
        hooks = [layer.register_forward_pre_hook(lambda _, x: (of_x(x[0]),)) for layer in layers if of_x]
        for layer, weight in zip(layers, of_weights, strict=True):
            layer.weight.data = weight
        rows = []
        for window in windows:
            logits = model(window[None]).logits[0, :-1]
            rows.append(torch.log_softmax(logits, -1).gather(1, window[1:, None])[:, 0])
        for hook in hooks:
            hook.remove()
        return torch.cat(rows)

    squares = [torch.zeros(w.shape[1], w.shape[1], dtype=torch.float64) for w in weights]

    def add_square(total):
        def hook(_, x):
            rows = x[0][0].double()
            total.add_(rows.T @ rows)

        return hook

    hooks = [layer.register_forward_pre_hook(add_square(s)) for layer, s in zip(layers, squares, strict=True)]
    with torch.no_grad():
        for part in between:
            model(part[None])
    for hook in hooks:
        hook.remove()
    by_rows, by_gptq = [by_row(w) for w in weights], [gptq(w, s) for w, s in zip(weights, squares, strict=True)]

    base = logprobs(weights)
    print(f"{'float32':34} {len(base)} tokens, perplexity {math.exp(-base.mean()):.4f}", flush=True)
    for name, *how in (("x by row", weights, by_row), ("x in groups of 128", weights, by_group), ("weights by row", by_rows),
                       ("weights and x by row", by_rows, by_row), ("weights by GPTQ", by_gptq),
                       ("weights by GPTQ, x by row", by_gptq, by_row)):
        change = base - logprobs(*how)
        print(f"{name:34} {math.exp(change.mean()) - 1:+.3%} +- {change.std() / math.sqrt(len(change)):.3%}", flush=True)


if __name__ == "__main__":
    main()
