"""Writes a wheel around dist/: make_wheel.py DIST VERSION FOLDER. `pip install` of it gives the command `sluice`.

The wheel holds the program with its private libraries, the bundled model, and the Python client of deploy/wheel. The
command replaces Python with the program, so nothing of Python runs while the program does.
"""

import base64
import hashlib
import pathlib
import sys
import zipfile

TAG = "py3-none-manylinux_2_36_x86_64"
SOURCES = pathlib.Path(__file__).resolve().parent.parent / "deploy" / "wheel" / "sluice"


def main():
    dist, version, folder = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    name = f"sluice_llm-{version}"
    info = f"{name}.dist-info"
    path = folder / f"{name}-{TAG}.whl"
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:

        def add(target, data, mode=0o644):
            entry = zipfile.ZipInfo(target, (2020, 1, 1, 0, 0, 0))  # the same input gives the same bytes
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            wheel.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{target},sha256={digest},{len(data)}")

        for file in sorted(SOURCES.glob("*.py")):
            add(f"sluice/{file.name}", file.read_text().replace("@VERSION@", version).encode())
        for file in sorted(p for p in dist.rglob("*") if p.is_file()):
            is_program = file.parent.name in ("bin", "lib")
            add(f"sluice/dist/{file.relative_to(dist)}", file.read_bytes(), 0o755 if is_program else 0o644)
        add(f"{info}/METADATA", (
            f"Metadata-Version: 2.1\nName: sluice-llm\nVersion: {version}\n"
            "Summary: A server of language models with the interfaces of OpenAI, Anthropic and Ollama\n"
            "License: Apache-2.0\nRequires-Python: >=3.8\n").encode())
        add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: sluice\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode())
        add(f"{info}/entry_points.txt", b"[console_scripts]\nsluice = sluice:main\n")
        record.append(f"{info}/RECORD,,")
        wheel.writestr(zipfile.ZipInfo(f"{info}/RECORD", (2020, 1, 1, 0, 0, 0)), "\n".join(record) + "\n")
    print(path)


if __name__ == "__main__":
    main()
