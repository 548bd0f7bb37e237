"""Hubs that misbehave. Every row has a hub, a cache and a `sluice pull` of its own. Rows run in
parallel, because most of their time is waiting. Rows that succeed must leave a whole model, the
others a helpful message and no blob."""

import concurrent.futures
import contextlib
import dataclasses
import itertools
import json
import time
import typing

import pytest

from hub_server import CERTIFICATE, COMMIT, Hub, Repo
from sluice_server import sluice
from test_hub import small_files

WEIGHTS = "model.safetensors"


@dataclasses.dataclass
class Row:
    name: str
    set_up: typing.Callable                 # of the hub
    says: str = ""  # a part of the message; empty: success
    env: dict = dataclasses.field(default_factory=dict)
    min_seconds: float = 0
    max_seconds: float = 40
    check: typing.Callable = lambda hub, done: True


def rule(server=None, method=None, path="", times=None):
    """Makes a rule of the hub from an answer: for requests that match, `times` of them."""

    def make(answer):
        left = itertools.count() if times is None else iter(range(times))

        def apply(handler):
            fits = server in (None, handler.server.name) and method in (None, handler.command) and path in handler.path_only
            if not fits or next(left, None) is None:
                return False
            answer(handler)
            return True

        return lambda hub: hub.rules.append(apply)

    return make


def status(code, body=b"", **headers):
    return lambda handler: handler.answer(code, body, **headers)


def data_of(handler):
    return handler.hub.repos["org/small"].files[WEIGHTS]


def range_of(handler):
    wanted = handler.headers.get("Range")
    first, last = (int(n) for n in wanted.removeprefix("bytes=").split("-")) if wanted else (0, len(data_of(handler)) - 1)
    return first, last


def part(handler, change=lambda body: body, shift=0, total=None, length=0, **headers):
    """Almost the requested range."""
    first, last = range_of(handler)
    body = change(data_of(handler)[first : last + 1])
    total = len(data_of(handler)) if total is None else total
    handler.answer(206, body, Content_Range=f"bytes {first + shift}-{last + shift}/{total}", Content_Length=len(body) + length, **headers)


