"""`run`, `plan`, `show`, `bench serve`, completions and the manual as a user starts them; `run` in
a pseudo-terminal, too."""

import contextlib
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import time

import pytest

from sluice_server import GOLDEN, ROOT, TINY, binary, sluice

LLAMA = GOLDEN / "models" / "llama-plain"
CONFIGS = ROOT / "bench" / "configs"
CAPITAL = "What is the capital of France?"
# on a new line: while a line is typed, its prompt is redrawn without a newline before
PROMPT = "\n\r\x1b[J>>> "


def test_run_answers_a_prompt():
    for done in (
        sluice("run", TINY, CAPITAL, "--temperature", 0),
        sluice("run", TINY, "--temperature", 0, stdin=CAPITAL + "\n"),
        sluice("run", TINY, "-", "--temperature", 0, stdin=CAPITAL),
    ):
        assert done.returncode == 0, done.stderr
        assert "Paris" in done.stdout and done.stdout.endswith("\n")
        assert "\x1b" not in done.stdout and "\x1b" not in done.stderr


def test_run_says_how_long_it_took():
    done = sluice("run", TINY, CAPITAL, "--temperature", 0, "--verbose", "--max-new-tokens", 6)
    assert done.returncode == 0, done.stderr
    assert "tokens/s" in done.stderr and "tokens/s" not in done.stdout
    assert "the limit of tokens ended the answer" in done.stderr


def test_run_of_a_prompt_that_is_too_long():
    done = sluice("run", TINY, "a b c " * 9000)
    assert done.returncode == 2
    assert "8192" in done.stderr and done.stdout == ""


class Terminal:
    """A program in a pseudo-terminal."""

    def __init__(self, *args, env=None):
        self.seen = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm", **(env or {})})
            os.execv(binary(), [binary(), *map(str, args)])

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait_for(self, text, seconds=60):
        """Reads until `text` appears after the previous match; returns the output up to its end."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, f"{text!r} did not come: {self.seen!r}"
            if not select.select([self.fd], [], [], 0.1)[0]:
                continue
            try:
                part = os.read(self.fd, 65536)
            except OSError:  # the program has ended
                part = b""
            assert part, f"the program ended before {text!r}: {self.seen!r}"
            self.seen += part.decode(errors="replace")
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def status(self, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(OSError):  # no other reader empties the program's output
                if select.select([self.fd], [], [], 0.05)[0]:
                    self.seen += os.read(self.fd, 65536).decode(errors="replace")
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise TimeoutError(self.seen)


@pytest.fixture
def chat(tmp_path):
    terminal = Terminal("run", TINY, "--temperature", "0", env={"XDG_STATE_HOME": str(tmp_path), "NO_COLOR": "1"})
    terminal.wait_for(PROMPT)
    yield terminal
    with contextlib.suppress(OSError):
        os.kill(terminal.pid, signal.SIGKILL)
        os.waitpid(terminal.pid, 0)


def say(chat, line):
    """Returns the program's output until it waits for the next line."""
    chat.type(line + "\r")
    return chat.wait_for(PROMPT)


def test_chat_in_a_terminal(chat, tmp_path):
    assert "Paris" in say(chat, CAPITAL)
    assert "/set NAME VALUE" in say(chat, "/help")
    assert "verbose is on" in say(chat, "/set verbose on")
    answer = say(chat, '"""\rWhat is the sum\rof 2 and 3?\r"""')
    assert answer.count("\n\r\x1b[J... ") == 3 and "5" in answer and "tokens/s" in answer
    assert "temperature is 300; allowed: 0 to 100" in say(chat, "/set temperature 300")
    assert "4 messages" in say(chat, "/show")
    assert "there is no command /nothing" in say(chat, "/nothing")
    say(chat, "/set temperature 0")
    assert "5" in say(chat, "/regenerate")
    assert "4 messages" in say(chat, "/sho\t")
    assert "forgotten" in say(chat, "/clear")
    assert "0 messages" in say(chat, "/show")
    assert "there is no message to answer again" in say(chat, "/regenerate")
    chat.type("\x1b[A" * 9)  # up, to /set temperature 300
    chat.wait_for("/set temperature 300")
    chat.type("\x15/bye\r")  # Ctrl-U deletes the line
    assert chat.status() == 0
    history = tmp_path / "sluice" / "history"
    assert CAPITAL in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600


