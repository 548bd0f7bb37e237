"""A Hugging Face hub on loopback: the API, the files, and a storage of large files on another port,
which is another origin. It counts the bytes that it sends, and misbehaves by rules: a rule sees
every request first and may answer it."""

import contextlib
import hashlib
import http.server
import json
import pathlib
import re
import ssl
import threading
import time
import urllib.parse

CERTIFICATE = pathlib.Path(__file__).parent / "loopback.pem"
COMMIT = "c0ffee" + "0" * 34
CHUNK = 64 << 10


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repo:
    """Files at one commit; files of at least `large` bytes are in the storage."""

    def __init__(self, files, commit=COMMIT, revisions=("main",), large=64 << 10):
        self.files = dict(files)
        self.commit = commit
        self.revisions = {name: commit for name in revisions}
        self.large = large

    def is_large(self, path):
        return len(self.files[path]) >= self.large

    def digest(self, path):
        data = self.files[path]
        return hashlib.sha256(data).hexdigest() if self.is_large(path) else git_sha1(data)

    def entry(self, path):
        data = self.files[path]
        entry = {"type": "file", "path": path, "size": len(data), "oid": git_sha1(data)}
        if self.is_large(path):
            entry["lfs"] = {"oid": self.digest(path), "size": len(data), "pointerSize": 134}
        return entry


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", **headers):
        """Sends an answer. Header names have '_' for '-'. A HEAD gets no body."""
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        self.send_response(status)
        headers.setdefault("Content_Length", len(body))
        for name, value in headers.items():
            if value is not None:
                self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.send(body)

    def send(self, body):
        for at in range(0, len(body), CHUNK):
            part = body[at : at + CHUNK]
            self.wfile.write(part)
            self.hub.count(self, len(part))
            if self.hub.delay:
                time.sleep(self.hub.delay)

    def send_file(self, data, **headers):
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not match or self.hub.ignores_ranges:
            return self.answer(200, data, **headers)
        first, last = int(match[1]), min(int(match[2] or len(data)), len(data) - 1)
        if first > last:
            return self.answer(416, b"", Content_Range=f"bytes */{len(data)}")
        self.answer(206, data[first : last + 1], Content_Range=f"bytes {first}-{last}/{len(data)}", **headers)

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        self.proxied_for = url.netloc  # a proxy receives whole URLs
        self.path_only, self.query = urllib.parse.unquote(url.path), url.query
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.hub.note(self)
            if not any(rule(self) for rule in self.hub.rules):
                self.route()

    do_HEAD = do_GET


