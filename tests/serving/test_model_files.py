"""What the files of a model say about ends, tokens and sampling, through the whole server."""

import contextlib
import json

import pytest

from chain_model import tokens_of, write_directory, write_gguf
from sluice_server import Server, sluice

CHAIN = ["K", "Hello", "<|im_end|>", "leak", "<|endoftext|>", "more"]
IDS = tokens_of(CHAIN)
K, HELLO, IM_END, ENDOFTEXT = (IDS.index(CHAIN[i]) for i in (0, 1, 2, 4))
SPECIAL = ("<|im_end|>", "<|endoftext|>")


@contextlib.contextmanager
def served(model, tmp_path, *flags, env=None):
    server = Server(model, "--dtype", "float32", *flags, log=tmp_path / "log", env=env)
    try:
        yield server
    finally:
        server.stop()


def complete(server, prompt, **fields):
    reply = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 6, "temperature": 0} | fields)
    assert reply.status == 200, reply.body
    return reply.json()


def answer(model, tmp_path, *flags):
    with served(model, tmp_path, *flags) as server:
        choice = complete(server, [K])["choices"][0]
    return choice["text"], choice["finish_reason"]


def show(model):
    return json.loads(sluice("show", "--model", model, "--json").stdout)


@pytest.mark.parametrize("eos", ["<|im_end|>", {"content": "<|im_end|>", "__type": "AddedToken"}])
@pytest.mark.parametrize("other", [{}, {"eos_token_id": ENDOFTEXT}, {"eos_token_id": 4294967295}])
def test_the_tokenizers_eos_ends_a_generation(tmp_path, eos, other):
    model = write_directory(tmp_path / "m", CHAIN, SPECIAL, config=other, generation_config=other,
                            tokenizer_config={"eos_token": eos})
    assert answer(model, tmp_path) == ("Hello", "stop")
    assert "tokenizer_config.json: eos_token" in (tmp_path / "log").read_text()
    ends = show(model)["end_tokens"]
    assert ends[f"{IM_END} <|im_end|>"] == "tokenizer_config.json: eos_token"


@pytest.mark.parametrize("files", [
    {"generation_config": {"eos_token_id": [ENDOFTEXT, IM_END]}},
    {"config": {"eos_token_id": [IM_END, "x", -1]}, "generation_config": {"eos_token_id": ENDOFTEXT}},
    {"special_tokens_map": {"eos_token": {"content": "<|im_end|>"}}, "tokenizer_config": {"eos_token": "a"}},
    {"tokenizer_config": {"eos_token": "<|im_end|>", "added_tokens_decoder": {}},
     "special_tokens_map": {"eos_token": "a"}},
], ids=["generation_config", "config", "special_tokens_map", "tokenizer_config"])
def test_ends_of_every_file(tmp_path, files):
    assert answer(write_directory(tmp_path / "m", CHAIN, SPECIAL, **files), tmp_path) == ("Hello", "stop")


def test_ids_that_never_come_are_said(tmp_path):
    model = write_directory(tmp_path / "m", CHAIN, SPECIAL, config={"eos_token_id": [IM_END, 4294967295]},
                            generation_config={"eos_token_id": "2"})
    assert answer(model, tmp_path) == ("Hello", "stop")
    log = (tmp_path / "log").read_text()
    assert 'generation_config.json: eos_token_id is "2"' in log and "config.json: eos_token_id is 4294967295" in log
    assert len(show(model)["ignored_end_tokens"]) == 2


@pytest.mark.parametrize("eos", [ENDOFTEXT, 4294967295, -1, "x", None], ids=str)
def test_gguf_ends_by_text(tmp_path, eos):
    metadata = {} if eos is None else {"tokenizer.ggml.eos_token_id": eos}
    model = write_gguf(tmp_path / "m.gguf", CHAIN, SPECIAL, metadata=metadata)
    assert answer(model, tmp_path) == ("Hello", "stop")
    assert f"{IM_END} (the text <|im_end|>)" in (tmp_path / "log").read_text()
    shown = show(model)
    assert shown["end_tokens"][f"{IM_END} <|im_end|>"] == "the text <|im_end|>"
    assert ("ignored_end_tokens" in shown) == (eos not in (None, ENDOFTEXT))


def test_gguf_sampling_keys_are_defaults(tmp_path):
    # The next token has some 2 % of the probability: only greedy sampling finds the chain.
    greedy = write_gguf(tmp_path / "g.gguf", CHAIN, SPECIAL, scale=0.1,
                        metadata={"general.sampling.temp": 0.0, "general.sampling.xtc_probability": 0.5})
    top_1 = write_gguf(tmp_path / "t.gguf", CHAIN, SPECIAL, scale=0.1, metadata={"general.sampling.top_k": 1})
    for model in (greedy, top_1):
        with served(model, tmp_path) as server:
            for seed in range(3):
                body = {"prompt": [K], "max_tokens": 1, "seed": seed}
                assert server.post("/v1/completions", body).json()["choices"][0]["text"] == "Hello"
    assert show(greedy)["sampling"]["temperature"] == 0
    assert "general.sampling.xtc_probability" in show(greedy)["ignored_keys"]["g.gguf"]


