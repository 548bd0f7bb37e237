"""A model in a process of its own, with nothing but Python's standard library.

    with sluice.Engine("Qwen/Qwen3-0.6B", max_running_requests=64) as engine:
        print(engine.generate("Once upon a time", max_new_tokens=32, temperature=0))
        print(engine.chat("What is the capital of France?")["content"])
        for piece in engine.generate("Once upon a time", stream=True):
            print(piece, end="")

Options of `sluice serve` are keyword arguments, with `_` in place of `-`. The process listens on a socket that only
this user may open. It ends with the block, with `close()`, or with the interpreter. Methods may be called from any
thread.
"""

import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import weakref


class EngineError(Exception):
    """What the engine refused or could not do.

    `status`: of HTTP, 0 where the process ended; `code`: a word for programs, or None.
    """

    def __init__(self, message, status=0, code=None):
        super().__init__(message)
        self.status = status
        self.code = code


class _Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)


def _flag(name, value):
    if isinstance(value, bool):
        value = "true" if value else "false"
    elif isinstance(value, (list, tuple)):
        value = ",".join(map(str, value))
    return "--{}={}".format(name.replace("_", "-"), value)


def _stop(process, folder):
    if process.poll() is None:
        process.terminate()  # requests in flight end first
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    shutil.rmtree(folder, ignore_errors=True)


class Engine:
    """`model`: a folder, a file or a name of the hub; default: the bundled model. `log`: a file for the program's log.

    A start that takes more than `start_timeout` seconds, or ends early, raises EngineError with the log's last lines.
    """

    def __init__(self, model=None, *, program=None, log=None, start_timeout=1800, **options):
        import sluice

        for name in ("host", "port", "uds"):
            if name in options:
                raise TypeError("Engine has a socket of its own; there is no option {!r}".format(name))
        folder = tempfile.mkdtemp(prefix="sluice-")
        self.socket = os.path.join(folder, "socket")
        self._log = str(log or os.path.join(folder, "log"))
        # The environment of the caller gives no options: an engine is what its arguments say.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_ARG_")}
        command = [str(program or sluice.PROGRAM), "serve", str(model or sluice.MODELS / "sluice-tiny"),
                   _flag("uds", self.socket)]
        command += [_flag(name, value) for name, value in options.items() if value is not None]
        try:
            with open(self._log, "ab") as output:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._finalizer = weakref.finalize(self, _stop, self._process, folder)
        try:
            self._wait_until_ready(time.monotonic() + start_timeout)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        """Ends the process, once the requests in flight have ended."""
        self._finalizer()

    def generate(self, prompt, *, stream=False, **sampling):
        """The text that follows `prompt`: a text, token ids, or a list of either, which gives a list.

        `sampling`: sampling_params of /generate, such as `max_new_tokens`, `temperature`, `stop` and `json_schema`.
        `stream`: an iterator over pieces of the text, for one prompt.
        """
        is_ids = not isinstance(prompt, str) and len(prompt) > 0 and not isinstance(prompt[0], str)
        body = {"input_ids" if is_ids else "text": prompt, "sampling_params": sampling}
        if stream:
            return self._pieces(body)
        answer = self.post("/generate", body)
        return [one["text"] for one in answer] if isinstance(answer, list) else answer["text"]

    def chat(self, messages, *, stream=False, **fields):
        """The assistant's message to `messages`, a list as OpenAI has them, or the text of a user.

        It is a dict with `content`, and where there are some `reasoning_content` and `tool_calls`.
        `fields`: those of /v1/chat/completions. `stream`: an iterator over the deltas of the message.
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        body = {"messages": messages, **fields}
        if stream:
            return self._deltas(body)
        return self.post("/v1/chat/completions", body)["choices"][0]["message"]

    def embed(self, texts, **fields):
        """The vector of a text, or the vectors of a list of texts."""
        data = self.post("/v1/embeddings", {"input": texts, **fields})["data"]
        vectors = [one["embedding"] for one in sorted(data, key=lambda one: one["index"])]
        return vectors[0] if isinstance(texts, str) else vectors

    def rerank(self, query, documents, **fields):
        """Pairs of an index into `documents` and its score, the best first."""
        results = self.post("/v1/rerank", {"query": query, "documents": documents, **fields})["results"]
        return [(one["index"], one["relevance_score"]) for one in results]

    def tokenize(self, text, **fields):
        return self.post("/tokenize", {"prompt": text, **fields})["tokens"]

    def detokenize(self, tokens):
        return self.post("/detokenize", {"tokens": tokens})["prompt"]

    def post(self, path, body):
        """The JSON answer of any route."""
        return json.loads(self._ask("POST", path, body).read())

    def get(self, path):
        return json.loads(self._ask("GET", path).read())

    def _wait_until_ready(self, end):
        while True:
            try:
                self._ask("GET", "/ready").read()
                return
            except (OSError, EngineError):
                if self._process.poll() is not None:
                    raise self._ended("The engine did not start") from None
            if time.monotonic() > end:
                raise self._ended("The engine is not ready in time")
            time.sleep(0.05)

    def _ended(self, what):
        try:
            lines = pathlib.Path(self._log).read_text(errors="replace").splitlines()[-8:]
        except OSError:
            lines = []
        return EngineError("\n".join(["{} (exit status {}):".format(what, self._process.poll()), *lines]))

    def _ask(self, method, path, body=None):
        connection = _Connection(self.socket)
        headers = {"Connection": "close"}
        if body is not None:
            body, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        try:
            connection.request(method, path, body, headers)
            reply = connection.getresponse()
        except OSError:
            if path != "/ready" and self._process.poll() is not None:
                raise self._ended("The engine has ended") from None
            raise
        if reply.status >= 400:
            raise self._fault(reply.status, reply.read())
        return reply

    @staticmethod
    def _fault(status, text):
        try:
            error = json.loads(text)["error"]
        except (ValueError, KeyError, TypeError):
            return EngineError(text.decode(errors="replace"), status)
        if isinstance(error, str):
            return EngineError(error, status)
        return EngineError(error["message"], status, error.get("code"))

    def _events(self, path, body):
        """Server-sent events as JSON. An iterator that is dropped ends its request."""
        reply = self._ask("POST", path, {**body, "stream": True})
        with reply:
            for line in reply:
                if not line.startswith(b"data: "):
                    continue
                data = line[6:].strip()
                if data == b"[DONE]":
                    return
                event = json.loads(data)
                if "error" in event:
                    raise self._fault(500, data)
                yield event
        raise self._ended("The stream was cut")

    def _pieces(self, body):
        seen = 0
        for event in self._events("/generate", body):
            yield event["text"][seen:]
            seen = len(event["text"])

    def _deltas(self, body):
        for event in self._events("/v1/chat/completions", body):
            for choice in event["choices"]:
                if choice["delta"]:
                    yield choice["delta"]
