"""Quantised checkpoints on a CPU: what `show` and the log say of their form, and files with one fault
each, which end the program at once with status 2 and take no memory."""

import json
import math
import os
import pathlib
import shutil
import struct

import pytest

from sluice_server import GOLDEN, ROOT, sluice
from test_bad_models import MIB, run, tensors_of, write_tensors

MORE = pathlib.Path(os.environ.get("SLUICE_GOLDEN_MORE", ROOT / "build" / "release" / "golden"))
FIXTURES = sorted([*(GOLDEN / "models").glob("quant-*"), *MORE.glob("quant-*")], key=lambda path: path.name)

# What `show` says; without a semicolon, nothing is widened.
FORMS = {
    "quant-awq-g128-qwen2": "AWQ of 4 bits with a scale a row in 14 matrices",
    "quant-awq-g32-llama": "AWQ of 4 bits in groups of 32 in 14 matrices",
    "quant-ct-fp8-dynamic-qwen2": "fp8 with a scale a row in 14 matrices",
    "quant-ct-fp8-tensor-llama": "fp8 with one scale in 14 matrices",
    "quant-ct-int8-w8a8-llama": "int8 of 8 bits with a scale a row (rows of x in int8) in 14 matrices",
    "quant-ct-w4a16-llama": "packed integers of 4 bits in groups of 32 in 14 matrices",
    "quant-fp8-block-deepseek-v3": "fp8 in blocks of 128 x 128 in 17 matrices, fp8 with one scale in 9 matrices; widened when it is read: "
                                   "fp8 in blocks of 128 x 128 in 2 matrices, "
                                   "among them model.layers.0.self_attn.kv_b_proj.weight: its layer computes plain numbers",
    "quant-fp8-block-qwen3": "fp8 in blocks of 128 x 128 in 14 matrices",
    "quant-fp8-ue8m0-qwen3": "fp8 in blocks of 128 x 128 in 14 matrices",
    "quant-gptq-g32-actorder-asym-qwen2": "GPTQ of 4 bits in groups of 32 by an index of columns in 14 matrices",
    "quant-gptq-g32-sym-llama": "GPTQ of 4 bits in groups of 32 by an index of columns in 14 matrices",
    "quant-modelopt-fp8-llama": "fp8 with one scale in 14 matrices",
    "quant-ct-nvfp4-qwen3-moe": "NVFP4 in groups of 16 in 63 matrices",
    "quant-modelopt-nvfp4-llama": "NVFP4 in groups of 16 in 14 matrices",
    "quant-mxfp4-gpt-oss": "MXFP4 in groups of 32 in 4 matrices",
}
@pytest.mark.parametrize("folder", FIXTURES, ids=lambda path: path.name)
def test_show_says_how_it_is_computed(folder):
    facts = json.loads(sluice("show", folder, "--json").stdout)
    form = FORMS[folder.name]
    assert facts["on_a_cpu"] == "computed as stored: " + (form if ";" in form else form + "; nothing is widened")
    words = sluice("show", folder).stdout
    assert "on a cpu" in words and "computed as stored" in words


def test_show_says_why_all_is_widened():
    folder = GOLDEN / "models" / "quant-fp8-ue8m0-qwen3"
    for flags, why in ((["--dtype", "float32"], "the computation is float32"), (["--quantization", "none"], "--quantization none computes plain numbers")):
        said = json.loads(sluice("show", folder, "--json", *flags).stdout)["on_a_cpu"]
        assert said.startswith("widened when it is read: fp8 in blocks of 128 x 128 in 14 matrices"), said
        assert said.endswith(why), said


@pytest.mark.parametrize("name, said", [("quant-modelopt-fp8-llama", "computed as stored: fp8"), ("quant-modelopt-nvfp4-llama", "computed as stored: NVFP4")])
def test_modelopt_says_it_in_a_file_of_its_own(tmp_path, name, said):
    folder = tmp_path / "m"
    shutil.copytree(GOLDEN / "models" / name, folder)
    config = json.loads((folder / "config.json").read_text())
    algorithm = config.pop("quantization_config")["quant_algo"]
    (folder / "config.json").write_text(json.dumps(config))
    status, log, _, _ = start(folder)
    assert status == 2 and "hf_quant_config.json says how it is quantised" in log
    (folder / "hf_quant_config.json").write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": {
        "quant_algo": algorithm, "kv_cache_quant_algo": None, "exclude_modules": ["lm_head"]}}))
    facts = json.loads(sluice("show", folder, "--json").stdout)
    assert facts["on_a_cpu"].startswith(said)
    assert sorted(facts["ignored_keys"]["hf_quant_config.json"]) == ["quantization.kv_cache_quant_algo"]
    assert not any(key.startswith("quantization") for key in facts["ignored_keys"]["config.json"])
    status, log, _, _ = start(folder, "--log-level", "info")
    assert status == 0, log
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "INT8_SQ"}}))
    status, log, _, _ = start(folder)
    assert status == 2 and 'hf_quant_config.json: quantization.quant_algo is "INT8_SQ"' in log, log


