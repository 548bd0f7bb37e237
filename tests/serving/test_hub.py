"""Models that come from a hub: `serve`, `pull`, `list` and `rm` against a scripted hub on loopback.
Also the cache that is shared with the huggingface_hub package in both directions."""

import contextlib
import fcntl
import http.client
import json
import os
import pathlib
import pty
import select
import signal
import subprocess
import sys
import time

from hub_cases import CONFIG, PARIS, blobs, cache, folder, hub, pull, python, small_files
from hub_server import COMMIT, Repo
from sluice_server import ROOT, Server, binary, free_port, sluice

ODD_DISK = os.environ.get("SLUICE_ODD_DISK", str(ROOT / "build" / "release" / "tests" / "libodd_disk.so"))   # odd_disk.cpp


# Returns the files that Python's client finds in a cache without a hub.
LOOK = """
import json, os
from huggingface_hub import hf_hub_download, scan_cache_dir, snapshot_download, try_to_load_from_cache, _CACHED_NO_EXIST
repo = os.environ["REPO"]
folder = snapshot_download(repo, local_files_only=True)
config = hf_hub_download(repo, "config.json", local_files_only=True)
info = scan_cache_dir(os.environ["HF_HUB_CACHE"])
revision = [v for r in info.repos if r.repo_id == repo for v in r.revisions]
print(json.dumps({
    "folder": folder, "config": config, "files": sorted(f.file_name for v in revision for f in v.files), "refs": [sorted(v.refs) for v in revision],
    "warnings": [str(w) for w in info.warnings], "commits": [v.commit_hash for v in revision],
    "absent": try_to_load_from_cache(repo, "vocab.txt") is _CACHED_NO_EXIST,
}))
"""


