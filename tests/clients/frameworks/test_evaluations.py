"""Programs that evaluate models: lm-eval, evalscope."""

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
