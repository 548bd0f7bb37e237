#!/usr/bin/env python3
"""Writes the support tables of README.md: support_tables.py [--check] PROGRAM

--check compares instead, and exits with 1 where the README is not what the tables say.

No mark is taken on trust where the program or a file can be asked:
  - every architecture of the program is in exactly one family, and CTest runs a fixture of it;
  - the integer column is a run: random weights in the shape of each fixture, with --quantization int8 and int4;
  - the families of GGUF files are the rows of gguf_architecture.cpp;
  - the options that a feature names are active, and `serve --help=all` says so where they are for one device only;
  - the options of a feature that is missing are known and refused.
The column of GPUs is what the classes in src/models run: all but the Transformers plugin, which needs a CPU.
"""
import dataclasses
import importlib.machinery
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BEGIN, END = "<!-- generated: tools/support_tables.py -->", "<!-- /generated -->"
YES, NO, WIDENED = "✓", "–", "widened"

# label; architectures, without their ending; names of general.architecture in GGUF files
FAMILIES = [
    ("Llama 2–3, Mistral", "Llama Mistral", "llama"),
    ("Qwen2, Qwen3", "Qwen2 Qwen3", "qwen2 qwen3"),
    ("Mixtral, Qwen2-MoE, Qwen3-MoE", "Mixtral Qwen2Moe Qwen3Moe", "llama qwen2moe qwen3moe"),
    ("DeepSeek-V2, V2-Lite, V3", "DeepseekV2 DeepseekV3", "deepseek2"),
    ("DeepSeek-V3.2, GLM-5 (sparse attention)", "DeepseekV32 GlmMoeDsa", "deepseek32 glm-dsa"),
    ("GLM-4, GLM-4.5 MoE, GLM-4.7 Flash", "Glm Glm4 Glm4Moe Glm4MoeLite", "chatglm glm4 glm4moe deepseek2"),
    ("gpt-oss", "GptOss", "gpt-oss"),
    ("Llama 4 (text), Ministral 3", "Llama4 Ministral3", "llama4 mistral3"),
    ("Gemma 1–3", "Gemma Gemma2 Gemma3", "gemma gemma2 gemma3"),
    ("Phi-1 to Phi-3, PhiMoE", "Phi Phi3 Phimoe", "phi2 phi3 phimoe"),
    ("Qwen3-Next, Qwen3.5, Kimi-Linear, Mamba-2, LFM2 (recurrent)",
     "Qwen3Next Qwen3_5 Qwen3_5Moe KimiLinear Mamba2 Lfm2", "qwen3next qwen35 qwen35moe kimi-linear mamba2 lfm2"),
    ("MiniMax-M2, MiMo, MiMo-V2-Flash, ERNIE 4.5, Hunyuan",
     "MiniMaxM2 MiMo MiMoV2Flash Ernie4_5 Ernie4_5_Moe HunYuanDenseV1 HunYuanMoEV1",
     "minimax-m2 mimo2 ernie4_5 ernie4_5-moe hunyuan-dense hunyuan-moe"),
    ("Command R, Granite, Granite MoE, OLMo 1–3, OLMoE", "Cohere Cohere2 Granite GraniteMoe Olmo Olmo2 Olmo3 Olmoe",
     "command-r cohere2 granite granitemoe olmo olmo2 olmoe"),
    ("SmolLM3, Seed-OSS, Apertus, EXAONE 4, Nemotron, StableLM",
     "SmolLM3 SeedOss Apertus Exaone4 Nemotron StableLm", "smollm3 seed_oss apertus exaone4 nemotron stablelm"),
    ("GPT-2, GPT-NeoX, BLOOM, Falcon, StarCoder 1–2",
     "GPT2 GPTNeoX Bloom Falcon GPTBigCode Starcoder2", "gpt2 gptneox bloom falcon starcoder starcoder2"),
    ("GPT-J, OPT", "GPTJ OPT", ""),
]
PLUGIN = ["Other decoders of `transformers`, through the plugin", YES, NO, YES, NO]


