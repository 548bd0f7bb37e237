#include "base/json.h"

#include <cmath>
#include <unordered_set>
#include <vector>

namespace sluice {
namespace {

// Builds a Json from parser events with an explicit stack of open containers.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    if (!std::isfinite(value))
      return stop("invalid_json", fmt::format("the number {} is out of range", text.substr(0, 40)));
    return add(value);
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return stop("invalid_json", "binary data is not JSON"); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& key) override {
    if (!keys_.back().insert(key).second)
      return stop("duplicate_key",
                  fmt::format("the key \"{}\" appears twice in one object", key.substr(0, 64)));
    pending_key_ = std::move(key);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const Json::exception& error) override {
    // 406: a number that overflows a double.
    return stop("invalid_json",
                error.id == 406 ? fmt::format("a number near byte {} is out of range", position)
                                : fmt::format("the text is not valid JSON near byte {}", position));
  }

  Json& root() { return root_; }
  const Fault& fault() const { return fault_; }

 private:
  template <class T>
  bool add(T&& value) {
    return place(Json(std::forward<T>(value))) != nullptr;
  }

  Json* place(Json&& value) {
    if (++elements_ > limits_.max_elements) {
      stop("json_too_large", fmt::format("more than {} values", limits_.max_elements));
      return nullptr;
    }
    if (stack_.empty()) return &(root_ = std::move(value));
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      auto& items = parent.get_ref<Json::array_t&>();
      return &items.emplace_back(std::move(value));
    }
    // `key` has checked for duplicates: append to the underlying vector, because ordered_map would
    // scan.
    auto& members = static_cast<Json::object_t::Container&>(parent.get_ref<Json::object_t&>());
    members.emplace_back(std::move(pending_key_), std::move(value));
    return &members.back().second;
  }

  bool open(Json&& container) {
    if (static_cast<int>(stack_.size()) >= limits_.max_depth)
      return stop("json_too_deep", fmt::format("nested deeper than {} levels", limits_.max_depth));
    const bool is_object = container.is_object();
    Json* placed = place(std::move(container));
    if (placed == nullptr) return false;
    stack_.push_back(placed);
    keys_.emplace_back();
    if (!is_object) keys_.back().clear();
    return true;
  }

  bool close() {
    stack_.pop_back();
    keys_.pop_back();
    return true;
  }

  bool stop(std::string code, std::string message) {
    if (fault_.code.empty()) fault_ = Fault{400, std::move(code), "", std::move(message)};
    return false;
  }

  const JsonLimits& limits_;
  Json root_;
  // an open container is the last child of its parent, so its address is stable
  std::vector<Json*> stack_;
  std::vector<std::unordered_set<std::string>> keys_;
  std::string pending_key_;
  std::size_t elements_ = 0;
  Fault fault_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.starts_with("\xEF\xBB\xBF"))
    return Fault{400, "invalid_json", "", "the text begins with a byte order mark"};
  // The library treats a NUL as the end of the text and would ignore the rest.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)
    return Fault{400, "invalid_json", "",
                 fmt::format("the text is not valid JSON near byte {}", nul)};
  Builder builder(limits);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) return builder.fault();
  return std::move(builder.root());
}

Json parse_json_or_throw(std::string_view text, std::string_view what, const JsonLimits& limits) {
  Result<Json> parsed = parse_json(text, limits);
  require(parsed.ok(), "{}: {}", what, parsed.ok() ? "" : parsed.fault().message);
  return std::move(parsed).value();
}

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sluice
