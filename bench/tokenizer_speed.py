#!/usr/bin/env python3
"""Compares the encode speed of one thread with the `tokenizers` package, on one file and 1 MB of
mixed text.

    python3 bench/tokenizer_speed.py BUILD_DIR [DIRECTORY with a tokenizer.json ...]

Without directories it trains three vocabularies of 16,000 tokens from this repository: byte-level
BPE (the split pattern of Llama 3), BPE with byte fallback (Metaspace, as Llama 2) and Unigram (as
T5). The two programs alternate; their ids must be equal. Needs `pip install tokenizers`.
"""
import glob, json, os, random, statistics, subprocess, sys, tempfile, time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROUNDS = 5
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def pieces():
    """Paragraphs of prose, code, JSON and a dozen scripts."""
    out = []
    for pattern in ("docs/*.md", "README.md", "tests/data/*.txt", "src/*/*.cpp", "src/*/*.h", "tests/serving/*.py"):
        for path in sorted(glob.glob(os.path.join(ROOT, pattern))):
            text = open(path, encoding="utf-8").read()
            out += [text[i:i + 2000] for i in range(0, len(text), 2000)]
    strings = [c["text"] for c in json.load(open(os.path.join(ROOT, "tests/golden/tokenizers/gpt2-bytelevel/oracle.json")))["cases"]]
    r = random.Random(5)
    for _ in range(len(out) // 4):
        out.append(" ".join(r.choice(strings) for _ in range(30)))
    r.shuffle(out)
    return out


def mixed_text(size):
    text, r = [], random.Random(6)
    all_pieces = pieces()
    while sum(map(len, text)) < size:
        text.append(r.choice(all_pieces))
    return "\n".join(text).encode()[:size].decode("utf-8", "ignore")


def train(folder):
    corpus = pieces()
    byte_level = Tokenizer(models.BPE())
    byte_level.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    byte_level.decoder = decoders.ByteLevel()
    byte_level.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=16000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    fallback = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    fallback.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", True)
    specials = ["<unk>"] + [f"<0x{b:02X}>" for b in range(256)]
    fallback.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=16000, special_tokens=specials, show_progress=False))
    # trained on words, used on whole texts
    fallback.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", False)
    unigram = Tokenizer(models.Unigram())
    unigram.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    unigram.pre_tokenizer = pre_tokenizers.Metaspace("▁", "always")
    unigram.decoder = decoders.Metaspace("▁", "always")
    unigram.train_from_iterator(corpus, trainers.UnigramTrainer(vocab_size=16000, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False))
    made = []
    for name, t in (("byte-level BPE", byte_level), ("BPE, byte fallback", fallback), ("Unigram", unigram)):
        d = json.loads(t.to_str())
        d["added_tokens"] = [a for a in d["added_tokens"] if not a["content"].startswith("<0x")]
        path = os.path.join(folder, name.replace(" ", "_").replace(",", ""))
        os.makedirs(path, exist_ok=True)
        json.dump(d, open(os.path.join(path, "tokenizer.json"), "w"))
        made.append(path)
    return made


def fnv(ids):
    h = 14695981039346656037
    for i in ids:
        h = ((h ^ i) * 1099511628211) & 0xFFFFFFFFFFFFFFFF
    return h


def main():
    program = os.path.join(sys.argv[1], "bin", "tokenizer_speed")
    folder = os.environ.get("SLUICE_BENCH_DIR") or tempfile.mkdtemp()
    os.makedirs(folder, exist_ok=True)
    made = sorted(os.path.dirname(p) for p in glob.glob(os.path.join(folder, "*", "tokenizer.json")))
    directories = sys.argv[2:] or made or train(folder)
    if os.environ.get("TRAIN_ONLY"):
        return
    text = mixed_text(1_000_000)
    text_file = os.path.join(folder, "text")
    with open(text_file, "w", encoding="utf-8", newline="") as f:
        f.write(text)
    for directory in directories:
        reference = Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))
        child = subprocess.Popen([program, directory, text_file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        load = float(child.stdout.readline())
        ours, theirs, equal = [], [], True
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            ids = reference.encode(text, add_special_tokens=False).ids
            theirs.append(time.perf_counter() - begun)
            child.stdin.write("\n")
            child.stdin.flush()
            seconds, count, value = child.stdout.readline().split()
            ours.append(float(seconds))
            equal = equal and int(count) == len(ids) and int(value) == fnv(ids)
        child.stdin.close()
        child.wait()
        size = len(text.encode()) / 1e6
        a, b = size / statistics.median(ours), size / statistics.median(theirs)
        print(f"{os.path.basename(directory):24s} {len(ids):8d} ids {'equal' if equal else 'DIFFERENT'}   {a:7.1f} MB/s, tokenizers {b:6.2f} MB/s, {a / b:5.1f} times; loaded in {load:.3f} s", flush=True)


if __name__ == "__main__":
    main()
