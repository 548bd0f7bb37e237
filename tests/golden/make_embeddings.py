#!/usr/bin/env python3
"""Makes reference checkpoints of embedding models and rerankers, with the vectors and scores of
sentence-transformers.

    python make_embeddings.py                      # every row of MODELS -> embeddings/<name>/
    python make_embeddings.py --only bert-mean,qwen3-last --out DIR

Each folder holds a tiny random model (weights are bfloat16 numbers, so float32 is exact; rows with
`wide` store them as float32), a tokenizer made here, the files of sentence-transformers, and `embeddings.json`:

| field | meaning |
| --- | --- |
| `texts`, `ids` | inputs, and the token ids that the reference made of them |
| `vectors` | [texts, dimension] of `SentenceTransformer.encode`: base64 of little-endian float32 |
| `prompts.NAME` | the same with `prompt_name=NAME` |
| `pairs`, `scores` | of `CrossEncoder.predict` with its own activation, [pairs] or [pairs, labels] |
| `raw_scores` | the same without an activation |
"""
import argparse, base64, json, os, pathlib, random, shutil, tempfile, warnings

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy as np
import safetensors.torch
import sentence_transformers as st
import tokenizers
import torch
import transformers
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

import tiny_corpus

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()
HERE = pathlib.Path(__file__).resolve().parent
SEED = 20261126
FLOAT32 = {"dtype": torch.float32}


def corpus():
    for seed in range(400):
        for _, content, *_ in tiny_corpus.conversation(random.Random(seed))["messages"]:
            if isinstance(content, str) and content:
                yield content


def train(tokenizer, kind, special, size=700, **more):
    tokenizer.train_from_iterator(corpus(), kind(vocab_size=size, special_tokens=special, show_progress=False, **more))
    return tokenizer


# ------------------------------------------------------------------------------------------ tokenizers


def wordpiece():
    t = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    train(t, trainers.WordPieceTrainer, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    cls, sep = t.token_to_id("[CLS]"), t.token_to_id("[SEP]")
    t.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", cls), ("[SEP]", sep)])
    t.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(tokenizer_object=t, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                                   sep_token="[SEP]", mask_token="[MASK]", model_max_length=128)


def byte_level():  # RoBERTa
    t = tokenizers.Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    train(t, trainers.BpeTrainer, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
          initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>", cls_token="<s>",
                                   sep_token="</s>", pad_token="<pad>", unk_token="<unk>", mask_token="<mask>",
                                   model_max_length=128)


def unigram():  # XLM-R
    t = tokenizers.Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    train(t, trainers.UnigramTrainer, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], unk_token="<unk>")
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    t.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>", cls_token="<s>",
                                   sep_token="</s>", pad_token="<pad>", unk_token="<unk>", mask_token="<mask>",
                                   model_max_length=128)


def bpe_with_end(end=True):  # Qwen3-Embedding: the end of the text is a token
    t = tokenizers.Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    train(t, trainers.BpeTrainer, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
          initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    if end:
        t.post_processor = processors.TemplateProcessing(
            single="$A <|endoftext|>", pair="$A $B <|endoftext|>", special_tokens=[("<|endoftext|>", 0)])
    t.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<|im_end|>", pad_token="<|endoftext|>",
                                   padding_side="left", model_max_length=128)


# ------------------------------------------------------------------------------------------ models

BERT = dict(hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96,
            max_position_embeddings=128)
ROBERTA = dict(BERT, max_position_embeddings=130, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2,
               layer_norm_eps=1e-5)
DECODER = dict(hidden_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, intermediate_size=96,
               max_position_embeddings=128, tie_word_embeddings=True)
QWEN3 = dict(DECODER, head_dim=16)
MODERN = dict(BERT, global_attn_every_n_layers=3, local_attention=16, pad_token_id=0, cls_token_id=2, sep_token_id=3,
              bos_token_id=2, eos_token_id=3)
QUERY = {"query": "Instruct: find what answers\nQuery: ", "document": ""}