@dataclasses.dataclass
class Row:
    label: str
    cpu: str
    gpu: str
    options: str = ""      # active ones, of this feature
    refused: str = ""      # options that ask for it and are refused


FORMATS = [
    Row("float32, bfloat16, float16: safetensors and PyTorch files", YES, YES, "load-format dtype"),
    Row("GGUF: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS, MXFP4", YES, YES),
    Row("Any checkpoint in int8 or int4 (`--quantization`; on a GPU linear layers)", YES, YES, "quantization"),
    Row("FP8 (e4m3) in linear layers and experts; any checkpoint by `--quantization fp8`", YES, YES, "quantization"),
    Row("INT8, AWQ, GPTQ, NVFP4, compressed-tensors integers in linear layers", YES, YES),
    Row("Experts in FP8, integers or NVFP4, stored one by one; MXFP4 (on a GPU: Hopper)", YES, YES),
    Row("Other experts of quantised checkpoints", WIDENED, WIDENED),
    Row("KV cache in fp8_e4m3 (`--kv-cache-dtype`)", YES, YES, "kv-cache-dtype"),
    Row("KV cache in int8", YES, NO, "kv-cache-dtype"),
    Row("Index keys in FP8 (`--index-cache-dtype`)", YES, YES, "index-cache-dtype"),
]
FEATURES = [
    Row("Continuous batching, chunked prefill, paged KV cache", YES, YES, "chunked-prefill-size max-running-requests"),
    Row("Radix prefix cache, recurrent states included", YES, YES, "disable-radix-cache max-mamba-cache-size"),
    Row("MLA, sparse attention, mixtures of experts", YES, YES, "mla-prefill"),
    Row("Batch invariance", YES, "`--deterministic`", "deterministic"),
    Row("CUDA graphs, overlapped scheduling", NO, YES, "disable-cuda-graph disable-overlap-schedule"),
    Row("NUMA placement of threads and weights (`--numa`)", YES, NO, "numa"),
    Row("Chat, completions, streaming, `n`, log-probabilities", YES, YES, "stream-interval"),
    Row("Structured output: JSON Schema, regex, EBNF, structural tags", YES, YES, ""),
    Row("Tool calls, reasoning", YES, YES, "tool-call-parser reasoning-parser"),
    Row("Embeddings of decoders", YES, "not tested", "runner pooling"),
    Row("Embeddings, reranking and labels by BERT, RoBERTa, XLM-R, ModernBERT, EuroBERT, Nomic-BERT", YES, NO),
    Row("Speculative decoding: prompt look-up, MTP layers, EAGLE heads, small models (`--speculative-algorithm`)", YES, YES,
        "speculative-algorithm speculative-config"),
    Row("Tensor parallelism (`--tp-size`)", YES, YES, "tp-size"),
    Row("Whole experts at a rank (`--ep-size`, `--enable-expert-parallel`)", YES, YES, "ep-size enable-expert-parallel"),
    Row("Experts in several places, which move after their load (`--enable-eplb`)", YES, "refused",
        "enable-eplb ep-num-redundant-experts init-expert-location"),
    Row("Pipeline parallelism (`--pp-size`)", YES, YES, "pp-size"),
    Row("Data-parallel attention (`--dp-size`, `--enable-dp-attention`)", YES, YES, "dp-size enable-dp-attention"),
    Row("Ranks on several hosts (`--nnodes`)", YES, "refused", "nnodes dist-init-addr dist-key-file"),
    Row("Prometheus metrics, step and request traces", YES, YES, "metrics-compat trace"),
]
MISSING = [
    Row("Not yet: LoRA adapters", NO, NO, "", "enable-lora lora-paths"),
    Row("Not yet: images, audio", NO, NO),
]


def load_models_doc():
    path = str(ROOT / "tools" / "models_doc")
    sys.dont_write_bytecode = True
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("models_doc", importlib.machinery.SourceFileLoader("models_doc", path)))
    module.__spec__.loader.exec_module(module)
    return module


def ask(program, *arguments):
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout


def short(architecture):
    return re.sub(r"(ForCausalLM|LMHeadModel)$", "", architecture)


