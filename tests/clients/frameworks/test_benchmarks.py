"""Load generators: guidellm, sglang.bench_serving, `vllm bench serve`."""

import json

import pytest

from sluice_server import TINY


class TestGuidellm:
    @pytest.mark.parametrize("profile", ["kind=concurrent,streams=2", "kind=synchronous"])
    def test_run(self, command, server, counts, tmp_path, profile):
        command("guidellm", "run", "--backend", f"kind=openai_http,target={server.url}", "--profile", profile,
                "--constraint", "kind=max_requests,count=6", "--data", "kind=synthetic_text,prompt_tokens=32,output_tokens=16",
                "--tokenizer", f"kind=hf_auto,model={TINY}", "--output", f"kind=json,path={tmp_path}/out.json",
                "--disable-console")
        (benchmark,) = json.loads((tmp_path / "out.json").read_text())["benchmarks"]
        totals = benchmark["metrics"]["request_totals"]
        assert totals["successful"] == totals["total"] == 6 and totals["errored"] == totals["incomplete"] == 0
        rows = benchmark["requests"]["successful"]
        assert [row["output_tokens"] for row in rows] == [16] * 6
        assert counts["requests"] == 6 and counts["generated_tokens"] == 6 * 16
        assert sum(row["prompt_tokens"] for row in rows) == counts["prompt_tokens"]


class TestSglang:
    @pytest.mark.parametrize("backend", ["sglang", "sglang-oai", "sglang-oai-chat", "vllm-chat"])
    def test_bench_serving(self, command, server, counts, tmp_path, backend):
        command("python", "-m", "sglang.bench_serving", "--backend", backend, "--base-url", server.url, "--dataset-name", "random-ids",
                "--num-prompts", "6", "--random-input-len", "32", "--random-output-len", "16", "--random-range-ratio", "1",
                "--model", "sluice-tiny", "--tokenizer", TINY, "--max-concurrency", "2", "--warmup-requests", "0",
                "--output-file", tmp_path / "out.jsonl")
        (line,) = (tmp_path / "out.jsonl").read_text().splitlines()
        result = json.loads(line)
        assert result["completed"] == 6 and result["total_output_tokens"] == 6 * 16
        assert counts["requests"] == 6 and counts["generated_tokens"] == 6 * 16


class TestVllm:
    @pytest.mark.parametrize("backend", ["openai", "openai-chat"])
    def test_bench_serve(self, command, server, counts, tmp_path, backend):
        path = "/v1/chat/completions" if backend == "openai-chat" else "/v1/completions"
        command("vllm", "bench", "serve", "--backend", backend, "--endpoint", path, "--base-url", server.url, "--dataset-name", "random",
                "--random-input-len", "32", "--random-output-len", "16", "--num-prompts", "6", "--max-concurrency", "2",
                "--model", "sluice-tiny", "--tokenizer", TINY, "--ignore-eos", "--save-result", "--result-dir", tmp_path,
                "--result-filename", "out.json")
        result = json.loads((tmp_path / "out.json").read_text())
        assert result["completed"] == 6 and result["failed"] == 0 and result["total_output_tokens"] == 6 * 16
        assert counts["requests"] == 6 and counts["generated_tokens"] == 6 * 16
