#!/usr/bin/env python3
"""What drafts of forced tokens bring: JSON with long keys, with and without --draft-forced-tokens.

    bench/grammar/forced_tokens.py build/release/bin/sluice models/sluice-tiny [--rounds 5] [-- FLAGS of both servers]

The bundled model likes to spell keys with escapes, which other models do not; --plain-keys forbids it the backslash.
Two servers run side by side and are asked in turn, one request at a time and eight at once. Figures are tokens for a
second of processor time of the server, which other programs on the machine change little, and tokens for a decode row.
"""

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time

WORDS = ["administrative", "population", "density", "historical", "international", "registration", "temperature",
         "identifier", "organization", "description", "approximate", "measurement"]
TYPES = [{"type": "string", "maxLength": 12}, {"type": "integer", "minimum": 0, "maximum": 99999},
         {"type": "boolean"}, {"enum": ["recently_confirmed", "not_applicable", "under_investigation"]}]


def schema(seed):
    keys = {}
    for i in range(8):
        a, b = WORDS[(seed + 3 * i) % len(WORDS)], WORDS[(5 * seed + i + 1) % len(WORDS)]
        keys[f"{a}_{b}_{i}"] = TYPES[(seed + i) % len(TYPES)]
    return {"type": "object", "properties": keys, "required": list(keys), "additionalProperties": False}


class Server:
    def __init__(self, binary, model, flags):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.process = subprocess.Popen([binary, "serve", model, "--host", "127.0.0.1", "--port", str(self.port),
                                         "--log-level", "warning", *flags])
        while self.process.poll() is None:
            try:
                if self.call("GET", "/health")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.2)
        sys.exit("the server has ended")

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1200)
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        data = reply.read()
        connection.close()
        return reply.status, data

    def seconds(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self, seed, args, out):
        body = {"model": "default", "prompt": f"Write a record about item {seed}.\n", "max_tokens": 400,
                "temperature": args.temperature, "seed": seed, "logit_bias": args.bias,
                "structured_outputs": {"json": schema(seed), "disable_any_whitespace": args.compact}}
        status, data = self.call("POST", "/v1/completions", body)
        if status != 200:
            sys.exit(data.decode())
        reply = json.loads(data)
        out[seed] = (reply["choices"][0]["text"], reply["usage"])

    def run(self, seeds, args):
        out = {}
        before = self.seconds()
        threads = [threading.Thread(target=self.ask, args=(seed, args, out)) for seed in seeds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return out, self.seconds() - before


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compact", action="store_true", help="no white space between tokens")
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--plain-keys", action="store_true")
    parser.add_argument("--forced-flags", default="--draft-forced-tokens")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:end])
    args.flags = sys.argv[end + 1:]
    args.bias = {}
    if args.plain_keys:
        with open(os.path.join(args.model, "tokenizer.json")) as file:
            vocabulary = json.load(file)["model"]["vocab"]
        args.bias = {str(token): -100 for text, token in vocabulary.items() if "\\" in text}
    servers = {"plain": Server(args.binary, args.model, args.flags),
               "forced": Server(args.binary, args.model, [*args.flags, *args.forced_flags.split()])}
    try:
        for server in servers.values():
            server.run(range(8), args)
        for batch in (1, 8):
            sums = {name: [0, 0.0, 0, 0, 0] for name in servers}
            for round in range(args.rounds):
                texts = []
                for name, server in servers.items():
                    seeds = range(100 * batch + 8 * round, 100 * batch + 8 * round + 8)
                    parts = [seeds] if batch == 8 else [[seed] for seed in seeds]
                    for part in parts:
                        out, seconds = server.run(part, args)
                        texts.append(sorted((seed, text) for seed, (text, _) in out.items()))
                        total = sums[name]
                        total[1] += seconds
                        for _, usage in out.values():
                            details = usage["completion_tokens_details"]
                            accepted = details.get("accepted_prediction_tokens", 0)
                            total[0] += usage["completion_tokens"]
                            total[2] += usage["completion_tokens"] - 1 - accepted
                            total[3] += accepted + details.get("rejected_prediction_tokens", 0)
                            total[4] += accepted
                half = len(texts) // 2
                if texts[:half] != texts[half:]:
                    print("texts differ", file=sys.stderr)
            rates = {name: total[0] / total[1] for name, total in sums.items()}
            tokens, _, rows, drafted, accepted = sums["forced"]
            print(f"batch {batch}: plain {rates['plain']:.1f} tokens/s, forced {rates['forced']:.1f}, "
                  f"{rates['forced'] / rates['plain']:.3f} of it; {tokens / rows:.2f} tokens a row, "
                  f"{accepted} of {drafted} drafts right, {accepted / tokens:.0%} of {tokens} tokens")
    finally:
        for server in servers.values():
            server.process.terminate()
            server.process.wait()


if __name__ == "__main__":
    main()
