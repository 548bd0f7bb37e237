"""--trace: the file of a run, parsed as Perfetto parses it."""

import collections
import json
import signal
import threading

import pytest
from sluice_server import TINY, Server, sluice


def load(path):
    """A whole trace, or one whose writer was killed."""
    text = path.read_text()
    events = json.loads(text if text.rstrip().endswith("]") else text + "]")
    lanes = {}
    for event in events:
        assert {"ph", "pid", "tid", "name", "args"} <= event.keys()
        if event["ph"] == "M":
            if event["name"] == "thread_name":
                lanes[event["pid"], event["tid"]] = event["args"]["name"]
            continue
        assert event["ph"] in "Xi" and event["ts"] >= 0
        assert (event["pid"], event["tid"]) in lanes, "a lane without a name"
    return [e for e in events if e["ph"] == "X"], [e for e in events if e["ph"] == "i"], lanes


def check_nesting(spans):
    """Spans of one lane nest or are disjoint; sets the parent of each."""
    parents = {}
    for lane in {(s["pid"], s["tid"]) for s in spans}:
        stack = []
        own = sorted((s for s in spans if (s["pid"], s["tid"]) == lane), key=lambda s: (s["ts"], -s["dur"]))
        for span in own:
            while stack and stack[-1]["ts"] + stack[-1]["dur"] <= span["ts"] + 1e-6:
                stack.pop()
            if stack:
                assert span["ts"] + span["dur"] <= stack[-1]["ts"] + stack[-1]["dur"] + 1e-3, (span, stack[-1])
                parents[id(span)] = stack[-1]
            stack.append(span)
    return parents


def ask(server, rid, tokens=6):
    return server.post("/generate", {"text": "Once upon a time", "rid": rid, "sampling_params": {
        "temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}})


def check_requests(spans, names):
    """Every request has its phases, in order, on its own lane."""
    for name in names:
        (whole,) = [s for s in spans if s["pid"] == 2 and s["name"] == name]
        end = whole["ts"] + whole["dur"]
        inside = [s for s in spans if s["pid"] == 2 and s["tid"] == whole["tid"] and s is not whole
                  and whole["ts"] <= s["ts"] and s["ts"] + s["dur"] <= end + 1e-3]
        inside.sort(key=lambda s: s["ts"])
        phases = [s["name"] for s in inside]
        assert phases in (["read", "queue", "prefill", "decode"], ["queue", "prefill", "decode"]), phases
        for first, second in zip(inside, inside[1:]):
            assert abs(first["ts"] + first["dur"] - second["ts"]) < 2e-3
        assert abs(inside[-1]["ts"] + inside[-1]["dur"] - end) < 2e-3


def test_a_server_writes_steps_and_requests(tmp_path):
    path = tmp_path / "trace.json"
    rids = [f"client-{i} \"x\"" for i in range(5)]
    with Server(TINY, "--max-total-tokens", 16384, "--trace", path, log=tmp_path / "log") as server:
        workers = [threading.Thread(target=ask, args=(server, rid)) for rid in rids]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        reply = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3})
        chat = reply.headers["X-Request-Id"]
    spans, instants, lanes = load(path)
    assert path.read_text().endswith("]\n")
    parents = check_nesting(spans)
    check_requests(spans, [*rids, chat])
    assert sorted(e["args"]["request"] for e in instants if e["name"] == "arrival") == sorted([*rids, chat])

    by_lane = collections.defaultdict(list)
    for span in spans:
        by_lane[lanes[span["pid"], span["tid"]]].append(span)
    names = {s["name"] for s in by_lane["engine"]}
    assert {"load", "warm up", "schedule", "build batch", "launch", "sample", "commit", "deliver"} <= names
    # Each step once on the host and once on the device; on a CPU the device's span is inside the
    # launch.
    steps = {s["args"]["step"]: s for s in by_lane["engine"] if s["name"].startswith("step ")}
    device = {s["args"]["step"]: s for s in by_lane["device"]}
    assert steps.keys() == device.keys() and len(steps) >= 8
    modes = {s["args"]["mode"] for s in steps.values()}
    assert {"prefill", "decode"} <= modes
    assert sum(s["args"]["prefill_tokens"] for s in steps.values()) >= 4
    for number, step in steps.items():
        assert step["ts"] <= device[number]["ts"] and device[number]["dur"] <= step["dur"]
        parts = [s["name"] for s in by_lane["engine"] if parents.get(id(s)) is step]
        assert parts == ["schedule", "build batch", "launch", "sample"]
    order = sorted(device)
    assert all(device[a]["ts"] + device[a]["dur"] <= device[b]["ts"] + 1e-3 for a, b in zip(order, order[1:]))

    text = [s["name"] for name in by_lane if name.startswith("text ") for s in by_lane[name]]
    assert text.count("tokenize") == 6 and text.count("template") == 1 and text.count("/generate") == 5
    assert any(s["name"] == "detokenize" for s in by_lane["network 1"])
    # Names, counts and times only.
    assert "Once upon" not in path.read_text() and "Hi" not in [s["name"] for s in spans]


def test_a_killed_server_leaves_a_file_that_loads(tmp_path):
    path = tmp_path / "trace.json"
    with Server(TINY, "--max-total-tokens", 16384, "--trace", path, exit_status=-signal.SIGKILL) as server:
        ask(server, "finished")
        server.process.kill()
        server.process.wait()
    spans, _, _ = load(path)
    assert not path.read_text().rstrip().endswith("]")
    check_nesting(spans)
    check_requests(spans, ["finished"])


def test_bench_latency_writes_one_too(tmp_path):
    path = tmp_path / "trace.json"
    done = sluice("bench", "latency", "--model", TINY, "--input-len", 40, "--output-len", 4, "--batch-size", 2,
                  "--roofline-mib", 0, "--trace", path)
    assert done.returncode == 0, done.stderr
    spans, _, lanes = load(path)
    check_nesting(spans)
    requests = [s["name"] for s in spans if s["name"].startswith("request ")]
    assert len(requests) == 4   # two before the measurement, and the case
    check_requests(spans, requests)
    assert "device" in lanes.values()


@pytest.mark.parametrize("verb", [["serve"], ["bench", "latency"], ["generate", "--prompt", "a"]])
def test_a_path_that_cannot_be_written_ends_the_start(verb, tmp_path):
    done = sluice(*verb, "--model", TINY, "--trace", tmp_path / "nowhere" / "trace.json")
    assert done.returncode == 2
    assert "nowhere/trace.json" in done.stderr and "No such file" in done.stderr
    assert "load" not in done.stderr
