"""Models without a class of their own, through the Transformers plugin."""

import concurrent.futures
import json
import os
import pathlib
import subprocess

import pytest

from sluice_server import GOLDEN, ROOT, TINY, Server, sluice

MORE = pathlib.Path(os.environ.get("SLUICE_GOLDEN_MORE", ROOT / "build" / "release" / "golden"))
PYTHON = {"SLUICE_PYTHON": str(ROOT / "build" / "venv-transformers" / "bin" / "python")}
MODEL = MORE / "fallback-persimmon"


@pytest.fixture(autouse=True)
def python(monkeypatch):
    for name, value in PYTHON.items():
        monkeypatch.setenv(name, value)


def prompts(model):
    return json.loads((model / "golden.json").read_text())["prompts"]


def greedy(server, prompt, **more):
    body = {"input_ids": prompt["ids"], "sampling_params": {"temperature": 0, "max_new_tokens": 24, "ignore_eos": True}}
    return server.post("/generate", {**body, **more}).json()


def test_serves_in_batches_with_prefix_reuse(tmp_path):
    log = tmp_path / "log"
    flags = ["--tokenizer", TINY, "--dtype", "float32", "--chunked-prefill-size", 16]
    with Server(MODEL, *flags, log=log) as server:
        todo = prompts(MODEL) * 3
        with concurrent.futures.ThreadPoolExecutor(len(todo)) as pool:
            answers = list(pool.map(lambda p: greedy(server, p), todo))
        for prompt, answer in zip(todo, answers):
            assert answer["output_ids"] == prompt["greedy"]
        again = greedy(server, todo[3])
        assert again["output_ids"] == todo[3]["greedy"]
        assert again["meta_info"]["cached_tokens"] >= 128
    text = log.read_text()
    assert "PersimmonForCausalLM runs through the Transformers fallback" in text and "modeling_persimmon.py" in text


def test_show_says_who_runs_it():
    facts = json.loads(sluice("show", MODEL, "--json").stdout)
    assert facts["native"] is False and "Transformers plugin" in facts["reason"]
    assert facts["config"]["vocab_size"] == 320
    assert json.loads(sluice("show", TINY, "--json").stdout)["native"] is True


