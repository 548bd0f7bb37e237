"""The selected files of a hub's repository: formats, quantisations in GGUF, names, tokenizers."""

import json

from hub_cases import CONFIG, cache, folder, hub, noise, pull, python, small_files, tiny_files
from hub_server import COMMIT, Repo
from sluice_server import TINY, sluice


def test_files_by_load_format(hub, cache):
    files = {**small_files(100_000), "pytorch_model.bin": noise(70_000), "consolidated.safetensors": noise(70_000), "onnx/model.onnx": noise(70_000),
             "m-Q4_K_M.gguf": noise(70_000), "m-Q8_0.gguf": noise(80_000), "additional_chat_templates/rag.jinja": b"x", "modeling.py": b"x"}
    hub.repos["org/small"] = Repo(files)
    text = ["additional_chat_templates/rag.jinja", "config.json", "modeling.py", "tokenizer_config.json"]

    def files_after(*args):
        sluice("rm", "org/small", "--yes", env=hub.environment(cache))
        done = pull(hub, cache, "org/small" if not args or args[0].startswith("-") else args[0], *[a for a in args if a.startswith("-")])
        assert done.returncode == 0, done.stderr
        snapshot = folder(cache) / "snapshots" / COMMIT
        assert done.stdout == f"{snapshot}\n"
        return sorted(str(path.relative_to(snapshot)) for path in snapshot.rglob("*") if path.is_file())

    assert files_after() == sorted([*text, "model.safetensors"])
    assert files_after("--load-format=pt") == sorted([*text, "pytorch_model.bin"])
    assert files_after("--load-format=dummy") == text
    assert files_after("org/small:q8_0") == sorted([*text, "m-Q8_0.gguf"])
    assert files_after("--include=*.onnx", "--include=README*") == ["README.md", "onnx/model.onnx"]
    assert files_after("--exclude=*.py", "--exclude=additional*") == ["config.json", "model.safetensors", "tokenizer_config.json"]
    assert files_after("--include=*") == sorted(files)
    # complete, so the list may be kept
    assert (folder(cache) / "trees" / f"{COMMIT}.json").exists()
    for args, says in ((["--load-format", "gguf"], "there are 2 GGUF files"), (["--load-format", "tf"], "allowed are auto"),
                       (["--include", "*.h5"], "matches --include")):
        done = pull(hub, cache, "org/small", *args)
        assert done.returncode == 2 and says in done.stderr, done.stderr
    done = pull(hub, cache, "org/small", "--exclude", "*")
    assert done.returncode == 2 and "--exclude leaves nothing of org/small" in done.stderr
    done = pull(hub, cache, "org/small:Q5_K")
    assert done.returncode == 2 and "m-Q4_K_M.gguf, m-Q8_0.gguf" in done.stderr
    assert sluice("rm", "org/small:Q8_0", "--yes", env=hub.environment(cache)).returncode == 2 and folder(cache).exists()
    for files, says in (({"README.md": b""}, "no config.json and no GGUF file"), ({"config.json": CONFIG}, "no weights that --load-format auto")):
        hub.repos["org/other"] = Repo(files)
        done = pull(hub, cache, "org/other")
        assert done.returncode == 2 and says in done.stderr, done.stderr


def test_another_file_than_the_cached_one(hub, cache):
    """Each GGUF file of a repository, at the root and in folders, is downloaded when it is named.
    """
    files = {"m-Q4_0.gguf": noise(70_000), "Q8_0/m-Q8_0.gguf": noise(80_000), "mmproj-F16.gguf": noise(100)}
    hub.repos["org/small"] = Repo(files)
    for tag, name in (("Q4_0", "m-Q4_0.gguf"), ("q8_0", "Q8_0/m-Q8_0.gguf"), ("Q4_0", "m-Q4_0.gguf")):
        done = sluice("show", f"org/small:{tag}", env=hub.environment(cache))
        # found; noise is not a GGUF file
        assert done.returncode == 2 and f"{COMMIT}/{name}: " in done.stdout, done
        assert hub.sent_of("m-Q4_0.gguf") == 70_000 and hub.sent_of("mmproj-F16.gguf") == 0
    assert hub.sent_of("Q8_0/m-Q8_0.gguf") == 80_000
    done = sluice("show", "org/small:Q5_K", env=hub.environment(cache))
    assert done.returncode == 2 and "m-Q4_0.gguf" in done.stderr and "Q8_0/m-Q8_0.gguf" in done.stderr


def test_what_another_program_left_out_is_fetched(hub, cache):
    """A cache with only the files that another program read (no end tokens, no chat template) is
    completed, once."""
    python("import json; from huggingface_hub import hf_hub_download\n"
           "for name in ('config.json', 'tokenizer.json', 'model.safetensors.index.json', *(f'model-0000{i}-of-00003.safetensors' for i in (1, 2, 3))):\n"
           "    path = hf_hub_download('org/tiny', name)\nprint(json.dumps(path))", hub.environment(cache))
    hub.forget()
    assert sluice("show", "org/tiny", env=hub.environment(cache, HF_HUB_OFFLINE="1")).returncode == 0
    assert not hub.asked()
    for first in (True, False):
        done = sluice("generate", "--model", "org/tiny", "--chat", "--prompt", "What is the capital of France?", "--temperature", 0,
                      env=hub.environment(cache))
        assert done.returncode == 0 and "Paris" in done.stdout, done.stderr
        assert bool(hub.asked()) == first and hub.sent_of("tokenizer.json") == 0 and hub.sent_of("model-00001-of-00003.safetensors") == 0
        hub.forget()


def test_a_tokenizer_of_another_repository(hub, cache):
    """--tokenizer names a repository that need not be a model."""
    files = tiny_files()
    hub.repos["org/text"] = Repo({name: files[name] for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")})
    hub.repos["org/none"] = Repo({"README.md": b"", "config.json": CONFIG})
    flags = ("generate", "--model", TINY, "--chat", "--prompt", "What is the capital of France?", "--temperature", 0, "--tokenizer")
    done = sluice(*flags, "org/none", env=hub.environment(cache))
    assert done.returncode == 2 and "org/none has no tokenizer" in done.stderr, done.stderr
    for offline in ("", "1"):
        done = sluice(*flags, "org/text", env=hub.environment(cache, HF_HUB_OFFLINE=offline))
        assert done.returncode == 0 and "Paris" in done.stdout, done.stderr
        hub.forget()
    assert not hub.asked()


def test_weights_under_other_names(hub, cache, tmp_path):
    """Shards without an index, and one file of any name, from the hub as from a directory."""
    files = tiny_files()
    shards = {name: data for name, data in files.items() if name.endswith(".safetensors")}
    del files["model.safetensors.index.json"]
    hub.repos["org/shards"] = Repo(files)
    hub.repos["org/lost"] = Repo({name: data for name, data in files.items() if name != "model-00002-of-00003.safetensors"})
    hub.repos["org/odd"] = Repo({**small_files(), "odd.safetensors": small_files()["model.safetensors"]})
    del hub.repos["org/odd"].files["model.safetensors"]
    done = sluice("run", "org/shards", "What is the capital of France?", "--temperature", 0, env=hub.environment(cache))
    assert done.returncode == 0 and "Paris" in done.stdout, done.stderr
    done = pull(hub, cache, "org/lost")
    assert done.returncode == 2 and "model-00002-of-00003.safetensors" in done.stderr and hub.sent_of(min(shards)) == len(shards[min(shards)])
    assert pull(hub, cache, "org/odd").returncode == 0
    assert (folder(cache, "odd") / "snapshots" / COMMIT / "odd.safetensors").exists()