# name: class of the model, its configuration, the tokenizer, and what sentence-transformers does with it
MODELS = {
    "qwen3-last": dict(config="Qwen3Config", args=QWEN3, tokenizer=bpe_with_end, pooling="lasttoken", normalize=True,
                       prompts=QUERY, base="Qwen3Model", architectures=["Qwen3ForCausalLM"]),
    "llama-mean": dict(config="LlamaConfig", args=DECODER, tokenizer=bpe_with_end, pooling="mean", normalize=False,
                       prompts={"query": "Represent the question: ", "passage": "Represent the text: "},
                       default="query", include_prompt=False, base="LlamaModel"),
    "qwen2-weighted": dict(config="Qwen2Config", args=DECODER, tokenizer=bpe_with_end, pooling="weightedmean",
                           normalize=True, base="Qwen2Model", include_prompt=False, prompts=QUERY),
    "bert-mean": dict(config="BertConfig", args=BERT, tokenizer=wordpiece, pooling="mean", normalize=True,
                      base="BertModel", prompts={"query": "query: ", "passage": "passage: "}),
    "bert-cls": dict(config="BertConfig", args=dict(BERT, hidden_act="gelu_new"), tokenizer=wordpiece, pooling="cls",
                     normalize=False, base="BertModel", legacy=True),
    "bert-max": dict(config="BertConfig", args=BERT, tokenizer=wordpiece, pooling="max", normalize=False,
                     base="BertModel", prefix="bert."),
    "roberta-mean": dict(config="RobertaConfig", args=ROBERTA, tokenizer=byte_level, pooling="mean", normalize=True,
                         base="RobertaModel"),
    "xlmr-cls": dict(config="XLMRobertaConfig", args=ROBERTA, tokenizer=unigram, pooling="cls", normalize=True,
                     base="XLMRobertaModel"),
    "modernbert-mean": dict(config="ModernBertConfig", args=MODERN, tokenizer=wordpiece, pooling="mean",
                            normalize=True, base="ModernBertModel"),
    "bert-reranker": dict(config="BertConfig", args=BERT, tokenizer=wordpiece, labels=1,
                          base="BertForSequenceClassification"),
    "bert-types": dict(config="BertConfig", args=BERT, tokenizer=wordpiece, labels=1,
                       base="BertForSequenceClassification", tokenizer_class="BertTokenizer"),
    "bert-classifier": dict(config="BertConfig", args=BERT, tokenizer=wordpiece, labels=3,
                            base="BertForSequenceClassification"),
    "xlmr-reranker": dict(config="XLMRobertaConfig", args=ROBERTA, tokenizer=unigram, labels=1,
                          base="XLMRobertaForSequenceClassification"),
    "modernbert-reranker": dict(config="ModernBertConfig", args=dict(MODERN, classifier_pooling="mean"),
                                tokenizer=wordpiece, labels=1, base="ModernBertForSequenceClassification"),
}


# A decoder that answers yes or no behind a template.
TEMPLATE = (
    "{%- set system = messages | selectattr('role', 'equalto', 'system') | map(attribute='content') | first -%}"
    "<|im_start|>Judge: {{ system or 'does it answer?' }}<|im_end|>\n"
    "<|im_start|>Query: {{ messages | selectattr('role', 'equalto', 'query') | map(attribute='content') | first }}\n"
    "Document: {{ messages | selectattr('role', 'equalto', 'document') | map(attribute='content') | first }}<|im_end|>\n"
    "{%- if add_generation_prompt %}<|im_start|>answer\n{% endif %}")
MODELS["qwen3-reranker"] = dict(config="Qwen3Config", args=dict(QWEN3, max_position_embeddings=256),
                                tokenizer=lambda: bpe_with_end(False), base="Qwen3ForCausalLM", template=TEMPLATE,
                                prompts={"web": "find pages"}, default="web")

LLAMA_LIKE = dict(DECODER, num_key_value_heads=2, pad_token_id=1, bos_token_id=0, eos_token_id=2)
NOMIC = dict(hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=256,
             max_position_embeddings=128)
