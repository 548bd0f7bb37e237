"""Gives a model built by transformers its weights: those that the program multiplies, and torch tensors over its memory."""

import concurrent.futures
import contextlib
import inspect
import re

import sluice_weights as weights
from sluice_host import INITS, WEIGHT_TYPES, type_code, view
from sluice_weights import Refused


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


def reads_weight(parent, leaf):
    """Whether the code of a class takes the weight of one of its linear modules, not the product alone."""
    try:
        source = inspect.getsource(type(parent))
    except (OSError, TypeError):
        return False
    return re.search(rf"self\.{leaf}\.weight\b(?!\.(dtype|device))", source) is not None


class Loader:
    def __init__(self, torch, host, dtype, threads):
        self.torch, self.host, self.dtype, self.threads = torch, host, dtype, threads
        self.replaced = []  # nn.Linear modules: the ids of their parameters stay theirs

    def load(self, model):
        """Gives every parameter its memory. The program fills it later, except with what transformers converts."""
        torch, names = self.torch, self.host.names()
        if not names:  # random weights: every parameter by its own name
            names = [n for n, _ in model.named_parameters()]
        assignment = weights.assign(model, names)
        self.ignored = weights.refuse_unused(model, assignment)
        weights.untie(torch, model, assignment, self.equal)
        in_float32 = weights.kept_in_float32(torch, model, self.dtype)
        aliases = {}  # a tied parameter has several names
        for name, tensor in model.state_dict(keep_vars=True).items():
            aliases.setdefault(id(tensor), []).append(name)

        def source(tensor):
            return next((assignment.direct[n] for n in aliases.get(id(tensor), ()) if n in assignment.direct), None)

        filled = set()  # ids of parameters and buffers with a value
        HostLinear = make_host_linear(torch)
        for name, module in list(model.named_modules()):
            if type(module) is not torch.nn.Linear or module.weight.dtype != self.dtype:
                continue
            stem, bias = (source(module.weight) or "").removesuffix(".weight"), module.bias is not None
            if f"{stem}.weight" != source(module.weight) or (bias and source(module.bias) != f"{stem}.bias"):
                continue  # has other stored names, or is converted: it stays a torch module
            if in_float32(f"{name}.weight") and self.dtype != torch.float32:
                continue
            parent, _, leaf = name.rpartition(".")
            if reads_weight(model.get_submodule(parent), leaf):
                continue
            handle = self.host.linear(stem, module.out_features, module.in_features, bias)
            setattr(model.get_submodule(parent), leaf, HostLinear(self.host, handle, module, self.dtype))
            filled.update(id(tensor) for tensor in (module.weight, module.bias) if tensor is not None)
            self.replaced.append(module)

        places, by_name = {}, {}
        for module_name, module in list(model.named_modules()):
            for leaf, parameter in list(module._parameters.items()):
                if parameter is None:
                    continue
                name = f"{module_name}.{leaf}" if module_name else leaf
                if id(parameter) not in places:
                    dtype = torch.float32 if in_float32(name) and parameter.is_floating_point() else parameter.dtype
                    places[id(parameter)] = parameter, self.parameter(source(parameter), leaf, parameter, dtype)
                    if source(parameter) is not None:
                        filled.add(id(parameter))
                by_name[name] = parameter, places[id(parameter)][1]
                module._parameters[leaf] = torch.nn.Parameter(places[id(parameter)][1], requires_grad=False)
        for name, buffer in model.named_buffers():
            if buffer.is_meta:
                raise Refused(f"its buffer {name} has no value without the checkpoint")
            if name in assignment.direct:
                stored = self.host.shape(assignment.direct[name])
                if stored != list(buffer.shape):
                    raise Refused(f"its buffer {name} has the shape {list(buffer.shape)}, and {stored} in the checkpoint")
                buffer.copy_(self.tensor(assignment.direct[name], buffer.dtype))
                filled.add(id(buffer))
        with concurrent.futures.ThreadPoolExecutor(self.threads) as pool:
            for first, (converter, parts) in assignment.merged.items():
                self.convert(model, converter, first, parts, by_name, filled, pool)
        self.fill_missing(model, aliases, by_name, filled)

    def convert(self, model, converter, first, parts, by_name, filled, pool):
        dtype = by_name[first][1].dtype if first in by_name else self.dtype
        read = lambda name: pool.submit(self.tensor, name, dtype)
        for name, value in weights.converted(model, converter, first, parts, read).items():
            if name not in by_name:
                raise Refused(f"transformers makes {name} of the checkpoint's {parts[0][1]}, which is no parameter of the class")
            parameter, place = by_name[name]
            if value.shape != place.shape:
                raise Refused(f"{name} has the shape {list(place.shape)}, and {list(value.shape)} in the checkpoint")
            place.copy_(value)
            filled.add(id(parameter))

    def fill_missing(self, model, aliases, by_name, filled):
        """A parameter or persistent buffer without a value is an error, unless the class gives it one."""
        if not self.host.names():
            return
        lost = [names[0] for identity, names in aliases.items() if identity not in filled]
        weights.refuse_missing(model, lost)
        for name in lost:
            if name not in by_name:
                continue  # a buffer: the class has computed it
            parent, _, leaf = name.rpartition(".")
            value = weights.initial_value(self.torch, model, model.get_submodule(parent), leaf, by_name[name][1])
            if value is None:
                raise Refused(f"the checkpoint lacks {name}, which its class would fill at random")
            by_name[name][1].copy_(value)
            model.get_submodule(parent)._parameters[leaf] = self.torch.nn.Parameter(by_name[name][1], requires_grad=False)

    def tensor(self, name, dtype):
        """A tensor of the checkpoint as torch memory."""
        out = self.torch.empty(self.host.shape(name), dtype=dtype)
        if out.numel():
            self.host.read(name, type_code(dtype), out.data_ptr())
        return out

    def equal(self, one, other):
        """Whether two tensors of the checkpoint hold the same values; reads a few rows at a time."""
        shape = self.host.shape(one)
        if shape != self.host.shape(other):
            return False
        if not shape:
            return self.torch.equal(self.tensor(one, self.dtype), self.tensor(other, self.dtype))
        rows = max(1, (1 << 22) // max(1, self.torch.Size(shape[1:]).numel()))
        for first in range(0, shape[0], rows):
            count = min(rows, shape[0] - first)
            pieces = [self.torch.empty([count, *shape[1:]], dtype=self.dtype) for _ in range(2)]
            for name, piece in zip((one, other), pieces):
                self.host.read(name, type_code(self.dtype), piece.data_ptr(), first, count)
            if not self.torch.equal(*pieces):
                return False
        return True

    def parameter(self, name, leaf, parameter, dtype):
        """`name` is that of the tensor which fills it, or None."""
        shape = list(parameter.shape)
        code, kind = WEIGHT_TYPES[str(dtype).removeprefix("torch.")]
        address = self.host.take(parameter.numel(), code)
        if name is not None and parameter.numel():
            init = INITS["zeros"] if leaf == "bias" else INITS["normal"] if len(shape) > 1 else INITS["ones"]
            self.host.fill(name, code, shape, init, address)
        return view(self.torch, address, shape, kind)