def start(folder, *flags):
    return run("generate", "--model", folder, "--input-ids", "5,6,7", "--max-new-tokens", "2", "--temperature", "0", "--max-total-tokens", "256",
               "--device", "cpu", *flags)


def test_the_log_says_it(tmp_path):
    status, log, _, _ = start(GOLDEN / "models" / "quant-modelopt-fp8-llama", "--log-level", "info")
    assert status == 0, log
    assert "computed as stored: fp8 with one scale in 14 matrices" in log
    assert "14 static scales of activations are not used" in log


def scale(name, value):
    """Writes a number over the first one of a tensor."""

    def change(tensors, data):
        info = tensors[name]
        pack = {"F32": "<f", "F16": "<e"}.get(info["dtype"])
        raw = struct.pack("<f", value)[2:] if info["dtype"] == "BF16" else bytes([value]) if info["dtype"] in ("U8", "F8_E4M3") else struct.pack(pack, value)
        begin = info["data_offsets"][0]
        return data[:begin] + raw + data[begin + len(raw):]

    return change


def without(name):
    def change(tensors, data):
        tensors["unrelated"] = tensors.pop(name)
        return data

    return change


def shaped(name, shape):
    def change(tensors, data):
        tensors[name]["shape"] = shape
        return data

    return change


FP8, AWQ, GPTQ, MX = "quant-fp8-ue8m0-qwen3", "quant-awq-g32-llama", "quant-gptq-g32-sym-llama", "quant-mxfp4-gpt-oss"
INT8, ORDERED, PACKED = "quant-ct-int8-w8a8-llama", "quant-gptq-g32-actorder-asym-qwen2", "quant-ct-w4a16-llama"
NV = "quant-modelopt-nvfp4-llama"
Q = "model.layers.0.self_attn.q_proj"
DAMAGE = [
    *((f"{form} {value}", form, scale(name, value), [name.rsplit(".", 1)[0], "a positive number was expected"])
      for form, name in ((FP8, Q + ".weight_scale_inv"), (AWQ, Q + ".scales"), (GPTQ, Q + ".scales"))
      for value in (0.0, -1.0, math.inf, math.nan)),
    ("mxfp4 NaN", MX, scale("model.layers.0.mlp.experts.down_proj_scales", 255), ["experts.down_proj", "NaN"]),
    *((f"nvfp4 scale {value}", NV, scale(Q + ".weight_scale", value), [Q + ".weight_scale", "not negative was expected"]) for value in (0x7F, 0x81)),
    *((f"nvfp4 factor {value}", NV, scale(Q + ".weight_scale_2", value), [Q + ".weight_scale_2", "a positive number"])
      for value in (0.0, -1.0, math.inf, math.nan)),
    ("fp8 without", FP8, without(Q + ".weight_scale_inv"), [Q + ".weight is float8_e4m3fn", Q + ".weight_scale_inv", "is missing"]),
    ("int8 without", INT8, without(Q + ".weight_scale"), [Q + ".weight is int8", Q + ".weight_scale was expected"]),
    ("gptq without an index", ORDERED, without(Q + ".g_idx"), [Q + ".qweight", "desc_act", "index of groups is missing"]),
    ("mxfp4 without", MX, without("model.layers.0.mlp.experts.down_proj_blocks"), ["lacks 1 tensor", "experts.down_proj_blocks"]),
    ("awq without", AWQ, without(Q + ".scales"), [Q + ".qweight but no " + Q + ".scales"]),
    ("fp8 shape", FP8, shaped(Q + ".weight_scale_inv", [1, 4]), [Q + ".weight_scale_inv is float32 [1, 4]", "[2, 2] for its blocks"]),
    ("awq shape", AWQ, shaped(Q + ".scales", [128, 4]), [Q + ".scales", "outputs"]),
    ("gptq groups", GPTQ, shaped(Q + ".scales", [2, 256]), [Q + ".scales", "outputs"]),
]


