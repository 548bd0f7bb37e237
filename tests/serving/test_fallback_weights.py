"""Weights and variants of models that the Transformers plugin runs: as `from_pretrained` loads them, or refused."""

import json
import os
import subprocess

import pytest

from sluice_server import ROOT, sluice

PYTHON = str(ROOT / "build" / "venv-transformers" / "bin" / "python")

# Makes checkpoints, a line of JSON for each: importing torch and transformers takes longer than any of them.
MAKER = """
import json, sys, torch, traceback, transformers
from safetensors.torch import load_file, save_file
torch.set_num_threads(1)
answers, sys.stdout = sys.stdout, sys.stderr
SIZES = dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
             max_position_embeddings=64, initializer_range=0.3)
def make(name, **more):
    config = getattr(transformers, name)(**{**SIZES, **more})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, t in sorted(model.state_dict().items()):
            if t.dim() < 2 and t.is_floating_point():
                t.add_(torch.randn(t.shape) * 0.1)
    model.save_pretrained(folder)
def edit(change):
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})
def greedy():
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    ids = [5, 9, 33, 7, 21, 60, 11]
    for _ in range(8):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[7:]
for line in sys.stdin:
    wanted = json.loads(line)
    folder, file = wanted["folder"], wanted["folder"] + "/model.safetensors"
    torch.manual_seed(3)
    try:
        exec(wanted["code"])
        answer = {"tokens": greedy() if wanted["runs"] else []}
    except Exception:
        answer = {"error": traceback.format_exc()}
    print(json.dumps(answer), file=answers, flush=True)
"""


@pytest.fixture(autouse=True)
def python(monkeypatch):
    monkeypatch.setenv("SLUICE_PYTHON", PYTHON)


