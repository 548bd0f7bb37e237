"""HTTPS with clients as they come: openai, requests, httpx, ssl; certificates of clients, refresh, refusals; --uds."""

import contextlib
import http.client
import json
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time

import httpx
import openai
import pytest
import requests
from sluice_server import TINY, Reply, Server, sluice, stream_events

ASK = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0, "max_tokens": 16}
FLAGS = ("--dtype", "float32", "--served-model-name", "tiny", "--max-total-tokens", "65536")


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)


class Authority:
    """A folder with an authority's certificate and those that it issues."""

    def __init__(self, folder):
        self.folder = folder
        self.file = folder / "authority.pem"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj",
                "/CN=Authority of a test", "-keyout", folder / "authority.key", "-out", self.file)

    def issue(self, name, subject="127.0.0.1", password=None):
        """(certificate, key) in files NAME.pem and NAME.key."""
        certificate, key, request = (self.folder / (name + end) for end in (".pem", ".key", ".csr"))
        extensions = self.folder / "extensions.cnf"
        extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n")
        secret = ["-nodes"] if password is None else ["-passout", f"pass:{password}"]
        openssl("req", "-newkey", "rsa:2048", *secret, "-subj", f"/CN={subject}", "-keyout", key, "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.file, "-CAkey", self.folder / "authority.key", "-CAcreateserial",
                "-days", "30", "-extfile", extensions, "-out", certificate)
        key.chmod(0o600)
        return certificate, key


class HttpsServer(Server):
    """Its own requests trust the authority, and show `identity` where it is given."""

    def __init__(self, authority, *flags, identity=None, **kwargs):
        self.context = ssl.create_default_context(cafile=authority.file)
        if identity:
            self.context.load_cert_chain(*identity)
        super().__init__(TINY, *FLAGS, *flags, **kwargs)
        self.url = f"https://127.0.0.1:{self.port}"

    def request(self, method, path, body=None, headers=None, timeout=120):
        with contextlib.closing(self.connect(timeout)) as connection:
            connection.request(method, path, body=body, headers=headers or {})
            response = connection.getresponse()
            return Reply(response.status, dict(response.getheaders()), response.read())

    def connect(self, timeout=120):
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=self.context)

    def serial(self):
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as plain:
            with self.context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
                return secure.getpeercert()["serialNumber"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority, tmp_path_factory):
    certificate, key = authority.issue("server")
    log = tmp_path_factory.mktemp("tls") / "server.log"
    with HttpsServer(authority, "--ssl-certfile", certificate, "--ssl-keyfile", key, log=log) as s:
        yield s


def answer(server):
    return server.post("/v1/chat/completions", ASK).json()["choices"][0]["message"]["content"]


def test_start_says_https(server):
    log = pathlib.Path(server.log_path).read_text()
    assert "TLS: certificate of CN=127.0.0.1, valid until" in log
    assert f"API https://127.0.0.1:{server.port}/v1 (metrics https://" in log
    assert f"try: curl https://127.0.0.1:{server.port}/v1/chat/completions" in log
    assert "http://" not in log.replace("https://", "")


def test_openai_client(server, authority):
    context = ssl.create_default_context(cafile=authority.file)
    with httpx.Client(verify=context) as transport:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", http_client=transport)
        whole = client.chat.completions.create(model="tiny", **ASK).choices[0].message.content
        parts = client.chat.completions.create(model="tiny", stream=True, **ASK)
        assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices) == whole
        assert [model.id for model in client.models.list()] == ["tiny"]
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(server.url + "/health")


