"""The Python side of the Transformers plugin: builds a model with the installed `transformers` and
runs it on the program's weights, GEMMs and paged attention (see host.h).

The model is built without memory for its parameters. Its nn.Linear modules become HostLinear: the
program loads, shards and multiplies their weights. Other parameters are torch tensors over memory
that the program fills. Attention goes through AttentionInterface of `transformers` into the
program's KV pool. The sequences of a step form one row of tokens, and only the program separates
them: every other module works token by token.
"""

import contextlib
import ctypes
import inspect
import json
import re
import traceback

c_i32, c_i64, c_ptr, c_str = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p


class AttentionCall(ctypes.Structure):
    _fields_ = [(name, c_i64) for name in ("layer", "tokens", "heads", "kv_heads", "dim")]
    _fields_ += [(name, c_ptr) for name in ("q", "k", "v", "out")]
    _fields_ += [("scale", ctypes.c_double), ("window", c_i64)]


class Step(ctypes.Structure):
    _fields_ = [
        ("tokens", c_i64), ("ids", c_ptr), ("positions", c_ptr), ("embeddings", c_ptr), ("hidden", c_ptr),
        ("run_base", c_i64), ("num_rows", c_i64), ("rows", c_ptr), ("logits", c_ptr),
    ]


PROBE = ctypes.CFUNCTYPE(c_i32)
STEP = ctypes.CFUNCTYPE(c_i32, ctypes.POINTER(Step))
CLOSE = ctypes.CFUNCTYPE(None, c_ptr)
HOST_FUNCTIONS = {
    "has": (c_i32, c_str, c_i32),
    "name": (c_str, c_i64),
    "take": (c_i32, c_i64, c_i32, ctypes.POINTER(c_ptr)),
    "fill": (c_i32, c_str, c_i32, ctypes.POINTER(c_i64), c_i32, c_i32, c_ptr),
    "linear": (c_i32, c_str, c_i64, c_i64, c_i32, ctypes.POINTER(c_i64)),
    "apply": (c_i32, c_i64, c_i64, c_ptr, c_i32, c_ptr),
    "attend": (c_i32, ctypes.POINTER(AttentionCall)),
    "describe": (c_i32, ctypes.POINTER(AttentionCall)),
    "built": (c_i32, c_i64, c_i64, c_str, PROBE, STEP, CLOSE),
    "fail": (None, c_str),
}


class HostTable(ctypes.Structure):
    _fields_ = [("self", c_ptr)] + [
        (name, ctypes.CFUNCTYPE(result, c_ptr, *arguments)) for name, (result, *arguments) in HOST_FUNCTIONS.items()
    ]


class Refused(Exception):
    """The model cannot run here; the text is for the person who started the program."""


class HostError(Exception):
    """A function of the program failed; the program has stored the reason."""


class Host:
    def __init__(self, address):
        self.table = HostTable.from_address(address)

    def has(self, name, by_config):
        return bool(self.table.has(self.table.self, name.encode(), by_config))

    def names(self):
        out = []
        while name := self.table.name(self.table.self, len(out)):
            out.append(name.decode())
        return out

    def call(self, name, *arguments):
        if getattr(self.table, name)(self.table.self, *arguments):
            raise HostError(name)

    def take(self, elements, dtype):
        address = c_ptr()
        self.call("take", elements, dtype, ctypes.byref(address))
        return address.value

    def fill(self, name, dtype, shape, init, address):
        self.call("fill", name.encode(), dtype, (c_i64 * len(shape))(*shape), len(shape), init, address)

    def linear(self, name, rows, columns, bias):
        handle = c_i64()
        self.call("linear", name.encode(), rows, columns, bias, ctypes.byref(handle))
        return handle.value


# Views of the program's memory as torch tensors, without a copy: DLPack (dlpack.h, version 0).
class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_ptr), ("device_type", c_i32), ("device_id", c_i32), ("ndim", c_i32), ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(c_i64)),
        ("strides", ctypes.POINTER(c_i64)), ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, c_ptr)


class DLManagedTensor(ctypes.Structure):
    _fields_ = [("dl_tensor", DLTensor), ("manager", c_ptr), ("deleter", DELETER)]


