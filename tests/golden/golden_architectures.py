"""The table of fixtures: the architecture, sizes and options of each of make_golden.py's models."""

VOCAB = 320


def rope(theta=10000.0, kind="default", **kw):
    return dict(rope_type=kind, rope_theta=theta, **kw)


BASE = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=72, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=512, bos_token_id=1, eos_token_id=2, pad_token_id=0,
            tie_word_embeddings=False)
MOE = dict(moe_intermediate_size=16, num_experts_per_tok=2)
MLA = dict(hidden_size=64, num_attention_heads=4, num_key_value_heads=4, kv_lora_rank=32, q_lora_rank=40, qk_nope_head_dim=20,
           qk_rope_head_dim=12, v_head_dim=18)
DSV3 = dict(MLA, moe_intermediate_size=16, n_routed_experts=8, n_shared_experts=1, n_group=4, topk_group=2, num_experts_per_tok=3, norm_topk_prob=True,
            routed_scaling_factor=2.5, first_k_dense_replace=1, num_hidden_layers=3, intermediate_size=80)
YARN_DS = dict(factor=4.0, original_max_position_embeddings=4096, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0)

# name -> dict(cls=config class, cfg=arguments, seed=.., dtype=storage type, options..) options:
#   vary_rope  rotary frequencies depend on the sequence length, so prefixes are not comparable with
#              longer inputs
#   mtp        append a next-token-prediction layer to the file (transformers ignores it), N = its
#              index
#   mimo       after the model has run, the file gets the names and the draft layer of MiMo, whose layers are Qwen2's
#   hub        also write config.hub.json, the same values with the key names used before
#              transformers 5
#   lens       prompt lengths
#   std, emb_std, embed_scale   scale of the weights, of the embedding and output matrix, and a
#              factor on the embedding alone
#   shard      maximum size of one file
#   model_cls  class to build instead of the choice of AutoModelForCausalLM
ARCHS = {}


def arch(name, cls, dtype="bfloat16", seed=None, base=True, **kw):
    options = {k: kw.pop(k) for k in ("vary_rope", "mtp", "hub", "lens", "note", "std", "emb_std", "embed_scale", "model_cls", "shard", "mimo") if k in kw}
    cfg = dict(BASE, **kw) if base else kw
    ARCHS[name] = dict(name=name, cls=cls, cfg=cfg, dtype=dtype, seed=seed if seed is not None else 1000 + len(ARCHS), **options)