def test_control_c_stops_an_answer_and_then_leaves(chat):
    say(chat, "/set temperature 50")  # at random: with this seed some 2,000 tokens
    say(chat, "/set seed 1")
    chat.type("Go on.\r")
    chat.wait_for("Go on.\r\x1b[10C\r\r\n")
    chat.wait_for(" ")  # the answer has begun
    chat.type("\x03")
    chat.wait_for("(stopped)")
    chat.wait_for(PROMPT)
    chat.type("half a line\x03")
    chat.wait_for(PROMPT)
    chat.type("\x03")
    chat.wait_for("Ctrl-C again, or /bye, leaves")
    chat.wait_for(PROMPT)
    chat.type("\x03")
    assert chat.status() == 130


def test_control_d_leaves(chat):
    chat.type("\x04")
    assert chat.status() == 0


def test_control_c_while_loading_leaves():
    terminal = Terminal("run", CONFIGS / "llama-3.2-1b", "--load-format", "dummy", "--tokenizer", TINY)
    terminal.wait_for("loading")
    os.kill(terminal.pid, signal.SIGINT)
    assert terminal.status() == 130


def test_plan():
    plan = json.loads(sluice("plan", TINY, "--json").stdout)
    assert plan["fits"] and plan["kv_bytes_per_token"] == 8448 and plan["context_length"] == 8192
    assert set(plan["concurrency"]) == {"2048", "8192"}
    shown = sluice("plan", TINY)
    assert shown.returncode == 0, shown.stderr
    assert f"sluice serve {TINY}" in shown.stdout
    windows = json.loads(sluice("plan", CONFIGS / "gpt-oss-20b", "--memory", "64G", "--max-total-tokens", 1000000, "--json").stdout)
    assert windows["window_bytes_per_token"] == windows["kv_bytes_per_token"] / 2
    assert windows["default_kv_bytes"] < 0.6 * 1000000 * windows["kv_bytes_per_token"]
    big = sluice("plan", CONFIGS / "qwen3-30b-a3b", "--memory", "24G")
    assert big.returncode == 3
    assert "does not fit" in big.stdout
    small = json.loads(sluice("plan", CONFIGS / "qwen3-30b-a3b", "--memory", "24G", "--quantization", "int4", "--json").stdout)
    assert small["fits"] and "--quantization int4" in small["command"]


def test_plan_refuses_what_a_start_refuses(tmp_path):
    shutil.copy(TINY / "config.json", tmp_path)
    (tmp_path / "generation_config.json").write_text('{"temperature": "hot"}')
    for flags in ((), ("--json",), ("--gpus", "1xH200")):
        done = sluice("plan", tmp_path, *flags)
        assert done.returncode == 2 and 'temperature is "hot"; it must be a number from 0 to 100' in done.stderr, done.stderr


def test_plan_for_several_gpus():
    model = CONFIGS / "qwen3-30b-a3b"
    plan = json.loads(sluice("plan", model, "--gpus", "4xH200", "--context-length", 4096, "--concurrency", 32, "--json").stdout)
    assert (plan["gpus"], plan["machine"], plan["context_length"], plan["concurrency"]) == (4, "H200", 4096, 32)
    served = [mix for mix in plan["mixes"] if mix["can_serve"]]
    best, throughput = plan["best_latency"], plan["best_throughput"]
    assert best["decode"]["1"]["seconds"] == min(mix["decode"]["1"]["seconds"] for mix in served)
    assert throughput["decode"]["32"]["tokens_per_s"] == max(mix["decode"]["32"]["tokens_per_s"] for mix in served)
    for mix in served:
        assert mix["mix"]["tp"] * mix["mix"]["pp"] * mix["mix"]["servers"] == 4 and not mix["reason"]
        assert mix["weight_bytes"] + mix["kv_bytes"] <= mix["available_bytes"]
        assert mix["mix"]["tp"] == 1 or f"--tp-size {mix['mix']['tp']}" in mix["command"]
    assert all(mix["reason"] for mix in plan["mixes"] if not mix["can_serve"])
    shown = sluice("plan", model, "--gpus", "4xH200")
    assert shown.returncode == 0 and "Fastest for one sequence: tp 4" in shown.stdout and f"sluice serve {model}" in shown.stdout
    none = sluice("plan", CONFIGS / "deepseek-v3.2", "--gpus", "8xH100")
    assert none.returncode == 3 and "No mix can serve it." in none.stdout and "of weights, and has" in none.stdout


