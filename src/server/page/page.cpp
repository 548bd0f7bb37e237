#include "server/page/page.h"

#include <algorithm>

#include "server/core/errors.h"
#include "server/page/page_files.h"

namespace sluice {
namespace {

constexpr std::string_view kFolder = "/page/";
constexpr std::string_view kIndex = "index.html";
// Scripts, styles and data come from this server alone; nothing is inline, nothing may frame it.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Calls `take` with the comma-separated items of a header until it says true.
template <class Take>
bool any_item(const std::string* header, Take&& take) {
  std::string_view rest = header ? std::string_view(*header) : std::string_view();
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    if (take(trimmed(rest.substr(0, comma)))) return true;
    rest.remove_prefix(std::min(rest.size(), comma + 1));
  }
  return false;
}

bool takes_gzip(const HttpRequest& request) {
  return any_item(request.header("accept-encoding"), [](std::string_view item) {
    const std::size_t semicolon = std::min(item.find(';'), item.size());
    const std::string_view weight = trimmed(item.substr(std::min(item.size(), semicolon + 1)));
    // A weight of zero (RFC 9110, 12.4.2) has no digit but 0.
    const bool is_refused =
        weight.starts_with("q=0") && weight.find_first_of("123456789", 3) == std::string_view::npos;
    return trimmed(item.substr(0, semicolon)) == "gzip" && !is_refused;
  });
}

bool has_it(const HttpRequest& request, const PageFile& file) {
  return any_item(request.header("if-none-match"), [&](std::string_view item) {
    return item == "*" || item == file.etag ||
           file.etag == fmt::format("W/{}", item);  // weak comparison
  });
}

}  // namespace

std::optional<Fault> page_fault(const ServerState& state) {
  if (!state.options.no_webui) return std::nullopt;
  return Fault{404, "not_found", "",
               "The page is switched off (--no-webui); the API is below /v1."};
}

HttpReply handle_page(ServerState& state, const HttpRequest& request) {
  if (const auto fault = page_fault(state)) return error_reply(*fault);
  const std::string_view name = request.path.starts_with(kFolder)
                                    ? std::string_view(request.path).substr(kFolder.size())
                                    : kIndex;
  const std::span<const PageFile> files = page_files();
  const auto file = std::ranges::find(files, name, &PageFile::name);
  if (file == files.end())
    return error_reply(
        Fault{404, "not_found", "", fmt::format("The page has no file {}.", shown_text(name, 96))});
  HttpReply reply;
  reply.content_type = file->content_type;
  reply.headers = {{"ETag", std::string(file->etag)},     {"Cache-Control", "no-cache"},
                   {"Vary", "Accept-Encoding"},           {"Content-Security-Policy", kPolicy},
                   {"X-Content-Type-Options", "nosniff"}, {"Referrer-Policy", "no-referrer"}};
  if (has_it(request, *file)) {
    reply.status = 304;
    return reply;
  }
  const bool gzip = !file->gzip.empty() && takes_gzip(request);
  if (gzip) reply.headers.emplace_back("Content-Encoding", "gzip");
  reply.body = gzip ? file->gzip : file->bytes;
  return reply;
}

}  // namespace sluice
