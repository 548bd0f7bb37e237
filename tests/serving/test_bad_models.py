"""Model directories with one fault each: the program ends at once with status 2, names the fault
and its location, runs no code and takes no memory for it. Also the memory that loading a good model
may take."""

import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
import time
import zipfile
import zlib

import pytest

from sluice_server import GOLDEN, TINY, binary

LLAMA = GOLDEN / "models" / "llama-plain"
MIB = 1 << 20


# A process starts with its parent's memory as its peak, so a small process runs in between.
MEASURE = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
child.returncode = os.waitstatus_to_exitcode(status)
print(child.returncode, usage.ru_maxrss)
"""


def run(*args):
    """Status, output, seconds, and the maximum resident memory in bytes."""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-S", "-c", MEASURE, binary(), *map(str, args)], capture_output=True, text=True, timeout=120)
    status, kib = map(int, done.stdout.split())
    return status, done.stderr, time.monotonic() - began, kib * 1024


def generate(model, *flags):
    return run("generate", "--model", model, "--input-ids", "5,6,7", "--max-new-tokens", "2", "--temperature", "0",
               "--max-total-tokens", "256", *flags)


@pytest.fixture
def model(tmp_path):
    """A copy of a good model that a test may damage."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        shutil.copyfile(LLAMA / name, folder / name)
    return folder


def config(**changes):
    def spoil(folder):
        text = json.loads((folder / "config.json").read_text())
        for key, value in changes.items():
            text.pop(key, None) if value is ... else text.update({key: value})
        (folder / "config.json").write_text(json.dumps(text))

    return spoil


def tensors_of(folder):
    data = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def write_tensors(folder, header, data):
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def header(change):
    def spoil(folder):
        tensors, data = tensors_of(folder)
        write_tensors(folder, tensors, change(tensors, data) or data)

    return spoil


def drop(name):
    """Removes the tensor and moves the later tensors up."""

    def change(tensors, data):
        begin, end = tensors.pop(name)["data_offsets"]
        for info in tensors.values():
            if "data_offsets" in info and info["data_offsets"][0] >= end:
                info["data_offsets"] = [at - (end - begin) for at in info["data_offsets"]]
        return data[:begin] + data[end:]

    return header(change)


def renamed(tensors, data, name, to):
    tensors[to] = tensors.pop(name)


def at(name, **changes):
    return header(lambda tensors, data: tensors[name].update(changes))


