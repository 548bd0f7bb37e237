"""What the panels of vLLM's and SGLang's published Grafana dashboards ask Prometheus for: series by name and labels.

Read from vLLM's examples/observability (the overview and the boards of speculative decoding, performance statistics and
query statistics whole; instances, KV cache and service status in part) and SGLang's examples/monitoring, in November 2026.
Left out are rows that vLLM itself fills only with a feature that is switched on: LoRA, KV connectors and offloading,
samples of KV blocks, the multimodal cache, sleep operations.
"""

HISTOGRAMS = {   # with the bounds that panels name, as Prometheus' Python client writes them
    "vllm:time_to_first_token_seconds": ["0.1", "0.25", "0.5", "0.75", "1.0", "2.5", "5.0", "10.0"],
    "vllm:request_time_per_output_token_seconds": ["0.025", "0.05", "0.075", "0.1", "0.15", "0.2", "0.3", "0.5"],
    "vllm:inter_token_latency_seconds": [],
    "vllm:e2e_request_latency_seconds": [],
    "vllm:request_queue_time_seconds": [],
    "vllm:request_prefill_time_seconds": [],
    "vllm:request_decode_time_seconds": [],
    "vllm:request_inference_time_seconds": [],
    "vllm:request_prompt_tokens": [],
    "vllm:request_generation_tokens": [],
    "vllm:request_max_num_generation_tokens": [],
    "vllm:request_params_max_tokens": [],
    "vllm:request_prefill_kv_computed_tokens": [],
    "vllm:iteration_tokens_total": [],
    "sglang:time_to_first_token_seconds": [],
    "sglang:inter_token_latency_seconds": [],
    "sglang:e2e_request_latency_seconds": [],
    "http_request_duration_seconds": [],
}

# Rising or standing figures: name, and the labels that panels choose or group by.
SERIES = [
    ("vllm:num_requests_running", {"engine": None, "model_name": None}),
    ("vllm:num_requests_waiting", {"engine": None}),
    ("vllm:num_requests_waiting_by_reason", {"reason": "capacity"}),
    ("vllm:num_requests_waiting_by_reason", {"reason": "deferred"}),
    ("vllm:kv_cache_usage_perc", {"engine": None}),
    ("vllm:num_preemptions_total", {}),
    ("vllm:request_num_preemptions_bucket", {"le": "1.0", "engine": None}),
    ("vllm:prompt_tokens_total", {"engine": None}),
    ("vllm:generation_tokens_total", {"engine": None}),
    ("vllm:prompt_tokens_cached_total", {}),
    ("vllm:prompt_tokens_by_source_total", {"source": "local_compute"}),
    ("vllm:prompt_tokens_by_source_total", {"source": "local_cache_hit"}),
    ("vllm:prompt_tokens_by_source_total", {"source": "external_kv_transfer"}),
    ("vllm:prompt_tokens_cached_by_source_total", {"source": "device"}),
    ("vllm:prefix_cache_hits_total", {"engine": None}),
    ("vllm:prefix_cache_queries_total", {"engine": None}),
    ("vllm:request_success_total", {"finished_reason": "stop"}),
    ("vllm:request_success_total", {"finished_reason": "length"}),
    ("vllm:request_success_total", {"finished_reason": "abort"}),
    ("vllm:request_success_total", {"finished_reason": "error"}),
    ("vllm:engine_sleep_state", {"sleep_state": "awake", "engine": None}),
    ("vllm:engine_sleep_state", {"sleep_state": "discard_all", "engine": None}),
    ("vllm:cache_config_info", {"num_gpu_blocks": None, "block_size": None, "enable_prefix_caching": None}),
    ("vllm:spec_decode_num_drafts_total", {}),
    ("vllm:spec_decode_num_draft_tokens_total", {}),
    ("vllm:spec_decode_num_accepted_tokens_total", {}),
    ("vllm:spec_decode_num_accepted_tokens_per_pos_total", {"position": "0"}),
    ("http_requests_total", {"status": "2xx", "handler": "/v1/chat/completions"}),
    ("process_start_time_seconds", {}),
    ("process_cpu_seconds_total", {}),
    ("process_resident_memory_bytes", {}),
    ("process_open_fds", {}),
    ("process_max_fds", {}),
    ("sglang:num_running_reqs", {}),
    ("sglang:num_queue_reqs", {}),
    ("sglang:gen_throughput", {}),
    ("sglang:cache_hit_rate", {}),
    ("sglang:token_usage", {}),
    ("sglang:num_used_tokens", {}),
    ("sglang:num_retracted_reqs", {}),
    ("sglang:new_token_ratio", {}),
    ("sglang:is_cuda_graph", {}),
]
# Panels that divide by these are empty while they stand still.
MOVING = [
    "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total",
    "vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_drafts_total", "vllm:request_success_total", "http_requests_total",
]