@pytest.mark.parametrize("form, change, says", [row[1:] for row in DAMAGE], ids=[row[0] for row in DAMAGE])
def test_damage_is_refused_by_name(form, change, says, tmp_path):
    source = next(path for path in FIXTURES if path.name == form)
    folder = tmp_path / "model"
    folder.mkdir()
    for path in source.iterdir():
        shutil.copyfile(path, folder / path.name)
    tensors, data = tensors_of(folder)
    write_tensors(folder, tensors, change(tensors, data))
    for flags in ([], ["--dtype", "float32"]):
        status, message, _, memory = start(folder, *flags)
        assert status == 2, message
        for text in says:
            assert text in message, (flags, message)
        assert memory < 300 * MIB
    for verb in (["plan"], ["plan", "--gpus", "1xH200"], ["show"]):
        if "a positive number" not in says[-1] and says[-1] != "NaN":  # they read no scales of experts
            done = sluice(*verb, folder)
            assert done.returncode == 2 and says[0] in done.stdout + done.stderr, (verb, done)


def weights_of_groups(**change):
    return {"config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, **change}}}}


@pytest.mark.parametrize("form, change, says", [
    (FP8, dict(quant_method="esoteric"), "methods that can be read: fp8"),
    (FP8, dict(quant_method="bitsandbytes"), "codebooks"),
    (FP8, dict(weight_block_size=[128]), "two integers"),
    (FP8, dict(fmt="e5m2"), "float8_e4m3fn [160, 144]; the configuration says e5m2"),
    (AWQ, dict(group_size=64), "it has 4 groups, and 128 columns are 2 of the configuration's group_size 64"),
    (AWQ, dict(group_size="x"), 'group_size is "x"'),
    (GPTQ, dict(group_size=48), "128 columns are 3"),
    (GPTQ, dict(group_size=-1), "128 columns are 1"),
    (GPTQ, dict(bits=8), "zeros of 4 bits, and the configuration says 8"),
    (GPTQ, dict(bits=5), "2, 3, 4 or 8 bits"),
    (PACKED, weights_of_groups(symmetric=False), "its zeros are missing"),
    (PACKED, weights_of_groups(actorder="group"), "index of groups is missing"),
    (PACKED, weights_of_groups(group_size=64), "128 columns are 2"),
])
def test_configurations_that_are_refused(form, change, says, tmp_path):
    source = next(path for path in FIXTURES if path.name == form)
    folder = tmp_path / "model"
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"].update(change)
    (folder / "config.json").write_text(json.dumps(config))
    status, message, _, _ = start(folder)
    assert status == 2 and says in message, message
    for verb in (["plan"], ["plan", "--gpus", "1xH200"], ["show"]):
        done = sluice(*verb, folder)
        assert done.returncode == 2 and says in done.stdout + done.stderr, (verb, done)


def test_a_kv_scale_of_zero(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(GOLDEN / "models" / FP8, folder)
    tensors, data = tensors_of(folder)
    name = "model.layers.0.self_attn.k_proj.k_scale"
    tensors[name] = {"dtype": "F32", "shape": [1], "data_offsets": [len(data), len(data) + 4]}
    write_tensors(folder, tensors, data + struct.pack("<f", 0))
    status, message, _, _ = start(folder, "--kv-cache-dtype", "fp8_e4m3")
    assert status == 2 and f"{name} has the scale 0" in message, message
    assert start(folder)[0] == 0  # auto does not read it


def test_plain_parts_of_a_fused_layer(tmp_path):
    """q and k are FP8, v is plain, as modules_to_not_convert may say: nothing is widened, and the answer is the same."""
    folder = tmp_path / "model"
    shutil.copytree(GOLDEN / "models" / FP8, folder)
    tensors, data = tensors_of(folder)
    name = "model.layers.0.self_attn.v_proj.weight"
    rows, columns = tensors[name]["shape"]
    tensors.pop(name + "_scale_inv")
    tensors[name] = {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [len(data), len(data) + 2 * rows * columns]}
    values = [((i * 37) % 101 - 50) / 512 for i in range(rows * columns)]
    data += b"".join(struct.pack("<f", value)[2:] for value in values)
    # Offsets must cover the file: what is no more used keeps a name.
    used = sorted(info["data_offsets"] for key, info in tensors.items() if key != "__metadata__")
    at = 0
    for i, (begin, end) in enumerate(used):
        if begin > at:
            tensors[f"unused.{i}"] = {"dtype": "U8", "shape": [begin - at], "data_offsets": [at, begin]}
        at = max(at, end)
    write_tensors(folder, tensors, data)
    said = json.loads(sluice("show", folder, "--json").stdout)["on_a_cpu"]
    assert said == "computed as stored: fp8 in blocks of 128 x 128 in 13 matrices; nothing is widened"
    status, log, _, _ = start(folder)
    assert status == 0, log