@pytest.mark.parametrize("gpus, method", [("2xH100", "NEXTN"), ("2xH100", "NGRAM"), ("4xH100", "NGRAM")])
def test_plan_says_for_each_mix_why_it_is_out(gpus, method):
    flags = ("plan", TINY, "--gpus", gpus, "--speculative-algorithm", method)
    lines = sluice(*flags).stdout.partition("\nOut:\n")[2].splitlines()
    reasons = {line.strip(): lines[i + 1] for i, line in enumerate(lines) if line.startswith("  ") and line[2] != " "}
    assert any("--dp-size 2 exclude each other" in reason for reason in reasons.values())
    for mixes, reason in reasons.items():
        for mix in mixes.partition("; and ")[0].split("; "):
            assert "--pp-size" not in reason or "pp " in mix, (mix, reason)
            assert "--dp-size" not in reason or "dp " in mix, (mix, reason)
    # Ranks that share the matrices draft together.
    for mix in json.loads(sluice(*flags, "--json").stdout)["mixes"]:
        if mix["mix"]["tp"] > 1 and mix["mix"]["pp"] == 1:
            assert mix["can_serve"] == ("--dp-size" not in mix["reason"]), mix
            assert mix["can_serve"] or f"{method} and --dp-size" in mix["reason"], mix


@pytest.mark.parametrize("flags, words", [
    (("--gpus", "0xH200"), "as 8xH200"),
    (("--gpus", "3xFoo"), "the kinds are H100, H200"),
    (("--gpus", "8xB200"), "the kinds are H100, H200"),
    (("--gpus", "16xH200"), "at most 8xH200"),
    (("--gpus", "2xH200", "--tp-size", "2"), "leave --tp-size"),
    (("--gpus", "2xH200", "--memory", "24G"), "exclude each other"),
    (("--gpus", "2xH200", "--concurrency", "0"), "concurrency"),
    (("--gpus", "2xH200", "--context-length", "1000000"), "max_position_embeddings"),
    (("--concurrency", "8"), "add --gpus"),
])
def test_plan_refuses_gpus_that_it_does_not_know(flags, words):
    done = sluice("plan", CONFIGS / "qwen3-8b", *flags)
    assert done.returncode == 2 and words in done.stderr and not done.stdout, done


def test_the_planned_command_starts():
    command = json.loads(sluice("plan", TINY, "--memory", "120M", "--dtype", "float32", "--json").stdout)["command"].split()
    assert command[:2] == ["sluice", "serve"]
    process = subprocess.Popen([binary(), *command[1:], "--port", "0"], stderr=subprocess.PIPE, text=True)
    log = ""
    for line in process.stderr:
        log += line
        if "ready to roll" in line:
            process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0, log


def test_show():
    facts = json.loads(sluice("show", TINY, "--json").stdout)
    assert facts["native"] is True and facts["config"]["architecture"] == "GlmMoeDsaForCausalLM"
    assert facts["tokenizer"]["tokens"] > 0 and facts["chat_template"]["reasoning_parser"]
    shown = sluice("show", TINY)
    assert shown.returncode == 0 and "GlmMoeDsaForCausalLM" in shown.stdout
    # A model without tokenizer or weights is shown as far as it goes.
    bare = json.loads(sluice("show", CONFIGS / "qwen3-8b", "--json").stdout)
    assert bare["weights"] == [] and "error" in bare["tokenizer"]


def test_plan_and_show_of_damaged_weights(tmp_path):
    """They must not count as a configuration alone, for which `plan` offers random weights."""
    for name in ("config.json", "tokenizer.json", "model.safetensors.index.json"):
        shutil.copy(TINY / name, tmp_path)
    for damage in ("is not in", "cut short"):
        done = sluice("plan", tmp_path)
        assert done.returncode == 2 and damage in done.stderr and not done.stdout, done
        done = sluice("show", tmp_path)
        assert done.returncode == 2 and damage in done.stdout and "GlmMoeDsaForCausalLM" in done.stdout, done
        for shard in TINY.glob("*.safetensors"):
            (tmp_path / shard.name).write_bytes(shard.read_bytes()[:9_000_000])


def test_plan_of_more_tokens_than_fit():
    done = sluice("plan", TINY, "--max-total-tokens", 1 << 40)
    assert done.returncode == 3 and "--max-total-tokens 1099511627776 is more than the" in done.stdout and "sluice serve" not in done.stdout, done


def test_show_of_what_is_not_supported(tmp_path):
    config = json.loads((CONFIGS / "qwen3-8b" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["MambaForCausalLM"]}))
    shown = sluice("show", tmp_path)
    assert shown.returncode == 2 and "MambaForCausalLM" in shown.stdout


