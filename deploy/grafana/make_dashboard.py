#!/usr/bin/env python3
"""Writes sluice.json, the dashboard: make_dashboard.py [--check]. With --check it fails when the file is not up to date."""

import json
import pathlib
import sys

FILE = pathlib.Path(__file__).with_name("sluice.json")
WHERE = '{model_name=~"$model", instance=~"$instance"}'


def rate(name, more=""):
    return f'sum(rate({name}{WHERE[:-1]}{more}}}[$__rate_interval]))'


def quantile(share, name):
    return f"histogram_quantile({share}, sum by (le) (rate({name}_bucket{WHERE}[$__rate_interval])))"


def total(name):
    return f"sum({name}{WHERE})"


def quantiles(name):
    return [(quantile(share, name), label) for share, label in ((0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"))]


# A row of the dashboard: its title, and panels of (title, unit, what it says, [(query, legend)]).
ROWS = [
    ("Now", [
        ("Requests", "short", "Requests that run and that wait.",
         [(total("vllm:num_requests_running"), "running"), (total("vllm:num_requests_waiting"), "waiting")]),
        ("Tokens", "short", "Tokens a second.",
         [(rate("vllm:generation_tokens_total"), "generated"),
          (rate("vllm:prompt_tokens_by_source_total", ', source="local_compute"'), "prompt, computed"),
          (rate("vllm:prompt_tokens_by_source_total", ', source="local_cache_hit"'), "prompt, from the cache")]),
        ("KV memory in use", "percentunit", "The fullest page group.", [(f"max(vllm:kv_cache_usage_perc{WHERE})", "in use")]),
        ("Time without progress", "s", "Seconds since a step completed while work is queued; 10 make the server not ready.",
         [(f"max(sluice:seconds_since_progress{WHERE})", "stalled")]),
    ]),
    ("Latency", [
        ("Time to first token", "s", "From arrival to a choice's first token.", quantiles("vllm:time_to_first_token_seconds")),
        ("Time between tokens", "s", "Between tokens of a choice.", quantiles("sglang:inter_token_latency_seconds")),
        ("Time of a request", "s", "From arrival to the end.", quantiles("vllm:e2e_request_latency_seconds")),
        ("Where the time goes", "s", "Means: queue, prefill, decode.",
         [(f"{rate(f'vllm:request_{part}_time_seconds_sum')} / {rate(f'vllm:request_{part}_time_seconds_count')}", part)
          for part in ("queue", "prefill", "decode")]),
    ]),
    ("Engine", [
        ("Time of a step", "s", "The mean of all steps.",
         [(f"{rate('sluice:step_seconds_total')} / {rate('sluice:steps_total')}", "step")]),
        ("Steps", "short", "Steps a second; mixed ones have prefill and decode together.",
         [(rate("sluice:steps_total"), "all"), (rate("sluice:mixed_steps_total"), "mixed")]),
        ("Tokens of a step", "short", "Chunks of prompts and generated tokens.", quantiles("vllm:iteration_tokens_total")),
        ("Output of a request", "short", "Generated tokens of a choice.", quantiles("vllm:request_generation_tokens")),
    ]),
    ("Cache", [
        ("Pages", "short", "Pages by group: used by running requests, cached, free.",
         [(f"sum by (group, state) (sluice:kv_pages{WHERE})", "{{group}} {{state}}")]),
        ("Prompt tokens found in the cache", "percentunit", "Of those that were looked up.",
         [(f"{rate('vllm:prefix_cache_hits_total')} / {rate('vllm:prefix_cache_queries_total')}", "found")]),
        ("Pages evicted", "short", "A second.", [(rate("sluice:evicted_pages_total"), "evicted")]),
        ("Requests sent back", "short", "To the queue for want of KV memory, a second.",
         [(rate("vllm:num_preemptions_total"), "sent back")]),
    ]),
    ("Answers", [
        ("Choices by how they ended", "short", "A second.",
         [(f"sum by (finished_reason) (rate(vllm:request_success_total{WHERE}[$__rate_interval]))", "{{finished_reason}}")]),
        ("HTTP by status", "short", "Requests a second, by class of status.",
         [('sum by (status) (rate(http_requests_total{instance=~"$instance"}[$__rate_interval]))', "{{status}}")]),
        ("Memory of the process", "bytes", "Resident.", [('sum(process_resident_memory_bytes{instance=~"$instance"})', "resident")]),
        ("Processors in use", "short", "Processor seconds a second.",
         [('sum(rate(process_cpu_seconds_total{instance=~"$instance"}[$__rate_interval]))', "processors")]),
    ]),
    ("Speculation (empty where it is off)", [
        ("Drafts accepted", "percentunit", "Of all drafts.",
         [(f"{rate('vllm:spec_decode_num_accepted_tokens_total')} / {rate('vllm:spec_decode_num_draft_tokens_total')}", "accepted")]),
        ("Tokens of a verification", "short", "Accepted drafts and one more.",
         [(f"1 + {rate('vllm:spec_decode_num_accepted_tokens_total')} / {rate('sluice:verifications_total')}", "tokens")]),
    ]),
]


def panel(number, title, unit, description, queries, x, y):
    return {
        "id": number, "type": "timeseries", "title": title, "description": description,
        "datasource": {"type": "prometheus", "uid": "$datasource"},
        "gridPos": {"h": 7, "w": 6, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"fillOpacity": 8, "showPoints": "never"}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [{"refId": chr(65 + i), "expr": query, "legendFormat": legend,
                     "datasource": {"type": "prometheus", "uid": "$datasource"}} for i, (query, legend) in enumerate(queries)],
    }


def variable(name, label, query):
    return {"name": name, "label": label, "type": "query", "query": query, "refresh": 2, "includeAll": True, "multi": True,
            "allValue": ".*", "current": {"text": "All", "value": "$__all"}, "datasource": {"type": "prometheus", "uid": "$datasource"}}


def dashboard():
    panels, y, number = [], 0, 1
    for title, row in ROWS:
        panels.append({"id": number, "type": "row", "title": title, "collapsed": False,
                       "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}, "panels": []})
        number += 1
        for i, (name, unit, description, queries) in enumerate(row):
            panels.append(panel(number, name, unit, description, queries, 6 * (i % 4), y + 1))
            number += 1
        y += 8
    return {
        "title": "Sluice", "uid": "sluice", "tags": ["sluice", "llm"], "schemaVersion": 39, "version": 1, "editable": True,
        "timezone": "browser", "refresh": "10s", "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}},
            variable("model", "Model", "label_values(vllm:num_requests_running, model_name)"),
            variable("instance", "Instance", "label_values(vllm:num_requests_running, instance)"),
        ]},
        "panels": panels,
    }


def main():
    text = json.dumps(dashboard(), indent=1) + "\n"
    if "--check" not in sys.argv[1:]:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        sys.exit(f"{FILE.name} is not what make_dashboard.py writes; run it")


if __name__ == "__main__":
    main()
