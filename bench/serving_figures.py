#!/usr/bin/env python3
"""Measures the server-side figures of docs/benchmarks/README.md on the bundled model and prints them as a table.

    python3 bench/serving_figures.py [--sluice build/sluice] [--model models/sluice-tiny]

Needs only the standard library. Each figure is taken on a fresh or an idle server; the bound is the
project's own.
"""
import argparse
import http.client
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def rss_bytes(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Server:
    def __init__(self, sluice, model, *flags):
        self.port = free_port()
        self.started = time.monotonic()
        self.process = subprocess.Popen([sluice, "serve", "--model", model, "--port", str(self.port), *flags],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            if self.process.poll() is not None:
                sys.exit(f"the server ended with {self.process.returncode}")
            try:
                if self.get("/ready")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.002)

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path)
        reply = connection.getresponse()
        body = reply.read()
        connection.close()
        return reply.status, body

    def generate(self, ids, tokens, **params):
        """Streams a request; returns (seconds to the first token, all seconds, last event)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        body = json.dumps({"input_ids": ids, "stream": True,
                           "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True, **params}})
        begin = time.monotonic()
        connection.request("POST", "/generate", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        first, last = None, None
        while line := reply.readline():
            if line.startswith(b"data: ") and b"[DONE]" not in line:
                first = first or time.monotonic() - begin
                last = json.loads(line[6:])
        connection.close()
        return first, time.monotonic() - begin, last

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


def prompt(length, salt):
    return [7 + (i * 131 + salt * 977) % 4000 for i in range(length)]


def start_to_first_token(args):
    times = []
    for salt in range(5):
        server = Server(args.sluice, args.model)
        server.generate(prompt(16, salt), 1)
        times.append(time.monotonic() - server.started)
        server.stop()
    return min(times), statistics.median(times)


def memory(args):
    server = Server(args.sluice, args.model, "--max-total-tokens", "16384")
    for salt in range(4):
        server.generate(prompt(3000, salt), 8)
    resident = rss_bytes(server.process.pid)
    info = json.loads(server.get("/get_server_info")[1])
    plan = info.get("memory_plan", {})
    server.stop()
    return resident, plan.get("weight_bytes", 0), plan.get("kv_bytes", 0)


def idle_connections(args, count):
    server = Server(args.sluice, args.model)
    server.generate(prompt(16, 1), 1)
    before = rss_bytes(server.process.pid)
    connections = []
    for _ in range(count):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("GET", "/health")
        connection.getresponse().read()
        connections.append(connection)
    growth = rss_bytes(server.process.pid) - before
    for connection in connections:
        connection.close()
    server.stop()
    return growth


def cached_prefix(args):
    server = Server(args.sluice, args.model)
    cold, warm = [], []
    for salt in range(5):
        ids = prompt(2000, 100 + salt)
        cold.append(server.generate(ids, 1)[0])
        warm.append(server.generate(ids, 1)[0])
    server.stop()
    return statistics.median(cold), statistics.median(warm)


def idle_cpu(args, seconds):
    server = Server(args.sluice, args.model)
    server.generate(prompt(16, 1), 4)
    time.sleep(0.5)
    before = cpu_seconds(server.process.pid)
    time.sleep(seconds)
    used = cpu_seconds(server.process.pid) - before
    server.stop()
    return used / seconds


def health_during_prefill(args):
    server = Server(args.sluice, args.model, "--max-total-tokens", "65536")
    stop = threading.Event()

    def load():
        salt = 1000
        while not stop.is_set():
            server.generate(prompt(2000, salt), 1)
            salt += 1

    worker = threading.Thread(target=load)
    worker.start()
    times = []
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        begin = time.monotonic()
        connection.request("GET", "/health")
        connection.getresponse().read()
        times.append(time.monotonic() - begin)
        time.sleep(0.005)
    stop.set()
    worker.join()
    server.stop()
    times.sort()
    return times[int(len(times) * 0.99)], len(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", default=str(ROOT / "build/sluice"))
    parser.add_argument("--model", default=str(ROOT / "models/sluice-tiny"))
    parser.add_argument("--idle-seconds", type=float, default=30)
    args = parser.parse_args()
    mib = 1 << 20
    rows = []

    least, median = start_to_first_token(args)
    rows.append(("start to first token", f"{median * 1000:.0f} ms (least {least * 1000:.0f})", "< 1000 ms", median < 1))
    resident, weights, kv = memory(args)
    extra = resident - weights - kv
    rows.append(("resident beyond weights + KV", f"{extra / mib:.1f} MiB ({resident / mib:.1f} in all)", "<= 64 MiB",
                 weights > 0 and extra <= 64 * mib))
    growth = idle_connections(args, 1000)
    rows.append(("1,000 idle connections", f"{growth / mib:.1f} MiB", "< 32 MiB", growth < 32 * mib))
    cold, warm = cached_prefix(args)
    rows.append(("cold / cached TTFT, 2,000 tokens", f"{cold * 1000:.0f} / {warm * 1000:.1f} ms = {cold / warm:.1f}x", ">= 5x",
                 cold >= 5 * warm))
    share = idle_cpu(args, args.idle_seconds)
    rows.append((f"idle over {args.idle_seconds:.0f} s", f"{share * 100:.2f} % of a core", "< 1 %", share < 0.01))
    p99, count = health_during_prefill(args)
    rows.append(("/health p99 during 2,000-token prefills", f"{p99 * 1000:.2f} ms of {count}", "< 20 ms", p99 < 0.02))

    print("| figure | measured | bound | |")
    print("|---|---|---|---|")
    for name, value, bound, good in rows:
        print(f"| {name} | {value} | {bound} | {'ok' if good else 'MISSED'} |")
    return 0 if all(row[3] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
