"""Small configurations of every class in MODEL_FOR_CAUSAL_LM_MAPPING of transformers.

A field is made small by its name (SIZES). What a class needs beyond that stands in OVERRIDES.
"""

LAYERS = 4
VOCAB = 320

# Name of a field -> its small value. A field that is null in the class's default stays null.
SIZES = {
    "vocab_size": VOCAB, "text_vocab_size": VOCAB, "decoder_vocab_size": VOCAB, "vocab_size_per_layer_input": VOCAB, "padded_vocab_size": VOCAB,
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "dim", "model_dim", "embed_dim", "embedding_size", "word_embed_proj_dim",
                     "input_embedding_size", "output_embedding_size", "decoder_hidden_size", "emb_dim", "encoder_hidden_size",
                     "lru_width", "cross_attention_hidden_size", "hidden_dim", "dim_model"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers"), LAYERS),
    **dict.fromkeys(("decoder_layers", "num_decoder_layers"), LAYERS),
    **dict.fromkeys(("encoder_layers", "num_encoder_layers", "n_encoder_layers"), 1),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads", "encoder_attention_heads",
                     "num_decoder_attention_heads", "num_encoder_attention_heads", "attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "n_head_kv", "num_global_key_value_heads"), 2),
    **dict.fromkeys(("head_dim", "kv_channels", "attention_head_dim", "dim_head", "d_kv", "v_head_dim", "swa_head_dim"), 16),
    **dict.fromkeys(("global_head_dim",), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "decoder_ffn_dim", "encoder_ffn_dim", "d_inner",
                     "ffn_intermediate_size", "dim_ff", "prefix_dense_intermediate_size", "feed_forward_size", "dff", "block_ff_dim",
                     "num_decoder_ffn_dim", "dense_intermediate_size", "intermediate_size_mlp", "dense_ffn_hidden_size"), 72),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length",
                     "max_target_positions", "max_source_positions", "max_context_length", "model_max_length"), 256),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 8),
    **dict.fromkeys(("num_experts_per_tok", "moe_top_k", "moe_k", "num_experts_per_token", "experts_per_token", "moe_topk"), 2),
    **dict.fromkeys(("moe_intermediate_size", "expert_ffn_hidden_size", "expert_hidden_size", "shared_expert_intermediate_size",
                     "shared_intermediate_size", "moe_shared_expert_intermediate_size"), 16),
    **dict.fromkeys(("n_group", "topk_group", "moe_n_group", "moe_topk_group"), 1),
    **dict.fromkeys(("sliding_window", "local_attention", "window_size", "sliding_window_size", "attention_window_size",
                     "attention_chunk_size"), 8),
    **dict.fromkeys(("q_lora_rank",), 24), **dict.fromkeys(("kv_lora_rank",), 32),
    **dict.fromkeys(("qk_nope_head_dim",), 16), **dict.fromkeys(("qk_rope_head_dim",), 8), "qk_head_dim": 24,
    "index_n_heads": 2, "index_head_dim": 16, "index_topk": 64, "o_lora_rank": 16,
    "first_k_dense_replace": 1, "num_dense_layers": 1, "n_shared_experts": 1, "num_shared_experts": 1, "num_nextn_predict_layers": 0,
    "hidden_size_per_layer_input": 16, "laurel_rank": 8, "num_kv_shared_layers": 2,
    # recurrent layers
    "mamba_d_state": 8, "state_size": 8, "ssm_state_size": 8, "mamba_expand": 2, "mamba_n_heads": 8, "mamba_d_head": 16,
    "mamba_num_heads": 8, "mamba_head_dim": 16, "mamba_n_groups": 1, "n_groups": 1, "n_mamba_heads": 2, "mamba_dt_rank": 8,
    "mamba_chunk_size": 16, "chunk_size": 16, "time_step_rank": 8, "mamba_headdim": 16, "mamba_ngroups": 1, "mamba_d_ssm": 128,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "attention_hidden_size": 64, "num_hidden_groups": 1, "rotary_dim": 16,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 1,
}

# Class of the language model -> fields. A value may be a function of the shrunk fields.
DROP = object()  # leave the field to the class


def full_layers(head_dim):
    """Gemma 4: layers 1 and 3 are those of full attention."""
    return {"1": {"head_dim": head_dim}, "3": {"head_dim": head_dim}}


QWEN4 = {
    "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 16, "indexer_compress_ratio": 4,
    "ngram_vocab_size_base": 64, "ple_embed_dim": 64, "hc_lowrank": 16, "split_ngram_parts": 4,
    "make_ngram_vocab_size_divisible_by": 8,
}

