#!/usr/bin/env python3
"""Writes the files of this folder for pt_file_test.cpp: tensors as torch.save stores them. Made
with torch 2.11.0 (CPU).

    pip install torch==2.11.0
    python make.py

zip.bin holds every element type, a scalar, an empty tensor, strided and shared tensors, a Parameter
and a buffer of float8. legacy.bin holds the same without float8, in the form before torch 1.6.
Values count up from 0 in steps of a quarter.
"""
import collections, os

import torch

HERE = os.path.dirname(os.path.abspath(__file__))


def values(count, dtype):
    x = torch.arange(count, dtype=torch.float64) / 4
    return (x * 4 % 2 == 1) if dtype == torch.bool else (x * 4 if not dtype.is_floating_point else x).to(dtype)


def tensors(with_float8):
    out = collections.OrderedDict()
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool):
        out["type." + str(dtype)[6:]] = values(12, dtype).reshape(3, 4)
    base = values(60, torch.float32)
    out["scalar"] = values(4, torch.float32)[3]
    out["empty"] = torch.empty(0, 5)
    out["transposed"] = base.reshape(5, 12).T
    out["columns"] = base.reshape(5, 12)[:, 3:7]
    out["tail"] = base[50:]
    out["permuted"] = base.reshape(3, 4, 5).permute(2, 0, 1)
    out["parameter"] = torch.nn.Parameter(values(6, torch.bfloat16).reshape(2, 3))
    if with_float8:
        out["float8"] = values(8, torch.float32).to(torch.float8_e4m3fn).reshape(2, 4)
    out._metadata = collections.OrderedDict(version=1)
    return out


torch.save(tensors(True), os.path.join(HERE, "zip.bin"))
torch.save(tensors(False), os.path.join(HERE, "legacy.bin"), _use_new_zipfile_serialization=False)
