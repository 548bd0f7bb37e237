// Options of the HTTP server and its limits.
#include "engine/options_rows.h"

namespace sluice {
namespace {

using namespace option_rows;
namespace parse = option_parse;
using enum OptionType;
constexpr std::string_view kServer = "Server";
constexpr std::string_view kLimits = "Limits";
// How --host spells a socket in the file system.
constexpr std::string_view kUnixHost = "unix:";

void set_reasoning_field(Options& o, std::string_view v) {
  o.reasoning_field = parse::choice(
      v,
      {{"reasoning_content", "reasoning_content"}, {"reasoning", "reasoning"}, {"both", "both"}});
}
void set_metrics_compat(Options& o, std::string_view v) {
  o.metrics_compat = parse::choice(v, {{"sglang,vllm", "sglang,vllm"},
                                       {"vllm,sglang", "sglang,vllm"},
                                       {"sglang", "sglang"},
                                       {"vllm", "vllm"},
                                       {"none", "none"}});
}

void set_unix_socket(Options& o, std::string_view v) {
  require(!v.empty(), "a path is missing");
  o.host = std::string(kUnixHost) + std::string(v);
}
Json unix_socket(const Options& o) {
  return o.host.starts_with(kUnixHost) ? o.host.substr(kUnixHost.size()) : std::string();
}

// An origin is what browsers send: a scheme and a host, perhaps a port, and nothing behind them.
void set_allowed_origins(Options& o, std::string_view v) {
  std::vector<std::string> origins = parse::word_list(v);
  for (const std::string& origin : origins) {
    if (origin == "*" || origin == "localhost" || origin == "null") continue;
    const std::size_t host = origin.find("://");
    require(host != std::string::npos && host > 0 && host + 3 < origin.size() &&
                origin.find_first_of("/?#* \t\r\n", host + 3) == std::string::npos,
            "'{}' is no origin; write https://example.com, with a port if there is one and without "
            "a path",
            origin);
  }
  o.allowed_origins = std::move(origins);
}
// Names of methods or headers, which go into a header as they are.
template <auto Field>
void set_names(Options& o, std::string_view v) {
  std::vector<std::string> names = parse::word_list(v);
  for (const std::string& name : names)
    for (const char c : name)
      require(c > ' ' && c < 127 && c != ',' && c != ':', "'{}' is no name", name);
  o.*Field = std::move(names);
}

}  // namespace

std::vector<OptionRow> server_option_rows() {
  return {
      {.name = "host",
       .group = kServer,
       .allowed = "an address or unix:PATH",
       .help = "Address to listen on.",
       .set = set_text<&Options::host>,
       .get = field<&Options::host>},
      {.name = "port",
       .type = kInt,
       .group = kServer,
       .allowed = "0 (any free one) to 65535",
       .help = "Port to listen on.",
       .set = set_int<&Options::port, 0, 65535>,
       .get = field<&Options::port>},
      {.name = "uds",
       .group = kServer,
       .allowed = "a path",
       .help = "Unix socket to listen on instead of --host and --port; default: none.",
       .set = set_unix_socket,
       .get = unix_socket},
      {.name = "api-key",
       .type = kList,
       .group = kServer,
       .allowed = "keys, comma-separated or repeated",
       .help = "Keys that clients must send.",
       .secret = true,
       .set = set_list<&Options::api_keys>,
       .get = field<&Options::api_keys>},
      {.name = "api-key-file",
       .group = kServer,
       .allowed = "a YAML or JSON file",
       .help = "Keys with names, roles and limits, read again at SIGHUP; default: none.",
       .set = set_text<&Options::api_key_file>,
       .get = field<&Options::api_key_file>},
      {.name = "admin-api-key",
       .group = kServer,
       .allowed = "a key",
       .help = "Key of the administrative routes.",
       .secret = true,
       .set = set_text<&Options::admin_api_key>,
       .get = field<&Options::admin_api_key>},
      {.name = "admin-socket",
       .group = kServer,
       .allowed = "a path",
       .help =
           "Unix socket that the administrative routes move to, and that only the server's user "
           "may open; default: they are on the port.",
       .set = set_text<&Options::admin_socket>,
       .get = field<&Options::admin_socket>},
      {.name = "reasoning-parser",
       .group = kServer,
       .allowed = "a parser's name, or none",
       .help = "Splits thinking from the answer; default: detected from the template.",
       .set = set_text<&Options::reasoning_parser>,
       .get = field<&Options::reasoning_parser>},
      {.name = "tool-call-parser",
       .group = kServer,
       .allowed = "a parser's name, or none",
       .help = "Format of tool calls; default: detected from the template.",
       .set = set_text<&Options::tool_call_parser>,
       .get = field<&Options::tool_call_parser>},
      {.name = "constrain-tool-calls",
       .type = kFlag,
       .group = kServer,
       .allowed = "true, false",
       .help = "With tool_choice auto: a call names a tool of the request, and its arguments obey "
               "the tool's schema. If false, calls are free and clear faults are mended. Strict "
               "tools and other choices always bind.",
       .set = set_flag<&Options::constrain_tool_calls>,
       .get = field<&Options::constrain_tool_calls>},
      {.name = "reasoning-field",
       .group = kServer,
       .allowed = "reasoning_content, reasoning, both",
       .help = "Name of the field that holds thinking.",
       .set = set_reasoning_field,
       .get = field<&Options::reasoning_field>},
      {.name = "stream-interval",
       .type = kInt,
       .group = kServer,
       .allowed = "1 to 1000",
       .help = "Tokens in an event of a stream.",
       .set = set_int<&Options::stream_interval, 1, 1000>,
       .get = field<&Options::stream_interval>},
      {.name = "io-threads",
       .type = kInt,
       .group = kServer,
       .allowed = "1 to 64",
       .help = "Threads of the HTTP server.",
       .set = set_int<&Options::io_threads, 1, 64>,
       .get = field<&Options::io_threads>},
      {.name = "metrics-compat",
       .group = kServer,
       .allowed = "sglang,vllm; sglang; vllm; none",
       .help = "Whose metric names /metrics shows.",
       .set = set_metrics_compat,
       .get = field<&Options::metrics_compat>},
      {.name = "metrics-open",
       .type = kFlag,
       .group = kServer,
       .allowed = "true, false",
       .help = "/metrics answers without a key, as in vLLM and SGLang.",
       .set = set_flag<&Options::metrics_open>,
       .get = field<&Options::metrics_open>},
      {.name = "response-store",
       .group = kServer,
       .allowed = "a file",
       .help = "File of SQLite that keeps responses of /v1/responses longer than the server runs; "
               "default: they are kept in memory.",
       .set = set_text<&Options::response_store>,
       .get = field<&Options::response_store>},
      {.name = "response-store-max-bytes",
       .type = kInt,
       .group = kServer,
       .allowed = "0 (64 MiB in memory, 1 GiB in a file) to 1099511627776",
       .help = "Most bytes of responses that are kept; the oldest go first.",
       .set = set_int<&Options::response_store_max_bytes, 0, std::int64_t{1} << 40>,
       .get = field<&Options::response_store_max_bytes>},
      {.name = "response-store-max-entries",
       .type = kInt,
       .group = kServer,
       .allowed = "0 (4096 in memory, 100000 in a file) to 100000000",
       .help = "Most responses that are kept; the oldest go first.",
       .set = set_int<&Options::response_store_max_entries, 0, 100'000'000>,
       .get = field<&Options::response_store_max_entries>},
      {.name = "otlp-traces-endpoint",
       .group = kServer,
       .allowed = "a URL of http or https",
       .help = "Collector of OpenTelemetry that is sent a span of each request, with OTLP over "
               "HTTP: http://127.0.0.1:4318; default: none.",
       .set = set_text<&Options::otlp_traces_endpoint>,
       .get = field<&Options::otlp_traces_endpoint>},
      {.name = "no-webui",
       .type = kFlag,
       .group = kServer,
       .allowed = "true, false",
       .help = "No page at /.",
       .set = set_flag<&Options::no_webui>,
       .get = field<&Options::no_webui>},
      {.name = "page-store",
       .group = kServer,
       .allowed = "browser, or a file",
       .help = "Where the page keeps its chats: in the browser, or in a file of SQLite by key.",
       .set = set_text<&Options::page_store>,
       .get = field<&Options::page_store>},
      {.name = "allowed-origins",
       .group = kServer,
       .allowed = "origins as a JSON list or comma-separated; localhost, *, none",
       .help = "Pages of which origins a browser lets use the server; localhost means those of "
               "this machine, * means all.",
       .set = set_allowed_origins,
       .get = field<&Options::allowed_origins>},
      {.name = "allowed-methods",
       .group = kServer,
       .allowed = "methods as a JSON list or comma-separated; * (those that routes have)",
       .help = "Methods that pages of the allowed origins may use.",
       .set = set_names<&Options::allowed_methods>,
       .get = field<&Options::allowed_methods>},
      {.name = "allowed-headers",
       .group = kServer,
       .allowed = "headers as a JSON list or comma-separated; * (any)",
       .help = "Headers that pages of the allowed origins may send.",
       .set = set_names<&Options::allowed_headers>,
       .get = field<&Options::allowed_headers>},
      {.name = "allow-credentials",
       .type = kFlag,
       .group = kServer,
       .allowed = "true, false",
       .help = "Pages of the allowed origins may send cookies and HTTP credentials.",
       .set = set_flag<&Options::allow_credentials>,
       .get = field<&Options::allow_credentials>},
      {.name = "ssl-certfile",
       .group = kServer,
       .allowed = "a file in PEM",
       .help = "Certificate of the server, then those that signed it: the port speaks HTTPS only; "
               "default: plain HTTP.",
       .set = set_text<&Options::ssl_certfile>,
       .get = field<&Options::ssl_certfile>},
      {.name = "ssl-keyfile",
       .group = kServer,
       .allowed = "a file in PEM",
       .help = "Private key of the certificate; default: it stands in --ssl-certfile.",
       .set = set_text<&Options::ssl_keyfile>,
       .get = field<&Options::ssl_keyfile>},
      {.name = "ssl-keyfile-password",
       .group = kServer,
       .allowed = "a password",
       .help = "Password of an encrypted key.",
       .secret = true,
       .set = set_text<&Options::ssl_keyfile_password>,
       .get = field<&Options::ssl_keyfile_password>},
      {.name = "ssl-ca-certs",
       .group = kServer,
       .allowed = "a file in PEM",
       .help = "Certificates of those who sign clients' certificates; default: none.",
       .set = set_text<&Options::ssl_ca_certs>,
       .get = field<&Options::ssl_ca_certs>},
      {.name = "ssl-cert-reqs",
       .type = kInt,
       .group = kServer,
       .allowed = "0 (none), 1 (optional), 2 (required)",
       .help = "Whether clients must show a certificate.",
       .set = set_int<&Options::ssl_cert_reqs, 0, 2>,
       .get = field<&Options::ssl_cert_reqs>},
      {.name = "enable-ssl-refresh",
       .type = kFlag,
       .group = kServer,
       .allowed = "true, false",
       .help = "Files of TLS that change are read again; faulty ones leave those of before.",
       .set = set_flag<&Options::enable_ssl_refresh>,
       .get = field<&Options::enable_ssl_refresh>},
      {.name = "max-body-bytes",
       .type = kInt,
       .group = kLimits,
       .allowed = "1024 to 4294967296",
       .help = "Largest request body; larger ones get 413.",
       .set = set_int<&Options::max_body_bytes, 1024, std::int64_t{1} << 32>,
       .get = field<&Options::max_body_bytes>},
      {.name = "max-connections",
       .type = kInt,
       .group = kLimits,
       .allowed = "1 to 1000000",
       .help = "Open connections; more are closed at once.",
       .set = set_int<&Options::max_connections, 1, 1000000>,
       .get = field<&Options::max_connections>},
  };
}

}  // namespace sluice