def require(holds, message):
    if not holds:
        sys.exit(f"error: {message}")


def check_integers(program, fixtures):
    """Two tokens of each fixture's shape with random weights in integers."""
    for name, config in fixtures.items():
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
            for kind in ("int8", "int4"):
                done = subprocess.run(
                    [program, "generate", "--model", folder, "--load-format", "dummy", "--device", "cpu", "--dtype", "bfloat16",
                     "--quantization", kind, "--input-ids", "1,2,3", "--max-new-tokens", "2", "--log-level", "error"],
                    capture_output=True, text=True)
                require(done.returncode == 0, f"{name} with --quantization {kind}: {done.stderr.strip()}")


def model_rows(program):
    known = {short(a["name"]) for a in json.loads(ask(program, "version", "--json"))["architectures"]}
    named = [name for _, names, _ in FAMILIES for name in names.split()]
    require(len(named) == len(set(named)), "an architecture is in two families")
    require(set(named) == known, f"families and program differ in {sorted(set(named) ^ known)}")
    models_doc = load_models_doc()
    fixtures = {name: config for name, config in models_doc.running().items() if not name.startswith("fallback-")}
    tested = {short(config["architectures"][0]) for config in fixtures.values()}
    require(known <= tested, f"no fixture of {sorted(known - tested)}")
    check_integers(program, fixtures)
    files = set(models_doc.gguf_architectures())
    claimed = {name for _, _, names in FAMILIES for name in names.split()}
    require(files == claimed, f"GGUF architectures differ in {sorted(files ^ claimed)}")
    return [[label, YES, YES, YES, YES if gguf else NO] for label, _, gguf in FAMILIES] + [PLUGIN]


def options_of(program):
    """From `serve --help=all`: the option's section and text."""
    out, section, name = {}, "", ""
    for line in ask(program, "serve", "--help=all").splitlines():
        if re.match(r"\S", line):
            section = line
        elif found := re.match(r"  (--\S+)((?:, --\S+)*)(.*)", line):
            name = found.group(1).rstrip(",")[2:]
            out[name] = [section, found.group(3)]
        elif name:
            out[name][1] += " " + line.strip()
    return out


def check_options(program, rows):
    options = options_of(program)
    for row in rows:
        for name in row.options.split():
            require(name in options and options[name][0] not in ("Accepted without effect", "Known and refused"),
                    f"{row.label}: --{name} is no active option")
            if (row.cpu == NO) != (row.gpu == NO):
                where = "on a cpu" if row.gpu == NO else "on a gpu"
                require(where in options[name][1].lower(), f"{row.label}: the help of --{name} does not say {where!r}")
        for name in row.refused.split():
            require(name in options and options[name][0] == "Known and refused", f"{row.label}: --{name} is not refused")


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|---|" + ":-:|" * (len(head) - 1)] + ["| " + " | ".join(row) + " |" for row in rows]


def tables(program):
    check_options(program, FORMATS + FEATURES + MISSING)
    devices = lambda rows: [[row.label, row.cpu, row.gpu] for row in rows]    # noqa: E731
    return "\n".join([
        BEGIN, "",
        *table(["Model family", "CPU", "GPU", "int8, int4 (CPU)", "GGUF"], model_rows(program)), "",
        *table(["Weights and caches", "CPU", "GPU"], devices(FORMATS)), "",
        *table(["Feature", "CPU", "GPU"], devices(FEATURES + MISSING)), "",
        END,
    ])


def main():
    arguments = [a for a in sys.argv[1:] if a != "--check"]
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.exit(__doc__)
    text = README.read_text()
    require(text.count(BEGIN) == 1 and text.count(END) == 1, f"README.md has no place for the tables: {BEGIN} ... {END}")
    new = text[:text.index(BEGIN)] + tables(arguments[0]) + text[text.index(END) + len(END):]
    if "--check" not in sys.argv:
        README.write_text(new)
    require(new == text or "--check" not in sys.argv,
            f"README.md is not what the tables say; run tools/support_tables.py {arguments[0]}")


if __name__ == "__main__":
    main()