def truncated(handler):
    """Half of the announced bytes, then the end of the connection."""
    part(handler, change=lambda body: body[: len(body) // 2], length=sum(divmod(range_of(handler)[1] - range_of(handler)[0] + 1, 2)))
    handler.close_connection = True


def nothing(handler):
    """Sixteen bytes, always too few to count as progress."""
    part(handler, change=lambda body: body[:16], length=range_of(handler)[1] - range_of(handler)[0] + 1 - 16)
    handler.close_connection = True


def drip(handler, seconds=8):
    """A byte every 0.2 seconds."""
    first, last = range_of(handler) if handler.server.name == "storage" else (0, 99)
    handler.send_response(206)
    handler.send_header("Content-Length", last - first + 1)
    handler.send_header("Content-Range", f"bytes {first}-{last}/{len(data_of(handler))}")
    handler.end_headers()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        handler.wfile.write(b"x")
        time.sleep(0.2)
    handler.close_connection = True


def silence(handler, seconds=3):
    time.sleep(seconds)
    handler.close_connection = True


def expiring(hub, etag=None):
    """The storage's addresses serve one request; then the hub gives others, with another ETag when
    `etag`."""
    served = itertools.count()

    def apply(handler):
        if handler.server.name == "storage" and next(served) == 1:
            hub.signature = "s2"
        if handler.server.name == "hub" and hub.signature == "s2" and etag and handler.command == "HEAD":
            location = f"{hub.storage_url}/blob/org/small/{WEIGHTS}?signature=s2"
            handler.answer(302, b"", Location=location, X_Repo_Commit=COMMIT, X_Linked_ETag=etag, X_Linked_Size=len(data_of(handler)))
            return True
        return False

    hub.rules.append(apply)


def tree(entries, link=None):
    """The list of files is this."""
    return rule("hub", path="/tree/")(lambda handler: handler.answer(200, entries(handler) if callable(entries) else entries, Link=link and link(handler)))


def entry(path="config.json", size=10, **more):
    return {"type": "file", "path": path, "size": size, "oid": "a" * 40, **more}


def with_config(*entries):
    """A list that begins with a correct entry."""
    return [Repo(small_files()).entry("config.json"), *entries]


def many_files(handler):
    """A thousand new names on each page."""
    page = int(handler.query.rpartition("cursor=")[2] or 0) if "cursor=" in handler.query else 0
    handler.next_page = page + 1
    return [entry(f"f{page}-{i}") for i in range(1000)]


def next_page(handler):
    return f'<{handler.hub.url}{handler.path_only}?cursor={getattr(handler, "next_page", 1)}>; rel="next"'


def elsewhere(hub):
    """The API is at another origin, which must not see the token; its answers count."""
    rule("hub", path="/api/")(lambda h: h.answer(302, b"", Location=f"{hub.storage_url}{h.path}"))(hub)
    rule("storage", path="/revision/")(status(200, {"sha": COMMIT}))(hub)
    rule("storage", path="/tree/")(lambda h: h.answer(200, [hub.repos["org/small"].entry(p) for p in hub.repos["org/small"].files]))(hub)


def moved_on_the_same_host(hub):
    """A repository with a new name: redirects that stay at the hub keep the token."""
    hub.repos["new/name"] = hub.repos["org/small"]

    def apply(handler):
        if handler.server.name != "hub" or "org/small" not in handler.path or "/resolve/" not in handler.path:
            return False
        handler.answer(307, b"", Location=handler.path.replace("org/small", "new/name"))
        return True

    hub.rules.append(apply)


def needs_token(hub):
    moved_on_the_same_host(hub)
    hub.rules.insert(0, lambda h: h.server.name == "hub" and h.headers.get("Authorization") != "Bearer hf_t" and (h.answer(401) or True))


def header_flood(handler):
    handler.send_response(200)
    with contextlib.suppress(OSError):
        for i in range(100_000):
            handler.send_header(f"X-Flood-{i}", "y" * 1000)
            if i % 50 == 0:
                handler.flush_headers()
    handler.close_connection = True


def huge_page(handler):
    handler.send_response(200)
    handler.end_headers()
    with contextlib.suppress(OSError):
        for _ in range(20 << 4):
            handler.wfile.write(b" " * (64 << 10))
    handler.close_connection = True


def etag_of_no_use(hub):
    """A mirror whose ETags are not digests: those of the list count."""
    rule("hub", "HEAD", WEIGHTS)(
        lambda h: h.answer(302, b"", Location=f"{hub.storage_url}/blob/org/small/{WEIGHTS}?signature=s1", ETag='"6f5902ac237024bdd0c176cb93063dc4-7"')
    )(hub)


def no_digest(hub):
    etag_of_no_use(hub)
    tree(with_config({"type": "file", "path": WEIGHTS, "size": 3 << 20}))(hub)


def no_ranges(hub):
    hub.ignores_ranges = True


def no_ranges_and_broken(hub):
    no_ranges(hub)
    def half(handler):
        handler.answer(200, data_of(handler)[: 2 << 20], Content_Length=len(data_of(handler)))
        handler.close_connection = True
    rule("storage", times=2)(half)(hub)


flip = lambda body: bytes([body[0] ^ 1]) + body[1:]  # noqa: E731
no_auth_at_storage = lambda hub, done: not any("Authorization" in r[3] for r in hub.asked("storage"))  # noqa: E731
one_request = lambda hub, done: len(hub.requests) == 1  # noqa: E731

ROWS = [
    Row("nothing is wrong", lambda hub: None),
    Row("small pages", lambda hub: setattr(hub, "page_size", 1), check=lambda hub, done: len(hub.asked(path="/tree/")) == 4),
    Row("bodies break off, some", rule("storage", times=3)(truncated)),
    Row("bodies break off, all", rule("storage")(nothing), "broke off again and again"),
    Row("wrong bytes, once", rule("storage", times=1)(lambda h: part(h, change=flip)), check=lambda hub, done: "fetched anew" in done.stderr),
    Row("wrong bytes, always", rule("storage")(lambda h: part(h, change=flip)), "is not what the hub says it is, twice"),
    Row("wrong bytes of a small file", rule("hub", "GET", "/config.json")(status(200, small_files()["config.json"][:-1] + b" ")), "is not what the hub says"),
    Row("wrong size of the file", rule("hub", "HEAD", WEIGHTS)(status(200, b"", X_Linked_Size=5, X_Linked_ETag='"' + "a" * 32 + '"')), "has 5 bytes, and its list says"),
    Row("another digest than in the list", rule("hub", "HEAD", WEIGHTS)(status(200, b"", X_Linked_ETag='"' + "a" * 64 + '"', X_Linked_Size=3 << 20)), "says two things"),
    Row("another range", rule("storage")(lambda h: part(h, shift=1)), "holds other bytes"),
    Row("another whole size", rule("storage")(lambda h: part(h, total=99_999_999)), "holds other bytes"),
    Row("more than was asked for", rule("storage")(lambda h: part(h, change=lambda b: b + b"x")), "holds other bytes"),
    Row("compressed", rule("storage")(lambda h: part(h, Content_Encoding="gzip")), "holds other bytes"),
    Row("no ranges", no_ranges, check=lambda hub, done: "whole files only" in done.stderr),
    Row("no ranges, and bodies break off", no_ranges_and_broken),
    Row("416", rule("storage")(status(416)), "is shorter at the hub"),
    Row("429 with Retry-After", rule("hub", path="/tree/", times=2)(status(429, b"", Retry_After=1)), min_seconds=2),
    Row("429 with RateLimit", rule("storage", times=1)(status(429, b"", RateLimit='"resolvers";r=0;t=1')), min_seconds=1),
    Row("429 for an hour", rule("hub")(status(429, b"", Retry_After=3600)), "asks to wait 3600 s; set HF_TOKEN", max_seconds=5, check=one_request),
    Row("500, some", rule(times=3)(status(500))),
    Row("503 of the storage, some", rule("storage", times=3)(status(503))),
    Row("503, always", rule("hub", path="/revision/")(status(503)), "is in trouble (503)", check=lambda hub, done: len(hub.requests) == 5),
    Row("addresses expire", expiring, check=lambda hub, done: len(hub.asked("hub", "HEAD", WEIGHTS)) == 2),
    Row("the file changes meanwhile", lambda hub: expiring(hub, '"' + "b" * 64 + '"'), "has changed at the hub while it was downloaded"),
    Row("the storage refuses", rule("storage")(status(403)), "the storage of model.safetensors of org/small refuses"),
    Row("redirects in a circle", rule("hub", path="/revision/")(lambda h: h.answer(302, b"", Location=h.path)), "around (302) without an end", check=lambda hub, done: len(hub.requests) == 6),
    Row("redirects of the storage in a circle", rule("storage")(lambda h: h.answer(302, b"", Location=h.path)), "more than 5 redirects"),
    Row("a redirect to no place", rule("hub", path="/revision/")(status(302, b"", Location="file:///etc/passwd")), "no place that can be used"),
    Row("the API is elsewhere", elsewhere, env={"HF_TOKEN": "hf_t"}, check=no_auth_at_storage),
    Row("the repository has moved", needs_token, env={"HF_TOKEN": "hf_t"}, check=no_auth_at_storage),
    Row("401", rule("hub")(status(401, b"", X_Error_Code="RepoNotFound")), "or it is private; check the spelling; no token was sent", check=one_request),
    Row("401 with a bad token", rule("hub")(status(401)), "refuses the token of HF_TOKEN", env={"HF_TOKEN": "hf_t"}, check=one_request),
    Row("gated", rule("hub", path="/resolve/")(status(403, b"", X_Error_Code="GatedRepo")), "is gated: accept its terms at", env={"HF_TOKEN": "hf_t"}),
    Row("403", rule("hub")(status(403)), "lacks the right to read it", env={"HF_TOKEN": "hf_t"}),
    Row("404", rule("hub")(status(404, b"", X_Error_Code="RepoNotFound")), "there is no org/small at"),
    Row("no such revision", rule("hub")(status(404, b"", X_Error_Code="RevisionNotFound")), 'no revision "main"'),
    Row("disabled", rule("hub")(status(403, b"", X_Error_Message="Access to this resource is disabled.")), "is disabled by"),
    Row("a teapot", rule("hub")(status(418)), "answers 418"),
    Row("the host is unknown", lambda hub: None, "is not known", env={"HF_ENDPOINT": "http://no-such-host.invalid"}),
    Row("nobody listens", lambda hub: None, "does not take the connection", env={"HF_ENDPOINT": "http://127.0.0.1:1"}),
    Row("no TLS", lambda hub: setattr(hub, "https", True), "cannot be made safe"),
    Row("no URL", lambda hub: None, "it must be a URL", env={"HF_ENDPOINT": "ftp://x"}),
    Row("offline", lambda hub: None, "HF_HUB_OFFLINE forbids", env={"HF_HUB_OFFLINE": "YES"}, check=lambda hub, done: not hub.requests),
    Row("offline by transformers", lambda hub: None, "TRANSFORMERS_OFFLINE forbids", env={"TRANSFORMERS_OFFLINE": "1"}),
    Row("silence", rule("hub")(silence), "silent for too long", env={"HF_HUB_ETAG_TIMEOUT": "1"}),
    Row("a slow body", rule("storage")(drip), "silent for too long", env={"HF_HUB_DOWNLOAD_TIMEOUT": "1"}),
    Row("a time that is none", lambda hub: None, "HF_HUB_ETAG_TIMEOUT is", env={"HF_HUB_ETAG_TIMEOUT": "soon"}),
    *(Row(f"a path that leads out: {path}", tree([entry(), entry(path)]), "could lead out of its folder")
      for path in ("../x", "/etc/x", "a/../../x", "C:\\x", "a\\..\\x", "a//x", "x/.", "", "a\nb", "x" * 300, "/".join("a" * 40))),
    Row("a file of 10 TB", tree([entry(), entry(WEIGHTS, size=10 << 40)]), "at most 8796093022208 are allowed"),
    Row("more than the disk has", tree(with_config(entry(WEIGHTS, size=7 << 40))), "GiB more on the disk of"),
    Row("a million files", tree(many_files, next_page), "more than 100000 files"),
    Row("the same page for ever", tree([entry()], next_page), "more than 1000 pages"),
    Row("empty pages for ever", tree([], next_page), "pages that are empty"),
    Row("a file twice", tree([entry(), entry()]), "twice"),
    Row("no list", tree({"error": "x"}), "is not a list"),
    Row("no JSON", rule("hub")(status(200, b"<html>")), "the hub's answer about a revision"),
    Row("no commit", rule("hub")(status(200, {"sha": "../../x"})), "holds no commit"),
    Row("no size", tree([{"type": "file", "path": "config.json"}]), "has no size for config.json"),
    Row("ETags that are no digests", etag_of_no_use),
    Row("no digest at all", no_digest, "gives no digest for model.safetensors"),
    Row("another commit", rule("hub", "HEAD")(status(200, b"", X_Repo_Commit="d" * 40, ETag='"x"')), "the hub answers for commit"),
    Row("a flood of headers", rule("hub")(header_flood), "more than such an answer may have"),
    Row("a page without an end", rule("hub", path="/tree/")(huge_page), "more than such an answer may have"),
]


def run(row, cache):
    with Hub(org__small=Repo(small_files())) as hub:
        row.set_up(hub)
        env = hub.environment(cache, **row.env)
        if getattr(hub, "https", False):
            env["HF_ENDPOINT"] = hub.url.replace("http:", "https:")
        began = time.monotonic()
        done = sluice("pull", "org/small", env=env, timeout=60)
        return done, time.monotonic() - began, hub, row.check(hub, done)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    caches = [tmp_path_factory.mktemp("row") / "cache" for _ in ROWS]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        return {row.name: (*outcome, cache) for row, outcome, cache in zip(ROWS, pool.map(run, ROWS, caches), caches)}


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name[:50].encode("unicode_escape").decode()) for row in ROWS])
def test_row(row, outcomes):
    done, seconds, hub, good, cache = outcomes[row.name]
    assert done.returncode == (2 if row.says else 0), done.stderr
    assert row.says in done.stderr
    assert good, (done.stderr, hub.requests)
    assert row.min_seconds <= seconds <= row.max_seconds
    assert "hf_t" not in done.stderr.replace("hf_token", "") and "signature=" not in done.stderr
    folder = cache / "models--org--small"
    digest = hub.repos["org/small"].digest(WEIGHTS)
    if row.says:
        assert "error: " in done.stderr and done.stdout == ""
        assert not (folder / "blobs" / digest).exists() and not (folder / "snapshots" / COMMIT / WEIGHTS).exists()
        assert not (folder / "refs" / "main").exists()
        return
    assert (folder / "snapshots" / COMMIT / WEIGHTS).read_bytes() == hub.repos["org/small"].files[WEIGHTS]
    assert sorted(path.name for path in (folder / "blobs").iterdir()) == sorted(
        hub.repos["org/small"].digest(name) for name in ("config.json", "tokenizer_config.json", WEIGHTS))


