"""Which tensors of the checkpoint become which parameters, as `from_pretrained` of transformers decides it.

The rules are those of transformers' own tables: renamed tensors, tensors that are merged, split or transposed
(WeightConverter), the prefix of the base model, tied parameters, names that a class declares ignorable. A tensor without
a use and a parameter without a value are errors here; `from_pretrained` only warns of them.
"""

import copy
import re
import types


class Refused(Exception):
    """The model cannot run here; the text is for the person who started the program."""


class Assignment:
    def __init__(self):
        self.direct = {}  # parameter -> tensor of the checkpoint
        self.merged = {}  # first parameter -> (converter, [(its pattern, tensor of the checkpoint)])
        self.unused = []  # (tensor, its name after renaming)


def assign(model, names):
    """`names` are the checkpoint's tensors."""
    state, out = model.state_dict(), Assignment()
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, dot_natural_key, rename_source_key
    except ImportError:  # before transformers 5 no tensor was converted
        assign_plainly(model, names, state, out)
        return out
    transforms = get_model_conversion_mapping(model)
    converters = [t for t in transforms if isinstance(t, WeightConverter)]
    renamings = [t for t in transforms if not isinstance(t, WeightConverter)]
    by_pattern = {pattern: converter for converter in converters for pattern in converter.source_patterns}
    prefix = model.base_model_prefix
    for name in sorted(names, key=dot_natural_key):
        key, pattern = rename_source_key(name, renamings, converters, prefix, state)
        if key not in state and name in state:
            key, pattern = rename_source_key(name, [], [], prefix, state)
        if key not in state:
            out.unused.append((name, key))
        elif pattern is not None:
            out.merged.setdefault(key, (copy.deepcopy(by_pattern[pattern]), []))[1].append((pattern, name))
        else:
            use(out, key, name)
    if both := out.direct.keys() & out.merged.keys():
        raise Refused(f"the checkpoint has {sorted(both)[0]} twice, whole and in parts")
    return out


def use(out, key, name):
    if key in out.direct:
        raise Refused(f"two tensors of the checkpoint are {key}: {out.direct[key]} and {name}")
    out.direct[key] = name


def assign_plainly(model, names, state, out):
    prefix = model.base_model_prefix + "."
    for name in names:
        other = name[len(prefix):] if name.startswith(prefix) else prefix + name
        key = name if name in state else other
        if key in state:
            use(out, key, name)
        else:
            out.unused.append((name, name))


def refuse_unused(model, assignment):
    """Of the tensors without a use, a class may declare some ignorable, and buffers that it computes itself need none."""
    computed = {name for name, _ in model.named_buffers()} - set(model.state_dict())
    prefix = model.base_model_prefix + "."
    patterns = list(getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ())
    if any(name.endswith("rotary_emb.inv_freq") for name in computed):
        patterns.append(r"rotary_emb\.inv_freq")  # each layer had one in old files
    if any(name.endswith("position_ids") for name in computed):
        patterns.append(r"(^|\.)position_ids$")

    def known(key):
        spellings = (key, prefix + key, key.removeprefix(prefix))
        return any(s in computed for s in spellings) or any(re.search(p, key) for p in patterns)

    names = [name for name, key in assignment.unused if not known(key)]
    if names:
        raise Refused(f"{type(model).__name__} has no use for {count(names, 'tensor')} of the checkpoint: {listed(names)}")
    return [name for name, _ in assignment.unused]


def refuse_missing(model, names):
    patterns = getattr(model, "_keys_to_ignore_on_load_missing", None) or ()
    lost = [name for name in names if not any(re.search(p, name) for p in patterns)]
    if lost:
        raise Refused(f"the checkpoint lacks {count(lost, 'parameter')} of {type(model).__name__}: {listed(lost)}")


def converted(model, converter, first, parts, read):
    """Runs transformers' own conversion -> {parameter: tensor}. `read` gets a tensor's name."""
    from transformers.core_model_loading import SkipParameters

    for pattern, name in parts:
        converter.add_tensor(first, name, pattern, read(name))
    failures = types.SimpleNamespace(conversion_errors={}, missing_keys=set())
    try:
        values = converter.convert(first, model=model, config=model.config, loading_info=failures)
    except SkipParameters:
        values = {}
    if failures.conversion_errors:
        text = next(iter(failures.conversion_errors.values())).strip().splitlines()[-1]
        raise Refused(f"{first} cannot be made of {count([n for _, n in parts], 'tensor')} of the checkpoint: {text}")
    return {name: value[0] if isinstance(value, list) else value for name, value in values.items()}


def untie(torch, model, assignment, equal):
    """A class may tie two parameters of which the checkpoint has two different tensors: each then keeps its own."""
    pairs = getattr(model, "all_tied_weights_keys", None) or {}
    for target, source in list(pairs.items()):
        if not (target in assignment.direct and source in assignment.direct):
            continue
        if equal(assignment.direct[target], assignment.direct[source]):
            continue
        parent, _, leaf = target.rpartition(".")
        own = torch.nn.Parameter(torch.empty_like(model.get_parameter(target)), requires_grad=False)
        setattr(model.get_submodule(parent), leaf, own)


def kept_in_float32(torch, model, dtype):
    """Whether a parameter is float32 in every computation: a function of its name."""
    plan = getattr(model, "_get_dtype_plan", lambda dtype: {})(dtype)
    patterns = [re.compile(pattern.replace("*", ".*")) for pattern, kept in plan.items() if kept == torch.float32]
    return lambda name: any(pattern.search(name) for pattern in patterns)


def initial_value(torch, model, module, leaf, parameter):
    """What the class gives to a parameter that a checkpoint may lack; None if that is random."""
    values = []
    for seed in (1, 2):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            value = torch.full(parameter.shape, float("nan"), dtype=parameter.dtype)
            module._parameters[leaf] = torch.nn.Parameter(value, requires_grad=False)
            model._init_weights(module)
            values.append(module._parameters[leaf].detach().clone())
    return values[0] if torch.equal(*values) else None


def count(names, what):
    return f"{len(names)} {what}{'' if len(names) == 1 else 's'}"


def listed(names):
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
