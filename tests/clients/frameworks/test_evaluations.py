"""Programs that evaluate models: lm-eval, inspect-ai, evalscope."""

import json

import pytest

from sluice_server import ROOT, TINY


def only(folder, pattern):
    (path,) = folder.rglob(pattern)
    return path


class TestLmEval:
    """The tasks of tests/lm_eval. tools/check_lm_eval.py compares the values with those of transformers."""

    @pytest.fixture
    def evaluate(self, command, server, tmp_path):
        def run(model, path, task, limit, *args, **model_args):
            words = {"model": "sluice-tiny", "base_url": f"{server.url}/v1/{path}", "num_concurrent": 2, "max_retries": 1, **model_args}
            command("lm_eval", "run", "--model", model, "--model_args", ",".join(f"{key}={value}" for key, value in words.items()),
                    "--include_path", "tests/lm_eval", "--tasks", task, "--limit", limit, "--log_samples",
                    "--output_path", tmp_path, *args, cwd=ROOT, env={"HF_HOME": str(tmp_path / "cache")})
            results = json.loads(only(tmp_path, "results_*.json").read_text())["results"][task]
            samples = [json.loads(line) for line in only(tmp_path, f"samples_{task}_*.jsonl").read_text().splitlines()]
            assert len(samples) == limit
            return results, samples

        return run

    def test_chat(self, evaluate, counts):
        results, samples = evaluate("local-chat-completions", "chat/completions", "sluice_answers", 12, "--apply_chat_template")
        assert all(sample["resps"][0][0] for sample in samples)
        assert results["exact_match,stripped"] > 0.8
        assert counts["requests"] == 12

    def test_log_likelihood(self, evaluate, counts):
        """Prompts as token ids, several in a request, with `echo` and log-probabilities."""
        results, samples = evaluate("local-completions", "completions", "sluice_choices", 6, "--batch_size", 4,
                                    tokenizer=TINY, tokenizer_backend="huggingface", max_length=8192)
        values = [float(answer[0][0]) for sample in samples for answer in sample["resps"]]
        assert len(values) == 6 * 4 and all(value < 0 for value in values)
        assert results["acc,none"] > 0.8
        assert counts["requests"] == 6 * 4          # each prompt of a request counts

    def test_remote_tokenizer(self, evaluate):
        """/tokenizer_info, /tokenize and /detokenize in place of the model's folder."""
        results, _ = evaluate("local-completions", "completions", "sluice_choices", 6, "--batch_size", 4,
                              tokenizer_backend="remote", max_length=8192)
        assert results["acc,none"] > 0.8

    def test_text(self, evaluate, counts):
        _, samples = evaluate("local-completions", "completions", "sluice_answers", 4, "--batch_size", 2,
                              tokenizer=TINY, tokenizer_backend="huggingface", max_length=8192)
        assert all(isinstance(sample["resps"][0][0], str) for sample in samples) and counts["requests"] == 4


class TestInspectAi:
    @pytest.fixture(params=["openai-api/sluice/sluice-tiny", "vllm/sluice-tiny"])
    def evaluate(self, request, server, tmp_path):
        inspect_ai = pytest.importorskip("inspect_ai")
        from inspect_ai.model import GenerateConfig, get_model
        model = get_model(request.param, base_url=server.url + "/v1", api_key="none", config=GenerateConfig(temperature=0, max_tokens=200))

        def run(task):
            (log,) = inspect_ai.eval(task, model=model, log_dir=str(tmp_path / "log"), display="none", max_connections=2)
            assert log.status == "success", log.error
            return log

        return run

    def test_generate(self, evaluate, counts):
        from inspect_ai import Task
        from inspect_ai.dataset import Sample
        from inspect_ai.scorer import includes
        from inspect_ai.solver import generate
        capitals = {"France": "Paris", "Norway": "Oslo", "Poland": "Warsaw"}
        data = [Sample(input=f"What is the capital of {land}?", target=city) for land, city in capitals.items()]
        log = evaluate(Task(dataset=data, solver=generate(), scorer=includes()))
        assert log.results.completed_samples == 3
        assert log.results.scores[0].metrics["accuracy"].value == 1.0
        (usage,) = log.stats.model_usage.values()
        assert counts["requests"] == 3
        assert usage.output_tokens == counts["generated_tokens"]

    def test_tools(self, evaluate):
        """A tool with `strict`, its call and its result."""
        from inspect_ai import Task
        from inspect_ai.dataset import Sample
        from inspect_ai.solver import generate, use_tools
        from inspect_ai.tool import tool
        called = []

        @tool
        def set_timer():
            async def execute(minutes: int, label: str):
                """Start a timer.

                Args:
                    minutes: How long
                    label: What for
                """
                called.append((minutes, label))
                return "started"

            return execute

        evaluate(Task(dataset=[Sample(input="Set a timer of 12 minutes for the napkin.")], solver=[use_tools(set_timer()), generate()],
                      message_limit=8))
        assert called[0] == (12, "napkin")


class TestEvalscope:
    def test_perf(self, command, server, counts, tmp_path):
        command("evalscope", "perf", "--url", server.url + "/v1/chat/completions", "--model", "sluice-tiny", "--api", "openai",
                "--dataset", "random", "--tokenizer-path", TINY, "--min-prompt-length", "20", "--max-prompt-length", "40",
                "--prefix-length", "0", "--min-tokens", "16", "--max-tokens", "16", "--number", "6", "--parallel", "2", "--stream",
                "--no-test-connection")
        summary = json.loads(only(tmp_path, "benchmark_summary.json").read_text())
        assert summary["Success Requests"] == summary["Total Requests"] == 6 and summary["Failed Requests"] == 0
        assert summary["Avg Output Tokens"] == 16
        assert summary["Avg Input Tokens"] * 6 == pytest.approx(counts["prompt_tokens"], abs=0.01)
        assert counts["requests"] == 6 and counts["generated_tokens"] == 6 * 16

    def test_eval(self, command, server, counts, tmp_path):
        (tmp_path / "data").mkdir()
        rows = [{"query": f"What is the capital of {land}?", "response": f"The capital of {land} is {city}."}
                for land, city in (("France", "Paris"), ("Norway", "Oslo"))]
        (tmp_path / "data" / "capitals.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        arguments = {"general_qa": {"local_path": str(tmp_path / "data"), "subset_list": ["capitals"]}}
        command("evalscope", "eval", "--model", "sluice-tiny", "--api-url", server.url + "/v1", "--api-key", "none",
                "--eval-type", "openai_api", "--datasets", "general_qa", "--dataset-args", json.dumps(arguments),
                "--generation-config", '{"temperature": 0, "max_tokens": 64}', "--work-dir", tmp_path / "work")
        report = json.loads(only(tmp_path / "work", "general_qa.json").read_text())
        rouge = [metric["score"] for metric in report["metrics"] if metric["identity"]["name"] == "rouge"]
        assert rouge and rouge == [1.0] * len(rouge)
        assert report["execution_summary"]["succeeded"] == counts["requests"] == 2
