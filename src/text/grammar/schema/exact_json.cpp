#include "text/grammar/schema/exact_json.h"

#include <algorithm>
#include <charconv>

#include "text/grammar/schema/decimal.h"
#include "text/unicode.h"

namespace sluice::grammar {

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::size_t ExactJson::length(JsonId id) const {
  return count_characters(text(id));
}

JsonId ExactJson::member(JsonId object, std::string_view key) const {
  if (!is(object, JsonKind::kObject)) return kNoJson;
  for (JsonId child = first(object); child != kNoJson; child = next(child)) {
    if (this->key(child) == key) return child;
  }
  return kNoJson;
}

void append_pointer(std::string& pointer, std::string_view token) {
  pointer += '/';
  for (const char c : token) {
    if (c == '~') {
      pointer += "~0";
    } else if (c == '/') {
      pointer += "~1";
    } else {
      pointer += c;
    }
  }
}

std::string ExactJson::pointer(JsonId id) const {
  std::vector<JsonId> path;
  for (JsonId at = id; parent(at) != kNoJson; at = parent(at)) path.push_back(at);
  std::string text;
  for (auto step = path.rbegin(); step != path.rend(); ++step) {
    if (is(parent(*step), JsonKind::kArray)) {
      append_pointer(text, std::to_string(index(*step)));
    } else {
      append_pointer(text, key(*step));
    }
  }
  return text;
}

JsonId ExactJson::find(JsonId from, std::string_view pointer) const {
  JsonId at = from;
  while (!pointer.empty()) {
    if (pointer[0] != '/') return kNoJson;
    pointer.remove_prefix(1);
    const std::string_view raw = pointer.substr(0, pointer.find('/'));
    pointer.remove_prefix(raw.size());
    std::string token;
    for (std::size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] == '~') {
        const char escape = i + 1 < raw.size() ? raw[i + 1] : '\0';
        if (escape != '0' && escape != '1') return kNoJson;
        token += escape == '0' ? '~' : '/';
        ++i;
      } else {
        token += raw[i];
      }
    }
    if (is(at, JsonKind::kObject)) {
      at = member(at, token);
    } else if (is(at, JsonKind::kArray)) {
      std::size_t place = 0;
      const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), place);
      if (error != std::errc{} || end != token.data() + token.size()) return kNoJson;
      if (token.size() > 1 && token[0] == '0') return kNoJson;
      at = place < count(at) ? first(at) : kNoJson;
      for (; at != kNoJson && place > 0; --place) at = next(at);
    } else {
      return kNoJson;
    }
    if (at == kNoJson) return kNoJson;
  }
  return at;
}

std::string quote_json(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

namespace {

// What is left to write: a value, or text behind it.
struct Pending {
  JsonId id;
  std::string text;
};

}  // namespace

std::string ExactJson::dump(JsonId id) const {
  std::string out;
  std::vector<Pending> pending{{id, ""}};
  while (!pending.empty()) {
    const Pending now = std::move(pending.back());
    pending.pop_back();
    out += now.text;
    if (now.id == kNoJson) continue;
    switch (kind(now.id)) {
      case JsonKind::kNull:
        out += "null";
        break;
      case JsonKind::kFalse:
        out += "false";
        break;
      case JsonKind::kTrue:
        out += "true";
        break;
      case JsonKind::kNumber:
        out += text(now.id);
        break;
      case JsonKind::kString:
        out += quote_json(text(now.id));
        break;
      case JsonKind::kArray:
      case JsonKind::kObject: {
        const bool is_object = is(now.id, JsonKind::kObject);
        out += is_object ? '{' : '[';
        pending.push_back({kNoJson, is_object ? "}" : "]"});
        const std::size_t base = pending.size();
        for (JsonId child = first(now.id); child != kNoJson; child = next(child)) {
          std::string before = index(child) > 0 ? "," : "";
          if (is_object) before += quote_json(key(child)) + ":";
          pending.push_back({child, std::move(before)});
        }
        std::reverse(pending.begin() + static_cast<std::ptrdiff_t>(base), pending.end());
        break;
      }
    }
  }
  return out;
}

std::string ExactJson::canonical(JsonId id) const {
  std::string out;
  std::vector<Pending> pending{{id, ""}};
  while (!pending.empty()) {
    const Pending now = std::move(pending.back());
    pending.pop_back();
    out += now.text;
    if (now.id == kNoJson) continue;
    switch (kind(now.id)) {
      case JsonKind::kNull:
        out += "n";
        break;
      case JsonKind::kFalse:
        out += "f";
        break;
      case JsonKind::kTrue:
        out += "t";
        break;
      case JsonKind::kNumber:
        if (const auto value = Decimal::parse(text(now.id))) out += value->canonical();
        break;
      case JsonKind::kString:
        out += quote_json(text(now.id));
        break;
      case JsonKind::kArray:
      case JsonKind::kObject: {
        const bool is_object = is(now.id, JsonKind::kObject);
        std::vector<JsonId> children;
        for (JsonId child = first(now.id); child != kNoJson; child = next(child)) {
          children.push_back(child);
        }
        if (is_object) {
          std::stable_sort(children.begin(), children.end(),
                           [this](JsonId a, JsonId b) { return key(a) < key(b); });
        }
        out += is_object ? '{' : '[';
        pending.push_back({kNoJson, is_object ? "}" : "]"});
        for (auto child = children.rbegin(); child != children.rend(); ++child) {
          pending.push_back({*child, is_object ? "," + quote_json(key(*child)) + ":" : ","});
        }
        break;
      }
    }
  }
  return out;
}

}  // namespace sluice::grammar
