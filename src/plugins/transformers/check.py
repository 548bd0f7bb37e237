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


def limit(torch, dtype, layers):
    """Largest difference of two computations that differ only in rounding, as a part of the logits' size.

    float32 rounds to 2^-24. A layer's sums of a few thousand terms and the growth through the layers leave six digits
    less two: 2e-3 has a decimal in hand. In half precision one flipped expert moves a row, so only the median row
    counts there, and rounding errors of 2^-9 (2^-12) grow with the root of the number of layers."""
    if dtype == torch.float32:
        return 2e-3
    return 8 * (2**-9 if dtype == torch.bfloat16 else 2**-12) * max(4, 4 * layers) ** 0.5


def compare(session):
    """Refused: the class computes something else than the plugin does."""
    torch, model = session.torch, session.model
    config = model.config.get_text_config()
    ids = [sample(torch, config, n, seed) for seed, n in enumerate(LENGTHS)]
    ours = served(session, ids)
    theirs = [own(session, sequence) for sequence in ids]
    rows = []
    for mine, reference in zip(ours, theirs):
        if reference.shape != mine.shape:
            raise Refused(f"it gives logits of shape {list(reference.shape)} where {list(mine.shape)} are expected")
        if not torch.isfinite(reference).all():
            raise Refused("its logits are not finite for a short sample, so that nothing can be compared")
        size = reference.std(-1, keepdim=True).clamp_min(1e-20)
        rows.append(((mine - reference).abs() / size).amax(-1))
    differences = torch.cat(rows).nan_to_num(nan=float("inf"))
    allowed = limit(torch, session.dtype, session.layers)
    found = differences.max() if session.dtype == torch.float32 else max(r[1:].median() for r in rows)
    if not found <= allowed:
        first = next(i for i, d in enumerate(differences.tolist()) if not d <= allowed)
        sequence, position = (0, first) if first < LENGTHS[0] else (1, first - LENGTHS[0])
        raise Refused(
            f"it computes something that the fallback does not: for a sample of {LENGTHS[sequence]} tokens the class alone gives "
            f"other logits from position {position} on (difference {float(found):.2g} of their spread, {allowed:.2g} is allowed)"
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


def own(session, sequence):
    """The class's own logits, with the attention function that it defines itself."""
    torch, model = session.torch, session.model
    owners = [*model.modules(), *session.base.modules()]
    configs = {id(m.config): m.config for m in owners if hasattr(getattr(m, "config", None), "_attn_implementation")}.values()
    for config in configs:
        config._attn_implementation = "eager"
    session.place(session.base)
    try:
        return model(input_ids=torch.tensor([sequence]), use_cache=False).logits[0].float()
    except Exception as error:
        raise Refused(f"the class cannot run alone, so that nothing can be compared: {error}") from error
    finally:
        session.place(session.finished)
        for config in configs:
            config._attn_implementation = "sluice"