def text_file(name, text):
    return lambda folder: (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def cut(folder):
    with open(folder / "model.safetensors", "r+b") as file:
        file.truncate(os.path.getsize(folder / "model.safetensors") - 1)


class Call:
    """When Python unpickles it, it calls a function."""

    def __init__(self, function, *arguments):
        self.what = (function, arguments)

    def __reduce__(self):
        return self.what


def zipped(payload, compression=zipfile.ZIP_STORED):
    def spoil(folder):
        (folder / "model.safetensors").unlink()
        with zipfile.ZipFile(folder / "pytorch_model.bin", "w", compression) as archive:
            archive.writestr("archive/data.pkl", payload)
            archive.writestr("archive/version", "3\n")

    return spoil


def pickled(value):
    return zipped(pickle.dumps(value, 2))


def deep_tuple():
    return b"\x80\x02" + b"(" * 1_000_000 + b"t" * 1_000_000 + b"."


NORM, HEAD = "model.norm.weight", "lm_head.weight"
SPOILT = "spoilt by a pickle"
ROWS = [
    # config.json
    ("hidden_size 0", config(hidden_size=0), "hidden_size is 0; it must be an integer from 1 to 1048576"),
    ("hidden_size -1", config(hidden_size=-1), "hidden_size is -1;"),
    ("hidden_size 2^40", config(hidden_size=1 << 40), "hidden_size is 1099511627776;"),
    ("hidden_size as text", config(hidden_size="4096"), 'hidden_size is "4096";'),
    ("heads do not divide", config(num_key_value_heads=3), "num_key_value_heads is 3; it must divide num_attention_heads"),
    ("a million layers", config(num_hidden_layers=10**6), "num_hidden_layers is 1000000; it must be an integer from 1 to 4096"),
    ("no vocab_size", config(vocab_size=...), "vocab_size is missing"),
    ("NaN", config(rms_norm_eps=float("nan")), 'rms_norm_eps is "NaN"; it must be a number from 1e-20 to 0.1'),
    ("rope of nonsense", config(rope_parameters=None, rope_scaling={"type": "linear", "factor": 0}), "rope_scaling.factor is 0;"),
    ("1e400", lambda f: (f / "config.json").write_text((f / "config.json").read_text().replace('"hidden_size":', '"hidden_size": 1e400, "was":')), 'hidden_size is "1e400";'),
    ("no JSON", text_file("config.json", "{"), "config.json: the text is not valid JSON"),
    ("no config.json", lambda f: (f / "config.json").unlink(), "config.json"),
    ("unknown architecture", config(architectures=["LamaForCausalLM"]), "nearest supported name is LlamaForCausalLM"),
    ("unknown architecture with code", config(architectures=["MyModel"], model_type="my", auto_map={"AutoConfig": "evil.Config"}), "code from a repository is never run"),
    ("unknown quantization", config(quantization_config={"quant_method": "hqq"}), 'quantization_config.quant_method is "hqq"'),
    # model.safetensors
    ("shorter than its header says", cut, "past the end"),
    ("bytes behind the last tensor", header(lambda t, d: d + b"xx"), "2 bytes follow the tensor"),
    ("reversed", header(lambda t, d: t[NORM]["data_offsets"].reverse()), f"the tensor {NORM}: data_offsets"),
    ("overlap", header(lambda t, d: t[NORM].update(data_offsets=[0, t[NORM]["data_offsets"][1] - t[NORM]["data_offsets"][0]])), "overlaps"),
    ("a span that is no shape", at(NORM, shape=[3]), f"the tensor {NORM}: data_offsets"),
    ("a product that overflows", at(NORM, shape=[1 << 40, 1 << 40]), f"the tensor {NORM}: the product of its shape overflows"),
    ("unknown type", at(NORM, dtype="F31"), f"the tensor {NORM} has the dtype F31, which cannot be read"),
    ("a header of 100 MB", text_file("model.safetensors", struct.pack("<Q", 100_000_001) + b"{"), "at most 100000000"),
    ("a tensor is missing", drop(NORM), f"the checkpoint lacks 1 tensor that the model needs: {NORM}"),
    ("a tensor of another shape", config(hidden_size=72), "the model needs ["),
    ("another name", header(lambda t, d: renamed(t, d, NORM, "model.norm.wait")), NORM),
    # pytorch_model.bin
    ("os.system", pickled(Call(os.system, f"echo {SPOILT}")), "posix.system"),
    ("eval", pickled({"w": Call(eval, f"print('{SPOILT}')")}), "__builtin__.eval"),
    ("a pickle in a pickle", pickled(Call(pickle.loads, pickle.dumps(Call(os.system, f"echo {SPOILT}")))), "loads"),
    ("an extension", zipped(b"\x80\x02\x82\x01."), "EXT1"),
    ("BINBYTES8 of 2^62", zipped(b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b"."), "4611686018427387904"),
    ("a frame that lies", zipped(b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"N."), "a frame claims 1152921504606846976 bytes"),
    ("a million tuples in each other", zipped(deep_tuple()), "more than 1000 marks"),
    ("an empty stack", zipped(b"\x80\x020."), "takes a value from an empty stack"),
    ("compressed", zipped(b"\x80\x02}" + b"N0" * (8 << 20) + b".", zipfile.ZIP_DEFLATED), "is compressed"),
    ("no archive", lambda f: ((f / "model.safetensors").unlink(), (f / "pytorch_model.bin").write_bytes(b"hello, world")), "neither like a zip archive"),
    ("nothing to load", lambda f: (f / "model.safetensors").unlink(), "model.safetensors"),
]


@pytest.mark.parametrize("spoil, text", [pytest.param(s, t, id=n) for n, s, t in ROWS])
def test_bad_model(model, spoil, text):
    spoil(model)
    least = run("version")[3]
    status, said, seconds, memory = generate(model, "--model-impl", "sluice")
    assert status == 2, said
    assert text in said and "error: " in said
    assert SPOILT not in said
    files = sum(path.stat().st_size for path in model.iterdir())
    assert memory - least <= files + 64 * MIB, memory
    assert seconds < 10  # the limit of two seconds, on a machine with other work


def tokenizer(change):
    def spoil(folder):
        text = json.loads((TINY / "tokenizer.json").read_text())
        change(text)
        (folder / "tokenizer.json").write_text(json.dumps(text))

    return spoil


def huge(folder):
    with open(folder / "tokenizer.json", "wb") as file:
        file.truncate(600 * MIB)


TOKENIZER_ROWS = [
    ("a merge of a missing token", tokenizer(lambda t: t["model"]["merges"].__setitem__(3, ["zz", "qq"])), "model.merges[3]"),
    ("an id twice", tokenizer(lambda t: t["model"]["vocab"].update({"zz": 5})), "the same id 5"),
    ("id 2^31", tokenizer(lambda t: t["model"]["vocab"].update({"zz": 1 << 31})), "2147483648"),
    ("a bad byte token", tokenizer(lambda t: (t["model"].update(byte_fallback=True), t["model"]["vocab"].update({"<0x-1>": 4090}))), "<0x-1>"),
    ("a pattern without an end", tokenizer(lambda t: t.update(pre_tokenizer={"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False})), "catastrophic"),
    ("an added token of 1 MB", tokenizer(lambda t: t["added_tokens"][0].update(content="a" * MIB)), "added_tokens[0].content"),
    ("600 MiB", huge, "629145600 bytes; at most 536870912 are allowed"),
    ("no JSON", text_file("tokenizer.json", "{"), "tokenizer.json"),
    ("none", lambda f: None, "there is no tokenizer"),
    ("an empty tokenizer.model", text_file("tokenizer.model", b""), "tokenizer.model"),
    ("tokenizer.model of noise", text_file("tokenizer.model", zlib.compress(b"x" * 999)), "tokenizer.model"),
]


@pytest.mark.parametrize("spoil, text", [pytest.param(s, t, id=n) for n, s, t in TOKENIZER_ROWS])
def test_bad_tokenizer(model, spoil, text):
    spoil(model)
    status, said, seconds, memory = run("serve", "--model", model, "--port", "0", "--max-total-tokens", "256")
    assert status == 2, said
    assert text in said and "error: " in said
    assert memory < 256 * MIB and seconds < 20


def test_a_tokenizer_of_another_model(model):
    shutil.copy(TINY / "tokenizer.json", model)
    for verb in (("generate", "--prompt", "a"), ("serve", "--port", "0")):
        status, said, _, _ = run(verb[0], "--model", model, *verb[1:])
        assert status == 2 and "belongs to another model" in said, said


def test_a_tensor_too_many_is_a_warning(model):
    tensors, data = tensors_of(model)
    tensors["model.extra.weight"] = {"dtype": "F32", "shape": [1], "data_offsets": [len(data), len(data) + 4]}
    write_tensors(model, tensors, data + bytes(4))
    status, said, *_ = generate(model)
    assert status == 0, said
    assert said.count("model.extra.weight") == 1 and "not used" in said


def test_weights_that_are_no_numbers(model):
    tensors, data = tensors_of(model)
    begin = tensors[HEAD]["data_offsets"][0]
    write_tensors(model, tensors, data[:begin] + struct.pack("<f", float("nan")) + data[begin + 4 :])
    status, said, *_ = generate(model, "--check-weights")
    assert status == 2 and HEAD in said and "NaN or infinity at element 0" in said, said


def large_model(folder):
    """Some 270 MB of bfloat16 values that all differ."""
    hidden, inner, layers, vocab = 1024, 4096, 8, 1024
    sizes = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden], "lm_head.weight": [vocab, hidden]}
    for i in range(layers):
        for name, shape in {"self_attn.q_proj": [hidden, hidden], "self_attn.k_proj": [hidden // 4, hidden], "self_attn.v_proj": [hidden // 4, hidden],
                            "self_attn.o_proj": [hidden, hidden], "mlp.gate_proj": [inner, hidden], "mlp.up_proj": [inner, hidden],
                            "mlp.down_proj": [hidden, inner], "input_layernorm": [hidden], "post_attention_layernorm": [hidden]}.items():
            sizes[f"model.layers.{i}.{name}.weight"] = shape
    tensors, end = {}, 0
    for name, shape in sizes.items():
        length = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        tensors[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + length]}
        end += length
    some = b"".join(struct.pack("<H", 0x3C00 + 37 * i % 512 + 0x8000 * (i % 3 % 2)) for i in range(1 << 16))
    write_tensors(folder, tensors, (some * (end // len(some) + 1))[:end])
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": vocab, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
        "dtype": "bfloat16", "tie_word_embeddings": False}))
    return end


def test_loading_takes_the_memory_of_the_weights(tmp_path):
    weights = large_model(tmp_path)
    assert weights > 200 * MIB
    # Repacked, as in the file, and in integers: 8.5 bits instead of 16, except for the embedding.
    for flags, share in ((["--dtype", "bfloat16"], 1), (["--dtype", "float32"], 1), (["--dtype", "bfloat16", "--quantization", "int8"], 0.55)):
        # Chunks of 64 tokens: the working memory of a step is not part of loading.
        status, said, _, memory = generate(tmp_path, "--threads", "2", "--chunked-prefill-size", "64", *flags)
        assert status == 0, said
        assert weights * share < memory <= weights * share + 64 * MIB, (flags, memory / MIB, weights / MIB)