def test_bench_serve(tiny, tmp_path):
    out = tmp_path / "runs.jsonl"
    flags = [
        "bench", "serve", "--port", tiny.port, "--tokenizer", TINY, "--num-prompts", 6, "--random-input-len", 20, "--random-output-len", 8,
        "--random-range-ratio", 0.5, "--max-concurrency", 3, "--goodput", "ttft:60000", "--output-file", out,
    ]
    done = sluice(*flags, "--output-details")
    assert done.returncode == 0, done.stderr
    assert "Serving Benchmark Result" in done.stdout and "Request goodput (req/s):" in done.stdout
    (line,) = out.read_text().splitlines()
    run = json.loads(line)
    assert run["completed"] == 6 and run["failed"] == 0
    assert run["total_output_tokens"] == sum(run["output_lens"])
    assert len(run["ttfts"]) == 6 and all(4 <= n <= 8 for n in run["output_lens"])
    assert run["request_goodput"] == pytest.approx(run["request_throughput"])
    for backend in ("sluice-oai", "sluice-oai-chat", "vllm"):
        done = sluice(*flags, "--backend", backend, "--vs", out)
        assert done.returncode == 0, done.stderr
        assert "mean_ttft_ms" in done.stdout and "new/old" in done.stdout
    assert len(out.read_text().splitlines()) == 4
    refused = sluice(*flags, "--extra-request-body", '{"sampling_params": {"temperature": -1}}', "--warmup-requests", 0)
    assert refused.returncode == 1 and "6 of 6 requests failed" in refused.stderr and "temperature" in refused.stderr


def test_bench_throughput_and_roofline():
    done = sluice(
        "bench", "throughput", "--model", GOLDEN / "models" / "llama-plain", "--num-prompts", 5, "--random-input-len", 9,
        "--random-output-len", 4, "--json",
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["total_input_tokens"] == 45 and figures["total_output_tokens"] == 20
    roofline = json.loads(sluice("bench", "roofline", "--roofline-mib", 16, "--threads", 1, "--json").stdout)
    assert len(roofline["read_patterns"]) >= 4
    assert roofline["read_bytes_per_s"] == max(roofline["read_patterns"].values())
    assert roofline["operations_per_s"]["fma"] > 0


def test_doctor_checks_the_machine_and_its_kernels():
    done = sluice("doctor", TINY, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["problems"] == 0
    machine = {fact["name"]: fact for fact in report["machine"]}
    assert {"processor", "memory", "huge pages", "GPU", "libcurl", "cuBLASLt", "NCCL", "transformers"} <= machine.keys()
    assert "usable" in machine["processor"]["text"] and "available" in machine["memory"]["text"]
    kernels = {(k["operation"], k["kernels"]): k for k in report["kernels"]}
    # The bundled model has latents, an indexer and experts, and no heads of keys.
    assert {"mla_sparse_attention", "index_topk", "fused_experts", "linear int8"} <= {op for op, _ in kernels}
    assert not any(op.startswith("paged_attention") for op, _ in kernels)
    assert all(k["failed"] == 0 and k["cases"] > 0 and k["worst_share_of_allowed"] <= 1 for k in kernels.values())
    text = sluice("doctor", "--threads", 1)
    assert text.returncode == 0, text.stdout + text.stderr
    assert "paged_attention" in text.stdout and text.stdout.endswith("No problems.\n")


def test_doctor_ends_with_1_where_something_is_wrong():
    done = sluice("doctor", LLAMA, "--device", "cuda", env={"CUDA_VISIBLE_DEVICES": "-1"})
    assert done.returncode == 1
    assert "BAD   GPU" in done.stdout and done.stdout.endswith("1 problem.\n")


def test_bench_kernel():
    done = sluice("bench", "kernel", LLAMA, "--rows", "1,3", "--rotate-mib", 1, "--roofline-mib", 16, "--threads", 1, "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    kernels = [row["kernel"] for row in rows]
    assert kernels.count("product int8") == 4 and kernels.count("attention bfloat16") == 2 and "rms_norm to bfloat16" in kernels
    assert all(row["microseconds"] > 0 and row["bytes_per_s"] > 0 and row["share_of_roofline"] > 0 for row in rows)
    shown = sluice("bench", "kernel", LLAMA, "--rows", "2", "--rotate-mib", 1, "--roofline-mib", 16, "--threads", 1).stdout
    assert "roofline" in shown and "product int4" in shown


def test_completions_are_read_by_their_shell(tmp_path):
    script = sluice("completion", "bash").stdout
    ask = script + '\nCOMP_WORDS=(sluice serve --dty); COMP_CWORD=2; _sluice; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.split() == ["--dtype"]
    for shell in ("zsh", "fish"):
        path = tmp_path / f"sluice.{shell}"
        path.write_text(sluice("completion", shell).stdout)
        assert "context-length" in path.read_text()
        if shutil.which(shell):
            assert subprocess.run([shell, "-n", path], capture_output=True).returncode == 0


def test_the_manual_page():
    page = sluice("man")
    assert page.returncode == 0 and page.stdout.startswith(".TH SLUICE 1")
