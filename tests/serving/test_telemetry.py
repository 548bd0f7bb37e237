"""Spans of requests at a collector of OpenTelemetry: OTLP over HTTP, read with OpenTelemetry's own message types."""

import base64
import contextlib
import http.server
import re
import threading
import time

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from sluice_server import TINY, Server, sluice

FLAGS = ("--dtype", "float32", "--served-model-name", "tiny", "--threads", "1")
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CHAT = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0, "max_tokens": 6}


class Collector(http.server.ThreadingHTTPServer):
    """Keeps what it is sent. `status` is what it answers, `delay` how long it takes."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.delay, self.heads, self.bodies = 200, 0, [], []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def spans(self):
        out = []
        for body in self.bodies:
            # Ids are hexadecimal in OTLP's JSON, where proto3's JSON has base64.
            value = re.sub(rb'"(traceId|spanId|parentSpanId)":"([0-9a-f]*)"', lambda found: b'"%s":"%s"' % (
                found[1], base64.b64encode(bytes.fromhex(found[2].decode()))), body)
            message = json_format.Parse(value, ExportTraceServiceRequest())   # no field may be unknown
            for resource in message.resource_spans:
                about = {one.key: one.value.string_value for one in resource.resource.attributes}
                assert about["service.name"] and about["telemetry.sdk.language"] == "cpp"
                for scope in resource.scope_spans:
                    out += scope.spans
        return out

    def requests(self, count):
        """The spans `llm_request`, once there are `count`."""
        end = time.monotonic() + 20
        while True:
            found = [span for span in self.spans() if span.name == "llm_request"]
            if len(found) >= count:
                assert len(found) == count
                return found
            assert time.monotonic() < end, found
            time.sleep(0.05)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.server.delay)
        if self.server.status == 200:
            self.server.heads.append((self.path, dict(self.headers)))
            self.server.bodies.append(body)
        answer = b'{"partialSuccess":{}}'
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture
def collector():
    with contextlib.closing(Collector()) as running:
        running.close = running.server_close
        yield running
        running.shutdown()


@pytest.fixture
def server(collector, tmp_path):
    with Server(TINY, *FLAGS, "--otlp-traces-endpoint", collector.url, log=tmp_path / "log",
                env={"OTEL_SERVICE_NAME": "mine", "OTEL_EXPORTER_OTLP_HEADERS": "x-token=a b, x-more=c"}) as running:
        yield running


def attributes(span):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def figure(server, name):
    return float(re.search(rf"^sluice:traces_{name}_total (\S+)$", server.get("/metrics").body.decode(), re.MULTILINE).group(1))


def test_a_request_has_a_span_with_its_phases(server, collector):
    begin = time.time_ns()
    reply = server.post("/v1/chat/completions", {**CHAT, "model": "tiny", "top_p": 0.5},
                        headers={"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1", "X-Request-Id": "mine-1"})
    end = time.time_ns()
    usage = reply.json()["usage"]
    [span] = collector.requests(1)
    assert span.trace_id.hex() == TRACE and span.parent_span_id.hex() == PARENT and span.trace_state == "vendor=1"
    assert span.kind == span.SPAN_KIND_SERVER
    slack = 50_000_000
    assert begin - slack <= span.start_time_unix_nano < span.end_time_unix_nano <= end + slack
    told = attributes(span)
    assert told["gen_ai.request.id"] == "mine-1" and told["gen_ai.response.model"] == "tiny"
    assert told["gen_ai.operation.name"] == "chat" and told["url.path"] == "/v1/chat/completions"
    assert told["gen_ai.usage.prompt_tokens"] == usage["prompt_tokens"]
    assert told["gen_ai.usage.completion_tokens"] == usage["completion_tokens"]
    assert told["gen_ai.request.max_tokens"] == 6 and told["gen_ai.request.temperature"] == 0 and told["gen_ai.request.n"] == 1
    assert told["gen_ai.request.top_p"] == pytest.approx(0.5)
    [finish] = told["gen_ai.response.finish_reasons"].values
    assert finish.string_value == reply.json()["choices"][0]["finish_reason"]
    times = {name: told[f"gen_ai.latency.{name}"] for name in (
        "time_in_queue", "time_to_first_token", "time_in_model_prefill", "time_in_model_decode", "time_in_model_inference", "e2e")}
    assert all(value >= 0 for value in times.values())
    assert times["time_in_model_inference"] == pytest.approx(times["time_in_model_prefill"] + times["time_in_model_decode"], abs=1e-6)
    assert times["time_to_first_token"] < times["e2e"] == pytest.approx((span.end_time_unix_nano - span.start_time_unix_nano) / 1e9, abs=1e-5)
    children = {child.name: child for child in collector.spans() if child.parent_span_id == span.span_id}
    assert list(children) == ["read", "queue", "prefill", "decode"]
    assert all(child.trace_id == span.trace_id for child in children.values())
    [(path, headers)] = collector.heads
    assert path == "/v1/traces" and headers["Content-Type"] == "application/json"
    assert headers["x-token"] == "a b" and headers["x-more"] == "c"
    assert '"mine"' in collector.bodies[0].decode() and "France" not in collector.bodies[0].decode()
    assert figure(server, "exported") == 1 and figure(server, "dropped") == 0


def test_every_protocol_has_spans(server, collector):
    messages = {"messages": CHAT["messages"], "max_tokens": 4}
    asks = [("/v1/chat/completions", {**messages, "stream": True}), ("/v1/completions", {"prompt": "a", "max_tokens": 3, "n": 2}),
            ("/v1/responses", {"input": "Hello", "max_output_tokens": 4}), ("/v1/messages", messages),
            ("/api/generate", {"prompt": "a", "stream": False, "options": {"num_predict": 3}}),
            ("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 3}})]
    for path, ask in asks:
        assert server.post(path, {"model": "tiny", **ask} if path != "/generate" else ask).status == 200
    told = [attributes(span) for span in collector.requests(len(asks))]
    assert [one["url.path"] for one in told] == [path for path, _ in asks]
    assert [one["gen_ai.operation.name"] for one in told] == ["chat", "text_completion", "chat", "chat"] + 2 * ["text_completion"]
    assert told[1]["gen_ai.usage.num_sequences"] == 2
    assert len({span.trace_id for span in collector.spans()}) == len(asks)


def test_callers_decide_what_is_kept(server, collector):
    server.post("/v1/chat/completions", CHAT, headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
    server.post("/v1/chat/completions", CHAT, headers={"traceparent": "nonsense", "tracestate": "vendor=1"})
    [span] = collector.requests(1)
    assert span.trace_id.hex() != TRACE and not span.parent_span_id and not span.trace_state


def test_what_is_left_is_sent_at_the_end(server, collector):
    server.post("/v1/chat/completions", CHAT)
    server.stop()
    assert len(collector.requests(1)) == 1


def test_a_slow_or_dead_collector_slows_nothing(server, collector, tmp_path):
    def seconds():
        begin = time.monotonic()
        for _ in range(20):
            assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 2}).status == 200
        return time.monotonic() - begin

    seconds()
    quick = seconds()
    collector.requests(40)
    collector.delay = 5
    assert seconds() < 3 * quick + 0.5
    collector.status, collector.delay = 500, 0
    end = time.monotonic() + 40
    while figure(server, "dropped") == 0:
        server.post("/v1/completions", {"prompt": "a", "max_tokens": 2})
        assert time.monotonic() < end
        time.sleep(0.2)
    collector.shutdown()
    collector.server_close()
    assert seconds() < 3 * quick + 0.5
    assert server.get("/ready").status == 200
    begin = time.monotonic()
    server.stop()
    assert time.monotonic() - begin < 15
    assert "traces do not reach" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("endpoint", ["grpc://127.0.0.1:4317", "127.0.0.1:4317", "nonsense"])
def test_what_is_no_http_is_refused_by_name(endpoint):
    run = sluice("serve", "--model", TINY, "--otlp-traces-endpoint", endpoint)
    assert run.returncode == 2 and endpoint in run.stderr and "gRPC" in run.stderr


def test_without_a_collector_nothing_is_counted(tmp_path):
    with Server(TINY, *FLAGS, "--enable-trace", log=tmp_path / "log") as server:
        assert server.post("/v1/chat/completions", CHAT, headers={"traceparent": f"00-{TRACE}-{PARENT}-01"}).status == 200
        assert "sluice:traces" not in server.get("/metrics").body.decode()
    assert "--otlp-traces-endpoint" in (tmp_path / "log").read_text()
