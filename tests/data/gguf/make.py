#!/usr/bin/env python3
"""Writes blocks.json for quantized_blocks_test.cpp: random blocks of each quantised GGUF type, and
their values according to the gguf package, which shares no code with Sluice. Made with gguf 0.17.1
or later, numpy 2.

    pip install gguf
    python make.py
"""
import json, os

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

TYPES = "Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 IQ4_NL Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_XS MXFP4".split()
# Offsets of the float16 numbers in a block.
HALVES = dict(Q8_0=[0], Q4_0=[0], Q4_1=[0, 2], Q5_0=[0], Q5_1=[0, 2], IQ4_NL=[0], Q2_K=[80, 82], Q3_K=[108], Q4_K=[0, 2], Q5_K=[0, 2], Q6_K=[208], IQ4_XS=[0], MXFP4=[])
COUNT = 3

rng = np.random.default_rng(7)
out = []
for name in TYPES:
    kind = GGMLQuantizationType[name]
    size, nbytes = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (COUNT, nbytes), dtype=np.uint8)
    for at in HALVES[name]:
        blocks[:, at:at + 2] = rng.normal(0, 0.1, COUNT).astype(np.float16).view(np.uint8).reshape(COUNT, 2)
    values = dequantize(blocks.reshape(-1), kind).astype(np.float32)
    assert values.size == COUNT * size
    out.append(dict(type=name, blocks=blocks.tobytes().hex(), values=values.tobytes().hex()))
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "blocks.json")
open(path, "w").write("[\n" + ",\n".join(json.dumps(row) for row in out) + "\n]\n")
