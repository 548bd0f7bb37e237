// base/json.h: the parser of request bodies. Accepted text is accepted again after dumping, with
// the same value.
#include "base/json.h"
#include "fuzz_support.h"
#include "fuzz_target.h"

namespace sluice::fuzz {

void run_one(std::string_view input) {
  const JsonLimits limits{.max_depth = 16, .max_elements = 10'000};
  const Result<Json> parsed = parse_json(input, limits);
  if (!parsed.ok()) {
    must_hold(parsed.fault().status == 400 && !parsed.fault().code.empty(),
              "a fault of a request has a status and a code");
    return;
  }
  must_hold(input.find('\0') == std::string_view::npos, "no JSON text holds a NUL");
  const std::string text = dump_json(*parsed);
  const Result<Json> again = parse_json(text, limits);
  must_hold(again.ok(), "what was parsed and dumped parses again");
  must_hold(dump_json(*again) == text, "dumping is stable");
}

std::vector<std::string> seeds() {
  std::vector<std::string> texts = golden_texts("models", "config.json", 16 << 10);
  texts.insert(
      texts.end(),
      {R"({"a":[1,-2,3.5e-3,true,false,null,"\u00e9\ud83d\ude00\n"],"b":{"c":{}},"":[]})",
       R"([1e308,1e-320,-0.0,9223372036854775807,18446744073709551615,-9223372036854775808])",
       R"({"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],)"
       R"("n":2})",
       "[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]", "\"\"", "0", " null "});
  return texts;
}

}  // namespace sluice::fuzz