live_views = {}  # DLManagedTensor address -> objects with its lifetime
forget = DELETER(lambda address: live_views.pop(address, None) and None)

DL_CPU, DL_INT, DL_FLOAT, DL_BFLOAT = 1, 0, 2, 4
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [c_ptr, c_str, c_ptr]


def view(torch, address, shape, kind):
    """`kind` is (DLPack code, bits). The program owns the memory, which must outlive the tensor."""
    if 0 in shape:
        return torch.empty(shape, dtype=torch.float32)
    extents = (c_i64 * len(shape))(*shape)
    tensor = DLTensor(address, DL_CPU, 0, len(shape), kind[0], kind[1], 1, extents, None, 0)
    managed = DLManagedTensor(tensor, None, forget)
    live_views[ctypes.addressof(managed)] = managed, extents
    return torch.from_dlpack(new_capsule(ctypes.addressof(managed), b"dltensor", None))


FLOAT32, INT32 = (DL_FLOAT, 32), (DL_INT, 32)
WEIGHT_TYPES = {"float32": (0, FLOAT32), "bfloat16": (1, (DL_BFLOAT, 16)), "float16": (2, (DL_FLOAT, 16))}
INITS = {"normal": 0, "ones": 1, "zeros": 2}

# Arguments of attention functions that change the result and that paged attention lacks.
UNSUPPORTED_ARGUMENTS = ("position_bias", "alibi", "attention_bias", "head_mask", "s_aux", "softcap", "block_mask")


@contextlib.contextmanager
def parameters_without_memory(torch):
    """Modules made inside have uninitialised parameters without memory, but real buffers."""
    register = torch.nn.Module.register_parameter
    inits = {name: f for name, f in vars(torch.nn.init).items() if name.endswith("_") and callable(f)}

    def register_empty(module, name, parameter):
        register(module, name, parameter)
        if parameter is not None and not parameter.is_meta:  # a tied one stays one object
            module._parameters[name] = torch.nn.Parameter(parameter.to("meta"), requires_grad=False)

    torch.nn.Module.register_parameter = register_empty
    for name in inits:
        setattr(torch.nn.init, name, lambda tensor, *a, **k: tensor)
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register
        for name, f in inits.items():
            setattr(torch.nn.init, name, f)


def make_host_linear(torch):
    class HostLinear(torch.nn.Module):
        """out = x W^T + b, computed by the program with its own weights."""

        def __init__(self, host, handle, linear, dtype):
            super().__init__()
            self.host, self.handle = host, handle
            self.in_features, self.out_features = linear.in_features, linear.out_features
            self.weight = torch.empty(0, dtype=dtype)  # some models read type and device

        def forward(self, x):
            rows = x.reshape(-1, self.in_features)
            if rows.dtype not in (torch.float32, torch.bfloat16):
                rows = rows.float()
            rows = rows.contiguous()
            out = torch.empty(rows.shape[0], self.out_features, dtype=torch.float32)
            code = 0 if rows.dtype == torch.float32 else 1
            self.host.call("apply", self.handle, rows.shape[0], rows.data_ptr(), code, out.data_ptr())
            return out.to(x.dtype).view(*x.shape[:-1], self.out_features)

    return HostLinear


def make_finished_base(torch, output_type):
    class Output(output_type):
        def __getattr__(self, name):
            """Some heads read more than the hidden states (cross attentions, router logits)."""
            if name.startswith("_"):
                raise AttributeError(name)
            return None

    class FinishedBase(torch.nn.Module):
        """Replaces the base model of the head's class: returns the known hidden states."""

        def __init__(self, base):
            super().__init__()
            self.__dict__["base"] = base
            self.hidden = None

        def __getattr__(self, name):
            return getattr(self.__dict__["base"], name)

        def forward(self, *args, **kwargs):
            return Output(last_hidden_state=self.hidden)

    return FinishedBase


