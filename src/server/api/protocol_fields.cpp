#include "server/api/protocol_fields.h"

#include "server/api/request_fields.h"
#include "server/api/unknown_fields.h"
#include "server/core/errors.h"

namespace sluice {
namespace {

bool asks_for_nothing(const Json& json) {
  if (json.is_number()) return json == 0;
  if (json.is_boolean()) return !json.get<bool>();
  if (json.is_string()) return json.get_ref<const std::string&>().empty();
  return json.is_null() || ((json.is_array() || json.is_object()) && json.empty());
}

// `path` is `name` itself or lies in it; a JSON pointer may follow a schema.
bool is_within(std::string_view path, std::string_view name) {
  return path.starts_with(name) &&
         (path.size() == name.size() || path[name.size()] == '.' || path[name.size()] == '#');
}

}  // namespace

std::string FieldNames::own(const std::string& path) const {
  const std::pair<std::string, std::string>* best = nullptr;
  for (const auto& entry : names_)  // of two for one path, the later
    if (is_within(path, entry.first) && (!best || entry.first.size() >= best->first.size()))
      best = &entry;
  return best ? best->second + path.substr(best->first.size()) : path;
}

Fault FieldNames::own(Fault fault) const {
  std::string message;
  std::size_t at = 0;
  while (true) {
    const std::size_t open = fault.message.find('`', at);
    const std::size_t close = open == std::string::npos ? open : fault.message.find('`', open + 1);
    if (close == std::string::npos) break;
    const std::string quoted = fault.message.substr(open + 1, close - open - 1);
    // A word alone may be what the client wrote, such as the name of a tool.
    const bool is_path = quoted == fault.param || quoted.find_first_of("._") != std::string::npos;
    message.append(fault.message, at, open + 1 - at);
    message += (is_path ? own(quoted) : quoted) + "`";
    at = close + 1;
  }
  fault.message = message + fault.message.substr(at);
  fault.param = own(fault.param);
  return fault;
}

void FieldNames::own(std::vector<std::string>& paths) const {
  for (std::string& path : paths) path = own(path);
}

std::optional<Fault> translate_fields(const Json& object, std::span<const ProtocolField> rows,
                                      std::string_view prefix, Json& chat, FieldNames& names,
                                      std::vector<std::string>& ignored) {
  std::vector<std::string_view> known;
  for (const ProtocolField& row : rows) {
    known.push_back(row.name);
    const auto found = object.find(row.name);
    if (found == object.end() || found->is_null()) continue;
    std::string path = std::string(prefix) + std::string(row.name);
    switch (row.use) {
      case FieldUse::kChat:
        chat[std::string(row.text)] = *found;
        names.add(std::string(row.text), std::move(path));
        break;
      case FieldUse::kOwn:
        break;
      case FieldUse::kIgnored:
        note_without_effect(std::move(path), ignored);
        break;
      case FieldUse::kRefused:
        if (!asks_for_nothing(*found)) return unsupported(std::move(path), row.text);
        break;
    }
  }
  note_unknown(object, known, prefix, ignored);
  return std::nullopt;
}

const Json& member_or_null(const Json& object, std::string_view name) {
  static const Json kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

std::optional<Fault> read_member(const Json& object, std::string_view name, std::string_view path,
                                 std::optional<bool>& out) {
  const Json& value = member_or_null(object, name);
  if (value.is_null()) return std::nullopt;
  if (!value.is_boolean())
    return wrong_type(std::string(path), "true or false", json_type_name(value));
  out = value.get<bool>();
  return std::nullopt;
}

std::optional<Fault> read_member(const Json& object, std::string_view name, std::string_view path,
                                 std::optional<std::string>& out) {
  const Json& value = member_or_null(object, name);
  if (value.is_null()) return std::nullopt;
  if (!value.is_string()) return wrong_type(std::string(path), "a string", json_type_name(value));
  out = value.get<std::string>();
  return std::nullopt;
}

}  // namespace sluice