def test_nothing_is_written_outside(outcomes):
    for name, (*_, cache) in outcomes.items():
        assert [path.name for path in cache.parent.iterdir()] in ([], ["cache"]), name


def test_proxies(tmp_path):
    with Hub(org__small=Repo(small_files())) as hub:
        hub.storage_url = "http://storage.example"
        env = hub.environment(tmp_path / "cache", HF_ENDPOINT="http://hub.example")
        seen = []

        def proxy(handler):
            seen.append(handler.proxied_for)
            if handler.proxied_for == "storage.example":
                part(handler)
                return True
            return False

        hub.rules.append(proxy)
        for variable in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            done = sluice("pull", "org/small", env={**env, variable: hub.url})
            assert done.returncode == 0, done.stderr
            assert set(seen) == {"hub.example", "storage.example"}
            seen.clear()
            sluice("rm", "org/small", "--yes", env=env)
        done = sluice("pull", "org/small", env={**env, "HTTP_PROXY": hub.url, "NO_PROXY": "hub.example"})
        assert done.returncode == 2 and "is not known" in done.stderr and seen == []


def test_tls(tmp_path):
    with Hub(tls=True, org__small=Repo(small_files(100_000))) as hub:
        env = hub.environment(tmp_path / "cache")
        done = sluice("pull", "org/small", env=env)
        assert done.returncode == 2 and "cannot be made safe" in done.stderr and "SSL_CERT_FILE names" in done.stderr
        assert sluice("pull", "org/small", env={**env, "SSL_CERT_FILE": str(CERTIFICATE)}).returncode == 0
        # A redirect from https to http is refused.
        with Hub(org__small=Repo(small_files())) as plain:
            hub.rules.append(lambda h: "/revision/" in h.path and (h.answer(302, b"", Location=plain.url + h.path) or True))
            done = sluice("pull", "org/small", env={**env, "SSL_CERT_FILE": str(CERTIFICATE)})
            assert done.returncode == 2 and "no place that can be used" in done.stderr and plain.requests == []


def test_serve_says_why(tmp_path):
    with Hub() as hub:
        env = hub.environment(tmp_path / "cache")
        for verb in (["serve", "org/none"], ["run", "org/none", "Hello"], ["generate", "--model", "org/none", "--prompt", "x"], ["plan", "org/none"]):
            done = sluice(*verb, env=env, timeout=60)
            assert done.returncode == 2 and "check the spelling" in done.stderr and "there is no directory org/none" in done.stderr, done.stderr
        done = sluice("serve", "org/none", env={**env, "HF_HUB_OFFLINE": "1"})
        assert done.returncode == 2 and "HF_HUB_OFFLINE forbids to download it: unset it, or run `sluice pull org/none`" in done.stderr
        assert json.loads(sluice("list", "--json", env=env).stdout) == []