class Session:
    def __init__(self, host, settings):
        import torch
        import transformers
        from transformers.modeling_outputs import BaseModelOutputWithPast

        self.host, self.torch = host, torch
        self.dtype = getattr(torch, settings["dtype"])
        self.weight_code, self.weight_kind = WEIGHT_TYPES[settings["dtype"]]
        self.probing, self.layer = False, 0
        torch.set_num_threads(settings["threads"])
        transformers.AttentionInterface.register("sluice", self.attention)
        transformers.logging.set_verbosity_error()
        model = self.build(transformers, settings)
        self.load(model)
        prefix = model.base_model_prefix
        self.base = getattr(model, prefix)
        self.finished = make_finished_base(torch, BaseModelOutputWithPast)(self.base)
        model._modules[prefix] = self.finished
        self.first_position = self.find_first_position(settings["context_length"])
        self.model = model.eval()
        self.base.eval()
        config = model.config.get_text_config()
        where = inspect.getfile(type(model))
        commit = getattr(model.config, "_commit_hash", None)
        described = (
            f"{type(model).__name__} of {where}" + (f" at {commit}" if commit else "") + f", transformers "
            f"{transformers.__version__}, torch {torch.__version__}"
        )
        # ctypes objects must live as long as they may be called.
        self.callbacks = (PROBE(self.guarded(self.probe)), STEP(self.guarded(self.step)))
        host.call("built", config.hidden_size, config.vocab_size, described.encode(), *self.callbacks, close)

    def build(self, transformers, settings):
        arguments = {"trust_remote_code": settings["trust_remote_code"], "local_files_only": True}
        try:
            config = transformers.AutoConfig.from_pretrained(settings["directory"], **arguments, **settings["overrides"])
            with parameters_without_memory(self.torch):
                model = transformers.AutoModelForCausalLM.from_config(
                    config, trust_remote_code=settings["trust_remote_code"], attn_implementation="sluice", dtype=self.dtype
                )
        except KeyError as error:
            raise Refused("its class chooses its attention by itself, not through the table of transformers") from error
        except (ValueError, ImportError, OSError) as error:
            hint = "" if settings["trust_remote_code"] or "trust_remote_code" not in str(error) else (
                "; its repository brings code of its own, which runs only with --trust-remote-code"
            )
            raise Refused(f"transformers {transformers.__version__} cannot build it: {first_line(error)}{hint}") from error
        other = set(getattr(config.get_text_config(), "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
        if getattr(model, "_is_stateful", False) or other:
            what = f"layers of the kinds {sorted(other)}" if other else "a recurrent state"
            raise Refused(f"{type(model).__name__} has {what}, which the fallback cannot page")
        return model

    def find_first_position(self, context_length):
        """The first position. RoBERTa's family counts from the row after padding in its table of
        positions, but only if it makes the positions itself."""
        for name, module in self.base.named_modules():
            if name.rpartition(".")[2] == "position_embeddings" and getattr(module, "padding_idx", None) is not None:
                first = module.padding_idx + 1
                if context_length > module.num_embeddings - first:
                    raise Refused(
                        f"its table of positions has {module.num_embeddings} rows, of which sequences begin with row {first}: "
                        f"give --context-length {module.num_embeddings - first} or less"
                    )
                return first
        return 0

    def load(self, model):
        """Gives every parameter its memory; the program fills it later."""
        torch = self.torch
        aliases = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            aliases.setdefault(id(parameter), []).append(name)
        prefix = model.base_model_prefix + "."
        places = {}

        converted = self.converted_names(model)

        def spellings(names):
            return [*names, *(n[len(prefix):] if n.startswith(prefix) else prefix + n for n in names)]

        def stored(names):
            """The checkpoint's name of a parameter: with or without the base model's prefix, that
            of a tied parameter, or an older name that the class knows."""
            for name in spellings(names):
                if self.host.has(name, False):
                    return name
                if len(sources := converted.get(name, [])) == 1 and sources[0][1] is None:
                    return sources[0][0]
            return names[0]

        def stored_parts(names):
            return next((converted[n] for n in spellings(names) if n in converted and converted[n][0][1]), [])

        linears = {
            name: module for name, module in model.named_modules() if type(module) is torch.nn.Linear
        }
        HostLinear = make_host_linear(torch)
        replaced = set()
        for name, module in linears.items():
            weight = stored(aliases[id(module.weight)])
            tensor = weight.removesuffix(".weight")
            bias = module.bias is not None
            if tensor == weight or (bias and stored([f"{name}.bias"]) != f"{tensor}.bias"):
                continue  # has other stored names: it stays a torch module
            handle = self.host.linear(tensor, module.out_features, module.in_features, bias)
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, HostLinear(self.host, handle, module, self.dtype))
            replaced.add(name)

        for module_name, module in list(model.named_modules()):
            for leaf, parameter in list(module._parameters.items()):
                if parameter is None:
                    continue
                if id(parameter) not in places:
                    name = f"{module_name}.{leaf}" if module_name else leaf
                    names = aliases.get(id(parameter), [name])
                    places[id(parameter)] = self.parameter(stored(names), leaf, parameter, stored_parts(names))
                module._parameters[leaf] = torch.nn.Parameter(places[id(parameter)], requires_grad=False)
        for name, buffer in model.named_buffers():
            if buffer.is_meta:
                raise Refused(f"its buffer {name} has no value without the checkpoint")
            if self.host.has(name, False) and buffer.is_floating_point():
                address = buffer.data_ptr()
                code = [c for c, _ in WEIGHT_TYPES.values()][[torch.float32, torch.bfloat16, torch.float16].index(buffer.dtype)]
                self.host.fill(name, code, list(buffer.shape), INITS["zeros"], address)

    def converted_names(self, model):
        """Renamed tensors, from the conversion tables of transformers: the class's name ->
        [(checkpoint's name, None, or (how they are merged, index of the merged tensor))]."""
        try:
            from transformers.conversion_mapping import get_model_conversion_mapping
        except ImportError:
            return {}
        transforms = get_model_conversion_mapping(model)
        renamings = [t for t in transforms if not getattr(t, "operations", None)]
        converters = [t for t in transforms if getattr(t, "operations", None)]
        out = {}
        for name in self.host.names():
            key, joined = name, None
            for renaming in renamings:
                key, _ = renaming.rename_source_key(key)
            for converter in converters:
                target, pattern = converter.rename_source_key(key)
                if pattern is not None:
                    key, joined = target, (converter, converter.source_patterns.index(pattern))
                    break
            if key != name:
                out.setdefault(key, []).append((name, joined))
        return out

    def parameter(self, name, leaf, parameter, parts):
        shape, host = list(parameter.shape), self.host
        address = host.take(parameter.numel(), self.weight_code)
        tensor = view(self.torch, address, shape, self.weight_kind)
        init = INITS["zeros"] if leaf == "bias" else INITS["normal"] if len(shape) > 1 else INITS["ones"]
        if not parts or host.has(name, False):
            host.fill(name, self.weight_code, shape, init, address)
        else:
            for part, offset, part_shape in stacked(name, shape, parts):
                host.fill(part, self.weight_code, part_shape, init, address + offset * tensor.element_size())
        return tensor

    def attention(self, module, query, key, value, attention_mask=None, scaling=None, sliding_window=None, **arguments):
        """An attention function of `transformers`: query [1, heads, tokens, dim] -> [1, tokens,
        heads, dim]."""
        torch = self.torch
        for name in UNSUPPORTED_ARGUMENTS:
            if arguments.get(name) is not None:
                raise Refused(f"its attention uses {name}, which the fallback does not have")
        if arguments.get("is_causal") is False or getattr(module, "is_causal", True) is False:
            raise Refused("its attention is not causal")
        if query.shape[0] != 1 or query.shape[2] != key.shape[2]:
            raise Refused("it attends to other tokens than its own")
        dim = query.shape[-1]
        if value.shape[-1] > dim:
            raise Refused(f"its values are wider than its keys ({value.shape[-1]} and {dim})")
        rows = lambda t: t[0].transpose(0, 1).float().contiguous()
        padded = torch.nn.functional.pad(value, (0, dim - value.shape[-1])) if value.shape[-1] < dim else value
        q, k, v = rows(query), rows(key), rows(padded)
        out = torch.zeros_like(q)
        call = AttentionCall(
            self.layer, q.shape[0], q.shape[1], k.shape[1], dim, q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(),
            dim**-0.5 if scaling is None else float(scaling), int(sliding_window or 0),
        )
        self.layer += 1
        self.host.call("describe" if self.probing else "attend", ctypes.byref(call))
        return out[..., : value.shape[-1]].to(query.dtype).unsqueeze(0), None

    def run_base(self, **inputs):
        self.layer = 0
        return self.base(use_cache=False, **inputs).last_hidden_state[0]

    def probe(self):
        """A pass over one token that discovers the attention layers."""
        self.probing = True
        try:
            ids = self.torch.zeros(1, 1, dtype=self.torch.long)
            hidden = self.run_base(input_ids=ids, position_ids=ids)
            layers = self.layer
            self.head(hidden)
            if self.layer != layers:
                raise Refused("its head does not take the hidden states of its base model as they are")
        finally:
            self.probing = False

    def head(self, hidden):
        """The class's own path from the last hidden states [rows, hidden] to logits."""
        self.finished.hidden = hidden.unsqueeze(0)
        ids = self.torch.zeros(1, hidden.shape[0], dtype=self.torch.long)
        return self.model(input_ids=ids, position_ids=ids, use_cache=False).logits[0]

    def step(self, pointer):
        torch, step = self.torch, pointer.contents
        hidden_size = self.model.config.get_text_config().hidden_size
        hidden = view(torch, step.hidden, [step.tokens, hidden_size], FLOAT32)
        if step.run_base:
            positions = view(torch, step.positions, [1, step.tokens], INT32).long()
            if step.embeddings:
                embeddings = view(torch, step.embeddings, [1, step.tokens, hidden_size], FLOAT32)
                inputs = {"inputs_embeds": embeddings.to(self.dtype)}
            else:
                inputs = {"input_ids": view(torch, step.ids, [1, step.tokens], INT32).long()}
            hidden.copy_(self.run_base(position_ids=positions + self.first_position, **inputs))
        if step.num_rows:
            rows = view(torch, step.rows, [step.num_rows], INT32).long()
            logits = self.head(hidden[rows].to(self.dtype))
            view(torch, step.logits, list(logits.shape), FLOAT32).copy_(logits)

    def guarded(self, function):
        def call(*arguments):
            try:
                with self.torch.inference_mode():
                    function(*arguments)
                return 0
            except BaseException as error:
                report(self.host, error)
                return 1

        return call


def stacked(name, shape, parts):
    """One matrix per expert for a class tensor [experts, rows, columns]; kinds (gate, up) are
    stacked by rows. -> [(checkpoint's name, first element, shape)]"""
    operations = [type(operation).__name__ for operation in parts[0][1][0].operations]
    kinds = 1 + max(kind for _, (_, kind) in parts)
    known = operations == ["MergeModulelist"] and kinds == 1 or operations == ["MergeModulelist", "Concatenate"]
    experts = len(parts) // kinds
    if not known or len(shape) != 3 or shape[0] != experts or len(parts) != experts * kinds or shape[1] % kinds:
        raise Refused(f"{name} is made of {len(parts)} tensors of the checkpoint by {operations}, which is not supported")

    def number(part):
        return [int(digits) for digits in re.findall(r"\d+", part[0])]

    rows = shape[1] // kinds
    out = []
    for kind in range(kinds):
        of_kind = sorted((part for part in parts if part[1][1] == kind), key=number)
        for expert, (part, _) in enumerate(of_kind):
            out.append((part, (expert * kinds + kind) * rows * shape[2], [rows, shape[2]]))
    return out


def first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def report(host, error):
    if isinstance(error, HostError):
        return  # the program knows
    if isinstance(error, Refused):
        text = str(error)
    else:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__} at {place.filename}:{place.lineno}: {first_line(error)}"
    host.table.fail(host.table.self, text.encode(errors="replace"))


sessions = {}  # by the address of the program's table
close = CLOSE(lambda address: sessions.pop(address, None) and None)


def start(address, settings):
    host = Host(address)
    try:
        sessions[address] = Session(host, json.loads(settings))
    except BaseException as error:
        report(host, error)