def test_requests_probes_and_metrics(server, authority):
    with requests.Session() as session:
        session.trust_env = False  # a variable of the environment may name other authorities
        session.verify = str(authority.file)
        for path in ("/health", "/ready", "/v1/models", "/metrics", "/"):
            assert session.get(server.url + path, timeout=30).status_code == 200, path
        with session.post(server.url + "/v1/chat/completions", json={**ASK, "stream": True}, stream=True, timeout=60) as reply:
            events = list(stream_events(line + b"\n" for line in reply.iter_lines() if line))
        assert events[-1]["choices"][0]["finish_reason"]


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl here")
def test_curl(server, authority):
    out = subprocess.run(["curl", "-sS", "--cacert", authority.file, server.url + "/health"], capture_output=True, text=True, timeout=30)
    assert out.returncode == 0 and "ok" in out.stdout, out.stderr
    assert subprocess.run(["curl", "-sS", server.url + "/health"], capture_output=True, timeout=30).returncode == 60


def test_plain_http_is_told_and_logged_once(server):
    before = pathlib.Path(server.log_path).read_text()
    reply = server.raw(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 400 ") and b"https_required" in reply
    time.sleep(0.2)
    lines = pathlib.Path(server.log_path).read_text()[len(before):].splitlines()
    assert len(lines) == 1 and " 400" in lines[0], lines


def test_slow_handshakes_hold_nobody_up_and_end(server):
    """The limit of a handshake is that of a request's head: 10 s."""
    start = time.monotonic()
    silent = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(20)]
    for s in silent[10:]:
        s.sendall(bytes.fromhex("1603010200010001fc0303"))
    before = answer(server)
    assert time.monotonic() - start < 8
    for s in silent:
        with contextlib.closing(s), contextlib.suppress(ConnectionResetError):
            assert s.recv(100) == b""
    assert 8 < time.monotonic() - start < 20
    assert answer(server) == before


def test_half_open_and_garbage(server):
    before = answer(server)
    request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as plain:
        with server.context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
            secure.sendall(request)
            with contextlib.suppress(ssl.SSLError, OSError):
                secure.unwrap()  # says that nothing more comes
    # Bytes that are no record, in the middle of a connection.
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as plain:
        secure = server.context.wrap_socket(plain, server_hostname="127.0.0.1", do_handshake_on_connect=True)
        descriptor = secure.detach()
        with socket.socket(fileno=descriptor) as raw:
            raw.settimeout(30)
            raw.sendall(b"GET / HTTP/1.1\r\n\r\n" * 50)
            with contextlib.suppress(ConnectionResetError):
                while raw.recv(65536):
                    pass
    assert answer(server) == before
    server.wait_until_idle()


