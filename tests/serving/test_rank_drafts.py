"""Drafts of several ranks: layers, heads and models that draft give the tokens of plain greedy decoding on one rank."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import threading
import time

import pytest
from sluice_server import GOLDEN, ROOT, TINY, Server, sluice
from test_disconnects import long_body, start_stream
from test_elastic import elastic, stream
from test_hosts import place, run_both  # noqa: F401
from test_ranks import ranks_of

MODELS = GOLDEN / "models"
MORE = pathlib.Path(os.environ.get("SLUICE_GOLDEN_MORE", ROOT / "build" / "release" / "golden"))
# Heads that lie beside the repository on machines of developers.
RECORDED = ROOT.parent / "shared" / "golden" / "speculation"
DEVICE = os.environ.get("SLUICE_TEST_DEVICE", "cpu")
FLAGS = ("--dtype", "float32", "--max-total-tokens", "32768", "--device", DEVICE)
RANKS = ("--tp-size", "2")
GROUPS = (*RANKS, "--dp-size", "2", "--enable-dp-attention")
RANKS_OF_GROUPS = ("--tp-size", "4", "--dp-size", "2", "--enable-dp-attention")
TREES = ("--speculative-num-steps", "3", "--speculative-eagle-topk", "3", "--speculative-num-draft-tokens", "12")
EXPERTS = ("--ep-size", "2")
ON_CPUS = pytest.mark.skipif(DEVICE != "cpu", reason="groups, hosts and ranks that may be lost draft on CPUs")
ALL_DRAFTS = "--speculative-adaptive=false"
NUM_TOKENS = 40


def run(model, *flags, threads=2):
    ids = ",".join(str(50 + i % 7) for i in range(40))
    done = sluice("generate", "--model", model, "--tokenizer-path", TINY, "--input-ids", ids, "--max-new-tokens",
                  NUM_TOKENS, "--temperature", "0", "--ignore-eos", "--json", *FLAGS, *flags,
                  *shlex.split(os.environ.get("SLUICE_TEST_FLAGS", "")),
                  env={"SLUICE_ARG_THREADS": str(threads)})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def alone():
    """What one rank does, computed once for each model and set of flags."""
    found = {}

    def of(model, *flags):
        key = (model, *flags)
        if key not in found:
            found[key] = run(model, *flags)
        return found[key]

    return of


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Checkpoints that are made of fixtures."""
    folder = tmp_path_factory.mktemp("places")

    # Another directory with the same weights: its drafts are always right.
    def twin(name):
        shutil.copytree(MODELS / name, folder / "twin", dirs_exist_ok=True)
        return folder / "twin"

    # Layers that two ranks cannot share. Its weights are random (--load-format dummy).
    def odd():
        config = json.loads((MODELS / "llama-plain" / "config.json").read_text())
        config |= {"num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 16}
        (folder / "odd").mkdir(exist_ok=True)
        (folder / "odd" / "config.json").write_text(json.dumps(config))
        return folder / "odd"

    # The target's file beside that of its draft layer.
    def with_layer(name, target):
        path = shutil.copytree(GOLDEN / "speculation" / name, folder / name, dirs_exist_ok=True)
        shutil.copy(MORE / target / "model.safetensors", path)
        return path

    return {"twin of mixtral": lambda: twin("mixtral"), "odd": odd,
            "qwen3-5-moe": lambda: with_layer("mtp-qwen3-5-moe", "qwen3-5-moe")}


DUMMY = ("--load-format", "dummy")
HEAD = RECORDED / "sluice-tiny-eagle3"
BLOCKS = (RECORDED / "targets" / "qwen3-7l", "DFLASH", RECORDED / "families" / "dflash-qwen3")
# Target, algorithm, draft model, ranks, further flags, and the most verifications; random drafts are seldom right.
CASES = {
    "text, ranks": (TINY, "NGRAM", None, RANKS, ("--speculative-ngram-min-match-window-size", "1"), 38),
    "layer, ranks": (TINY, "NEXTN", None, RANKS, (), 25),
    "layer, ranks with experts": (TINY, "NEXTN", None, (*RANKS, *EXPERTS), (), 25),
    "layer, trees, ranks": (TINY, "NEXTN", None, (*RANKS, *EXPERTS), TREES, 25),
    "layer beside latents, ranks with experts": (MODELS / "deepseek-v3", "NEXTN", None, (*RANKS, *EXPERTS), (), 39),
    "layer, groups": (TINY, "NEXTN", None, GROUPS, (), 25),
    "layer, groups with experts": (TINY, "NEXTN", None, (*GROUPS, *EXPERTS), (), 25),
    "layer, trees, groups": (TINY, "NEXTN", None, GROUPS, TREES, 25),
    "layer, ranks of groups": (MODELS / "deepseek-v3", "NEXTN", None, RANKS_OF_GROUPS, (), 39),
    "layer of a mixture, ranks": (MODELS / "mimo", "NEXTN", None, RANKS, (), 39),
    "layer beside recurrent ones, ranks": ("qwen3-5-moe", "NEXTN", None, RANKS, (), 39),
    "layer beside recurrent ones, groups": ("qwen3-5-moe", "NEXTN", None, (*GROUPS, *EXPERTS), (), 39),
    "model, ranks": (MODELS / "mixtral", "STANDALONE", "twin of mixtral", RANKS, (), 12),
    "model, trees, ranks": (MODELS / "mixtral", "STANDALONE", "twin of mixtral", RANKS, TREES, 16),
    "model, groups": (MODELS / "mixtral", "STANDALONE", "twin of mixtral", (*GROUPS, *EXPERTS), (), 12),
    "model of latents, ranks": (MODELS / "mistral-swa", "STANDALONE", MODELS / "deepseek-v2-lite", RANKS, (), 39),
    "model that cannot be shared": (MODELS / "qwen3", "STANDALONE", "odd", RANKS, DUMMY, 39),
    "trained head, ranks": (TINY, "EAGLE3", HEAD, RANKS, (), 34),
    "trained head, trees, ranks": (TINY, "EAGLE3", HEAD, RANKS, TREES, 34),
    "trained head, groups": (TINY, "EAGLE3", HEAD, GROUPS, (), 34),
    "trained head, trees, ranks of groups": (TINY, "EAGLE3", HEAD, RANKS_OF_GROUPS, TREES, 34),
    "older head, ranks": (MODELS / "llama-plain", "EAGLE", RECORDED / "families" / "eagle-llama", RANKS, (), 39),
    "blocks, ranks": (*BLOCKS, RANKS, (), 39),
    "blocks, groups": (*BLOCKS, GROUPS, (), 39),
}


@pytest.fixture
def case(places):
    """The target and the flags of its drafts; skips where files are missing."""

    def of(name):
        model, method, draft, ranks, flags, _ = CASES[name]
        if DEVICE != "cpu" and "--dp-size" in ranks:
            pytest.skip("groups draft on CPUs")
        if any(str(path).startswith(str(RECORDED)) for path in (model, draft)) and not RECORDED.exists():
            pytest.skip(f"{RECORDED} is not there")
        model, draft = (places[path]() if path in places else path for path in (model, draft))
        given = () if draft is None else ("--speculative-draft-model-path", draft)
        return model, ("--speculative-algorithm", method, *given, *flags), ranks, DUMMY if flags == DUMMY else ()

    return of


@pytest.mark.parametrize("name", CASES)
def test_drafts_give_the_tokens_of_one_rank(name, alone, case):
    model, drafts, ranks, weights = case(name)
    found, one_rank = run(model, *drafts, ALL_DRAFTS, *ranks, threads=4), alone(model, *drafts, ALL_DRAFTS)
    assert found["output_ids"] == alone(model, *weights)["output_ids"]
    meta = found["meta_info"]
    assert 1 + meta["spec_verify_ct"] + meta["spec_accept_token_num"] == NUM_TOKENS
    assert meta["spec_draft_token_num"] > NUM_TOKENS / 2 and meta["spec_verify_ct"] <= CASES[name][-1]
    # Several ranks draft what one drafts, but for ties that sums in another order decide otherwise.
    assert abs(meta["spec_verify_ct"] - one_rank["meta_info"]["spec_verify_ct"]) <= 1


# How many are made depends on what else the machine does.
@pytest.mark.parametrize("name", [
    "layer, ranks with experts", "layer, trees, ranks", "model, ranks", "trained head, trees, ranks", "blocks, ranks",
    "layer, groups with experts", "layer, trees, groups", "layer, ranks of groups", "layer of a mixture, ranks",
    "layer beside recurrent ones, ranks", "model, trees, ranks", "model of latents, ranks", "trained head, ranks",
    "blocks, groups"])
def test_as_many_drafts_as_pay_give_the_tokens_of_one_rank(name, alone, case):
    model, drafts, ranks, weights = case(name)
    found = run(model, *drafts, *ranks, threads=4)
    assert found["output_ids"] == alone(model, *weights)["output_ids"]
    meta = found["meta_info"]
    assert 1 + meta["spec_verify_ct"] + meta["spec_accept_token_num"] == NUM_TOKENS


@pytest.mark.parametrize("ranks", [RANKS, (*RANKS, *EXPERTS), pytest.param(GROUPS, marks=ON_CPUS),
                                   pytest.param(RANKS_OF_GROUPS, marks=ON_CPUS)])
def test_all_ranks_pretend_alike(ranks):
    """Drafts that are declared right or wrong are so on all ranks, and as many are right as on one."""

    def tokens_of_a_step(chance, batch, *flags):
        done = sluice("bench", "latency", TINY, "--threads", "2", "--batch-size", batch, "--input-len", "32", "--output-len", "48", "--tries", "1",
                      "--roofline-mib", "0", "--random-seed", "7", "--json", "--device", DEVICE, "--dtype", "float32", *flags,
                      "--speculative-algorithm", "NEXTN", "--speculative-synthetic-acceptance", chance, ALL_DRAFTS)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["tokens_per_step"]

    assert (tokens_of_a_step("1", 4, *ranks), tokens_of_a_step("0", 4, *ranks)) == (4, 1)
    # Which steps of several sequences count depends on when each of them began.
    assert tokens_of_a_step("0.9,0.4,0.1", 1, *ranks) == pytest.approx(tokens_of_a_step("0.9,0.4,0.1", 1))


@pytest.fixture(scope="module", params=[(ALL_DRAFTS,), ()], ids=["all drafts", "drafts that pay"])
def several(tmp_path_factory, request):
    """Ranks in groups, or on GPUs without."""
    log = tmp_path_factory.mktemp("several") / "server.log"
    with Server(TINY, *FLAGS, *(GROUPS if DEVICE == "cpu" else (*RANKS, *EXPERTS)), "--speculative-algorithm", "NEXTN", *request.param, log=log) as server:
        server.has_all_drafts = bool(request.param)
        yield server
        assert ("measure drafts" in log.read_text()) != server.has_all_drafts


def test_streams_get_the_tokens_of_one_rank(several, tiny):
    """Groups have drafts of different numbers, and some are idle while others draft."""
    bodies = [long_body(i, 12 + 9 * i, False) for i in range(9)]

    def leave(i):
        connection = start_stream(several, long_body(20 + i, 400, True))
        with contextlib.closing(connection):
            connection.getresponse().read(100)

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        leaving = [pool.submit(leave, i) for i in range(3)]
        found = list(pool.map(lambda body: several.post("/generate", body).json(), bodies))
        for one in leaving:
            one.result()
    assert [reply["output_ids"] for reply in found] == [tiny.post("/generate", body).json()["output_ids"] for body in bodies]
    metas = [reply["meta_info"] for reply in found]
    assert all(1 + m["spec_verify_ct"] + m["spec_accept_token_num"] == m["completion_tokens"] for m in metas)
    if several.has_all_drafts:
        assert sum(m["spec_verify_ct"] for m in metas) < 0.7 * sum(m["completion_tokens"] for m in metas)
    several.wait_until_idle()


@ON_CPUS
def test_drafts_go_on_where_a_rank_is_lost(tmp_path, tiny):
    count, tokens, begun, ends = 4, 120, threading.Semaphore(0), {}
    with Server(TINY, *FLAGS, *elastic("2"), "--speculative-algorithm", "NEXTN", ALL_DRAFTS, log=tmp_path / "log") as server:
        threads = [threading.Thread(target=stream, args=(server, i, tokens, begun, ends)) for i in range(count)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert begun.acquire(timeout=120)
        os.kill(ranks_of(server)[0], signal.SIGKILL)
        for thread in threads:
            thread.join(300)
        after = server.post("/generate", long_body(1, 60, False)).json()
    hows = [how for _, how, _ in ends.values()]
    assert "rank_lost" in hows and "whole" in hows and set(hows) == {"rank_lost", "whole"}
    for i, (_, how, ids) in ends.items():
        if how == "whole":
            assert ids == tiny.post("/generate", long_body(i, tokens, False)).json()["output_ids"], i
    assert after["output_ids"] == tiny.post("/generate", long_body(1, 60, False)).json()["output_ids"]
    assert after["meta_info"]["spec_accept_token_num"] > 0


@pytest.mark.parametrize("flags, said", [
    (("--pp-size", "2", "--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", MODELS / "qwen3"),
     "stages draft with grammars, NGRAM and SUFFIX"),
    ((*GROUPS, "--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", MODELS / "qwen3"),
     "the draft's vocab_size is 320, and that of the target 4096"),
    ((*RANKS, "--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", "nowhere/at-all"), "nowhere/at-all"),
])
def test_what_cannot_draft_is_refused_in_seconds(flags, said):
    begin = time.monotonic()
    done = sluice("generate", "--model", TINY, "--input-ids", "1,2", "--device", "cpu", *flags, env={"HF_HUB_OFFLINE": "1"})
    assert done.returncode == 2
    assert said in done.stderr, done.stderr
    assert time.monotonic() - begin < 5


@ON_CPUS
@pytest.mark.parametrize("flags", [(ALL_DRAFTS,), ()])
def test_a_draft_model_is_read_on_two_hosts(place, tmp_path, flags):  # noqa: F811
    """The draft has the model's own weights, so that it is right."""
    twin = shutil.copytree(TINY, tmp_path / "twin")
    node0, node1 = run_both(place, tmp_path, "--tp-size", "2", "--json", "--speculative-algorithm", "STANDALONE",
                            "--speculative-draft-model-path", twin, *flags)
    assert node0.returncode == 0, node0.stderr
    assert node1.returncode == 0, node1.stderr
    found, alone = json.loads(node0.stdout), sluice("generate", TINY, "--input-ids", "50,51,52,53", "--max-new-tokens", "16",
                                                    "--temperature", "0", "--json", *FLAGS)
    assert found["output_ids"] == json.loads(alone.stdout)["output_ids"]
    assert found["meta_info"]["spec_verify_ct"] <= (5 if flags else 15)
