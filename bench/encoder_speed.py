#!/usr/bin/env python3
"""Compares an encoder of BERT-base's shape with sentence-transformers: float32, equal threads, one after the other.

    python3 -m venv /tmp/st && /tmp/st/bin/pip install sentence-transformers
    /tmp/st/bin/python bench/encoder_speed.py [--sluice build/release/bin/sluice] [--threads 2] [--rounds 5]

The model has random weights and a WordPiece vocabulary that is made here. A round is one run of each program over the
same texts: `SentenceTransformer.encode` with each of --batch-sizes, of which the faster counts, and one request of
/v1/embeddings with base64. Both include the tokenizer. Both are warm, and neither runs while the other does.

Results are tokens a second (medians), and the median of each round's ratio, since a machine's pace changes: of time, and
of processor time, which other work on the machine hardly changes. Then the least cosine between both programs' vectors,
and whether both rank 1,000 pairs of texts alike.
"""

import argparse
import base64
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "golden"))

# Words of a text, and how many texts.
CASES = {"short texts": ((6, 20), 1000), "texts of all lengths": ((6, 150), 256), "long texts": ((210, 230), 48)}


def make_model(folder):
    import make_embeddings as maker
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from transformers import BertConfig, BertModel

    raw = folder / "raw"
    tokenizer = maker.wordpiece()
    tokenizer.model_max_length = 512
    model = BertModel(BertConfig(vocab_size=30522)).eval()
    maker.fill(model, 1)
    model.to(torch.float32).save_pretrained(raw)
    tokenizer.save_pretrained(raw)
    body = Transformer(str(raw))
    SentenceTransformer(modules=[body, Pooling(768, pooling_mode="mean"), Normalize()]).save(str(folder / "model"))
    return folder / "model"


def make_texts():
    import make_embeddings as maker

    words = " ".join(maker.corpus()).split()
    draw = random.Random(5)
    return {name: [" ".join(draw.choices(words, k=draw.randint(*lengths))) for _ in range(count)]
            for name, (lengths, count) in CASES.items()}


class Sluice:
    def __init__(self, program, model, threads, port):
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([program, "serve", str(model), "--dtype", "float32", "--threads", str(threads),
                                         "--port", str(port), "--log-level", "warning"])
        for _ in range(600):
            try:
                urllib.request.urlopen(self.url + "/ready")
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("the server does not start")

    def processor_time(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def encode(self, texts):
        import numpy as np

        ask = json.dumps({"input": texts, "encoding_format": "base64"}).encode()
        request = urllib.request.Request(self.url + "/v1/embeddings", ask, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            data = json.load(reply)
        self.tokens = data["usage"]["prompt_tokens"]
        return np.stack([np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in data["data"]])

    def end(self):
        self.process.terminate()
        self.process.wait(30)


def timed(work, processor_time):
    """Seconds, those of the processor, and the result."""
    start, used = time.perf_counter(), processor_time()
    out = work()
    return time.perf_counter() - start, processor_time() - used, out


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--sluice", default=str(ROOT / "build/release/bin/sluice"))
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--rounds", type=int, default=5)
    args.add_argument("--batch-sizes", type=int, nargs="*", default=[8, 32])
    args.add_argument("--cases", nargs="*", default=list(CASES))
    args.add_argument("--model", type=pathlib.Path, help="a folder in which the model is kept between runs")
    args.add_argument("--texts", type=int, help="how many texts of a case")
    args.add_argument("--port", type=int, default=31987)
    args = args.parse_args()
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.model or pathlib.Path(scratch)
        model = folder / "model" if (folder / "model").is_dir() else make_model(folder)
        peer = SentenceTransformer(str(model), device="cpu")
        server = Sluice(args.sluice, model, args.threads, args.port)
        try:
            for name, texts in make_texts().items():
                if name not in args.cases:
                    continue
                texts = texts[:args.texts]
                server.encode(texts[:64])
                peer.encode(texts[:64])
                rows = []
                for _ in range(args.rounds):
                    *ours, mine = timed(lambda: server.encode(texts), server.processor_time)
                    *theirs, wanted = min((timed(lambda size=size: peer.encode(texts, batch_size=size),
                                                 time.process_time) for size in args.batch_sizes),
                                          key=lambda one: one[0])
                    time.sleep(0.3)  # torch's threads go to sleep
                    rows.append((ours[0], theirs[0], theirs[1] / ours[1]))
                ratio = statistics.median(row[1] / row[0] for row in rows)
                least = min(float(a @ b) for a, b in zip(mine, wanted))
                print(f"{name}: {server.tokens / len(texts):.0f} tokens each; "
                      f"{server.tokens / statistics.median(r[0] for r in rows):.0f} tokens/s, sentence-transformers "
                      f"{server.tokens / statistics.median(r[1] for r in rows):.0f}; ratio {ratio:.2f} "
                      f"({min(row[1] / row[0] for row in rows):.2f} to {max(row[1] / row[0] for row in rows):.2f}), "
                      f"of processor time {statistics.median(row[2] for row in rows):.2f}; least cosine {least:.7f}", flush=True)
                pairs = [(i, j) for i in range(len(texts)) for j in range(i)]
                left, right = np.array(random.Random(3).sample(pairs, min(1000, len(pairs)))).T
                scores, wanted = ((v[left].astype("f8") * v[right]).sum(1) for v in (mine, wanted))
                # A place differs where the peer's own scores of both pairs are not the same to within rounding.
                places = [np.argsort(-one, kind="stable") for one in (scores, wanted)]
                differ = int((np.abs(wanted[places[0]] - wanted[places[1]]) > 1e-6).sum())
                print(f"  {len(left)} pairs: {differ} places differ, scores by at most {np.abs(scores - wanted).max():.1e}",
                      flush=True)
        finally:
            server.end()


if __name__ == "__main__":
    main()
