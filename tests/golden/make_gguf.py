"""GGUF files of fixtures, written by llama.cpp's own converter.

    make_gguf.py --converter FOLDER --out FOLDER FIXTURE...

FIXTURE is a folder of a small checkpoint (tests/golden/models and the archive beside it). The converter is llama.cpp's,
which tools/gguf_converter fetches. So names, orders of rows and metadata are those that llama.cpp reads, and not our own
reading of them. FOLDER/NAME.gguf is float32, which holds every weight exactly.

Three things are ours, each in a table below. Fixtures have no tokenizer, so only the ids of the special tokens are
written. Configurations of transformers 5 get the keys of the published files that the converter reads. Layers that
llama.cpp's list of an architecture lacks are added to it. A fixture that the converter refuses is reported, and the exit
status is 1.
"""

import argparse
import json
import logging
import pathlib
import sys
import tempfile

# Keys of the published files of a family, where the fixture has the spelling of transformers 5.
SPELLINGS = {
    "Cohere2ForCausalLM": lambda c: dict(rotary_pct=1.0),
    "FalconForCausalLM": lambda c: {} if c["new_decoder_architecture"] else dict(num_kv_heads=1),
    "GPT2LMHeadModel": lambda c: dict(n_ctx=c["n_positions"]),
    "GPTNeoXForCausalLM": lambda c: dict(rotary_pct=c["rope_parameters"]["partial_rotary_factor"]),
    "HunYuanMoEV1ForCausalLM": lambda c: {key: [value] * c["num_hidden_layers"] for key, value in (
        ("moe_intermediate_size", c["intermediate_size"]), ("moe_topk", c["moe_topk"]), ("num_shared_expert", 1))},
    "KimiLinearForCausalLM": lambda c: dict(first_k_dense_replace=1, linear_attn_config=dict(
        full_attn_layers=[i + 1 for i, kind in enumerate(c["layer_types"]) if kind == "full_attention"],
        short_conv_kernel_size=c["linear_conv_kernel_dim"], head_dim=c["linear_head_dim"])),
    "MiMoV2FlashForCausalLM": lambda c: dict(
        swa_head_dim=c["head_dim"], swa_v_head_dim=c["v_head_dim"], swa_num_attention_heads=c["num_attention_heads"],
        swa_num_key_value_heads=2 * c["num_key_value_heads"], topk_method="noaux_tc",
        layernorm_epsilon=c["rms_norm_eps"], scoring_func="sigmoid",
        hybrid_layer_pattern=[int(kind == "sliding_attention") for kind in c["layer_types"]],
        rope_parameters=c["rope_parameters"]["full_attention"],
        rope_theta=c["rope_parameters"]["full_attention"]["rope_theta"],
        swa_rope_theta=c["rope_parameters"]["sliding_attention"]["rope_theta"],
        moe_layer_freq=[int(kind == "sparse") for kind in c["mlp_layer_types"]]),
    "MiniMaxM2ForCausalLM": lambda c: dict(
        rotary_dim=int(c["head_dim"] * c["rope_parameters"]["partial_rotary_factor"]), scoring_func="sigmoid"),
    "PhimoeForCausalLM": lambda c: dict(architectures=["PhiMoEForCausalLM"],
                                        original_max_position_embeddings=c["max_position_embeddings"]),
}
# Beginnings of tensor names that transformers 5 writes otherwise than the published files.
RENAMES = {"KimiLinearForCausalLM": (".0.block_sparse_moe.", ".0.mlp.")}
# Dense layers among experts, which llama.cpp's lists of these architectures lack.
DENSE_LAYERS = ("QWEN2MOE", "QWEN3MOE")
# Families whose published files have layers that predict further tokens, which the fixtures lack.
NO_NEXT_TOKENS = ("Qwen3NextForCausalLM", "Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM", "MiMoV2FlashForCausalLM")