@pytest.fixture(scope="module")
def maker():
    with subprocess.Popen([PYTHON, "-c", MAKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def make(maker):
    """Writes a checkpoint and returns the class's own greedy tokens; with runs=False none."""

    def of(folder, code, runs=True):
        maker.stdin.write(json.dumps({"folder": str(folder), "code": code, "runs": runs}) + "\n")
        maker.stdin.flush()
        answer = json.loads(maker.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer["tokens"]

    return of


def run(folder, *flags, env=None):
    return sluice(
        "generate", "--model", folder, "--input-ids", "5,9,33,7,21,60,11", "--temperature", 0, "--max-new-tokens", 8,
        "--ignore-eos", "--dtype", "float32", "--json", *flags, env=env,
    )


def tokens(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["output_ids"]


@pytest.mark.parametrize(
    "code",
    [
        # experts are stored one by one and merged into one parameter
        'make("Dots1Config", num_key_value_heads=4, head_dim=8, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1,'
        ' n_group=1, topk_group=1, moe_intermediate_size=16, first_k_dense_replace=1)',
        # a soft cap of the scores, and a window
        'make("VaultGemmaConfig", num_key_value_heads=4, head_dim=8, attn_logit_softcapping=2.0, sliding_window=4)',
        # the output matrix is tied, and the file has one of its own
        'make("PersimmonConfig", tie_word_embeddings=True)\n'
        'edit(lambda t: t.__setitem__("lm_head.weight", torch.randn(96, 32)))',
        # without the prefix of the base model
        'make("PersimmonConfig", tie_word_embeddings=False)\n'
        'edit(lambda t: [t.__setitem__(n.removeprefix("model."), t.pop(n)) for n in list(t) if n.startswith("model.")])',
        # several files
        'make("PersimmonConfig")\n'
        'transformers.AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder, max_shard_size="20kB")\n'
        'import os; os.remove(file)',
        # a buffer that the class declares ignorable, and computes
        'make("AXK1Config", num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8,'
        ' v_head_dim=8, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, n_group=1, topk_group=1,'
        ' moe_intermediate_size=16, first_k_dense_replace=1)\n'
        'edit(lambda t: [t.pop(n) for n in list(t) if n.endswith("e_score_correction_bias")])',
    ],
    ids=["merged", "softcap", "untied", "prefix", "sharded", "given by the class"],
)
def test_weights_as_from_pretrained_loads_them(tmp_path, make, code):
    expected = make(tmp_path, code)
    done = run(tmp_path)
    assert tokens(done) == expected
    assert "runs through the Transformers fallback" in done.stderr


PERSIMMON = 'make("PersimmonConfig")\n'


@pytest.mark.parametrize(
    "change, texts",
    [
        ('t.__setitem__("model.layers.0.self_attn.extra.weight", torch.ones(4))', ["has no use for 1 tensor", "self_attn.extra.weight"]),
        ('t.pop("model.final_layernorm.bias")', ["lacks 1 parameter", "model.final_layernorm.bias"]),
        ('t.__setitem__("model.final_layernorm.bias", torch.ones(31))', ["model.final_layernorm.bias", "31"]),
        ('t.__setitem__("final_layernorm.bias", torch.ones(32))', ["two tensors of the checkpoint", "model.final_layernorm.bias"]),
    ],
    ids=["unused", "missing", "shape", "twice"],
)
def test_tensors_that_do_not_fit_are_errors(tmp_path, make, change, texts):
    make(tmp_path, f"{PERSIMMON}edit(lambda t: {change})", runs=False)
    done = run(tmp_path)
    assert done.returncode == 2 and all(text in done.stderr for text in texts), done.stderr


def test_an_unknown_quantisation_is_refused_by_name(tmp_path, make):
    make(tmp_path, PERSIMMON)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitnet"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = run(tmp_path)
    assert done.returncode == 2 and "bitnet" in done.stderr, done.stderr


@pytest.mark.parametrize(
    "code, key",
    [
        ('make("PhiConfig", qk_layernorm=True)', "qk_layernorm"),
        ('make("LlamaConfig", hidden_act="gelu_10")', "hidden_act"),
    ],
)
def test_a_variant_that_the_built_in_class_lacks(tmp_path, make, code, key):
    """The plugin takes it where it is installed. Without the plugin the refusal names it."""
    expected = make(tmp_path, code)
    done = run(tmp_path)
    assert tokens(done) == expected
    assert "The class that is built in does not take it" in done.stderr and key in done.stderr
    facts = json.loads(sluice("show", tmp_path, "--json").stdout)
    assert facts["native"] is False and key in facts["reason"]
    for env, flags in (({"SLUICE_TRANSFORMERS_PLUGIN": "/nowhere"}, []), ({"SLUICE_PYTHON": "/bin/false"}, []), ({}, ["--model-impl", "sluice"])):
        refused = run(tmp_path, *flags, env={**os.environ, **env})
        assert refused.returncode == 2 and key in refused.stderr, refused.stderr
        assert flags or "Transformers" in refused.stderr


OWN_CODE = """
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel
class OwnConfig(LlamaConfig):
    model_type = "own"
class OwnModel(LlamaModel):
    def forward(self, *args, **kwargs):
        BEFORE
        out = super().forward(*args, **kwargs)
        AFTER
        return out
class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig
    def __init__(self, config):
        super().__init__(config)
        self.model = OwnModel(config)
        self.post_init()
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "before, after, refused",
    [
        ("pass", "out.last_hidden_state = out.last_hidden_state * 2", False),
        ("pass", "out.last_hidden_state = out.last_hidden_state.cumsum(1)", True),
        ('kwargs["position_ids"] = None', "pass", True),
    ],
    ids=["harmless", "mixes tokens", "counts positions"],
)
def test_classes_are_compared_with_themselves(tmp_path, make, before, after, refused, dtype):
    """What a class does apart from its attention, the plugin cannot see; the comparison with the class does."""
    make(tmp_path, 'make("LlamaConfig")')
    config = json.loads((tmp_path / "config.json").read_text())
    config.update(
        architectures=["OwnForCausalLM"], model_type="own",
        auto_map={"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnForCausalLM"},
    )
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "own.py").write_text(OWN_CODE.replace("BEFORE", before).replace("AFTER", after))
    done = run(tmp_path, "--trust-remote-code", "--dtype", dtype)
    if refused:
        assert done.returncode == 2 and "computes something that the fallback does not" in done.stderr, done.stderr
    else:
        assert len(tokens(done)) == 8