# --- Llama and its rope variants
arch("llama-plain", "LlamaConfig", "float32", num_key_value_heads=4, rope_parameters=rope())
arch("llama-llama3-tied", "LlamaConfig", num_key_value_heads=1, tie_word_embeddings=True, hub=True, eos_token_id=[2, 5],
     rope_parameters=rope(500000.0, "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64))
arch("llama-linear-bias-headdim", "LlamaConfig", "float16", embed_scale=0.03, head_dim=24, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-5,
     rope_parameters=rope(10000.0, "linear", factor=2.5))
arch("llama-dynamic", "LlamaConfig", tie_word_embeddings=True, max_position_embeddings=64, vary_rope=True, lens=(1, 7, 33, 130),
     rope_parameters=rope(10000.0, "dynamic", factor=2.0))
arch("llama-yarn", "LlamaConfig", tie_word_embeddings=True, max_position_embeddings=8192, rope_parameters=rope(10000.0, "yarn", factor=8.0, original_max_position_embeddings=1024))
arch("mistral-swa", "MistralConfig", sliding_window=16, head_dim=20, rope_parameters=rope(1000000.0), hub=True)
arch("ministral3-llama4scale", "Ministral3Config", tie_word_embeddings=True, head_dim=16, rope_parameters=rope(
    1000000.0, "yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
    llama_4_scaling_beta=0.1))
arch("smollm3-nope", "SmolLM3Config", num_hidden_layers=4, no_rope_layer_interval=4, tie_word_embeddings=True, rope_parameters=rope(2000000.0))
arch("seed-oss", "SeedOssConfig", head_dim=20, attention_bias=True, attention_out_bias=False, rope_parameters=rope(1e7))
# --- Qwen
arch("qwen2-tied", "Qwen2Config", tie_word_embeddings=True, rope_parameters=rope(1000000.0))
arch("qwen2-yarn-swa", "Qwen2Config", num_hidden_layers=3, use_sliding_window=True, sliding_window=16, max_window_layers=1,
     rope_parameters=rope(1000000.0, "yarn", factor=4.0, original_max_position_embeddings=32))
arch("qwen3", "Qwen3Config", head_dim=24, hub=True, rope_parameters=rope(1000000.0))
arch("qwen2-moe", "Qwen2MoeConfig", num_hidden_layers=3, **MOE, num_experts=8, shared_expert_intermediate_size=48, decoder_sparse_step=2,
     norm_topk_prob=False, rope_parameters=rope(1000000.0))
arch("qwen3-moe", "Qwen3MoeConfig", num_hidden_layers=3, head_dim=16, **dict(MOE, num_experts_per_tok=3), num_experts=8, mlp_only_layers=[0],
     norm_topk_prob=True, rope_parameters=rope(1000000.0), hub=True)
arch("qwen3-next", "Qwen3NextConfig", num_hidden_layers=4, head_dim=24, **MOE, num_experts=4, shared_expert_intermediate_size=24,
     linear_conv_kernel_dim=4, linear_key_head_dim=12, linear_value_head_dim=20, linear_num_key_heads=2, linear_num_value_heads=4,
     rope_parameters=rope(10000000.0, partial_rotary_factor=0.25))
arch("qwen3-5", "Qwen3_5TextConfig", num_hidden_layers=4, head_dim=32, linear_conv_kernel_dim=4, linear_key_head_dim=12,
     linear_value_head_dim=20, linear_num_key_heads=2, linear_num_value_heads=4,
     rope_parameters=rope(10000000.0, partial_rotary_factor=0.25, mrope_section=[2, 1, 1], mrope_interleaved=True))
arch("qwen3-5-moe", "Qwen3_5MoeTextConfig", num_hidden_layers=4, tie_word_embeddings=True, head_dim=32, **MOE, num_experts=4, shared_expert_intermediate_size=24,
     linear_conv_kernel_dim=4, linear_key_head_dim=12, linear_value_head_dim=20, linear_num_key_heads=2, linear_num_value_heads=4,
     rope_parameters=rope(10000000.0, partial_rotary_factor=0.25, mrope_section=[2, 1, 1], mrope_interleaved=True))
# --- Mixture of experts
arch("mixtral", "MixtralConfig", num_local_experts=4, num_experts_per_tok=2, intermediate_size=48, sliding_window=None, rope_parameters=rope(1000000.0))
arch("minimax-m2", "MiniMaxM2Config", head_dim=16, intermediate_size=24, num_local_experts=8, num_experts_per_tok=3,
     rope_parameters=rope(5000000.0, partial_rotary_factor=0.5))
arch("phimoe", "PhimoeConfig", intermediate_size=48, num_local_experts=4, num_experts_per_tok=2, attention_bias=True, lm_head_bias=True,
     sliding_window=None, rope_parameters=rope())
arch("olmoe", "OlmoeConfig", intermediate_size=24, num_experts=8, num_experts_per_tok=3, norm_topk_prob=False, rope_parameters=rope())
arch("granitemoe", "GraniteMoeConfig", tie_word_embeddings=True, intermediate_size=32, num_local_experts=6, num_experts_per_tok=2, embedding_multiplier=2.0,
     logits_scaling=1.5, residual_multiplier=0.4, attention_multiplier=0.2, rope_parameters=rope())
arch("gpt-oss", "GptOssConfig", num_hidden_layers=4, intermediate_size=32, head_dim=20, num_local_experts=4, num_experts_per_tok=2, sliding_window=16,
     swiglu_limit=1.5, hub=True, rope_parameters=rope(150000.0, "yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                                    original_max_position_embeddings=1024), max_position_embeddings=8192)
arch("llama4-text", "Llama4TextConfig", num_hidden_layers=4, head_dim=16, intermediate_size=32, intermediate_size_mlp=64, num_local_experts=4,
     num_experts_per_tok=1, interleave_moe_layer_step=2, attention_chunk_size=32, no_rope_layer_interval=4, use_qk_norm=True,
     attn_temperature_tuning=True, floor_scale=16, attn_scale=0.1, rope_parameters=rope(500000.0))
arch("ernie4-5", "Ernie4_5Config", head_dim=20, use_bias=True, tie_word_embeddings=True, rope_parameters=rope(500000.0))
arch("ernie4-5-moe", "Ernie4_5_MoeConfig", num_hidden_layers=3, moe_intermediate_size=32, moe_k=2, moe_num_experts=6, moe_num_shared_experts=2,
     moe_layer_start_index=1, tie_word_embeddings=True, rope_parameters=rope(500000.0))
arch("hunyuan-dense", "HunYuanDenseV1Config", head_dim=20, tie_word_embeddings=True, rope_parameters=rope(10000.0))
arch("hunyuan-moe", "HunYuanMoEV1Config", tie_word_embeddings=True, head_dim=16, intermediate_size=32, num_experts=4, moe_topk=2, rope_parameters=rope(10000.0))
# --- DeepSeek and GLM
arch("deepseek-v2-lite", "DeepseekV2Config", **dict(MLA, q_lora_rank=None), **MOE, num_hidden_layers=3, n_routed_experts=8, n_shared_experts=2,
     first_k_dense_replace=1, topk_method="greedy", norm_topk_prob=False, routed_scaling_factor=1.0, rope_parameters=rope(10000.0))
arch("deepseek-v2", "DeepseekV2Config", max_position_embeddings=16384, **dict(MLA), **dict(MOE, num_experts_per_tok=3), num_hidden_layers=3, n_routed_experts=8, n_shared_experts=1,
     first_k_dense_replace=1, topk_method="group_limited_greedy", n_group=4, topk_group=2, norm_topk_prob=False, routed_scaling_factor=3.0, hub=True,
     rope_parameters=rope(10000.0, "yarn", **dict(YARN_DS, beta_fast=20, beta_slow=2, mscale=0.9, mscale_all_dim=0.707)))
arch("deepseek-v3", "DeepseekV3Config", max_position_embeddings=16384, **DSV3, mtp=True, num_nextn_predict_layers=1, hub=True, rope_parameters=rope(10000.0, "yarn", **YARN_DS))
arch("deepseek-v3-noqlora", "DeepseekV3Config", **dict(DSV3, q_lora_rank=None, n_group=1, topk_group=1, attention_bias=True),
     rope_parameters=rope(50000.0))
arch("deepseek-v32", "DeepseekV32Config", max_position_embeddings=16384, **DSV3, index_topk=16, index_head_dim=20, index_n_heads=12, mtp=True, num_nextn_predict_layers=1,
     rope_parameters=rope(10000.0, "yarn", **YARN_DS))
arch("glm-moe-dsa", "GlmMoeDsaConfig", **dict(DSV3, n_group=1, topk_group=1), index_topk=16, index_head_dim=20, index_n_heads=12, mtp=True,
     num_nextn_predict_layers=1, hub=True, rope_parameters=rope(1000000.0))
arch("glm-moe-dsa-shared-index", "GlmMoeDsaConfig", **dict(DSV3, n_group=1, topk_group=1, num_hidden_layers=5, moe_intermediate_size=16, n_routed_experts=4),
     index_topk=32, index_head_dim=20, index_n_heads=12, index_topk_freq=2, index_skip_topk_offset=2, rope_parameters=rope(1000000.0))
arch("glm-moe-dsa-pattern", "GlmMoeDsaConfig", **dict(DSV3, n_group=1, topk_group=1, num_hidden_layers=5, moe_intermediate_size=16, n_routed_experts=4),
     index_topk=16, index_head_dim=20, index_n_heads=12, index_topk_pattern="FFSSF", rope_parameters=rope(1000000.0))
arch("glm4-moe", "Glm4MoeConfig", num_hidden_layers=3, head_dim=20, **dict(MOE, num_experts_per_tok=3), n_routed_experts=8, n_shared_experts=1,
     n_group=1, topk_group=1, first_k_dense_replace=1, routed_scaling_factor=1.5, norm_topk_prob=True, use_qk_norm=True, attention_bias=True,
     mtp=True, num_nextn_predict_layers=1, rope_parameters=rope(1000000.0, partial_rotary_factor=0.6), hub=True)
arch("glm4-moe-noqknorm", "Glm4MoeConfig", num_hidden_layers=3, head_dim=16, **dict(MOE, num_experts_per_tok=2), n_routed_experts=8, n_shared_experts=2,
     n_group=2, topk_group=1, first_k_dense_replace=2, routed_scaling_factor=1.0, norm_topk_prob=True, use_qk_norm=False, attention_bias=False,
     rope_parameters=rope(1000000.0, partial_rotary_factor=0.5))
arch("glm4-moe-lite", "Glm4MoeLiteConfig", **{k: v for k, v in DSV3.items() if k not in ("first_k_dense_replace", "n_group", "topk_group")}, n_group=1, topk_group=1,
     rope_parameters=rope(1000000.0))
arch("glm4", "Glm4Config", shard="70KB", head_dim=24, attention_bias=True, rope_parameters=rope(10000.0, partial_rotary_factor=0.5))
arch("glm", "GlmConfig", head_dim=16, attention_bias=True, rope_parameters=rope(10000.0, partial_rotary_factor=0.5))
# --- Gemma
arch("gemma", "GemmaConfig", head_dim=24, num_key_value_heads=1, tie_word_embeddings=True, rope_parameters=rope(), emb_std=0.15)
arch("gemma2", "Gemma2Config", head_dim=24, num_hidden_layers=2, sliding_window=16, query_pre_attn_scalar=20, attn_logit_softcapping=5.0,
     final_logit_softcapping=6.0, tie_word_embeddings=True, rope_parameters=rope(), emb_std=0.15)
arch("gemma3", "Gemma3TextConfig", head_dim=24, num_hidden_layers=4, sliding_window=16, query_pre_attn_scalar=20, tie_word_embeddings=True, hub=True,
     layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"], emb_std=0.15,
     rope_parameters={"full_attention": rope(1000000.0, "linear", factor=8.0), "sliding_attention": rope(10000.0)})
# --- Phi
arch("phi3-longrope", "Phi3Config", num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256, original_max_position_embeddings=64,
     vary_rope=True, hub=True, lens=(1, 7, 33, 130, 58),
     rope_parameters=rope(10000.0, "longrope", short_factor=[1.0, 1.05, 1.1, 1.15, 1.3, 1.45, 1.6, 1.8], long_factor=[1.1, 1.3, 1.9, 2.6, 3.3, 4.2, 5.1, 6.0],
                          original_max_position_embeddings=64))
arch("phi3-partial-swa", "Phi3Config", tie_word_embeddings=True, sliding_window=16, rope_parameters=rope(10000.0, partial_rotary_factor=0.75))
arch("phi", "PhiConfig", num_key_value_heads=4, qk_layernorm=False, hidden_act="gelu_new", rope_parameters=rope(10000.0, partial_rotary_factor=0.5))
# --- other native families
arch("olmo", "OlmoConfig", tie_word_embeddings=True, clip_qkv=1.5, rope_parameters=rope())
arch("olmo2", "Olmo2Config", rope_parameters=rope(500000.0))
arch("olmo3", "Olmo3Config", num_hidden_layers=4, sliding_window=16, max_position_embeddings=8192, hub=True, rope_parameters={
    "full_attention": rope(500000.0, "yarn", factor=8.0, original_max_position_embeddings=1024, beta_fast=32.0, beta_slow=1.0, attention_factor=1.2079441541679836),
    "sliding_attention": rope(500000.0)})
arch("cohere", "CohereConfig", logit_scale=0.25, use_qk_norm=True, tie_word_embeddings=True, rope_parameters=rope(8000000.0))
arch("cohere2", "Cohere2Config", num_hidden_layers=4, logit_scale=0.25, sliding_window=16, tie_word_embeddings=True, rope_parameters=rope(50000.0))
arch("exaone4", "Exaone4Config", tie_word_embeddings=True, num_hidden_layers=4, sliding_window=16, sliding_window_pattern=4, rope_parameters=rope(1000000.0))
arch("granite", "GraniteConfig", embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.3, attention_multiplier=0.15,
     tie_word_embeddings=True, rope_parameters=rope())
arch("nemotron", "NemotronConfig", head_dim=16, norm_eps=1e-5, hidden_act="relu2", rope_parameters=rope(10000.0, partial_rotary_factor=0.5))
arch("apertus-xielu", "ApertusConfig", rope_parameters=rope(12000000.0, "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                             original_max_position_embeddings=64))
arch("stablelm", "StableLmConfig", use_qkv_bias=True, use_parallel_residual=False, qk_layernorm=False, rope_parameters=rope(10000.0, partial_rotary_factor=0.25))
arch("stablelm-parallel-qknorm", "StableLmConfig", use_qkv_bias=False, use_parallel_residual=True, qk_layernorm=True,
     rope_parameters=rope(10000.0, partial_rotary_factor=0.5))
arch("starcoder2", "Starcoder2Config", use_bias=True, sliding_window=16, tie_word_embeddings=True, rope_parameters=rope(100000.0))
arch("falcon-7b", "FalconConfig", base=False, vocab_size=VOCAB, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, multi_query=True, parallel_attn=True,
     new_decoder_architecture=False, bias=False, alibi=False, bos_token_id=1, eos_token_id=2, max_position_embeddings=512)
arch("falcon-new", "FalconConfig", base=False, vocab_size=VOCAB, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=2, multi_query=True,
     parallel_attn=True, new_decoder_architecture=True, bias=False, alibi=False, bos_token_id=1, eos_token_id=2, max_position_embeddings=512)
arch("gpt2", "GPT2Config", base=False, vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=4, n_positions=256, n_inner=96, bos_token_id=1, eos_token_id=2)
arch("gpt-neox", "GPTNeoXConfig", base=False, vocab_size=VOCAB, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
     max_position_embeddings=512, use_parallel_residual=True, tie_word_embeddings=False, rope_parameters=rope(10000.0, partial_rotary_factor=0.25),
     bos_token_id=1, eos_token_id=2)
arch("gptj", "GPTJConfig", base=False, vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=4, n_positions=256, rotary_dim=8, n_inner=96, bos_token_id=1, eos_token_id=2)
arch("gpt-bigcode", "GPTBigCodeConfig", base=False, vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=4, n_positions=256, n_inner=96, multi_query=True,
     bos_token_id=1, eos_token_id=2)
arch("opt", "OPTConfig", base=False, vocab_size=VOCAB, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, ffn_dim=96, max_position_embeddings=256,
     word_embed_proj_dim=64, bos_token_id=2, eos_token_id=2, pad_token_id=1)
arch("bloom", "BloomConfig", base=False, vocab_size=VOCAB, hidden_size=64, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)
# --- recurrent layers, alone or with attention
arch("mamba2", "Mamba2Config", base=False, vocab_size=VOCAB, hidden_size=64, num_hidden_layers=2, num_heads=8, head_dim=16, state_size=12, n_groups=2,
     conv_kernel=4, expand=2, chunk_size=32, bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False)
arch("lfm2", "Lfm2Config", num_hidden_layers=4, conv_L_cache=3, block_auto_adjust_ff_dim=False, layer_types=["conv", "full_attention", "conv", "full_attention"],
     tie_word_embeddings=True, rope_parameters=rope(1000000.0))
arch("kimi-linear", "KimiLinearConfig", **{k: v for k, v in DSV3.items() if k not in ("first_k_dense_replace", "n_routed_experts", "n_group", "topk_group", "q_lora_rank", "num_hidden_layers")},
     q_lora_rank=None, n_group=1, topk_group=1, num_local_experts=6, num_hidden_layers=4,
     layer_types=["linear_attention", "full_attention", "linear_attention", "full_attention"], linear_head_dim=16, linear_num_heads=4, linear_conv_kernel_dim=4)
arch("mimo-v2-flash", "MiMoV2FlashConfig", num_hidden_layers=4, head_dim=24, v_head_dim=16, **MOE, n_routed_experts=6, n_group=1, topk_group=1,
     sliding_window=16, rope_parameters=None)
# --- language models inside a multimodal checkpoint: nested text_config, other key prefixes, vision
# weights that a text engine skips
VISION = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
TEXT = {k: v for k, v in BASE.items() if k not in ("tie_word_embeddings",)}
arch("wrapped-gemma3", "Gemma3Config", base=False, model_cls="Gemma3ForConditionalGeneration", emb_std=0.15, image_token_index=0, boi_token_index=1, eoi_token_index=2, mm_tokens_per_image=4,
     vision_config=dict(VISION, model_type="siglip_vision_model"),
     text_config=dict(TEXT, model_type="gemma3_text", head_dim=20, num_hidden_layers=3, sliding_window=16, query_pre_attn_scalar=20, tie_word_embeddings=True,
                      layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                      rope_parameters={"full_attention": rope(1000000.0, "linear", factor=8.0), "sliding_attention": rope(10000.0)}))
arch("wrapped-mistral3", "Mistral3Config", base=False, model_cls="Mistral3ForConditionalGeneration", image_token_index=0, spatial_merge_size=2, multimodal_projector_bias=False,
     vision_config=dict(VISION, model_type="pixtral", head_dim=8), text_config=dict(TEXT, model_type="mistral", head_dim=20, sliding_window=None, rope_parameters=rope(1000000.0)))
arch("wrapped-qwen3-5-moe", "Qwen3_5MoeConfig", base=False, model_cls="Qwen3_5MoeForConditionalGeneration", image_token_id=0, video_token_id=0, vision_start_token_id=1, vision_end_token_id=2,
     vision_config=dict(depth=1, hidden_size=16, intermediate_size=24, num_heads=2, patch_size=4, spatial_merge_size=2, temporal_patch_size=2, out_hidden_size=64, num_position_embeddings=16),
     text_config=dict(ARCHS["qwen3-5-moe"]["cfg"], model_type="qwen3_5_moe_text", num_hidden_layers=4))
# --- architectures that a native engine is unlikely to have: they exercise the plugin
arch("fallback-biogpt", "BioGptConfig", base=False, vocab_size=VOCAB, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
     max_position_embeddings=256, bos_token_id=0, eos_token_id=2, pad_token_id=1)
arch("fallback-persimmon", "PersimmonConfig", base=False, **{k: v for k, v in BASE.items() if k != "num_key_value_heads"}, qk_layernorm=True,
     rope_parameters=rope(25000.0, partial_rotary_factor=0.5))
# --- rows with a seed of their own
arch("mimo", "Qwen2Config", seed=1700, mimo=True, rope_parameters=rope(640000.0))