class HubHandler(Handler):
    def route(self):
        match = re.fullmatch(r"/api/models/(.+?)/(revision|tree)/([^/]+)", self.path_only)
        if match:
            repo = self.hub.repos.get(match[1])
            if repo is None:
                return self.answer(401, b"{}", X_Error_Code="RepoNotFound")
            return self.revision(match[1], repo, match[3]) if match[2] == "revision" else self.tree(match[1], repo, match[3])
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.path_only)
        repo = self.hub.repos.get(match[1]) if match else None
        if repo is None:
            return self.answer(404, b"")
        commit, path = repo.revisions.get(match[2], match[2]), match[3]
        if commit != repo.commit:
            return self.answer(404, b"", X_Error_Code="RevisionNotFound")
        if path not in repo.files:
            return self.answer(404, b"", X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
        size, etag = len(repo.files[path]), f'"{repo.digest(path)}"'
        if not repo.is_large(path):
            return self.send_file(repo.files[path], ETag=etag, X_Repo_Commit=commit)
        location = f"{self.hub.storage_url}/blob/{match[1]}/{path}?signature={self.hub.signature}"
        self.answer(302, b"", Location=location, X_Repo_Commit=commit, X_Linked_ETag=etag, X_Linked_Size=size, ETag='"of-the-pointer"')

    def revision(self, repo_id, repo, revision):
        commit = repo.revisions.get(revision, revision)
        if commit != repo.commit:
            return self.answer(404, b"{}", X_Error_Code="RevisionNotFound")
        facts = {"id": repo_id, "sha": commit, "private": False, "gated": False, "disabled": False, "tags": [], "downloads": 0, "likes": 0}
        self.answer(200, {**facts, "siblings": [{"rfilename": path} for path in repo.files]})

    def tree(self, repo_id, repo, commit):
        if commit != repo.commit:
            return self.answer(404, b"{}", X_Error_Code="RevisionNotFound")
        page = int(dict(urllib.parse.parse_qsl(self.query)).get("cursor", 0))
        paths = sorted(repo.files)
        step = self.hub.page_size
        entries = [repo.entry(path) for path in paths[page : page + step]]
        link = None
        if page + step < len(paths):
            link = f'<{self.hub.url}/api/models/{repo_id}/tree/{commit}?recursive=true&cursor={page + step}>; rel="next"'
        self.answer(200, [*entries, {"type": "directory", "path": "sub", "oid": "0" * 40, "size": 0}], Link=link)


class StorageHandler(Handler):
    def route(self):
        match = re.fullmatch(r"/blob/([^/]+/[^/]+)/(.+)", self.path_only)
        if self.query != f"signature={self.hub.signature}":
            return self.answer(403, b"the signature has expired")
        self.send_file(self.hub.repos[match[1]].files[match[2]])


class Hub:
    """A context manager: two servers on free ports, over TLS with the certificate above when `tls`.
    """

    def __init__(self, tls=False, **repos):
        self.tls = tls
        self.repos = {name.replace("__", "/"): repo for name, repo in repos.items()}
        self.rules = []              # callables: a handler -> whether it was answered
        self.requests = []           # (server, method, path, headers)
        self.sent = {}               # bytes of bodies by path
        self.delay = 0               # seconds after each 64 KiB
        self.page_size = 1000
        self.ignores_ranges = False
        self.signature = "s1"
        self._lock = threading.Lock()

    def note(self, handler):
        with self._lock:
            self.requests.append((handler.server.name, handler.command, handler.path_only, dict(handler.headers)))

    def count(self, handler, size):
        with self._lock:
            self.sent[handler.path_only] = self.sent.get(handler.path_only, 0) + size

    def sent_of(self, path):
        with self._lock:
            return sum(size for name, size in self.sent.items() if name.endswith("/" + path))

    def asked(self, server=None, method=None, path=""):
        with self._lock:
            return [r for r in self.requests if server in (None, r[0]) and method in (None, r[1]) and path in r[2]]

    def withhold(self, path, begin, until=lambda: False):
        """Pieces of `path` that begin at byte `begin` or later wait for `until`; after forget()
        they get no answer."""
        def rule(handler):
            first = re.match(r"bytes=(\d+)-", handler.headers.get("Range", ""))
            if not handler.path_only.endswith("/" + path) or not first or int(first[1]) < begin:
                return False
            while rule in self.rules and not until():
                time.sleep(0.01)
            return rule not in self.rules

        self.rules.append(rule)

    def forget(self):
        with self._lock:
            self.requests, self.sent = [], {}
        self.rules, self.delay, self.ignores_ranges = [], 0, False

    def environment(self, cache, **more):
        """The environment of a program that uses this hub and this cache, and nothing of the
        machine's own."""
        unset = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HUGGINGFACE_HUB_CACHE",
                 "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
        return {**{name: "" for name in unset}, "HF_ENDPOINT": self.url, "HF_HUB_CACHE": str(cache), "HF_HOME": str(cache), **more}

    def __enter__(self):
        self._servers = []
        for name, kind in (("hub", HubHandler), ("storage", StorageHandler)):
            handler = type(kind.__name__, (kind,), {"hub": self})
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
            server.daemon_threads, server.name = True, name
            if self.tls:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(CERTIFICATE)
                # The handshake is left to the thread of the connection.
                server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
            self._servers.append(server)
        self.url, self.storage_url = (f"{'https' if self.tls else 'http'}://127.0.0.1:{server.server_address[1]}" for server in self._servers)
        return self

    def __exit__(self, *exc):
        for server in self._servers:
            server.shutdown()
            server.server_close()
