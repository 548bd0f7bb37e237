"""The verbs of the program: output, exit statuses, and `verify` on every golden model."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import time

import pytest

from sluice_server import GOLDEN, TINY, Server, binary, free_port, sluice

LLAMA = GOLDEN / "models" / "llama-plain"


def test_help_and_version():
    assert "serve" in sluice("--help").stdout
    assert "--context-length" in sluice("serve", "--help").stdout
    assert "--api-key" not in sluice("serve", "--help=prefill").stdout
    short, own, whole = (sluice("serve", flag).stdout for flag in ("-h", "--help", "--help=all"))
    assert len(short.splitlines()) < 50 and "--context-length" in short and "--help` lists all options" in short
    assert "--enable-lora" in whole and "--enable-lora" not in own and "--swa-full-tokens-ratio" in own
    assert "\x1b" not in own
    assert json.loads(sluice("version", "--json").stdout)["name"] == "sluice"
    for word in ("--version", "-v", "-V"):
        assert sluice(word).stdout.startswith("sluice ")
    assert sluice("help", "serve").stdout == sluice("serve", "--help").stdout
    assert sluice("help", "bench").stdout == sluice("bench", "--help").stdout
    assert sluice("chat", "--help").stdout == sluice("run", "--help").stdout


def test_options_from_a_file(tmp_path):
    config = tmp_path / "server.yaml"
    config.write_text(f"model: {TINY}\nmax_model_len: 512\nmax-total-tokens: 1024\nserved-model-name: [one, two]\ndtype: float32\n")
    plan = json.loads(sluice("plan", "--config", config, "--json").stdout)
    assert plan["context_length"] == 512
    assert sluice("generate", "--config", config, "-p", "Hi", "-n", "2").returncode == 0
    with Server(TINY, "--config", config, "--max-model-len", "256", log=tmp_path / "log") as server:
        models = server.get("/v1/models").json()["data"]
        assert [m["id"] for m in models] == ["one", "two"] and models[0]["max_model_len"] == 256
    for text, what in [("max-model-length: 5\n", "did you mean `max-model-len`?"), ("port: 70000\n", "server.yaml: --port: 70000"),
                       ("enable-lora: true\n", "adapters are not served"), ("port: [\n", "server.yaml, line ")]:
        config.write_text(text)
        done = sluice("serve", TINY, "--config", config)
        assert done.returncode == 2 and what in done.stderr, done.stderr
    assert "/nowhere.yaml" in sluice("serve", TINY, "--config", "/nowhere.yaml").stderr


def test_errors_have_colours_in_a_terminal_alone():
    assert "\x1b" not in sluice("serv").stderr

    def on_a_terminal(**env):
        ours, theirs = pty.openpty()
        process = subprocess.Popen([binary(), "serv"], stderr=theirs, stdout=theirs, env={**os.environ, "TERM": "xterm", **env})
        process.wait(60)
        os.close(theirs)
        text = os.read(ours, 4096).decode()
        os.close(ours)
        return text

    shown = on_a_terminal(NO_COLOR="")
    assert "\x1b[1;31merror:\x1b[0m unknown verb" in shown and "\x1b[36mhint:\x1b[0m did you mean" in shown
    assert "\x1b" not in on_a_terminal(NO_COLOR="1") and "\x1b" not in on_a_terminal(TERM="dumb")


def test_the_model_is_an_argument_of_every_verb():
    by_flag = sluice("tokenize", "--model", TINY, "Hello").stdout
    assert by_flag and sluice("tokenize", TINY, "Hello").stdout == by_flag == sluice("tokenize", "-m", TINY, "-p", "Hello").stdout
    text = sluice("generate", TINY, "--prompt", "The capital of France", "--temperature", "0", "-n", "4").stdout
    assert text == sluice("generate", "-m", TINY, "-p", "The capital of France", "--temperature", "0", "-n", "4").stdout != ""


def test_a_slip_of_a_path_does_not_ask_the_hub():
    for slip in ("modles/sluice-tiny", "models/sluice-tin", "./models/sluice-tin", "sluice-tiny"):
        done = subprocess.run([binary(), "show", slip], capture_output=True, text=True, timeout=60, cwd=TINY.parents[1],
                              env={**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9"})
        assert done.returncode == 2 and "models/sluice-tiny?" in done.stderr and "127.0.0.1:9" not in done.stderr


USAGE_ROWS = [
    (["bench", "serv"], 2, "did you mean sluice bench serve?"),
    (["run", "What is the capital of France?"], 2, "neither a directory nor a .gguf file here"),
    (["pull", TINY], 2, "is on this machine's disk"),
    (["serv"], 2, "did you mean sluice serve?"),
    (["zebra"], 2, "verbs: run, serve"),
    (["run", TINY, "a", "--temprature", "0"], 2, "did you mean --temperature?"),
    (["serve", TINY / "config.json"], 2, "config.json is a file, but not a .gguf one"),
    (["generate", TINY, "-p", "a", "-n", "0"], 2, "max-new-tokens"),
    (["tokenize", TINY], 2, "no text"),
    (["tokenize", TINY, "a", "--prompt", "b"], 2, "no text, or two"),
    ([], 2, "no verb"),
    (["serve"], 2, "no model"),
    (["serve", "--contxt-length", "5"], 2, "did you mean --context-length?"),
    (["serve", "--model", "/nowhere"], 2, "/nowhere"),
    (["serve", "--model", TINY, "--port", "70000"], 2, "65535"),
    (["serve", "--model", TINY, "--device", "cpu", "--tp", "3"], 2, "cannot be shared equally by 3 ranks"),
    (["serve", "--model", TINY, "--speculative-algorithm", "MEDUSA"], 2, "refused"),
    (["serve", "--model", TINY, "--speculative-algorithm", "NGRAM", "--runner", "pooling"], 2, "no effect with --runner pooling"),
    (["serve", "--model", TINY, "--device", "cuda"], 5, "GPU"),
    (["serve", "--model", TINY, "--context-length", "100000"], 2, "8192"),
    (["serve", "--model", TINY, "--json-model-override-args", '{"vocab_size": 4000}'], 2, "vocab_size"),
    (["serve", "--model", TINY, "--attention-backend", "flashinfr"], 2, "auto, native, reference, fa3"),
    (["serve", "--model", TINY, "--device", "cpu", "--attention-backend", "trtllm_mla"], 2, "those that can are auto, reference"),
    (["serve", "--model", TINY, "--sampling-backend", "ascend"], 2, "it stands for auto, flashinfer, pytorch"),
    (["serve", "--model", TINY, "--moe-a2a-backend", "deepep"], 2, "exchanges no tokens"),
    (["serve", "--model", TINY, "--max-prefill-tokens", "many"], 2, "--max-prefill-tokens: 'many' is not a whole number"),
    (["serve", "--model", TINY, "--device", "cpu", "--decode-attention-backend", "flashinfer"], 2, "it needs an NVIDIA GPU"),
    (["generate", "--model", TINY], 2, "no prompt"),
    (["generate", "--model", TINY, "--prompt", "a", "--temperature", "-1"], 2, "temperature"),
    (["generate", "--model", TINY, "--input-ids", "1,x"], 2, "input-ids"),
    (["generate", TINY, "-p", "a", "--min-new-tokens", "10", "-n", "3"], 2, "asks for at least 10 tokens, but at most 3 may come"),
    (["generate", TINY, "-p", "a", "--min-new-tokens", "129"], 2, "at most 128 may come"),
    (["generate", TINY, "-p", "a", "--system", "b"], 2, "--system has no effect without --chat"),
    (["tokenize", TINY, "a", "--system", "b"], 2, "--system has no effect without --chat"),
    (["generate", "--model", TINY, "--prompt", "a", "--regex", "(a"], 2, "not closed"),
    (["generate", "--model", TINY, "--prompt", "a", "--regex", "a", "--grammar", "root ::= \"a\""], 2, "both bind"),
    (["generate", "--model", TINY, "--prompt", "a", "--json-schema", '{"type": 5}'], 2, "/type"),
    (["run", TINY, "a", "--grammar-file", "/nowhere"], 2, "/nowhere"),
    (["generate", "--model", TINY, "--input-ids", "99999"], 2, "99999"),
    (["verify", "--model", LLAMA], 2, "golden"),
    (["verify", "--model", LLAMA, "--golden", "/nowhere"], 2, "/nowhere"),
    (["verify", "--model", LLAMA, "--golden", LLAMA / "golden.json", "--modes", "hole"], 2, "unknown mode"),
    (["bench"], 2, "which bench"),
    (["bench", "warp"], 2, "latency, throughput, serve, roofline, kernel"),
    (["bench", "latency"], 2, "no model"),
    (["bench", "latency", "--model", TINY, "--batch-size", "1,0"], 2, "1 to 4096"),
    (["bench", "latency", "--model", "/nowhere"], 2, "/nowhere"),
    (["bench", "latency", "--model", TINY, "--input-len", "100,9000"], 2, "context length is 8192"),
    (["bench", "serve", "--request-rate", "0"], 2, "0.000001 to 1000000000, or inf"),
    (["bench", "serve", "--request-rate", "1e-300"], 2, "0.000001 to 1000000000, or inf"),
    (["bench", "serve", "--base-url", "http://127.0.0.1:99999"], 2, "a port from 1 to 65535"),
    (["bench", "serve", "--goodput", "ttft:-1"], 2, "--goodput"),
    (["bench", "serve", "--output-file", "/nowhere/at.all"], 2, "cannot write /nowhere/at.all"),
    (["bench", "throughput", "--model", TINY, "--random-range-ratio", "2"], 2, "0 to 1"),
    (["bench", "roofline", "--threads", "many"], 2, "threads"),
    (["bench", "serve", "--backend", "tgi"], 2, "sglang-oai-chat"),
    (["bench", "serve", "--goodput", "tpt:5"], 2, "ttft, tpot or e2el"),
    (["bench", "serve", "--vs", "/nowhere"], 2, "/nowhere"),
    (["bench", "serve", "--dataset-name", "random", "--port", "1"], 2, "cannot connect"),
    (["run"], 2, "no model"),
    (["run", "/nowhere", "Hello"], 2, "/nowhere"),
    (["run", TINY, ""], 2, "empty"),
    (["run", TINY, "Hello", "--temperature", "-3"], 2, "temperature"),
    (["run", TINY, "Hello", "--think", "perhaps"], 2, "allowed: on, off\n"),
    (["run", TINY, "Hello", "--think", "default"], 2, "allowed: on, off\n"),
    (["plan"], 2, "no model"),
    (["plan", "/nowhere"], 2, "/nowhere"),
    (["plan", TINY, "--memory", "much"], 2, "memory"),
    (["plan", TINY, "--context-length", "100000"], 2, "8192"),
    (["plan", TINY, "--model", LLAMA], 2, "two models"),
    (["plan", TINY, "--context-length", "100000", "--json"], 2, "add --allow-longer"),
    (["show"], 2, "no model"),
    (["show", "/nowhere"], 2, "/nowhere"),
    (["doctor", "/nowhere"], 2, "/nowhere"),
    (["bench", "kernel", "--rows", "0"], 2, "1 to 256"),
    (["bench", "kernel", "--device", "cuda"], 5, "no usable GPU"),
    (["completion", "tcsh"], 2, "bash, zsh"),
    (["serve", "--model", TINY, "--max-total-tokens", "1T"], 3, "--max-total-tokens"),
]


@pytest.mark.parametrize("args, status, text", [pytest.param(*r, id=str(i)) for i, r in enumerate(USAGE_ROWS)])
def test_mistakes(args, status, text):
    done = sluice(*args, timeout=60)
    assert done.returncode == status, done.stderr
    assert "error: " in done.stderr
    assert text in done.stderr
    assert done.stdout == ""


def deep(name, change):
    """A tokenizer.json or the like of the bundled model with one mistake."""
    value = json.loads((TINY / name).read_text())
    change(value)
    return json.dumps(value)


TEXT_FILES = [
    ("tokenizer.json", lambda: "{", "tokenizer.json"),
    ("tokenizer.json", lambda: deep("tokenizer.json", lambda t: t["model"]["merges"].__setitem__(3, ["zz", "qq"])), "model.merges[3]"),
    ("tokenizer.json", lambda: deep("tokenizer.json", lambda t: t["model"]["vocab"].__setitem__("!", 2**31)), "2147483648"),
    ("tokenizer.json", lambda: deep("tokenizer.json", lambda t: t["added_tokens"][0].__setitem__("content", "a" * (1 << 20))), "added_tokens[0].content"),
    ("chat_template.jinja", lambda: "{% for m in messages %}\n{{ m.content }}\n", "line"),
    ("chat_template.jinja", lambda: "{%- for a in range(999) -%}{%- for b in range(999) -%}{%- for c in range(999) -%}{%- endfor -%}{%- endfor -%}{%- endfor -%}", "operations"),
    ("config.json", lambda: deep("config.json", lambda c: c.__setitem__("hidden_size", 0)), "hidden_size"),
    ("config.json", lambda: deep("config.json", lambda c: c.__setitem__("vocab_size", 100)), "vocab_size"),
    ("generation_config.json", lambda: '{"temperature": -1}', "temperature"),
]


@pytest.mark.parametrize("name, make, says", TEXT_FILES)
def test_a_bad_file_of_a_model_ends_the_start_with_2(name, make, says, tmp_path):
    for file in TINY.iterdir():
        if file.name != name:
            (tmp_path / file.name).symlink_to(file.resolve())
    (tmp_path / name).write_text(make())
    began = time.monotonic()
    done = sluice("serve", "--model", tmp_path, "--port", 0, timeout=60)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr + done.stdout
    assert time.monotonic() - began < 30


def test_environment():
    done = sluice("serve", "--model", TINY, env={"SLUICE_ARG_PORT": "x"})
    assert done.returncode == 2 and "SLUICE_ARG_PORT" in done.stderr


def test_generate():
    done = sluice("generate", "--model", TINY, "--prompt", "What is the capital of France?", "--chat", "--temperature", 0)
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout
    golden = json.loads((LLAMA / "golden.json").read_text())["prompts"][1]
    done = sluice(
        "generate", "--model", LLAMA, "--dtype", "float32", "--input-ids", ",".join(map(str, golden["ids"])),
        "--temperature", 0, "--max-new-tokens", 24, "--ignore-eos", "--json",
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    answer = json.loads(line)
    assert answer["output_ids"] == golden["greedy"]
    assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": 24}
    assert answer["meta_info"]["prompt_tokens"] == 7 and answer["meta_info"]["completion_tokens"] == 24


def test_generate_and_run_within_a_grammar(tmp_path):
    done = sluice("generate", "--model", TINY, "--prompt", "The id: ", "--regex", "[a-f]{3}-[0-9]{2}", "--seed", 3)
    assert re.fullmatch(r"[a-f]{3}-[0-9]{2}\n", done.stdout)
    (tmp_path / "g").write_text('root ::= "yes" | "no"')
    assert sluice("run", TINY, "Is it?", "--grammar-file", tmp_path / "g", "--seed", 4).stdout in ("yes\n", "no\n")
    schema = '{"type": "object", "properties": {"a": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["a"], "additionalProperties": false}'
    answer = json.loads(sluice("run", TINY, "Is it?", "--json-schema", schema, "--temperature", 1, "--seed", 5).stdout)
    assert 1 <= answer["a"] <= 9


def test_generate_stop_and_stdin():
    arguments = ["generate", "--model", TINY, "--prompt", "-", "--temperature", 0, "--dtype", "float32", "--json"]
    whole = json.loads(sluice(*arguments, stdin="1, 2, 3, 4,").stdout)
    stop = whole["text"][4:7]
    cut = json.loads(sluice(*arguments, "--stop", stop, stdin="1, 2, 3, 4,").stdout)
    assert cut["text"] == whole["text"][: whole["text"].index(stop)]
    assert cut["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}


def test_a_tokenizer_needs_no_config_json(tmp_path):
    shutil.copyfile(TINY / "tokenizer.json", tmp_path / "tokenizer.json")
    with_it = sluice("tokenize", "--model", TINY, "--tokenizer", tmp_path, "Hello", "--no-special", "--json")
    assert with_it.returncode == 0, with_it.stderr
    assert json.loads(with_it.stdout)["ids"] == json.loads(sluice("tokenize", "--model", TINY, "Hello", "--no-special", "--json").stdout)["ids"]


def test_tokenize():
    record = json.loads((GOLDEN / "sluice-tiny.json").read_text())[26]
    text = record["messages"][-1]["content"]
    answer = json.loads(sluice("tokenize", "--model", TINY, "--chat", text, "--json").stdout)
    if not record["template_options"] and len(record["messages"]) == 1:
        assert answer["ids"] == record["prompt_ids"]
    assert answer["round_trip"] is True
    assert "tokens" in sluice("tokenize", "--model", TINY, "H\u00e9llo \U0001f600").stdout


def test_bench_latency_of_a_replayed_answer(tmp_path):
    text = "".join(f"The {word} is on shelf {i}. " for i, word in enumerate("lamp chair book vase cup clock".split()))
    prompt, answer = tmp_path / "prompt", tmp_path / "answer"
    prompt.write_text(f"Repeat: {text}")
    answer.write_text(text)

    def run(*flags, model=TINY):
        return sluice("bench", "latency", "--model", model, "--tokenizer-path", TINY, "--load-format", "dummy",
                      "--roofline-mib", 0, "--json", "--replay-answer", answer, *flags)

    drafts = ("--speculative-algorithm", "NGRAM", "--speculative-num-steps", 7, "--speculative-adaptive=false")
    for flags, low, high in ((), 1, 1), (drafts, 3, 8):
        done = run("--replay-prompt", prompt, *flags)
        assert done.returncode == 0, done.stderr
        figures = json.loads(done.stdout)
        assert figures["input_len"] > figures["output_len"] > 40
        assert low <= figures["tokens_per_step"] <= high
        assert figures["mean_decode_throughput"] > 0
    for flags, said in [
        ((), "belong together"),
        (("--replay-prompt", prompt, "--output-len", 4), "--output-len does not go with --replay-answer"),
        (("--replay-prompt", prompt, "--speculative-algorithm", "NEXTN"), "allowed: NGRAM, SUFFIX, NONE"),
        (("--replay-prompt", tmp_path / "none"), str(tmp_path / "none")),
        (("--replay-prompt", prompt, "--context-length", 64), "--replay-prompt and --replay-answer make"),
    ]:
        done = run(*flags)
        assert done.returncode == 2 and said in done.stderr, (flags, done.stderr)
    done = run("--replay-prompt", prompt, model=LLAMA)
    assert done.returncode == 2 and "and the model has 320 tokens" in done.stderr


def test_bench_latency():
    done = sluice(
        "bench", "latency", "--model", LLAMA, "--load-format", "dummy", "--batch-size", "1,2", "--input-len", 40, "--output-len", 8,
        "--roofline-mib", 16, "--tries", 1, "--json",
    )
    assert done.returncode == 0, done.stderr
    cases = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(c["batch_size"], c["input_len"], c["output_len"]) for c in cases] == [(1, 40, 8), (2, 40, 8)]
    for figures in cases:
        assert 0 < figures["prefill_latency"] < figures["total_latency"]
        assert figures["median_decode_throughput"] > 0
        assert figures["decode_bytes"] == figures["decode_weight_bytes"] + figures["decode_kv_bytes"]
        assert figures["decode_segments"]
        shares = []
        for segment in figures["decode_segments"]:
            before, after = segment["read_bytes_per_s_before"], segment["read_bytes_per_s_after"]
            assert before > 0 and after > 0
            share = figures["decode_bytes"] / segment["median_decode_latency"] / ((before + after) / 2)
            shares.append((abs(after - before) <= 0.1 * max(before, after), share))
        held = sorted(share for steady, share in shares if steady) or sorted(share for _, share in shares)
        assert figures["decode_share_of_read_bandwidth"] == pytest.approx(held[len(held) // 2])
        assert figures["steady"] == (2 * sum(steady for steady, _ in shares) > len(shares))
    assert cases[1]["decode_kv_bytes"] == 2 * cases[0]["decode_kv_bytes"]
    table = sluice("bench", "latency", "--model", LLAMA, "--input-len", 16, "--output-len", 4, "--roofline-mib", 0)
    assert table.returncode == 0, table.stderr
    assert "LlamaForCausalLM" in table.stdout and "step ms" in table.stdout and "GB/s" not in table.stdout


def test_verify_dump(tmp_path):
    """The output of --dump. (Every model and mode runs as golden.* in CTest.)"""
    model = GOLDEN / "models" / "glm-moe-dsa"
    done = sluice(
        "verify", "--model", model, "--golden", model / "golden.json", "--modes", "whole,chunk:7,cached,mixed,decode",
        "--thread-counts", "1,2", "--dump", tmp_path / "dump.json",
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    dump = json.loads((tmp_path / "dump.json").read_text())
    assert len(dump["runs"]) == 10
    by_mode = {run["mode"]: run for run in dump["runs"]}
    assert by_mode["mixed, 1 thread"]["mixed_steps"] > 0
    assert set(by_mode["chunk:7, 2 threads"]["prefill_tokens_per_step"]) <= set(range(1, 8))
    assert by_mode["cached, 1 thread"]["cached_tokens"] > 0
    assert sum(by_mode["decode, 1 thread"]["attention_methods"].values()) > 0
    position = by_mode["whole, 1 thread"]["cases"][-1]["positions"][5]
    assert len(position["top_ids"]) == 20 and len(position["logits_hash"]) == 16


def test_verify_fails_when_a_mode_did_not_occur():
    """Without a prefix cache no token can come from it."""
    done = sluice(
        "verify", "--model", LLAMA, "--golden", LLAMA / "golden.json", "--modes", "cached", "--lengths", "33", "--disable-radix-cache"
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "nothing came from the prefix cache: FAIL" in done.stdout


@pytest.mark.parametrize("directory", ["llama-plain", "qwen3-moe", "deepseek-v2", "glm-moe-dsa"])
def test_verify_bfloat16(directory):
    model = GOLDEN / "models" / directory
    done = sluice("verify", "--model", model, "--golden", model / "golden.json", "--modes", "whole,decode", "--dtype", "bfloat16")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


def test_sigterm_drains(tmp_path):
    """Running requests finish, new ones are refused, and the exit status is 0."""
    import threading

    with Server(TINY, "--dtype", "float32", log=tmp_path / "server.log") as server:
        body = {"text": "Once upon a time", "sampling_params": {"temperature": 0, "max_new_tokens": 400, "ignore_eos": True}}
        replies = []
        thread = threading.Thread(target=lambda: replies.append(server.post("/generate", body)))
        thread.start()
        while server.state()["num_running_reqs"] == 0:
            time.sleep(0.005)
        server.process.send_signal(signal.SIGTERM)
        thread.join()
        assert replies[0].status == 200
        assert len(replies[0].json()["output_ids"]) == 400
        assert server.process.wait(30) == 0


def test_sigterm_while_loading():
    process = subprocess.Popen([binary(), "serve", "--model", str(TINY), "--port", str(free_port())], stderr=subprocess.DEVNULL)
    time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) in (0, -signal.SIGTERM)


def test_a_second_signal_ends_the_drain():
    """It returns its partial answers at once, and the exit status says that it was interrupted."""
    with Server(TINY, "--drain-timeout", "60", exit_status=130) as server:
        url = f"http://127.0.0.1:{server.port}/generate"
        body = json.dumps({"text": "a", "sampling_params": {"max_new_tokens": 7000, "ignore_eos": True}})
        client = subprocess.Popen(["curl", "-sN", url, "-H", "content-type: application/json", "-d", body], stdout=subprocess.PIPE, text=True)
        while json.loads(server.get("/get_server_info").body)["internal_states"][0]["num_running_reqs"] == 0:
            time.sleep(0.02)
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=20) == 130
        assert json.loads(client.communicate(timeout=20)[0])["meta_info"]["finish_reason"]["type"] == "abort"


def test_a_busy_port_is_named(tmp_path):
    with Server(TINY, log=tmp_path / "server.log") as server:
        done = sluice("serve", "--model", TINY, "--port", server.port, timeout=60)
        assert done.returncode in (2, 3)
        assert str(server.port) in done.stderr
