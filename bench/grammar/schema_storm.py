#!/usr/bin/env python3
"""What new schemas cost the streams of others: time between their tokens, with and without a storm of requests.

    bench/grammar/schema_storm.py build/release/bin/sluice models/sluice-tiny [--rate 1000] [--seconds 60] [-- FLAGS]

One server and three loads, each with the same streams of plain text: nothing else; short requests that all have one
schema; short requests, each with a schema that the server has never seen. The second tells what the requests cost, and
the third beside it what their schemas cost. Each storm is open: requests go out at their time, whatever comes back.
"""

import argparse
import asyncio
import json
import multiprocessing
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

WORDS = ["city", "street", "number", "country", "name", "age", "email", "phone", "colour", "weight", "height", "width"]
TYPES = [{"type": "string", "maxLength": 40}, {"type": "integer", "minimum": 0}, {"type": "boolean"}, {"type": "number"},
         {"type": "array", "items": {"type": "string"}, "maxItems": 4}, {"enum": ["red", "green", "blue"]}]


def schema(seed):
    keys = {f"{WORDS[(seed + 5 * i) % len(WORDS)]}_{seed}_{i}": TYPES[(seed // 7 + i) % len(TYPES)] for i in range(6)}
    return {"type": "object", "properties": keys, "required": list(keys), "additionalProperties": False}


def body(seed):
    return json.dumps({"text": "Answer:", "sampling_params": {
        "max_new_tokens": 1, "temperature": 0, "json_schema": json.dumps(schema(seed))}}).encode()


async def one_request(queue, counts):
    """A keep-alive connection that sends what the queue gives it."""
    reader = writer = None
    while (item := await queue.get()) is not None:
        port, data = item
        try:
            if writer is None:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                         % len(data) + data)
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split(b" ", 2)[1])
            length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(length)
            counts[status] = counts.get(status, 0) + 1
        except (OSError, asyncio.IncompleteReadError) as error:
            counts[type(error).__name__] = counts.get(type(error).__name__, 0) + 1
            writer = None


async def storm(port, rate, seconds, first, step, distinct, counts):
    queue = asyncio.Queue()
    clients = [asyncio.create_task(one_request(queue, counts)) for _ in range(64)]
    begin = time.perf_counter()
    for i in range(int(rate * seconds)):
        wait = begin + i / rate - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        queue.put_nowait((port, body(first + i * step if distinct else 0)))
    for _ in clients:
        queue.put_nowait(None)
    await asyncio.gather(*clients)


def storm_process(port, rate, seconds, first, step, distinct, out):
    counts = {}
    asyncio.run(storm(port, rate, seconds, first, step, distinct, counts))
    out.put(counts)


async def stream(port, seconds, gaps):
    """Plain text; appends the times between its events."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        data = json.dumps({"text": "Once upon a time", "stream": True, "sampling_params": {
            "max_new_tokens": 2000, "temperature": 1, "ignore_eos": True}}).encode()
        writer.write(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                     % len(data) + data)
        last = None
        while time.perf_counter() < end and (line := await reader.readline()):
            if not line.startswith(b"data:") or b"[DONE]" in line:
                if b"[DONE]" in line:
                    break
                continue
            now = time.perf_counter()
            if last is not None:
                gaps.append(now - last)
            last = now
        writer.close()


def stream_process(port, seconds, count, out):
    gaps = []

    async def all_streams():
        await asyncio.gather(*(stream(port, seconds, gaps) for _ in range(count)))

    asyncio.run(all_streams())
    out.put(gaps)


def measure(port, args, kind, first):
    out, storms = multiprocessing.Queue(), multiprocessing.Queue()
    watcher = multiprocessing.Process(target=stream_process, args=(port, args.seconds, args.streams, out))
    watcher.start()
    senders = []
    if kind != "streams alone":
        senders = [multiprocessing.Process(target=storm_process, args=(
            port, args.rate / args.senders, args.seconds, first + i, args.senders, kind == "new schemas", storms))
            for i in range(args.senders)]
        for sender in senders:
            sender.start()
    gaps = out.get()
    counts = {}
    for _ in senders:
        for key, value in storms.get().items():
            counts[key] = counts.get(key, 0) + value
    for process in [watcher, *senders]:
        process.join()
    cuts = statistics.quantiles(gaps, n=1000)
    return {"load": kind, "tokens": len(gaps), "p50_ms": round(cuts[499] * 1e3, 2), "p99_ms": round(cuts[989] * 1e3, 2),
            "p99.9_ms": round(cuts[998] * 1e3, 2), "answers": {str(k): v for k, v in sorted(counts.items(), key=str)}}


def main():
    words = sys.argv[1:]
    flags = words[words.index("--") + 1:] if "--" in words else []
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--senders", type=int, default=4)
    args = parser.parse_args(words[:words.index("--")] if "--" in words else words)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    server = subprocess.Popen([args.program, "serve", args.model, "--port", str(port), "--log-level", "warning", *flags])
    try:
        while server.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/ready")
                break
            except OSError:
                time.sleep(0.2)
        if server.poll() is not None:
            sys.exit("the server has ended")
        rows = []
        for i, kind in enumerate(("streams alone", "one schema", "new schemas")):
            rows.append(measure(port, args, kind, 1 + i * 10_000_000))
            print(json.dumps(rows[-1]), flush=True)
        print(json.dumps({"new over one": round(rows[2]["p99_ms"] / rows[1]["p99_ms"], 2),
                          "new over alone": round(rows[2]["p99_ms"] / rows[0]["p99_ms"], 2)}))
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
