"""Starts `sluice serve`, talks to it with only the standard library, and stops it."""

import contextlib
import http.client
import json
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
TINY = ROOT / "models" / "sluice-tiny"


def binary():
    named = os.environ.get("SLUICE")
    candidates = [named] if named else [ROOT / "build" / "bin" / "sluice", ROOT / "build" / "sluice"]
    for path in candidates:
        if pathlib.Path(path).exists():
            return str(path)
    raise FileNotFoundError(f"no sluice program at {candidates}; build it, or name it in SLUICE")


def free_port():
    with contextlib.closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def sluice(*args, timeout=600, env=None, stdin=None):
    """Runs the program to its end, on a port that a server of `make serve` does not hold."""
    return subprocess.run(
        [binary(), *map(str, args)], capture_output=True, text=True, timeout=timeout, input=stdin,
        env={"SLUICE_ARG_PORT": "0", **os.environ, **(env or {})}
    )


def generate(model, *flags, threads=2):
    """What a model of the fixtures, or the bundled one, goes on with behind forty tokens, on a CPU and greedily."""
    directory = TINY if model == TINY.name else GOLDEN / "models" / model
    ids = ",".join(str(50 + i % 7) for i in range(40))
    done = sluice("generate", "--model", directory, "--tokenizer-path", TINY, "--input-ids", ids, "--max-new-tokens",
                  "24", "--temperature", "0", "--dtype", "float32", "--max-total-tokens", "32768", "--device", "cpu",
                  *flags, env={"SLUICE_ARG_THREADS": str(threads)})
    assert done.returncode == 0, done.stderr
    return done.stdout


class Reply:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json()["error"]


class Server:
    """A running server; a context manager."""

    def __init__(self, model, *flags, log=None, ready_timeout=120, exit_status=0, env=None):
        self.exit_status = exit_status  # expected exit status
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = log
        self._log = open(log, "wb") if log else subprocess.DEVNULL
        # SLUICE_TEST_DEVICE=cuda runs these tests on a GPU, and SLUICE_TEST_FLAGS="--tp-size 2" on two.
        device = os.environ.get("SLUICE_TEST_DEVICE")
        given = [] if device is None or "--device" in flags else ["--device", device]
        given += shlex.split(os.environ.get("SLUICE_TEST_FLAGS", ""))
        self._args = [binary(), "serve", "--model", str(model), "--port", str(self.port), *given, *map(str, flags)]
        self._env = {**os.environ, **(env or {})}
        self.start(ready_timeout)

    def start(self, ready_timeout=120):
        """Starts the process, also anew on the same port after it has ended."""
        self.process = subprocess.Popen(self._args, stdout=self._log, stderr=subprocess.STDOUT, env=self._env)
        self._wait_until_ready(ready_timeout)

    def _log_tail(self):
        return pathlib.Path(self.log_path).read_text(errors="replace")[-2000:] if self.log_path else ""

    def _wait_until_ready(self, timeout):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}: {self._log_tail()}")
            try:
                if self.get("/ready", timeout=5).status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        self.process.kill()
        raise TimeoutError(f"not ready after {timeout} s: {self._log_tail()}")

    def request(self, method, path, body=None, headers=None, timeout=120):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            connection.request(method, path, body=body, headers=headers or {})
            response = connection.getresponse()
            return Reply(response.status, dict(response.getheaders()), response.read())

    def get(self, path, **kwargs):
        return self.request("GET", path, **kwargs)

    def post(self, path, value, headers=None, **kwargs):
        """`value` is JSON, or bytes that are sent unchanged."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return self.request("POST", path, body, {"Content-Type": "application/json", **(headers or {})}, **kwargs)

    def raw(self, data, timeout=15, read_limit=1 << 20):
        """Sends bytes on a fresh connection; returns the received bytes until the peer closes or
        `timeout`."""
        with contextlib.closing(socket.create_connection(("127.0.0.1", self.port), timeout=timeout)) as s:
            try:
                for part in [data] if isinstance(data, bytes) else data:
                    s.sendall(part)
            except (BrokenPipeError, ConnectionResetError):
                pass
            received = b""
            with contextlib.suppress(socket.timeout, ConnectionResetError):
                while len(received) < read_limit:
                    part = s.recv(65536)
                    if not part:
                        break
                    received += part
                    if complete_response(received):
                        break
            return received

    def state(self):
        return self.get("/get_server_info").json()["internal_states"][0]

    def wait_until_idle(self, timeout=20):
        """Returns the state when no request runs or waits and no page is held."""
        end = time.monotonic() + timeout
        while True:
            state = self.state()
            if state["num_running_reqs"] == 0 and state["num_queue_reqs"] == 0 and state["used_tokens"] == 0:
                return state
            if time.monotonic() > end:
                raise AssertionError(f"not idle after {timeout} s: {state}")
            time.sleep(0.02)

    def stop(self, timeout=60):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            if self._log is not subprocess.DEVNULL:
                self._log.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        code = self.stop()
        if exc[0] is None:
            assert code == self.exit_status, f"exit status {code} after SIGTERM: {self._log_tail()}"


def complete_response(data):
    """Whether `data` is a whole HTTP response with a Content-Length."""
    head, separator, body = data.partition(b"\r\n\r\n")
    if not separator:
        return False
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return len(body) >= int(value)
    return False


def status_of(data):
    """The status of a raw response; 0 when the connection was closed without one."""
    return int(data.split(b" ", 2)[1]) if data.startswith(b"HTTP/1.") else 0


def stream_events(response):
    """The JSON events of a server-sent event stream; checks that it ends with [DONE]."""
    done = False
    for raw in response:
        line = raw.decode().rstrip("\r\n")
        if not line or line.startswith(":"):
            continue
        assert not done, f"after [DONE]: {line}"
        assert line.startswith("data: "), line
        if line == "data: [DONE]":
            done = True
            continue
        yield json.loads(line[6:])
    assert done, "the stream ended without [DONE]"


def tiny_records():
    return json.loads((GOLDEN / "sluice-tiny.json").read_text())
