#!/usr/bin/env python3
"""Kills, stops or slows a rank of a loaded server at random points: tools/rank_trials.py PROGRAM [--trials 200].

Ranks are processes of the CPU with two or four of them, or with `--device cuda` four GPUs.

A trial starts the bundled model with several ranks, four streams and, at a random moment (also while the model loads),
does one thing to one rank:

  kill   SIGKILL. The clients are told within 2 s of that, and the server ends with code 4 within 10 s.
  stop   SIGSTOP for good. The same, behind the 5 s after which a rank counts as hung.
  slow   SIGSTOP for 0.1 to 2 s, then SIGCONT. All streams end as they should, and the server ends with code 0.

With `--elastic` the server has --elastic-ep-backend, and goes on: streams of other ranks end whole, with the tokens of
a server that lost nothing. Those of the lost one get an error within the same time. New requests are answered, and the
server ends with code 0 by SIGTERM. While it loads, a loss ends it.

In each case no process is left. Prints each failure, and a last line with the counts and the slowest times. Exits with
1 if a trial failed.
"""
import argparse
import collections
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAYOUTS = {
    "cpu": {
        "tp2": ["--tp-size", "2"],
        "pp2": ["--pp-size", "2"],
        "dp2": ["--tp-size", "2", "--dp-size", "2", "--enable-dp-attention"],
        "tp2 pp2": ["--tp-size", "2", "--pp-size", "2"],
    },
    "cuda": {
        "tp4": ["--tp-size", "4"],
        "tp4 dp2": ["--tp-size", "4", "--dp-size", "2", "--enable-dp-attention"],
        "tp4 dp4": ["--tp-size", "4", "--dp-size", "4", "--enable-dp-attention"],
        "tp2 pp2": ["--tp-size", "2", "--pp-size", "2"],
    },
}
ELASTIC = ["--elastic-ep-backend", "shared-memory"]
GROUPS = ["--tp-size", "{0}", "--dp-size", "{0}", "--enable-dp-attention", "--ep-size", "{0}", *ELASTIC]
LAYOUTS["elastic"] = {f"ep{n}": [word.format(n) for word in GROUPS] for n in (2, 4)}
TOLD_S, ENDED_S, HUNG_S = 2, 10, 5
MARGIN_S = 1   # signs of life are looked at several times a second


