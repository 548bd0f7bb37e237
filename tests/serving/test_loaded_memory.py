"""Weights in memory: checkpoints of quantised formats, with matrices of a real model's proportions, take at most 1.05 times
their files."""

import json
import os
import random
import struct

import pytest

from sluice_server import TINY, sluice
from test_bad_models import write_tensors

DEVICE = os.environ.get("SLUICE_TEST_DEVICE", "cpu")
HIDDEN, INNER, KEYS, VOCABULARY, LAYERS, GROUP = 1024, 2816, 256, 512, 2, 128
NUMBERS = random.Random(1)

# Of each function: tensors of a matrix [n, k], as (type, shape, bytes).


def halves(count):
    return struct.pack("<H", 0x3C23) * count   # 0.01 in bfloat16, 1.03 in float16


def floats(count):
    return struct.pack("<f", 0.01) * count


def e4m3(count):
    """No NaN among them."""
    return NUMBERS.randbytes(count).translate(bytes(code & 0x80 | (code & 0x7F) % 0x78 for code in range(256)))


def awq(n, k):
    return {"qweight": ("I32", [k, n // 8], NUMBERS.randbytes(k * n // 2)), "qzeros": ("I32", [k // GROUP, n // 8], NUMBERS.randbytes(k // GROUP * n // 2)),
            "scales": ("F16", [k // GROUP, n], halves(k // GROUP * n))}


def gptq_of_any_order(n, k):
    groups = [column // GROUP for column in range(k)]
    NUMBERS.shuffle(groups)
    return {"qweight": ("I32", [k // 8, n], NUMBERS.randbytes(k * n // 2)), "qzeros": ("I32", [k // GROUP, n // 8], NUMBERS.randbytes(k // GROUP * n // 2)),
            "scales": ("F16", [k // GROUP, n], halves(k // GROUP * n)), "g_idx": ("I32", [k], struct.pack(f"<{k}i", *groups))}


def packed(n, k):
    return {"weight_packed": ("I32", [n, k // 8], NUMBERS.randbytes(k * n // 2)), "weight_scale": ("BF16", [n, k // GROUP], halves(k // GROUP * n)),
            "weight_shape": ("I64", [2], struct.pack("<qq", n, k))}


def fp8_blocks(n, k):
    blocks = [n // 128, k // 128]
    return {"weight": ("F8_E4M3", [n, k], e4m3(n * k)), "weight_scale_inv": ("F32", blocks, floats(blocks[0] * blocks[1]))}


def fp8_channels(n, k):
    return {"weight": ("F8_E4M3", [n, k], e4m3(n * k)), "weight_scale": ("BF16", [n, 1], halves(n))}


def int8_channels(n, k):
    return {"weight": ("I8", [n, k], NUMBERS.randbytes(n * k)), "weight_scale": ("BF16", [n, 1], halves(n))}


def compressed(form, bits, kind, strategy, group=None, rows=None):
    weights = {"num_bits": bits, "type": kind, "strategy": strategy, "group_size": group, "symmetric": True, "dynamic": False}
    rows = rows and {"num_bits": bits, "type": kind, "strategy": "token", "symmetric": True, "dynamic": True}
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": rows}}}


FORMATS = {
    awq: {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True},
    gptq_of_any_order: {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True, "sym": False},
    packed: compressed("pack-quantized", 4, "int", "group", GROUP),
    fp8_blocks: {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128],
                 "modules_to_not_convert": ["lm_head"]},
    fp8_channels: compressed("float-quantized", 8, "float", "channel", rows=True),
    int8_channels: compressed("int-quantized", 8, "int", "channel", rows=True),
}


def write_model(folder, form):
    plain = "F16" if form in (awq, gptq_of_any_order) else "BF16"
    tensors = {name: (plain, shape, halves(shape[0] * (shape + [1])[1]))
               for name, shape in (("model.embed_tokens", [VOCABULARY, HIDDEN]), ("lm_head", [VOCABULARY, HIDDEN]), ("model.norm", [HIDDEN]))}
    tensors = {f"{name}.weight": tensor for name, tensor in tensors.items()}
    matrices = {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (KEYS, HIDDEN), "self_attn.v_proj": (KEYS, HIDDEN),
                "self_attn.o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN), "mlp.down_proj": (HIDDEN, INNER)}
    for layer in range(LAYERS):
        for name, (n, k) in matrices.items():
            tensors |= {f"model.layers.{layer}.{name}.{part}": tensor for part, tensor in form(n, k).items()}
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{name}.weight"] = (plain, [HIDDEN], halves(HIDDEN))
    head, end = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    write_tensors(folder, head, b"".join(data for _, _, data in tensors.values()))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": VOCABULARY, "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
        "torch_dtype": "float16" if plain == "F16" else "bfloat16", "quantization_config": FORMATS[form]}))


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.__name__)
def test_weights_take_little_more_than_their_files(form, tmp_path):
    write_model(tmp_path, form)
    assert "nothing is widened" in sluice("show", tmp_path).stdout
    done = sluice("bench", "latency", "--model", tmp_path, "--tokenizer-path", TINY, "--device", DEVICE, "--dtype", "bfloat16", "--input-len", 8,
                  "--output-len", 2, "--tries", 1, "--roofline-mib", 0, "--json")
    assert done.returncode == 0, done.stderr
    files = os.path.getsize(tmp_path / "model.safetensors")
    assert 0.9 * files < json.loads(done.stdout)["weight_bytes"] <= 1.05 * files
