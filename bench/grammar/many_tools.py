#!/usr/bin/env python3
"""Writes a case of many tools for `sluice verify --grammar`: calls in a format, of which the first mask is timed.

  python3 bench/grammar/many_tools.py [--count 128] [--format hermes] > tools.jsonl
  sluice verify --grammar tools.jsonl --tokenizer DIR

The case has one text, which is empty and no call, so `first_mask_us` of the last line is the compile and one mask. Each
tool has an object of six members: a pattern, an enum, a bounded number, an array, an object, and a long string.
"""

import argparse
import json


def tool(index):
    properties = {
        f"id_{index}": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,8}$"},
        "unit": {"enum": [f"unit{index}", "metric", "imperial", None]},
        "limit": {"type": "integer", "minimum": 1, "maximum": 1000 + index},
        "labels": {"type": "array", "items": {"type": "string"}, "maxItems": 10},
        "range": {"type": "object", "properties": {"from": {"type": "string", "format": "date-time"},
                                                   "to": {"type": "string", "format": "date-time"}},
                  "required": ["from"]},
        "note": {"type": "string", "maxLength": 2000},
    }
    parameters = {"type": "object", "properties": properties, "required": [f"id_{index}", "limit"],
                  "additionalProperties": False}
    return {"type": "function", "function": {"name": f"tool_number_{index}", "strict": True,
                                             "description": "A tool.", "parameters": parameters}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=128)
    parser.add_argument("--format", default="hermes")
    arguments = parser.parse_args()
    print(json.dumps({"id": f"{arguments.count} tools", "format": arguments.format,
                      "tools": [tool(index) for index in range(arguments.count)], "valid": [], "invalid": [""]}))


if __name__ == "__main__":
    main()