# What the configuration of Nomic's own code calls them
NOMIC_KEYS = dict(n_embd=48, n_layer=3, n_head=4, n_inner=250, n_positions=128, layer_norm_epsilon=1e-12,
                  activation_function="swiglu", rotary_emb_base=1000, rotary_emb_fraction=1.0,
                  rotary_emb_interleaved=False, rotary_emb_scale_base=None, rotary_scaling_factor=None,
                  max_trained_positions=2048, qkv_proj_bias=False, mlp_fc1_bias=False, mlp_fc2_bias=False,
                  prenorm=False, use_rms_norm=False, parallel_block=False, causal=False, type_vocab_size=2,
                  vocab_size=697, pad_vocab_size_multiple=4, model_type="nomic_bert", architectures=["NomicBertModel"],
                  auto_map={"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"})
GEMMA3 = dict(DECODER, head_dim=16, query_pre_attn_scalar=24, sliding_window=16, use_bidirectional_attention=True,
              num_hidden_layers=4, layer_types=["sliding_attention"] * 3 + ["full_attention"])
# Later rows stand at the end, since a row's seed is its place.
MODELS.update({
    # LaBSE's modules
    "bert-dense": dict(config="BertConfig", args=BERT, tokenizer=wordpiece, pooling="cls", normalize=True,
                       base="BertModel", dense=[dict(out_features=40)]),
    "bert-dense-gelu": dict(config="BertConfig", args=BERT, tokenizer=wordpiece, pooling="mean", normalize=False,
                            base="BertModel", normalize_first=True, weights="pytorch_model.bin",
                            dense=[dict(out_features=48, activation_function=torch.nn.GELU(), use_residual=True),
                                   dict(out_features=24, activation_function=torch.nn.ReLU(), use_residual=True)]),
    "qwen3-dense": dict(config="Qwen3Config", args=QWEN3, tokenizer=bpe_with_end, pooling="mean", normalize=True,
                        base="Qwen3Model", dense=[dict(out_features=96, bias=False, activation_function=None),
                                                  dict(out_features=32, bias=False, activation_function=None)]),
    "eurobert-mean": dict(config="EuroBertConfig", args=dict(LLAMA_LIKE, rope_theta=250000.0), tokenizer=unigram,
                          pooling="mean", normalize=True, base="EuroBertModel"),
    "eurobert-reranker": dict(config="EuroBertConfig", args=dict(LLAMA_LIKE, head_dim=16, num_key_value_heads=1),
                              tokenizer=unigram, labels=1, base="EuroBertForSequenceClassification"),
    "eurobert-classifier": dict(config="EuroBertConfig", args=dict(LLAMA_LIKE, classifier_pooling="mean"),
                                tokenizer=unigram, labels=3, base="EuroBertForSequenceClassification"),
    "nomic-mean": dict(config="NomicBertConfig", args=NOMIC, tokenizer=wordpiece, pooling="mean", normalize=True,
                       base="NomicBertModel", own_config=NOMIC_KEYS,
                       prompts={"query": "search_query: ", "document": "search_document: "}),
    "nomic-cls": dict(config="NomicBertConfig", args=NOMIC, tokenizer=wordpiece, pooling="cls", normalize=False,
                      base="NomicBertModel", wide=True),
    # EmbeddingGemma: a decoder's layers without the causal mask, and two dense modules
    "gemma3-dense": dict(config="Gemma3TextConfig", args=GEMMA3, tokenizer=bpe_with_end, pooling="mean",
                         normalize=True, base="Gemma3TextModel", prompts=QUERY, wide=True,
                         dense=[dict(out_features=96, bias=False, activation_function=None),
                                dict(out_features=48, bias=False, activation_function=None)]),
    "roberta-lower": dict(config="RobertaConfig", args=ROBERTA, tokenizer=byte_level, pooling="mean",
                          normalize=True, base="RobertaModel", lower=True),
})


def fill(model, seed):
    """Weights that are bfloat16 numbers, of a scale that makes vectors differ."""
    g = torch.Generator().manual_seed(seed)
    for name, t in sorted(model.named_parameters()):
        noise = torch.randn(t.shape, generator=g)
        if "norm" in name.lower() and name.endswith("weight"):
            new = 1 + 0.2 * noise
        elif t.dim() == 1:
            new = 0.2 * noise
        elif "embed" in name.lower():
            new = 0.5 * noise
        else:
            new = noise * 1.2 / t.shape[-1] ** 0.5
        with torch.no_grad():
            t.copy_(new.to(torch.bfloat16).to(torch.float32))


