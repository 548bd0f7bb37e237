"""The program sluice, and a model in a process of its own from Python.

`python -m sluice` and the command `sluice` become the program. `sluice.Engine` starts one and talks to it.
"""

import os
import pathlib
import sys

from sluice.engine import Engine, EngineError

__all__ = ["Engine", "EngineError", "MODELS", "PROGRAM", "__version__", "main"]

PROGRAM = pathlib.Path(__file__).parent / "dist" / "bin" / "sluice"
MODELS = pathlib.Path(__file__).parent / "dist" / "share" / "sluice" / "models"  # the bundled model
__version__ = "@VERSION@"


def main():
    os.execv(PROGRAM, ["sluice", *sys.argv[1:]])
