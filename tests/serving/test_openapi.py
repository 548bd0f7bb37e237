"""/openapi.json says what the server does: its routes exist, its ranges are those that requests meet."""

import pytest

from sluice_server import TINY, Server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    log = tmp_path_factory.mktemp("openapi") / "server.log"
    with Server(TINY, "--dtype", "float32", "--context-length", "256", log=log) as running:
        yield running


@pytest.fixture(scope="module")
def document(server):
    reply = server.get("/openapi.json")
    assert reply.status == 200 and reply.headers["Content-Type"] == "application/json"
    return reply.json()


def body_of(operation):
    return operation["requestBody"]["content"]["application/json"]["schema"]


def test_every_route_exists(server, document):
    assert document["openapi"] == "3.1.0" and len(document["paths"]) > 40
    names = set()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            reply = server.request(method.upper(), path.replace("{id}", "none"), b"{}" if "requestBody" in operation else None,
                                   {"Content-Type": "application/json"})
            assert str(reply.status) in operation["responses"], (method, path, reply.status)
            assert reply.status != 405 and b"There is no route" not in reply.body, (method, path)
            names.add(operation["operationId"])
    assert len(names) == sum(len(methods) for methods in document["paths"].values())


def test_lengths_are_integers(document):
    def walk(node):
        if isinstance(node, dict):
            for key, value in node.items():
                assert key not in ("maxLength", "minLength", "maxItems", "minItems") or type(value) is int, (key, value)
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(document)


def test_each_path_says_its_methods(server, document):
    for path, methods in document["paths"].items():
        allow = server.request("OPTIONS", path.replace("{id}", "none")).headers["Allow"].split(", ")
        assert sorted(allow) == sorted({name.upper() for name in methods} | {"OPTIONS"} | ({"HEAD"} if "get" in methods else set())), path


def test_ranges_are_those_of_requests(server, document):
    """Each number beyond its bounds gets 400 with the field's name."""
    fields = body_of(document["paths"]["/v1/chat/completions"]["post"])["properties"]
    numbers = {name: schema for name, schema in fields.items() if "minimum" in schema}
    assert {"temperature", "top_p", "n", "max_tokens", "top_logprobs", "timeout"} <= set(numbers)
    ask = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
    for name, schema in numbers.items():
        for value in (schema["minimum"] - 1, schema["maximum"] + 1):
            reply = server.post("/v1/chat/completions", {**ask, "logprobs": True, name: value})
            assert reply.status == 400 and reply.error["param"] == name, (name, value, reply.body)


def test_other_protocols_have_their_own_names(document):
    paths = document["paths"]
    assert body_of(paths["/v1/messages"]["post"])["properties"]["max_tokens"]["minimum"] == 1
    assert "stop_sequences" in body_of(paths["/v1/messages"]["post"])["properties"]
    assert body_of(paths["/v1/responses"]["post"])["properties"]["max_output_tokens"]["minimum"] == 1
    assert "dimensions" in body_of(paths["/v1/embeddings"]["post"])["properties"]
    assert set(paths["/v1/responses/{id}"]) == {"get", "delete"} and set(paths["/v1/responses/{id}/cancel"]) == {"post"}
    assert paths["/health"]["get"]["security"] == [] and "security" not in paths["/v1/models"]["get"]


def test_it_asks_for_a_key_where_there_are_keys(tmp_path):
    with Server(TINY, "--api-key", "one", log=tmp_path / "log") as guarded:
        assert guarded.get("/openapi.json").status == 401
        assert guarded.get("/openapi.json", headers={"Authorization": "Bearer one"}).status == 200