TEXTS = [
    "What is the capital of France?",
    "Paris is the capital of France, and it lies on the Seine.",
    "",
    "a",
    "The cat sat on the mat. " * 5,
    "Caf\u00e9 na\u00efve \u4f60\u597d \U0001f98a, 12,345.67%",
    "  two  spaces and a\ttab\nand a line ",
    "Die Antwort ist zweiundvierzig.",
    "hydrogen helium lithium beryllium boron carbon nitrogen oxygen",
    "def add(a, b):\n    return a + b",
]
QUESTIONS = ["What is the capital of France?", "How many legs has a spider?", "oxygen", ""]
DOCUMENTS = ["Paris is the capital of France.", "A spider has eight legs.", "The cat sat on the mat. " * 3,
             "Oxygen is an element.", "x", ""]


def b64(values):
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode()


def save_checkpoint(row, folder, seed):
    tokenizer = row["tokenizer"]()
    if "template" in row:
        tokenizer.chat_template = row["template"]
        tokenizer.model_max_length = 256
    extra = {"num_labels": row["labels"]} if "labels" in row else {}
    config = getattr(transformers, row["config"])(vocab_size=len(tokenizer), **row["args"], **extra)
    model = getattr(transformers, row["base"])(config)
    model.eval()
    fill(model, seed)
    model.to(torch.float32 if row.get("wide") else torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if "tokenizer_class" in row:  # one that gives token types
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "tokenizer_class": row["tokenizer_class"]}))
    path = folder / "config.json"
    data = json.loads(path.read_text())
    if "architectures" in row:
        data["architectures"] = row["architectures"]
    path.write_text(json.dumps(data, indent=2) + "\n")
    if "prefix" in row:  # files of a class with a head name the body
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        safetensors.torch.save_file({row["prefix"] + name: t for name, t in tensors.items()},
                                    folder / "model.safetensors", metadata={"format": "pt"})