def children_of(pid):
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rsplit(") ", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False


class Trial:
    def __init__(self, args, layout, act, seed):
        self.random = random.Random(seed)
        self.act, self.streams, self.done = act, [], []
        self.is_elastic, self.tokens = args.elastic, args.tokens
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.server = subprocess.Popen(
            [args.program, "serve", args.model, "--port", str(self.port), "--device", args.device, "--dtype", "float32",
             "--max-total-tokens", "32768", "--threads", "1", *LAYOUTS["elastic" if args.elastic else args.device][layout]],
            stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)

    def is_ready(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
            connection.request("GET", "/ready")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def stream(self, tokens):
        """Appends when the stream ended, and how: whole, an error, or cut."""
        how, ids = "cut", None
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            body = {"text": "Once", "stream": True,
                    "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}}
            connection.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            how = "error" if response.status != 200 else "cut"
            for line in response:
                if line.startswith(b"data: {") and b'"error"' not in line:
                    ids = json.loads(line[6:])["output_ids"]
                if b'"error"' in line:
                    how = "error"
                if line.strip() == b"data: [DONE]" and how != "error":
                    how = "whole" if not self.is_elastic or ids == self.tokens[:tokens] else "other tokens"
        except OSError:
            pass
        self.done.append((time.monotonic(), how))

    def run(self):
        """What was wrong (empty: nothing), when the last client was told, and when the server had ended."""
        at_load = self.act != "slow" and self.random.random() < 0.15
        ranks, end = [], time.monotonic() + 60
        while not ranks if at_load else not self.is_ready():
            ranks = children_of(self.server.pid)
            if self.server.poll() is not None or time.monotonic() > end:
                return "it did not start", 0, 0
            time.sleep(0.01)
        ranks = children_of(self.server.pid)
        goes_on = self.act == "slow" or self.is_elastic
        tokens = self.random.choice([40, 300]) if goes_on else 4000
        threads = [] if at_load else [threading.Thread(target=self.stream, args=(tokens,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(self.random.uniform(0, 0.8))
        if not ranks or self.server.poll() is not None:
            return "it ended early", 0, 0
        rank, begin = self.random.choice(ranks), time.monotonic()
        os.kill(rank, signal.SIGKILL if self.act == "kill" else signal.SIGSTOP)
        if self.act == "slow":
            time.sleep(self.random.uniform(0.1, 2))
            os.kill(rank, signal.SIGCONT)
        if at_load and self.is_elastic:
            while self.server.poll() is None and not self.is_ready():
                time.sleep(0.01)
            at_load = self.server.poll() is not None   # else it was ready before the loss
        if goes_on and not at_load:
            for thread in threads:
                thread.join(60)
            told = max((when - begin for when, how in self.done if how == "error"), default=0)
            if self.is_elastic:
                self.stream(20)
            self.server.send_signal(signal.SIGTERM)
        try:
            status = self.server.wait(60)
        except subprocess.TimeoutExpired:
            return "it did not end", 60, 60
        ended = time.monotonic() - begin
        for thread in threads:
            thread.join(60)
        if not goes_on or at_load:
            told = max((when - begin for when, _ in self.done), default=0)
        hows = collections.Counter(how for _, how in self.done)
        until = time.monotonic() + 3
        while any(map(is_running, ranks)) and time.monotonic() < until:
            time.sleep(0.02)
        if any(map(is_running, ranks)):
            return "a rank is left", told, ended
        if self.act == "slow":
            wrong = status != 0 or hows["whole"] != len(threads) + self.is_elastic
            return f"status {status}, streams {dict(hows)}" if wrong else "", told, ended
        if self.is_elastic and not at_load:
            hung = HUNG_S + MARGIN_S if self.act == "stop" else 0
            wrong = status != 0 or hows["whole"] + hows["error"] != len(threads) + 1 or told > TOLD_S + hung or self.done[-1][1] != "whole"
            return f"status {status}, streams {dict(hows)}, told after {told:.1f} s" if wrong else "", told, ended
        hung = HUNG_S + MARGIN_S if self.act == "stop" else 0
        wrong = status != 4 or told > TOLD_S + hung or ended > ENDED_S + hung or hows["error"] != len(threads)
        return f"status {status}, streams {dict(hows)}, told after {told:.1f} s, ended after {ended:.1f} s" if wrong else "", told, ended

    def clean(self):
        if self.server.poll() is None:
            self.server.kill()
            self.server.wait()


def greedy_tokens(args):
    """What the streams of a server of one rank get."""
    alone = argparse.Namespace(**{**vars(args), "elastic": False})
    LAYOUTS[args.device]["alone"] = []
    trial = Trial(alone, "alone", "slow", 0)
    del LAYOUTS[args.device]["alone"]
    try:
        while not trial.is_ready():
            time.sleep(0.05)
        body = {"text": "Once", "sampling_params": {"max_new_tokens": 300, "temperature": 0, "ignore_eos": True}}
        connection = http.client.HTTPConnection("127.0.0.1", trial.port, timeout=60)
        connection.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())["output_ids"]
    finally:
        trial.clean()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--model", default=ROOT / "models/sluice-tiny")
    parser.add_argument("--elastic", action="store_true")
    args = parser.parse_args()
    args.tokens = []
    if args.elastic:   # what a server that loses nothing gives
        args.tokens = greedy_tokens(args)
    failed, slowest, counts = 0, collections.defaultdict(lambda: [0.0, 0.0]), collections.Counter()
    for i in range(args.trials):
        seed = args.seed * 100_000 + i
        draw = random.Random(seed)
        layout, act = draw.choice(list(LAYOUTS["elastic" if args.elastic else args.device])), draw.choices(["kill", "stop", "slow"], [6, 1, 3])[0]
        trial = Trial(args, layout, act, seed)
        try:
            wrong, told, ended = trial.run()
        finally:
            trial.clean()
        counts[act] += 1
        slowest[act] = [max(a, b) for a, b in zip(slowest[act], (told, ended))]
        if wrong:
            failed += 1
            print(f"trial {i} (--seed {args.seed}): {layout}, {act}: {wrong}", flush=True)
    times = "; ".join(f"{act} {counts[act]}: told {told:.1f} s, ended {ended:.1f} s" for act, (told, ended) in slowest.items())
    print(f"trials: {args.trials - failed}/{args.trials}; slowest of {times}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
