"""Integer weights and a cache of another type, from the flag to the answer: memory, equality, and
refusals."""

import json
import subprocess

import pytest

from sluice_server import GOLDEN, TINY, Server, binary

MODELS = [GOLDEN / "models" / name for name in ("llama-plain", "qwen3", "qwen3-moe")]


def plan(server):
    return server.get("/get_server_info").json()["memory_plan"]


def generate(server, ids, tokens=12):
    reply = server.post("/generate", {"input_ids": ids, "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True},
                                      "return_logprob": True, "logprob_start_len": 0})
    assert reply.status == 200, reply.body
    answer = reply.json()
    meta = answer["meta_info"]
    return answer["output_ids"], [row[0] for row in meta["input_token_logprobs"][1:]], [row[0] for row in meta["output_token_logprobs"]]


@pytest.mark.parametrize("directory", MODELS, ids=lambda path: path.name)
def test_models(directory, tmp_path):
    prompts = [p["ids"] for p in json.loads((directory / "golden.json").read_text())["prompts"]]
    ids = max(prompts, key=len)
    with Server(directory, "--tokenizer-path", TINY, "--dtype", "bfloat16", "--max-total-tokens", "4096", log=tmp_path / "log") as server:
        whole = plan(server)
    # A weight takes one byte or half a byte instead of two, plus scales. Norms, routers and
    # embeddings are unchanged. Rows of these models that are shorter than 128 are padded: FP8,
    # whose groups have 128 columns, takes more here.
    for flags, most in ((["--quantization", "int8"], 0.8), (["-q", "int4"], 0.7),
                        (["-q", "int4", "--quantization-group-size", "128"], 0.9),
                        (["--quantization", "int8", "--kv-cache-dtype", "int8"], 0.8), (["--kv-cache-dtype", "float32"], 1.0),
                        (["--quantization", "fp8"], 2.5), (["--kv-cache-dtype", "fp8_e4m3"], 1.0)):
        with Server(directory, "--tokenizer-path", TINY, "--dtype", "bfloat16", "--max-total-tokens", "4096", "--chunked-prefill-size", "64", *flags,
                    log=tmp_path / "log") as server:
            now = plan(server)
            assert now["weight_bytes"] <= most * whole["weight_bytes"], flags
            bytes_a_token = whole["kv_bytes_per_token"]
            if "--kv-cache-dtype" not in flags:
                assert now["kv_bytes_per_token"] == bytes_a_token
            elif "float32" in flags:
                assert now["kv_bytes_per_token"] == 2 * bytes_a_token
            elif "fp8_e4m3" in flags:
                assert now["kv_bytes_per_token"] == bytes_a_token / 2
            else:
                assert bytes_a_token / 2 < now["kv_bytes_per_token"] < 0.7 * bytes_a_token
            # Prefilled in chunks, then from the cached prefix: the same numbers.
            first = generate(server, ids)
            assert generate(server, ids) == first
            assert server.state()["cached_tokens"] > 0


# The bundled model caches latents.
@pytest.mark.parametrize("flags", [("--quantization", "int8"), ("--quantization", "int4"), ("--quantization", "fp8"),
                                   ("--kv-cache-dtype", "int8"), ("--kv-cache-dtype", "fp8_e4m3"),
                                   ("--kv-cache-dtype", "fp8", "--index-cache-dtype", "fp8", "--speculative-algorithm", "NEXTN")],
                         ids=" ".join)
def test_chat(flags, tmp_path):
    ask = {"model": "tiny", "messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0,
           "max_tokens": 24}
    with Server(TINY, *flags, "--served-model-name", "tiny", "--max-total-tokens", "8192", log=tmp_path / "log") as server:
        reply = server.post("/v1/chat/completions", ask)
        assert reply.status == 200, reply.body
        assert "Paris" in reply.json()["choices"][0]["message"]["content"]
        assert server.post("/v1/chat/completions", ask).json()["choices"] == reply.json()["choices"]
    assert "k_scale" not in (tmp_path / "log").read_text()  # scales of heads


@pytest.mark.parametrize("flags, answer", [
    (["--quantization", "fp9"], "auto, none, int8, int4, fp8"),
    (["--quantization", "awq_marlin"], "awq-marlin is for checkpoints that are awq, and this one is not quantised"),
    (["--quantization", "marlin"], "take an export in the format of GPTQ or AWQ"),
    (["--quantization-group-size", "64"], "32, 128"),
    (["--quantization-group-size", "32"], "give --quantization int8 or int4, or leave the size out"),
    (["--kv-cache-dtype", "fp8_e5m2"], "give fp8_e4m3"),
])
def test_refusals(flags, answer):
    done = subprocess.run([binary(), "serve", "--model", str(TINY), "--port", "0", *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done
    assert answer in done.stdout + done.stderr