BOS_CHAIN = ["<s>", "x"]
BOS = tokens_of(BOS_CHAIN).index("<s>")
ADDS_BOS = {"post_processor": {
    "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                             {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [BOS], "tokens": ["<s>"]}}}}


def test_add_special_tokens_on_every_route(tmp_path):
    model = write_directory(tmp_path / "m", BOS_CHAIN, ("<s>",), tokenizer=ADDS_BOS,
                            tokenizer_config={"bos_token": "<s>", "chat_template": "{{ bos_token }}ab"})
    messages = [{"role": "user", "content": "x"}]
    with served(model, tmp_path) as server:
        for switch, added in (({}, 1), ({"add_special_tokens": True}, 1), ({"add_special_tokens": False}, 0)):
            usage = complete(server, "<s>ab", **switch)["usage"]
            assert usage["prompt_tokens"] == 3 + added
            usage = complete(server, ["<s>ab", "a"], **switch)["usage"]
            assert usage["prompt_tokens"] == 4 + 2 * added
            native = server.post("/generate", {"text": "<s>ab", "sampling_params": {"max_new_tokens": 1}} | switch)
            assert native.json()["meta_info"]["prompt_tokens"] == 3 + added
            tokens = server.post("/tokenize", {"prompt": "<s>ab"} | switch).json()["tokens"]
            assert tokens.count(BOS) == 1 + added
            assert server.post("/tokenize", {"prompt": ""} | switch).json()["tokens"] == [BOS] * added
        for switch, added in (({}, 0), ({"add_special_tokens": True}, 1), ({"add_special_tokens": False}, 0)):
            body = {"messages": messages, "max_tokens": 1} | switch
            assert server.post("/v1/chat/completions", body).json()["usage"]["prompt_tokens"] == 3 + added
            assert server.post("/tokenize", {"messages": messages} | switch).json()["count"] == 3 + added
        # An empty text is the first token alone, or no prompt at all.
        assert complete(server, "")["usage"]["prompt_tokens"] == 1
        assert server.post("/v1/completions", {"prompt": "", "add_special_tokens": False}).status == 400
        for path, body in (("/v1/completions", {"prompt": "a"}), ("/generate", {"text": "a"}),
                           ("/v1/chat/completions", {"messages": messages}), ("/tokenize", {"prompt": "a"})):
            assert server.post(path, body | {"add_special_tokens": "no"}).status == 400


def test_added_tokens_of_side_files(tmp_path):
    decoder = {str(i): {"content": text, "special": True} for i, text in ((320, "<a>"), (321, "<b>"))}
    for name, files in (("decoder", {"tokenizer_config": {"added_tokens_decoder": decoder}}),
                        ("list", {"tokenizer_config": {"additional_special_tokens": ["<a>", "<b>"]}}),
                        ("file", {"added_tokens": {"<a>": 320, "<b>": 321}}),
                        ("map", {"special_tokens_map": {"additional_special_tokens": ["<a>", {"content": "<b>"}]}})):
        model = write_directory(tmp_path / name, ["<s>", "x"], **files)
        with served(model, tmp_path) as server:
            reply = server.post("/tokenize", {"prompt": "<a><b>"})
            # The model has no row for them, so a prompt with them is refused.
            assert reply.json()["tokens"] == [320, 321], name
            assert server.post("/v1/completions", {"prompt": "<a>"}).status == 400


def test_unused_tensors_of_other_types(tmp_path):
    extra = [("c", "C64", [2], bytes(16)), ("f4", "F4", [4], bytes(2)), ("e8", "F8_E8M0", [3], bytes(3)),
             ("u16", "U16", [1], bytes(2)), ("new", "F31", [1], bytes(5))]
    model = write_directory(tmp_path / "m", CHAIN, SPECIAL, config={"eos_token_id": IM_END}, extra_tensors=extra)
    assert answer(model, tmp_path) == ("Hello", "stop")
    log = (tmp_path / "log").read_text()
    assert all(name in log for name in ("C64", "F4", "F31")), log


def test_keys_without_effect_are_listed(tmp_path):
    model = write_directory(tmp_path / "m", CHAIN, SPECIAL, config={"no_such_key": 1},
                            generation_config={"num_beams": 4, "max_new_tokens": 2},
                            tokenizer_config={"model_max_length": 4})
    with served(model, tmp_path) as server:
        body = {"messages": [{"role": "user", "content": "x"}]}
        server.post("/v1/chat/completions", body)
    line = [l for l in (tmp_path / "log").read_text().splitlines() if "that change nothing" in l]
    assert len(line) == 1
    for part in ("config.json: no_such_key", "generation_config.json: num_beams",
                 "tokenizer_config.json: model_max_length"):
        assert part in line[0]
    assert show(model)["ignored_keys"]["generation_config.json"] == ["num_beams"]
