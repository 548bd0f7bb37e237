"""Each panel of the Grafana dashboard has data: its metrics are in a scrape of a loaded server, and a real Prometheus,
where one is installed, answers its queries."""

import contextlib
import json
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

import pytest

import rival_panels
from sluice_server import ROOT, TINY, Server, free_port

FOLDER = ROOT / "deploy" / "grafana"
NAME = re.compile(r"\b((?:vllm|sglang|sluice):\w+|(?:http|process)_\w+)\b")


def queries():
    board = json.loads((FOLDER / "sluice.json").read_text())
    out = [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel.get("targets", [])]
    assert len(out) > 30 and len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    return out


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    log = tmp_path_factory.mktemp("dashboards") / "server.log"
    with Server(TINY, "--dtype", "float32", "--max-total-tokens", "2048", "--max-running-requests", "4",
                "--speculative-algorithm", "NEXTN", "--speculative-adaptive=false", log=log) as running:
        yield running


def load(server, until):
    """Requests with a common prefix until the event is set."""
    words = "The quick brown fox jumps over the lazy dog. " * 4
    number = 0
    while not until.is_set():
        number += 1
        server.post("/v1/completions", {"model": "sluice-tiny", "prompt": words + str(number % 7), "max_tokens": 24})
        server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": f"What is {number}?"}], "max_tokens": 8})


@contextlib.contextmanager
def under_load(server):
    until = threading.Event()
    threads = [threading.Thread(target=load, args=(server, until)) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        until.set()
        for thread in threads:
            thread.join()


def test_the_file_is_up_to_date():
    subprocess.run([sys.executable, FOLDER / "make_dashboard.py", "--check"], check=True)


def test_metrics_of_all_panels_exist(server):
    for _ in range(3):
        server.post("/v1/completions", {"model": "sluice-tiny", "prompt": "The capital of France", "max_tokens": 8})
    names = set(re.findall(r"^([\w:]+)[{ ]", server.get("/metrics").body.decode(), re.MULTILINE))
    for title, query in queries():
        used = NAME.findall(query)
        assert used, (title, query)
        for name in used:
            assert name in names, (title, name)


def series(text):
    """[(name, labels, value)] of a scrape."""
    found = re.findall(r"^([\w:]+)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE)
    return [(name, dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)) for name, labels, value in found]


def test_panels_of_the_rivals_have_their_series(server):
    def sum_of(scrape, name, **wanted):
        values = [value for found, labels, value in scrape if found == name
                  and all(key in labels and expected in (None, labels[key]) for key, expected in wanted.items())]
        assert values, (name, wanted)
        return sum(values)

    before = series(server.get("/metrics").body.decode())
    with under_load(server):
        time.sleep(5)
    after = series(server.get("/metrics").body.decode())
    for name, labels in rival_panels.SERIES:
        sum_of(after, name, **labels)
    for name, bounds in rival_panels.HISTOGRAMS.items():
        assert sum_of(after, name + "_count") > 0 and sum_of(after, name + "_bucket", le="+Inf") > 0, name
        assert sum_of(after, name + "_sum") > 0, name
        for bound in bounds:
            sum_of(after, name + "_bucket", le=bound)
    names = {name for name, _, _ in before}
    for name in rival_panels.MOVING:
        assert name in names and sum_of(after, name) > sum_of(before, name), name
    assert sum_of(after, "vllm:engine_sleep_state", sleep_state="awake") == 1


def test_prometheus_answers_all_panels(server, tmp_path):
    program = shutil.which("prometheus")
    if not program:
        pytest.skip("no `prometheus` here")
    port = free_port()
    config = (FOLDER / "prometheus.yml").read_text().replace("127.0.0.1:30000", f"127.0.0.1:{server.port}")
    (tmp_path / "prometheus.yml").write_text(config.replace("5s", "1s"))
    process = subprocess.Popen([program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
                                f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ask(query):
        query = query.replace("$__rate_interval", "20s").replace("$model", ".*").replace("$instance", ".*")
        url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
        return json.load(urllib.request.urlopen(url, timeout=10))["data"]["result"]

    try:
        with under_load(server):
            end, empty = time.monotonic() + 90, queries()
            while empty and time.monotonic() < end:
                time.sleep(2)
                with contextlib.suppress(OSError):
                    empty = [(title, query) for title, query in queries()
                             if not any(row["value"][1] != "NaN" for row in ask(query))]
        assert not empty
    finally:
        process.terminate()
        process.wait()