def test_serve_downloads_and_python_finds_it_offline(hub, cache, tmp_path):
    with Server("org/tiny", "--dtype", "float32", log=tmp_path / "log", env=hub.environment(cache)) as server:
        reply = server.post("/v1/chat/completions", PARIS)
        assert reply.status == 200 and "Paris" in reply.json()["choices"][0]["message"]["content"]
        assert reply.json()["model"] == "org/tiny"
        asked = len(hub.requests)
        assert server.post("/v1/chat/completions", PARIS).status == 200
        assert len(hub.requests) == asked  # serving a request sends none to the hub
    repo = hub.repos["org/tiny"]
    snapshot = folder(cache, "tiny") / "snapshots" / COMMIT
    wanted = sorted(set(repo.files) - {"README.md"})
    assert sorted(path.name for path in snapshot.iterdir()) == wanted
    for name in wanted:
        assert os.readlink(snapshot / name) == f"../../blobs/{repo.digest(name)}"
        assert (snapshot / name).read_bytes() == repo.files[name]
    assert blobs(cache, "tiny") == sorted(repo.digest(name) for name in wanted)
    assert (folder(cache, "tiny") / "refs" / "main").read_text() == COMMIT
    assert (cache / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55\n")
    assert (cache / ".locks" / "models--org--tiny" / f"{repo.digest('config.json')}.lock").exists()

    found = python(LOOK, hub.environment(cache, HF_HUB_OFFLINE="1", REPO="org/tiny"))
    assert pathlib.Path(found["folder"]) == snapshot and pathlib.Path(found["config"]) == snapshot / "config.json"
    assert found["files"] == wanted and found["refs"] == [["main"]] and found["commits"] == [COMMIT]
    assert found["warnings"] == [] and found["absent"]

    # The model is in the cache: the hub gets no request, and an offline switch changes nothing.
    hub.forget()
    done = sluice("run", "org/tiny", "What is the capital of France?", "--temperature", 0, env=hub.environment(cache, HF_HUB_OFFLINE="1"))
    assert done.returncode == 0 and "Paris" in done.stdout, done.stderr
    assert hub.requests == []


def test_what_python_downloaded_is_served_offline(hub, cache):
    code = "import json, os; from huggingface_hub import snapshot_download; print(json.dumps(snapshot_download('org/tiny', revision='v1')))"
    hub.repos["org/tiny"].revisions["v1"] = COMMIT
    python(code, hub.environment(cache))
    hub.forget()
    for extra in ({}, {"HF_HUB_OFFLINE": "1"}):
        arguments = ["generate", "--model", "org/tiny@v1", "--prompt", "What is the capital of France?", "--chat", "--temperature", 0]
        done = sluice(*arguments, env=hub.environment(cache, **extra))
        assert done.returncode == 0 and "Paris" in done.stdout, done.stderr
    assert hub.requests == []
    listed = json.loads(sluice("list", "--json", env=hub.environment(cache)).stdout)
    assert [(m["model"], [(r["commit"], r["refs"], r["state"]) for r in m["revisions"]]) for m in listed] == [
        ("org/tiny", [(COMMIT, ["v1"], "complete")])
    ]
    # Python keeps the list of files, from which `pull` sees that the cache is complete.
    done = pull(hub, cache, "org/tiny")
    assert done.returncode == 0, done.stderr
    assert hub.asked(path="/tree/") == [] and hub.asked(method="HEAD") == []


def test_both_clients_complete_what_the_other_began(hub, cache):
    """Python fetches the configuration, sluice the rest, Python all."""
    python("import json; from huggingface_hub import hf_hub_download; print(json.dumps(hf_hub_download('org/small', 'config.json')))",
           hub.environment(cache))
    assert pull(hub, cache, "org/small").returncode == 0
    hub.forget()
    code = "import json; from huggingface_hub import snapshot_download; print(json.dumps(snapshot_download('org/small')))"
    python(code, hub.environment(cache))
    assert hub.sent_of("model.safetensors") == 0 and hub.sent_of("config.json") == 0 and hub.sent_of("README.md") > 0
    # The beginning of a file, as older clients leave it, is resumed.
    data = hub.repos["org/small"].files["model.safetensors"]
    digest = hub.repos["org/small"].digest("model.safetensors")
    blob = folder(cache) / "blobs" / digest
    (folder(cache) / "blobs" / f"{digest}.incomplete").write_bytes(data[: 2 << 20])
    blob.unlink()
    hub.forget()
    assert pull(hub, cache, "org/small").returncode == 0
    assert blob.read_bytes() == data and hub.sent_of("model.safetensors") == 1 << 20


def test_a_download_that_was_killed_goes_on(hub, cache):
    hub.repos["org/small"] = Repo(small_files(24 << 20))
    hub.withhold("model.safetensors", 14 << 20)
    process = subprocess.Popen([binary(), "pull", "org/small"], env={**os.environ, **hub.environment(cache)}, stderr=subprocess.PIPE)
    end = time.monotonic() + 30
    while hub.sent_of("model.safetensors") < 14 << 20:
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    assert len([name for name in blobs(cache) if name.endswith(".incomplete")]) == 1
    assert not (folder(cache) / "refs" / "main").exists()
    hub.forget()
    done = pull(hub, cache, "org/small")
    assert done.returncode == 0, done.stderr
    assert "going on after" in done.stderr
    # at most the eight pieces in transfer are sent again
    assert 0 < hub.sent_of("model.safetensors") <= 19 << 20
    digest = hub.repos["org/small"].digest("model.safetensors")
    assert (folder(cache) / "blobs" / digest).read_bytes() == hub.repos["org/small"].files["model.safetensors"]
    assert not any(name.endswith(".incomplete") for name in blobs(cache))


def test_a_server_that_was_killed_while_it_downloads(hub, cache, tmp_path):
    """When the server is killed, all files but one are whole, and half of that one has come."""
    shard = "model-00002-of-00003.safetensors"
    others = [hub.repos["org/tiny"].digest(name) for name in ("model-00001-of-00003.safetensors", "tokenizer.json")]
    hub.withhold(shard, 8 << 20)
    port = free_port()
    process = subprocess.Popen([binary(), "serve", "org/tiny", "--port", str(port), "--dtype", "float32"], env={**os.environ, **hub.environment(cache)},
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    said = ""
    end = time.monotonic() + 30
    while "downloading, " not in said or hub.sent_of(shard) < 8 << 20 or not set(others) <= set(blobs(cache, "tiny")):
        assert process.poll() is None and time.monotonic() < end, (said, hub.sent_of(shard), blobs(cache, "tiny"))
        with contextlib.suppress(OSError), contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            connection.request("GET", "/health")
            reply = connection.getresponse()
            assert reply.status == 503
            said = reply.read().decode()
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert " %" in said
    hub.forget()
    with Server("org/tiny", "--dtype", "float32", log=tmp_path / "log", env=hub.environment(cache)) as server:
        reply = server.post("/v1/chat/completions", PARIS)
        assert "Paris" in reply.json()["choices"][0]["message"]["content"]
    assert "model-00002-of-00003.safetensors: going on after" in (tmp_path / "log").read_text()
    assert hub.sent_of("model-00001-of-00003.safetensors") == 0 and hub.sent_of("tokenizer.json") == 0
    assert 0 < hub.sent_of(shard) < len(hub.repos["org/tiny"].files[shard])


def test_a_disk_that_fills_up_while_downloading(hub, cache):
    """tests/serving/odd_disk.cpp simulates it: there is space when the download begins, and then
    none."""
    hub.repos["org/small"] = Repo(small_files(24 << 20))
    full = {"LD_PRELOAD": ODD_DISK, "SLUICE_DISK_BYTES": str(10 << 20)}
    done = pull(hub, cache, "org/small", env=full)
    assert done.returncode == 2
    assert "the disk is full" in done.stderr and "--download-dir" in done.stderr and "What has come is kept" in done.stderr
    assert len([name for name in blobs(cache) if name.endswith(".incomplete")]) == 1
    assert not (folder(cache) / "refs" / "main").exists()
    # The cache cannot serve the model, but no byte is lost: with space again the rest is fetched.
    hub.forget()
    done = pull(hub, cache, "org/small")
    assert done.returncode == 0, done.stderr
    assert "going on after" in done.stderr
    # some of the pieces in transfer are sent again
    assert 14 << 20 <= hub.sent_of("model.safetensors") <= 23 << 20
    digest = hub.repos["org/small"].digest("model.safetensors")
    assert (folder(cache) / "blobs" / digest).read_bytes() == hub.repos["org/small"].files["model.safetensors"]
    assert not any(name.endswith(".incomplete") for name in blobs(cache))


def test_download_dir(hub, cache, tmp_path):
    """As vLLM's: the cache, instead of the one in the environment."""
    other = tmp_path / "other"
    with Server("org/tiny", "--dtype", "float32", "--download-dir", other, log=tmp_path / "log", env=hub.environment(cache)) as server:
        assert "Paris" in server.post("/v1/chat/completions", PARIS).json()["choices"][0]["message"]["content"]
    assert (folder(other, "tiny") / "snapshots" / COMMIT / "config.json").exists() and not cache.exists()
    hub.forget()
    offline = hub.environment(cache, HF_HUB_OFFLINE="1")
    assert sluice("show", "org/tiny", "--download-dir", other, env=offline).returncode == 0
    done = sluice("show", "org/tiny", env=offline)
    assert done.returncode == 2 and str(cache) in done.stderr
    assert hub.requests == []
    assert pull(hub, cache, "org/small", "--download-dir", str(other)).returncode == 0
    assert folder(other).exists() and not cache.exists()
    listed = sluice("list", "--json", "--download-dir", other, env=offline)
    assert sorted(repo["model"] for repo in json.loads(listed.stdout)) == ["org/small", "org/tiny"]
    assert sluice("rm", "org/small", "--yes", "--download-dir", other, env=offline).returncode == 0
    assert not folder(other).exists()


def test_two_at_once_make_one_blob(hub, cache):
    hub.repos["org/small"] = Repo(small_files(8 << 20))
    hub.delay = 0.02
    environment = {**os.environ, **hub.environment(cache)}
    both = [subprocess.Popen([binary(), "pull", "org/small"], env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert hub.sent_of("model.safetensors") == 8 << 20
    repo = hub.repos["org/small"]
    assert blobs(cache) == sorted(repo.digest(name) for name in ("config.json", "tokenizer_config.json", "model.safetensors"))


def test_two_at_once_where_locks_do_nothing(hub, cache):
    """As on some network file systems: both processes download, and neither damages the other's
    files."""
    hub.repos["org/small"] = Repo(small_files(8 << 20))

    def both_ask():
        asked = [(server, headers.get("Range")) for server, _, _, headers in hub.asked(method="GET", path="model.safetensors")]
        return len(asked) > len(set(asked))

    hub.withhold("model.safetensors", 4 << 20, until=both_ask)
    environment = {**os.environ, **hub.environment(cache), "LD_PRELOAD": ODD_DISK, "SLUICE_NO_LOCKS": "1"}
    both = [subprocess.Popen([binary(), "pull", "org/small"], env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert hub.sent_of("model.safetensors") > 8 << 20  # otherwise the locks worked
    repo = hub.repos["org/small"]
    wanted = ("config.json", "tokenizer_config.json", "model.safetensors")
    assert [name for name in blobs(cache) if not name.endswith(".incomplete")] == sorted(repo.digest(name) for name in wanted)
    assert (folder(cache) / "blobs" / repo.digest(wanted[2])).read_bytes() == repo.files[wanted[2]]


def test_python_and_sluice_at_once(hub, cache):
    hub.repos["org/small"] = Repo(small_files(8 << 20))
    hub.delay = 0.02
    code = "from huggingface_hub import snapshot_download; snapshot_download('org/small')"
    environment = {**os.environ, **hub.environment(cache)}
    both = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
            for command in ([sys.executable, "-c", code], [binary(), "pull", "org/small"])]
    said = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert hub.sent_of("model.safetensors") == 8 << 20
    assert not any(name.endswith(".incomplete") for name in blobs(cache))


def test_the_token_goes_to_the_hub_alone(hub, cache, tmp_path):
    def wants_token(handler):
        return handler.server.name == "hub" and handler.headers.get("Authorization") != "Bearer hf_secret" and (
            handler.answer(401, b"", X_Error_Code="GatedRepo") or True)

    hub.rules.append(wants_token)
    done = pull(hub, cache, "org/small")
    assert done.returncode == 2 and "is gated: accept its terms at" in done.stderr and "HF_TOKEN" in done.stderr
    home = tmp_path / "home"
    home.mkdir()
    (home / "token").write_text("hf_secret\n")
    for extra in ({"HF_TOKEN": "hf_secret"}, {"HUGGING_FACE_HUB_TOKEN": "hf_secret"}, {"HF_HOME": str(home)}):
        hub.requests.clear()
        done = pull(hub, cache, "org/small", env=extra)
        assert done.returncode == 0, done.stderr
        sluice("rm", "org/small", "--yes", env=hub.environment(cache))
        assert "hf_secret" not in done.stdout + done.stderr
        assert all(headers.get("Authorization") == "Bearer hf_secret" for _, _, _, headers in hub.asked("hub"))
        assert hub.asked("storage") and not any("Authorization" in headers for _, _, _, headers in hub.asked("storage"))
    done = pull(hub, cache, "org/small", env={"HF_TOKEN": "hf_wrong"})
    assert done.returncode == 2 and "hf_wrong" not in done.stderr and "the account of the token of HF_TOKEN" in done.stderr
    done = pull(hub, cache, "org/small", env={"HF_TOKEN": "hf_secret", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"})
    assert done.returncode == 2
    done = pull(hub, cache, "org/small", env={"HF_TOKEN": "hf secret\r\nX: y"})
    assert done.returncode == 2 and "no token has" in done.stderr


def test_revisions_and_names(hub, cache):
    hub.repos["org/small"].revisions["v1.0"] = COMMIT
    assert pull(hub, cache, "org/small@v1.0").returncode == 0
    assert (folder(cache) / "refs" / "v1.0").read_text() == COMMIT and not (folder(cache) / "refs" / "main").exists()
    done = pull(hub, cache, "org/small", "--revision", "dev")
    assert done.returncode == 2 and 'no revision "dev"' in done.stderr and "a branch, a tag or a commit" in done.stderr
    hub.forget()
    done = sluice("show", "org/small", "--revision", "v1.0", env=hub.environment(cache))
    assert "LlamaForCausalLM" in done.stdout
    assert pull(hub, cache, "org/small", "--revision", COMMIT).returncode == 0
    for name, says in (("org/none", "there is no org/none at"), ("../x", "neither"), ("a/b/c", "neither"), ("org/small@", "neither")):
        done = pull(hub, cache, name)
        assert done.returncode == 2 and says in done.stderr, done.stderr
    done = sluice("serve", "org/none", env=hub.environment(cache))
    assert done.returncode == 2 and "there is no directory org/none" in done.stderr and "check the spelling" in done.stderr


def test_show_fetches_no_weights(hub, cache):
    done = sluice("show", "org/tiny", env=hub.environment(cache))
    assert done.returncode == 0 and "GlmMoeDsaForCausalLM" in done.stdout, done.stderr
    assert hub.sent_of("model-00001-of-00003.safetensors") == 0 and hub.sent_of("tokenizer.json") > 0
    state = json.loads(sluice("list", "--json", env=hub.environment(cache)).stdout)[0]["revisions"][0]["state"]
    assert state == "no weights"
    done = sluice("bench", "throughput", "--model", "org/tiny", "--load-format", "dummy", "--num-prompts", 1, "--random-output-len", 2,
                  env=hub.environment(cache))
    assert done.returncode == 0 and hub.sent_of("model-00001-of-00003.safetensors") == 0, done.stderr
    done = sluice("run", "org/tiny", "What is the capital of France?", "--temperature", 0, env=hub.environment(cache))
    assert done.returncode == 0 and "Paris" in done.stdout
    assert hub.sent_of("model-00001-of-00003.safetensors") > 0


def test_list_and_rm(hub, cache):
    environment = hub.environment(cache)
    assert sluice("list", env=environment).stdout.startswith("0 models")
    assert pull(hub, cache, "org/small").returncode == 0
    second = "5ec0d" + "0" * 35
    older, hub.repos["org/small"] = hub.repos["org/small"], Repo({**small_files(), "config.json": CONFIG + b" "}, second)
    assert pull(hub, cache, "org/small").returncode == 0
    shown = sluice("list", env=environment).stdout
    assert "org/small" in shown and "5ec0d000" in shown and "c0ffee00" in shown and "complete" in shown
    # The weights are shared by both revisions; configurations are not.
    done = sluice("rm", "org/small", "--revision", COMMIT[:8], env=environment, stdin="")
    assert done.returncode == 2 and "--yes" in done.stderr
    assert sluice("rm", "org/small", "--revision", COMMIT[:8], "--yes", env=environment).returncode == 0
    assert not (folder(cache) / "snapshots" / COMMIT).exists()
    assert older.digest("config.json") not in blobs(cache) and older.digest("model.safetensors") in blobs(cache)
    assert (folder(cache) / "refs" / "main").read_text() == second
    for args, says in ((["org/none"], "has no model org/none"), (["org/small", "--revision", "v9"], "no revision v9"), ([], "no model was named")):
        done = sluice("rm", *args, "--yes", env=environment)
        assert done.returncode == 2 and says in done.stderr
    (folder(cache) / "refs" / "v1").write_text(second)
    done = sluice("rm", "org/small", "--revision", "v1", "--yes", env=environment)
    assert done.returncode == 0 and "main leads to them too" in done.stderr
    assert (folder(cache) / "snapshots" / second).exists() and not (folder(cache) / "refs" / "v1").exists()
    lock = cache / ".locks" / "models--org--small" / f"{older.digest('model.safetensors')}.lock"
    with open(lock, "w") as held:   # as a download does
        fcntl.flock(held, fcntl.LOCK_EX)
        done = sluice("rm", "org/small", "--yes", env=environment)
        assert done.returncode == 2 and "another process is downloading org/small" in done.stderr
    assert sluice("rm", "org/small", "--revision", "main", "--yes", env=environment).returncode == 0
    assert not folder(cache).exists() and not (cache / ".locks" / "models--org--small").exists()


def test_bars_on_a_terminal(hub, cache):
    hub.repos["org/small"] = Repo(small_files(6 << 20))
    hub.delay = 0.02
    master, slave = pty.openpty()
    process = subprocess.Popen([binary(), "pull", "org/small"], env={**os.environ, **hub.environment(cache, COLUMNS="100")}, stderr=slave,
                               stdout=subprocess.DEVNULL)
    os.close(slave)
    shown = b""
    while process.poll() is None or select.select([master], [], [], 0)[0]:
        if select.select([master], [], [], 0.05)[0]:
            try:
                shown += os.read(master, 65536)
            except OSError:
                break
    os.close(master)
    assert process.wait() == 0
    assert b"model.safetensors" in shown and b"#" in shown and b"\x1b[" in shown and b"/s" in shown and b" files" in shown
    for plain in (pull(hub, cache, "org/tiny").stderr,):
        assert "\x1b" not in plain and "#" not in plain and "model-00002-of-00003.safetensors: 14.8 MiB" in plain
