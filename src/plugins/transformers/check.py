"""The comparison of a loaded model with its own class, before the first request.

A class may do what the plugin cannot see: mix tokens outside of its attention, count positions by itself, mask keys in a
way of its own. So two short sequences run twice: as the program will run them (flat rows of several sequences, in pieces,
over kept keys), and as the class runs alone (one sequence, eager attention, no cache). Different logits are a refusal.
"""

from sluice_weights import Refused

LENGTHS = (13, 7)
# Rows of the two sequences in each step: prefill, a later piece, single rows, the rest.
STEPS = ((5, 3), (4, 1), (1, 1), (1, 1), (2, 1))


class KeptKeys:
    """Stands for the KV pool: causal attention of the rows of a step over kept keys, in float32."""

    def __init__(self, torch):
        self.torch, self.kept, self.rows = torch, {}, []  # rows: (sequence, count) of the running step

    def attend(self, layer, q, k, v, scale, window, softcap, sinks):
        """q [tokens, heads, dim], k and v [tokens, kv heads, dim] -> [tokens, heads, dim]."""
        torch, out, first = self.torch, [], 0
        for sequence, count in self.rows:
            here = slice(first, first + count)
            first += count
            old = self.kept.get((layer, sequence))
            keys = k[here] if old is None else torch.cat((old[0], k[here]))
            values = v[here] if old is None else torch.cat((old[1], v[here]))
            self.kept[layer, sequence] = keys, values
            group = q.shape[1] // k.shape[1]
            scores = torch.einsum("qhd,khd->hqk", q[here], keys.repeat_interleave(group, 1)) * scale
            if softcap:
                scores = softcap * torch.tanh(scores / softcap)
            row = torch.arange(len(keys) - count, len(keys))[:, None]
            key = torch.arange(len(keys))[None]
            seen = key <= row
            if window:
                seen &= key > row - window
            scores = scores.masked_fill(~seen, float("-inf"))
            if sinks is not None:
                scores = torch.cat((scores, sinks[:, None, None].expand(-1, count, 1)), -1)
            weights = torch.softmax(scores, -1)[..., : len(keys)]
            out.append(torch.einsum("hqk,khd->qhd", weights, values.repeat_interleave(group, 1)))
        return torch.cat(out)


def sample(torch, config, length, seed):
    """Token ids without the special ones: a padding token may have a meaning of its own."""
    special = set()
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
        ids = getattr(config, name, None)
        special.update(ids if isinstance(ids, (list, tuple)) else [ids])
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(0, config.vocab_size, (length + 64,), generator=generator).tolist()
    usable = [token for token in drawn if token not in special] or drawn
    return (usable * length)[:length]


# float32 rounds to 2^-24. A layer sums a few thousand terms, and layers amplify that: 2e-3 of the logits' spread has a
# decimal in hand.
LIMIT = 2e-3

# In half precision rounding is larger, and how much a model amplifies it is measured: the class runs again with its input
# embeddings off by one unit in the last place. Four times that is allowed, for layers round too. Beyond MOST nothing
# could be told apart; unlike sequences differ by 1.4.
UNIT = {"torch.bfloat16": 2**-8, "torch.float16": 2**-11}
MARGIN, LEAST, MOST = 4, 0.02, 0.5


def distances(ours, theirs, half):
    """By row, as a part of the spread of its logits: the largest difference, or in half precision the root mean square."""
    size = theirs.std(-1, keepdim=True).clamp_min(1e-20)
    parts = ((ours - theirs).abs() / size).nan_to_num(nan=float("inf"))
    return parts.square().mean(-1).sqrt() if half else parts.amax(-1)


def typical(rows):
    """Of both sequences the better median: an expert that rounding flips early moves all later rows of its sequence, and
    what a class does otherwise moves most rows of both. The first row has no context."""
    return float(min(r[1:].median() for r in rows))


def compare(session):
    """Refused: the class computes something else than the plugin does."""
    torch, model = session.torch, session.model
    unit = UNIT.get(str(session.dtype))
    ids = [sample(torch, model.config.get_text_config(), n, seed) for seed, n in enumerate(LENGTHS)]
    ours = served(session, ids)
    theirs = [own(session, sequence) for sequence in ids]
    for mine, reference in zip(ours, theirs):
        if reference.shape != mine.shape:
            raise Refused(f"it gives logits of shape {list(reference.shape)} where {list(mine.shape)} are expected")
        if not torch.isfinite(reference).all():
            raise Refused("its logits are not finite for a short sample, so that nothing can be compared")
    rows = [distances(mine, reference, unit is not None) for mine, reference in zip(ours, theirs)]
    if unit is None:
        found, allowed = float(torch.cat(rows).max()), LIMIT
    else:
        moved = [distances(own(session, sequence, unit), reference, True) for sequence, reference in zip(ids, theirs)]
        found, allowed = typical(rows), min(MOST, max(LEAST, MARGIN * typical(moved)))
    if not found <= allowed:
        raise Refused(
            f"it computes something that the fallback does not: for samples of {LENGTHS[0]} and {LENGTHS[1]} tokens the class alone "
            f"gives other logits (difference {found:.2g} of their spread, {allowed:.2g} is allowed)"
            + ("; --dtype float32 compares without rounding" if unit else "")
        )


def served(session, ids):
    torch = session.torch
    session.pool = KeptKeys(torch)
    out, done = [[] for _ in ids], [0] * len(ids)
    for counts in STEPS:
        session.pool.rows = list(enumerate(counts))
        flat = [t for s, n in enumerate(counts) for t in ids[s][done[s] : done[s] + n]]
        positions = [p for s, n in enumerate(counts) for p in range(done[s], done[s] + n)]
        hidden = session.run_base(
            input_ids=torch.tensor([flat]), position_ids=torch.tensor([positions]) + session.first_position
        )
        logits = session.head(hidden).float()
        for s, rows in enumerate(logits.split(list(counts))):
            out[s].append(rows.clone())
            done[s] += counts[s]
    session.pool = None
    return [torch.cat(parts) for parts in out]


def own(session, sequence, unit=0.0):
    """The class's own logits, with the attention function that it defines itself. `unit`: relative noise of its input."""
    torch, model = session.torch, session.model
    owners = [*model.modules(), *session.base.modules()]
    configs = {id(m.config): m.config for m in owners if hasattr(getattr(m, "config", None), "_attn_implementation")}.values()
    for config in configs:
        config._attn_implementation = "eager"
    session.place(session.base)
    hook = None
    if unit:
        generator = torch.Generator().manual_seed(9)

        def noisy(module, arguments, out):
            return (out.float() * (1 + unit * (2 * torch.rand(out.shape, generator=generator) - 1))).to(out.dtype)

        hook = session.base.get_input_embeddings().register_forward_hook(noisy)
    try:
        return model(input_ids=torch.tensor([sequence]), use_cache=False).logits[0].float()
    except Exception as error:
        raise Refused(f"the class cannot run alone, so that nothing can be compared: {error}") from error
    finally:
        if hook is not None:
            hook.remove()
        session.place(session.finished)
        for config in configs:
            config._attn_implementation = "sluice"
