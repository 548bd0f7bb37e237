"""aiperf: chat, completions, and its agent-trace scenario over traces of agent_traces.py."""

import json

import pytest

import agent_traces
from sluice_server import TINY


@pytest.fixture
def profile(command, server, tmp_path):
    """Runs `aiperf profile` and returns its report. aiperf reads a folder's tokenizer only where it may ask the hub."""

    def run(*args):
        command("aiperf", "profile", "--model", "sluice-tiny", "--url", server.url, "--streaming", "--tokenizer", TINY,
                "--ui", "none", "--random-seed", "7", "--artifact-dir", tmp_path / "out", *args, env={"HF_HUB_OFFLINE": None})
        return json.loads((tmp_path / "out" / "profile_export_aiperf.json").read_text())

    return run


def records(folder):
    return [json.loads(line) for line in (folder / "out" / "profile_export.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_profile(profile, counts, tmp_path, endpoint):
    report = profile("--endpoint-type", endpoint, "--concurrency", "2", "--request-count", "6", "--isl", "40", "--osl", "12",
                     "--extra-inputs", "ignore_eos:true")
    assert report["request_count"]["avg"] == 6 and report["error_summary"] == []
    assert report["total_usage_completion_tokens"]["avg"] == counts["generated_tokens"] == 6 * 12
    assert report["total_usage_prompt_tokens"]["avg"] == counts["prompt_tokens"]
    assert counts["requests"] == len(records(tmp_path)) == 6
    # aiperf finds /metrics by itself and records it.
    assert "vllm:generation_tokens" in (tmp_path / "out" / "server_metrics_export.json").read_text()


def test_agent_traces(profile, counts, tmp_path):
    """The scenario replays sessions with growing prompts and nested sessions; without 15 minutes and the public set it asks for
    `--unsafe-override`. The prompts' shared parts are hits of the prefix cache."""
    traces = agent_traces.write(tmp_path / "traces", 4)
    assert agent_traces.shared_share(traces) > 0.7
    report = profile("--endpoint-type", "chat", "--scenario", "inferencex-agentx-mvp", "--unsafe-override",
                     "--benchmark-duration", "30", "--input-file", tmp_path / "traces", "--custom-dataset-type", "weka_trace",
                     "--concurrency", "2")
    done = int(report["request_count"]["avg"])
    assert done >= 4 and report["error_summary"] == []
    assert counts["requests"] >= done        # the warm-up's requests are not in the report
    hits, prompts = counts["cached_tokens"], counts["prompt_tokens"]
    seen_hits, seen_prompts = report["total_usage_prompt_cache_read_tokens"]["avg"], report["total_usage_prompt_tokens"]["avg"]
    print(f"{done} requests; {hits:.0f} of {prompts:.0f} prompt tokens from the cache, {seen_hits:.0f} of {seen_prompts:.0f} as "
          f"aiperf counts; at most {report['theoretical_prefix_cache_hit']['avg']:.0f} %")
    assert hits > 0 and seen_hits / seen_prompts > 0.8 * report["theoretical_prefix_cache_hit"]["avg"] / 100
    assert seen_prompts <= prompts and seen_hits <= hits