OVERRIDES = {
    "blt": {"encoder_hash_byte_group_vocab": 50, "encoder_config.hidden_size_global": 64, "decoder_config.hidden_size_global": 64},
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    "reformer": {"axial_pos_embds_dim": [32, 32], "axial_pos_shape": [16, 16], "max_position_embeddings": 256},
    "xlnet": {"d_head": 16},
    "xlstm": {"head_dim": DROP, "qk_head_dim": DROP, "v_head_dim": DROP, "qk_dim": DROP, "v_dim": DROP, "embedding_dim": DROP},
    "xmod": {"default_language": "en_XX", "languages": ["en_XX"]},
    "zamba": {"attention_hidden_size": 128, "attention_head_dim": 32, "num_key_value_heads": 4},
    "zamba2": {"num_key_value_heads": 4, "n_mamba_heads": 8, "hybrid_layer_ids": [1, 3], "attention_head_dim": 32, "attention_hidden_size": 128},
    "qwen4_exp_text": QWEN4,
    "qwen4_exp": {f"text_config.{name}": value for name, value in QWEN4.items()},
    "zaya": {"num_experts_per_tok": 1},
    "ministral": {"head_dim": 16},
    "nemotron": {"head_dim": 16, "num_key_value_heads": 2},
    "mamba2": {"num_heads": 8},
    "dots3_note": {"text_config.head_dim": 24, "text_config.per_layer_config": {}, "audio_config": DROP, "vision_config": DROP},
    "dots3_note_text": {"head_dim": 24, "per_layer_config": {}},
    "deepseek_v2": {"n_group": 2, "topk_group": 1, "topk_method": "group_limited_greedy", "num_experts_per_tok": 2},
    "bailing_hybrid": {"num_expert_group": 4, "topk_group": 2},
    "dbrx": {"attn_config": {"kv_n_heads": 2}, "ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2}},
    "dots1": {"n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 1, "topk_group": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv", "full_attention"]},
    "gemma4_text": {"per_layer_config": full_layers(32)},
    "gemma4_unified_text": {"per_layer_config": full_layers(32)},
    "gemma4": {"text_config.per_layer_config": full_layers(32)},
    "gemma4_unified": {"text_config.per_layer_config": full_layers(32)},
    "gemma4_assistant": {"text_config.num_kv_shared_layers": 4, "text_config.per_layer_config": full_layers(32)},
    "gemma4_unified_assistant": {"text_config.per_layer_config": full_layers(32)},
}

# Arguments without which a configuration class takes no defaults.
START = {"gemma4_assistant": {"text_config": {"model_type": "gemma4_text", "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0,
                                            "num_kv_shared_layers": 4, "num_hidden_layers": 4}}}

# Lists with an entry a layer.
PER_LAYER = ("layer_types", "mlp_layer_types", "layers_block_type", "indexer_types", "no_rope_layers", "block_types", "attention_types")


def cut(values, layers):
    """A list of `layers` entries with every kind of the long one."""
    kinds = list(dict.fromkeys(map(str, values)))
    firsts = [next(v for v in values if str(v) == kind) for kind in kinds]
    return (firsts * layers)[:layers] if len(kinds) > 1 else [firsts[0]] * layers


def shrink(fields, default_layers):
    out = {}
    for name, value in fields.items():
        if name in SIZES and isinstance(value, int) and not isinstance(value, bool):
            out[name] = SIZES[name] if value > 0 else value
        elif name in SIZES and isinstance(value, list) and name.endswith("_token_id"):
            out[name] = [SIZES[name]]
        elif isinstance(value, list) and len(value) == default_layers and name in PER_LAYER or name in ("layer_types",) and value:
            out[name] = cut(value, LAYERS)
        elif isinstance(value, list) and len(value) == default_layers and default_layers > 4:
            out[name] = [SIZES.get(name, v) if isinstance(v, int) and not isinstance(v, bool) else v for v in value[:LAYERS]]
        elif isinstance(value, dict) and "model_type" in value:
            out[name] = shrink(value, layers_of(value))
        else:
            out[name] = value
    if "qk_rope_head_dim" in out and "head_dim" in out:
        out["head_dim"] = out["qk_rope_head_dim"]  # the part that rotates
    if "kv_lora_rank" in out and "num_key_value_heads" in out:
        out["num_key_value_heads"] = out["num_attention_heads"]
    return out


def layers_of(fields):
    for name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers"):
        if isinstance(fields.get(name), int):
            return fields[name]
    return 0


# Fields that to_dict() adds and a configuration class does not take.
NOT_ARGUMENTS = ("model_type", "transformers_version", "architectures", "dtype", "torch_dtype", "_name_or_path", "auto_map")


def tiny_config(config_class, model_type):
    """The small configuration of a class. Raises what the class raises."""
    default = config_class(**START.get(model_type, {}))
    fields = default.to_dict()
    small = shrink(fields, layers_of(fields))
    over = OVERRIDES.get(model_type, {})
    for name, value in over.items():
        target = small
        *path, leaf = name.split(".")
        for part in path:
            target = target[part]
        if value is DROP:
            target.pop(leaf, None)
        else:
            target[leaf] = value
    for name in NOT_ARGUMENTS:
        small.pop(name, None)
    return config_class(**small)
