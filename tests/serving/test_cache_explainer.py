"""POST /page/cache says what the next request of a prompt takes from the prefix cache, and from whom."""

import time

import pytest

from sluice_server import TINY, Server

KEYS = ("one", "two")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    log = tmp_path_factory.mktemp("explainer") / "server.log"
    with Server(TINY, "--dtype", "float32", "--max-total-tokens", "16384", "--api-key", ",".join(KEYS), log=log) as running:
        yield running


def bearer(key, **more):
    return {"Authorization": f"Bearer {key}", **more}


def wait_until_idle(server):
    end = time.monotonic() + 20
    while True:
        state = server.get("/get_server_info", headers=bearer("one")).json()["internal_states"][0]
        if not state["num_running_reqs"] and not state["num_queue_reqs"]:
            return
        assert time.monotonic() < end, state
        time.sleep(0.01)


def explain(server, key="one", **body):
    reply = server.post("/page/cache", body, headers=bearer(key))
    assert reply.status == 200, reply.body
    answer = reply.json()
    assert sum(part["tokens"] for part in answer["parts"]) == answer["num_tokens"]
    states = {state: sum(part["tokens"] for part in answer["parts"] if part["state"] == state) for state in ("cached", "unusable", "new")}
    assert states["cached"] == answer["cached_tokens"] and states["cached"] + states["unusable"] == answer["common_tokens"]
    return answer


def complete(server, prompt, request_id, key="one", **body):
    reply = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0, **body},
                        headers=bearer(key, **{"X-Request-Id": request_id}))
    assert reply.status == 200, reply.body
    wait_until_idle(server)
    return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def words(first, count):
    return " ".join(f"word{i}" for i in range(first, first + count))


def test_foretells_what_a_request_takes(server):
    shared = words(0, 60)
    prompts = [f"{shared} one way {words(100, 30)}", f"{shared} another {words(200, 30)}", f"{shared} one way {words(100, 10)} end",
               f"{shared} another {words(200, 30)}", words(300, 5), shared]
    for i, prompt in enumerate(prompts):
        told = explain(server, prompt=prompt)
        assert "".join(part["text"] for part in told["parts"]) == prompt
        assert explain(server, prompt=prompt)["cached_tokens"] == told["cached_tokens"]  # asking changes nothing
        assert complete(server, prompt, f"foretold-{i}") == told["cached_tokens"], (i, told)
    assert told["cached_tokens"] > 100


def test_names_origins_and_the_place(server):
    system = "You " + words(400, 50)
    complete(server, f"{system} and the first", "origin-first")
    complete(server, f"{system} and the second {words(500, 40)}", "origin-second")
    told = explain(server, prompt=f"{system} and the second {words(500, 20)} then something else")
    first, *_, last = [part for part in told["parts"] if part["request"]]
    assert first["request"]["id"] == "origin-first" and last["request"]["id"] == "origin-second"
    assert last["request"]["route"] == "/v1/completions" and 0 <= last["request"]["age_s"] < 600
    place = told["divergence"]
    assert place["token"] == told["common_tokens"] and place["request"]["id"] == "origin-second"
    assert place["prompt_text"].endswith("something else") and "word520" in place["cached_text"]


def test_a_chat_and_its_next_turn(server):
    messages = [{"role": "user", "content": words(600, 30)}]
    reply = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 4}, headers=bearer("one"))
    usage = reply.json()["usage"]
    wait_until_idle(server)
    told = explain(server, messages=messages)
    assert told["num_tokens"] == usage["prompt_tokens"] and told["cached_tokens"] == told["num_tokens"] - 1
    assert told["divergence"] is None
    longer = explain(server, messages=messages + [reply.json()["choices"][0]["message"], {"role": "user", "content": "more"}])
    assert longer["cached_tokens"] > 0.5 * told["num_tokens"]


def test_namespaces_are_apart(server):
    prompt = words(700, 40)
    complete(server, prompt, "mine", key="one")
    complete(server, prompt, "salted", key="one", cache_salt="pepper")
    assert explain(server, key="one", prompt=prompt)["parts"][0]["request"]["id"] == "mine"
    assert explain(server, key="one", prompt=prompt, cache_salt="pepper")["parts"][0]["request"]["id"] == "salted"
    other = explain(server, key="two", prompt=prompt)
    assert other["cached_tokens"] == other["common_tokens"] == 0 and other["divergence"] is None
    assert explain(server, key="one", prompt=prompt, cache_salt="salt")["common_tokens"] == 0
    assert server.post("/page/cache", {"prompt": prompt}).status == 401


def test_without_a_cache():
    with Server(TINY, "--max-total-tokens", "8192", "--disable-radix-cache") as bare:
        reply = bare.post("/page/cache", {"prompt": "a"})
        assert reply.status == 400 and "--disable-radix-cache" in reply.error["message"]


def test_what_others_sent_is_not_told_to_guests():
    with Server(TINY, "--dtype", "float32", "--max-total-tokens", "8192") as shared:
        secret = f"the plan {words(800, 40)}"
        shared.post("/v1/completions", {"prompt": secret, "max_tokens": 1}, headers={"X-Request-Id": "secret-id"})
        shared.wait_until_idle()
        ask = {"prompt": f"the plan {words(800, 5)} guess"}
        told = shared.post("/page/cache", ask)                   # this machine administrates
        assert b"secret-id" in told.body and b"word805" in told.body
        guest = shared.post("/page/cache", ask, headers={"X-Forwarded-For": "10.1.1.1"})
        assert guest.status == 200 and guest.json()["cached_tokens"] == told.json()["cached_tokens"] > 0
        assert b"secret-id" not in guest.body and b"word805" not in guest.body
