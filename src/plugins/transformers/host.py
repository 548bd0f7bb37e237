"""The program's functions and memory as Python sees them (host.h)."""

import ctypes

c_i32, c_i64, c_ptr, c_str = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p


class AttentionCall(ctypes.Structure):
    _fields_ = [(name, c_i64) for name in ("layer", "tokens", "heads", "kv_heads", "dim")]
    _fields_ += [(name, c_ptr) for name in ("q", "k", "v", "out")]
    _fields_ += [("scale", ctypes.c_double), ("window", c_i64), ("softcap", ctypes.c_double), ("sinks", c_ptr)]


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
    "shape": (c_i32, c_str, ctypes.POINTER(c_i64)),
    "read": (c_i32, c_str, c_i32, c_i64, c_i64, c_ptr),
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

    def shape(self, name):
        extents = (c_i64 * 8)()
        rank = self.table.shape(self.table.self, name.encode(), extents)
        if rank < 0:
            raise HostError("shape")
        return list(extents[:rank])

    def read(self, name, dtype, address, first=0, count=-1):
        """The tensor at once, or `count` of its rows (the first axis)."""
        self.call("read", name.encode(), dtype, first, count, address)

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
# Name of a type in torch -> the program's code, DLPack's code and bits.
WEIGHT_TYPES = {
    "float32": (0, FLOAT32), "bfloat16": (1, (DL_BFLOAT, 16)), "float16": (2, (DL_FLOAT, 16)), "int64": (3, (DL_INT, 64)),
    "int32": (4, INT32), "uint8": (5, (1, 8)), "bool": (6, (6, 8)),
}
INITS = {"normal": 0, "ones": 1, "zeros": 2}


def type_code(dtype):
    return WEIGHT_TYPES[str(dtype).removeprefix("torch.")][0]