def test_native_model_on_request():
    """--model-impl transformers takes the plugin even if there is a native class; both give the
    reference's tokens."""
    model = GOLDEN / "models" / "qwen3-moe"
    done = sluice(
        "verify", "--model", model, "--golden", model / "golden.json", "--dtype", "float32", "--modes", "whole",
        "--model-impl", "transformers",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Qwen3MoeForCausalLM runs through the Transformers fallback" in done.stderr


def generate(model, *flags, env=None):
    return sluice(
        "generate", "--model", model, "--input-ids", "5,6,7", "--temperature", 0, "--max-new-tokens", 8, "--ignore-eos",
        "--dtype", "float32", "--json", "--tokenizer", TINY, *flags, env=env,
    )


@pytest.fixture
def repository(tmp_path):
    """A checkpoint with a class in its own code: Llama under another name, with negated logits."""
    source, model = GOLDEN / "models" / "llama-plain", tmp_path / "own-code"
    model.mkdir()
    for file in source.iterdir():
        (model / file.name).symlink_to(file)
    config = json.loads((source / "config.json").read_text())
    config.update(
        architectures=["ContraryForCausalLM"], model_type="contrary",
        auto_map={"AutoConfig": "contrary.ContraryConfig", "AutoModelForCausalLM": "contrary.ContraryForCausalLM"},
    )
    (model / "config.json").unlink()
    (model / "config.json").write_text(json.dumps(config))
    (model / "contrary.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class ContraryConfig(LlamaConfig):\n    model_type = 'contrary'\n"
        "class ContraryForCausalLM(LlamaForCausalLM):\n    config_class = ContraryConfig\n"
        "    def forward(self, *args, **kwargs):\n"
        "        out = super().forward(*args, **kwargs)\n        out.logits = -out.logits\n        return out\n"
    )
    return model


def test_code_of_a_repository_needs_the_flag(repository):
    refused = generate(repository)
    assert refused.returncode == 2 and "--trust-remote-code" in refused.stderr
    done = generate(repository, "--trust-remote-code")
    assert done.returncode == 0, done.stderr
    assert "contrary.py" in done.stderr
    contrary = json.loads(done.stdout)["output_ids"]
    plain = json.loads(generate(GOLDEN / "models" / "llama-plain").stdout)["output_ids"]
    assert len(contrary) == 8 and contrary[0] != plain[0]


def with_architecture(tmp_path, architecture, model_type):
    model = tmp_path / "unknown"
    model.mkdir()
    for file in MODEL.iterdir():
        (model / file.name).symlink_to(file)
    config = json.loads((MODEL / "config.json").read_text())
    config.update(architectures=[architecture], model_type=model_type)
    (model / "config.json").unlink()
    (model / "config.json").write_text(json.dumps(config))
    return model


def test_unknown_to_both(tmp_path):
    done = generate(with_architecture(tmp_path, "Qwen33ForCausalLM", "qwen33"))
    assert done.returncode == 2
    assert "Qwen3ForCausalLM" in done.stderr and "qwen33" in done.stderr


def test_the_folder_of_the_start_has_no_modules(repository, monkeypatch):
    """Without --trust-remote-code no code of a repository runs, even if the program is started in
    it."""
    for name in ("json.py", "sysconfig.py", "torch.py", "os.py"):
        (repository / name).write_text("open('/proc/self/fd/2', 'w').write('CODE OF THE REPOSITORY RAN')\nraise SystemExit(7)\n")
    monkeypatch.chdir(repository)
    done = generate(".")
    assert done.returncode == 2 and "--trust-remote-code" in done.stderr and "CODE OF THE REPOSITORY" not in done.stderr, done.stderr


ROBERTA = """
import json, sys, torch, transformers
torch.manual_seed(7)
config = transformers.RobertaConfig(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
                                    max_position_embeddings=66, is_decoder=True, initializer_range=0.4)
model = transformers.RobertaForCausalLM(config).eval().float()
model.save_pretrained(sys.argv[1])
ids = [5, 9, 33, 7, 21, 60, 11]
for _ in range(8):
    ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
print(json.dumps(ids[7:]))
"""


def test_positions_that_begin_behind_padding(tmp_path):
    """RoBERTa's table of positions; the class shifts positions only when it makes them itself."""
    made = subprocess.run([PYTHON["SLUICE_PYTHON"], "-c", ROBERTA, tmp_path / "roberta"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    flags = ("--model", tmp_path / "roberta", "--input-ids", "5,9,33,7,21,60,11", "--temperature", 0, "--max-new-tokens", 8,
             "--ignore-eos", "--dtype", "float32", "--json")
    refused = sluice("generate", *flags)
    assert refused.returncode == 2 and "give --context-length 64 or less" in refused.stderr
    done = sluice("generate", *flags, "--context-length", 64)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["output_ids"] == json.loads(made.stdout)


def test_other_heads_are_no_language_models(tmp_path):
    done = generate(with_architecture(tmp_path, "PersimmonForSequenceClassification", "persimmon"))
    assert done.returncode == 2 and "is no class that generates text" in done.stderr


@pytest.mark.parametrize(
    "env, flags, text",
    [
        ({"SLUICE_PYTHON": "/nowhere/python"}, [], "pip install torch transformers"),
        ({"SLUICE_PYTHON": "/bin/false"}, [], "pip install torch transformers"),
        ({"SLUICE_PYTHON": "/bin/false"}, [], "the architecture PersimmonForCausalLM is not built in (the nearest that is: "),
        ({"SLUICE_TRANSFORMERS_PLUGIN": "/nowhere"}, [], "PersimmonForCausalLM is not supported"),
        ({}, ["--model-impl", "sluice"], "PersimmonForCausalLM is not supported"),
        ({"SLUICE_TRANSFORMERS_PLUGIN": "/nowhere"}, ["--model-impl", "transformers"], "SLUICE_TRANSFORMERS_PLUGIN"),
        ({"SLUICE_TRANSFORMERS_PLUGIN": __file__}, [], "cannot be opened"),
        ({}, ["--model-impl", "both"], "transformers"),
    ],
)
def test_refusals(env, flags, text):
    done = generate(MODEL, *flags, env=env)
    assert done.returncode == 2, done.stderr
    assert "error: " in done.stderr and text in done.stderr


def test_recurrent_models_are_refused():
    done = generate(MORE / "qwen3-next", "--model-impl", "transformers")
    assert done.returncode == 2 and "cannot page" in done.stderr
