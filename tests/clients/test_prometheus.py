"""Prometheus and its promtool, as Debian has them, over /metrics. tests/serving/test_dashboards.py asks the panels' queries."""

import json
import re
import shutil
import subprocess
import time
import urllib.request

import pytest

from sluice_server import ROOT, free_port

CONFIG = ROOT / "deploy" / "grafana" / "prometheus.yml"


@pytest.fixture(autouse=True)
def used(tiny):
    for number in range(3):
        reply = tiny.post("/v1/completions", {"prompt": f"The capital of {number}", "max_tokens": 4, "ignore_eos": True})
        assert reply.status == 200


def promtool(*args, text=None):
    program = shutil.which("promtool")
    if not program:
        pytest.skip("no `promtool` here")
    return subprocess.run([program, *map(str, args)], input=text, capture_output=True, text=True, timeout=60)


def test_metrics(tiny):
    """No fault of syntax. promtool's advice on names stands against names of vLLM and SGLang, which dashboards know."""
    done = promtool("check", "metrics", text=tiny.get("/metrics").body.decode())
    complaints = done.stderr.splitlines()
    assert done.returncode in (0, 3), done.stderr
    advice = re.compile(r"(vllm|sglang|sluice):\S+ metric names should not contain ':'$|"
                        r"sglang:\S+_histogram metric name should not include type 'histogram'$|"
                        r"vllm:iteration_tokens_total non-counter metrics should not have \"_total\" suffix$")
    assert not [line for line in complaints if not advice.match(line)], complaints


def test_config():
    done = promtool("check", "config", CONFIG)
    assert done.returncode == 0, done.stderr


def test_scrape(tiny, tmp_path):
    """The shipped configuration: the target is up, and a query gives the server's own count."""
    program = shutil.which("prometheus")
    if not program:
        pytest.skip("no `prometheus` here")
    port = free_port()
    config = CONFIG.read_text().replace("127.0.0.1:30000", f"127.0.0.1:{tiny.port}").replace("5s", "1s")
    (tmp_path / "prometheus.yml").write_text(config)
    process = subprocess.Popen([program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
                                f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + 60
        while True:
            try:
                targets = json.load(urllib.request.urlopen(url + "/api/v1/targets", timeout=5))["data"]["activeTargets"]
                if targets and all(target["health"] == "up" for target in targets):
                    break
            except OSError:
                targets = []
            assert time.monotonic() < end, targets
            time.sleep(0.5)
        assert not any(target["lastError"] for target in targets)
        done = promtool("query", "instant", url, "sum(vllm:request_success_total)")
        assert done.returncode == 0, done.stderr
        count = int(re.search(r"=> (\d+) @", done.stdout).group(1))
        text = tiny.get("/metrics").body.decode()
        assert count == sum(int(float(value)) for value in re.findall(r"^vllm:request_success_total{[^}]*} (\S+)$", text, re.MULTILINE)) > 0
    finally:
        process.terminate()
        process.wait()