def make_embedder(row, folder, seed):
    with tempfile.TemporaryDirectory() as raw:
        save_checkpoint(row, pathlib.Path(raw), seed)
        body = Transformer(raw, model_kwargs=FLOAT32)
        pooling = Pooling(body.get_embedding_dimension() if hasattr(body, "get_embedding_dimension")
                          else body.get_word_embedding_dimension(), pooling_mode=row["pooling"],
                          include_prompt=row.get("include_prompt", True))
        modules = [body, pooling] + ([Normalize()] if row.get("normalize_first") else [])
        width = row["args"]["hidden_size"]
        for number, own in enumerate(row.get("dense", [])):
            dense = Dense(in_features=width, **own)
            fill(dense, seed + 1000 + number)
            modules.append(dense)
            width = own["out_features"]
        modules += [Normalize()] if row["normalize"] else []
        model = SentenceTransformer(modules=modules, prompts=row.get("prompts"),
                                    default_prompt_name=row.get("default"))
        model.save(str(folder))
        for name in ("config.json", "model.safetensors"):  # as they were saved, in bfloat16
            shutil.copy(pathlib.Path(raw) / name, folder / name)
    if row.get("lower"):
        path = folder / "sentence_bert_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "do_lower_case": True}, indent=4))
    if row.get("weights") == "pytorch_model.bin":  # the older form
        for place in folder.glob("*_Dense/model.safetensors"):
            torch.save(safetensors.torch.load_file(place), place.with_name("pytorch_model.bin"))
            place.unlink()
    if row.get("legacy"):
        old = {"word_embedding_dimension": 48, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False,
               "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(old, indent=2))
    (folder / "README.md").unlink(missing_ok=True)
    model = SentenceTransformer(str(folder), device="cpu", model_kwargs=FLOAT32)

    def encode(texts, **more):
        return np.stack([model.encode([t], batch_size=1, **more)[0] for t in texts])

    out = {"texts": TEXTS, "ids": [model.tokenizer(t)["input_ids"] for t in TEXTS],
           "dimension": model.get_embedding_dimension(), "vectors": b64(encode(TEXTS)),
           "prompts": {name: b64(encode(TEXTS, prompt_name=name)) for name in row.get("prompts") or {}}}
    vectors = np.frombuffer(base64.b64decode(out["vectors"]), "<f4").reshape(len(TEXTS), -1)
    if "own_config" in row:  # the reference reads its own spelling
        (folder / "config.json").write_text(json.dumps(row["own_config"], indent=2) + "\n")
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    off = (unit @ unit.T)[~np.eye(len(TEXTS), dtype=bool)]
    print(f"  cosines of different texts: {off.min():.3f} to {off.max():.3f}")
    return out


def make_judge(row, folder, seed):
    with tempfile.TemporaryDirectory() as raw:
        save_checkpoint(row, pathlib.Path(raw), seed)
        body = Transformer(raw, transformer_task="text-generation", model_kwargs=FLOAT32,
                           processing_kwargs={"chat_template": {"add_generation_prompt": True}})
        ids = [body.tokenizer(word)["input_ids"][0] for word in ("yes", "no")]
        model = CrossEncoder(modules=[body, LogitScore(*ids)], prompts=row["prompts"],
                             default_prompt_name=row["default"])
        model.save_pretrained(str(folder))
        for name in ("config.json", "model.safetensors"):
            shutil.copy(pathlib.Path(raw) / name, folder / name)
    (folder / "README.md").unlink(missing_ok=True)
    model = CrossEncoder(str(folder), device="cpu", model_kwargs=FLOAT32)
    pairs = [[q, d] for q in QUESTIONS for d in DOCUMENTS]
    raw = [float(model.predict([tuple(p)], activation_fn=torch.nn.Identity())[0]) for p in pairs]
    scores = [float(model.predict([tuple(p)])[0]) for p in pairs]
    print(f"  scores: {min(raw):.3f} to {max(raw):.3f}, with activation {min(scores):.3f} to {max(scores):.3f}")
    return {"pairs": pairs, "raw_scores": raw, "scores": scores}


def make_scorer(row, folder, seed):
    save_checkpoint(row, folder, seed)
    model = CrossEncoder(str(folder), device="cpu", model_kwargs=FLOAT32)
    pairs = [[q, d] for q in QUESTIONS for d in DOCUMENTS]
    identity = torch.nn.Identity()
    raw = np.stack([model.predict([tuple(p)], activation_fn=identity)[0] for p in pairs])
    scores = np.stack([model.predict([tuple(p)])[0] for p in pairs])
    single = model.model(**model.tokenizer([TEXTS[0], TEXTS[1]], padding=True, return_tensors="pt")).logits
    print(f"  scores: {raw.min():.3f} to {raw.max():.3f}, single {single.tolist()}")
    texts = [t for t in TEXTS if t]
    logits = [model.model(**model.tokenizer([t], return_tensors="pt")).logits[0].tolist() for t in texts]
    return {"pairs": pairs, "raw_scores": raw.tolist(), "scores": scores.tolist(), "texts": texts,
            "logits": logits,
            "num_tokens": sum(len(model.tokenizer([p])["input_ids"][0]) for p in pairs)}


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--only", default="")
    args.add_argument("--out", default=str(HERE / "embeddings"))
    args = args.parse_args()
    wanted = [n for n in args.only.split(",") if n] or list(MODELS)
    for name in wanted:
        row = MODELS[name]
        folder = pathlib.Path(args.out) / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(name)
        torch.manual_seed(SEED)
        seed = SEED + list(MODELS).index(name)
        with torch.no_grad():
            make = make_scorer if "labels" in row else make_judge if "template" in row else make_embedder
            out = make(row, folder, seed)
        out["versions"] = {"torch": torch.__version__, "transformers": transformers.__version__,
                           "sentence-transformers": st.__version__, "tokenizers": tokenizers.__version__}
        (folder / "embeddings.json").write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