def test_64_streams_of_which_half_go_away(server):
    before = answer(server)
    results = [None] * 64
    body = {"text": "Once upon a time", "stream": True,
            "sampling_params": {"temperature": 0, "max_new_tokens": 48, "ignore_eos": True}}

    def one(i):
        with contextlib.closing(server.connect(300)) as connection:
            connection.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
            if i % 4 == 0:
                results[i] = "left"
                return
            response = connection.getresponse()
            events = 0
            for line in response:
                events += line.startswith(b"data: {")
                if i % 2 == 0 and events == 1 + i % 7:
                    results[i] = "left"
                    return
                if line.startswith(b"data: [DONE]"):
                    results[i] = events

    threads = [threading.Thread(target=one, args=(i,)) for i in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(result == "left" if i % 2 == 0 else result > 0 for i, result in enumerate(results)), results
    server.wait_until_idle()
    assert answer(server) == before


def test_certificates_of_clients(authority, tmp_path):
    certificate, key = authority.issue("of-clients")
    client = authority.issue("client", "a client")
    stranger_folder = tmp_path / "stranger"
    stranger_folder.mkdir()
    stranger = Authority(stranger_folder).issue("client", "a client")
    log = tmp_path / "server.log"
    flags = ("--ssl-certfile", certificate, "--ssl-keyfile", key, "--ssl-ca-certs", authority.file, "--ssl-cert-reqs", "2")
    with HttpsServer(authority, *flags, identity=client, log=log) as server:
        assert answer(server)
        assert requests.get(server.url + "/health", verify=authority.file, cert=tuple(map(str, client)), timeout=30).status_code == 200
        for wrong in (None, tuple(map(str, stranger))):
            with pytest.raises(requests.exceptions.ConnectionError):
                requests.get(server.url + "/health", verify=authority.file, cert=wrong, timeout=30)
    lines = log.read_text()
    assert "clients must have one" in lines
    assert "TLS handshake failed: peer did not return a certificate" in lines
    assert "TLS handshake failed: the client's certificate: " in lines


def test_refresh(authority, tmp_path):
    folder = tmp_path / "live"
    folder.mkdir()
    live = [folder / "cert.pem", folder / "key.pem"]

    def install(pair):
        for source, target in zip(pair, live):
            shutil.copy(source, target.with_suffix(".new"))
            target.with_suffix(".new").rename(target)

    install(authority.issue("first"))
    log = tmp_path / "server.log"
    with HttpsServer(authority, "--ssl-certfile", live[0], "--ssl-keyfile", live[1], "--enable-ssl-refresh", log=log) as server:
        first = server.serial()
        install(authority.issue("second"))
        end = time.monotonic() + 10
        while server.serial() == first and time.monotonic() < end:
            time.sleep(0.1)
        second = server.serial()
        assert second != first
        live[0].write_text("broken")
        end = time.monotonic() + 10
        while "TLS goes on with what was read before" not in log.read_text() and time.monotonic() < end:
            time.sleep(0.1)
        assert server.serial() == second
    text = log.read_text()
    assert len(re.findall("TLS files were read again", text)) == 1
    assert len(re.findall("TLS goes on with what was read before", text)) == 1


def test_faulty_files_end_the_start(authority, tmp_path):
    certificate, key = authority.issue("good")
    _, other = authority.issue("other")
    locked, locked_key = authority.issue("locked", password="a long password")
    missing = tmp_path / "missing.pem"
    for flags, part in (
        (("--ssl-certfile", missing, "--ssl-keyfile", key), "--ssl-certfile"),
        (("--ssl-certfile", certificate, "--ssl-keyfile", missing), "--ssl-keyfile"),
        (("--ssl-certfile", certificate, "--ssl-keyfile", other), "does not belong"),
        (("--ssl-certfile", certificate), "holds no private key"),
        (("--ssl-keyfile", key), "give --ssl-certfile"),
        (("--ssl-certfile", locked, "--ssl-keyfile", locked_key), "give --ssl-keyfile-password"),
        (("--ssl-certfile", locked, "--ssl-keyfile", locked_key, "--ssl-keyfile-password", "wrong"), "does not open"),
        (("--ssl-certfile", certificate, "--ssl-keyfile", key, "--ssl-cert-reqs", "2"), "give --ssl-ca-certs"),
        (("--ssl-certfile", certificate, "--ssl-keyfile", key, "--ssl-cert-reqs", "3"), "--ssl-cert-reqs"),
    ):
        out = sluice("serve", "--model", TINY, *flags, timeout=60)
        assert out.returncode == 2 and part in out.stderr, (flags, out.stderr)
        assert "wrong" not in out.stderr and "model tiny" not in out.stderr


def test_socket_in_the_file_system(tmp_path):
    path = tmp_path / "http.sock"
    log = tmp_path / "server.log"

    class UnixServer(Server):
        def request(self, method, target, body=None, headers=None, timeout=120):
            with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=timeout) as client:
                try:
                    out = client.request(method, "http://localhost" + target, content=body, headers=headers)
                except httpx.TransportError as error:
                    raise OSError(str(error)) from error
            out.status = out.status_code
            out.body = out.content
            return out

    with UnixServer(TINY, *FLAGS, "--uds", path, log=log) as server:
        assert answer(server)
        transport = httpx.Client(transport=httpx.HTTPTransport(uds=str(path)))
        client = openai.OpenAI(base_url="http://localhost/v1", api_key="none", http_client=transport)
        assert client.chat.completions.create(model="tiny", **ASK).choices[0].message.content == answer(server)
    assert not path.exists()
    assert f"curl --unix-socket {path} http://localhost/v1/chat/completions" in log.read_text()