def patch(conversion, gguf):
    """Fixtures have no tokenizer: every class writes the ids of the configuration, and no tokens."""

    def set_vocab(self):
        self.gguf_writer.add_tokenizer_model("none")
        config = json.loads((self.dir_model / "config.json").read_text())
        for name, add in (("bos_token_id", self.gguf_writer.add_bos_token_id),
                          ("eos_token_id", self.gguf_writer.add_eos_token_id),
                          ("pad_token_id", self.gguf_writer.add_pad_token_id)):
            value = config.get(name)
            value = value[0] if isinstance(value, list) else value
            if value is not None and value >= 0:
                add(value)

    def classes(base):
        for cls in base.__subclasses__():
            yield cls
            yield from classes(cls)

    for cls in (conversion.TextModel, *classes(conversion.TextModel)):
        if "set_vocab" in vars(cls) or cls is conversion.TextModel:
            cls.set_vocab = set_vocab
    # The classes of transformers, through which the converter reads a configuration, drop older keys.
    load = conversion.ModelBase.load_hparams

    def load_hparams(folder, is_mistral_format):
        config = json.loads((folder / "config.json").read_text())
        added = {key: config[key] for key in config.get("added_keys", ())}
        return {**load(folder, is_mistral_format), **added}

    conversion.ModelBase.load_hparams = staticmethod(load_hparams)
    tensors = gguf.MODEL_TENSOR
    for name in DENSE_LAYERS:
        listed = gguf.MODEL_TENSORS[gguf.MODEL_ARCH[name]]
        listed += [t for t in (tensors.FFN_GATE, tensors.FFN_UP, tensors.FFN_DOWN) if t not in listed]


def load_all_classes(conversion):
    for module in set(conversion.TEXT_MODEL_MAP.values()):
        __import__("conversion." + module)


def twin(folder, temporary):
    """The fixture with the configuration and the names of the published files of its family."""
    config = json.loads((folder / "config.json").read_text())
    architecture = config["architectures"][0]
    added = SPELLINGS.get(architecture, lambda c: {})(config)
    config.update(added, added_keys=list(added))
    out = pathlib.Path(temporary) / folder.name
    out.mkdir()
    (out / "config.json").write_text(json.dumps(config))
    # The converter counts tokens by this file where a family pads its embedding.
    (out / "tokenizer.json").write_text(json.dumps(
        {"model": {"vocab": {f"t{i}": i for i in range(config["vocab_size"])}}, "added_tokens": []}))
    for file in folder.iterdir():
        if file.suffix == ".safetensors" and architecture in RENAMES:
            from safetensors.torch import load_file, save_file
            save_file({name.replace(*RENAMES[architecture]): tensor for name, tensor in load_file(file).items()},
                      out / file.name)
        elif file.name.endswith((".safetensors", ".safetensors.index.json")):
            (out / file.name).symlink_to(file.resolve())
    return out


def convert(conversion, gguf, torch, folder, out):
    with torch.inference_mode():
        hparams = conversion.ModelBase.load_hparams(folder, False)
        architecture = conversion.get_model_architecture(hparams, conversion.ModelType.TEXT)
        cls = conversion.get_model_class(architecture)
        if architecture in NO_NEXT_TOKENS:
            cls.no_mtp = True
        cls(folder, gguf.LlamaFileType.ALL_F32, out, eager=True, model_name=folder.name).write()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--converter", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("fixtures", type=pathlib.Path, nargs="+")
    args = parser.parse_args()
    sys.path[:0] = [str(args.converter), str(args.converter / "gguf-py")]
    logging.disable(logging.WARNING)
    import conversion
    import gguf
    import torch
    load_all_classes(conversion)
    patch(conversion, gguf)
    args.out.mkdir(parents=True, exist_ok=True)
    refused = 0
    for folder in args.fixtures:
        out = args.out / (folder.name + ".gguf")
        partial = out.with_suffix(".partial")
        try:
            with tempfile.TemporaryDirectory() as temporary:
                convert(conversion, gguf, torch, twin(folder, temporary), partial)
        except (Exception, SystemExit) as error:  # the converter raises what it likes
            print(f"{folder.name}: {type(error).__name__}: {error}", file=sys.stderr)
            refused += 1
        else:
            partial.rename(out)
        finally:
            partial.unlink(missing_ok=True)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
