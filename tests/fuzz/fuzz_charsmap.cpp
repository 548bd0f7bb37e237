// text/tokenizer/charsmap.h: the precompiled character map of a tokenizer file. The first bytes
// give the end of the map; the rest is the text to which it is applied.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "fuzz_support.h"
#include "fuzz_target.h"
#include "small_tokenizers.h"
#include "text/tokenizer/charsmap.h"
#include "text/unicode.h"

namespace sluice::fuzz {

void run_one(std::string_view input) {
  if (input.size() < 4) return;
  std::uint32_t map_bytes = 0;
  std::memcpy(&map_bytes, input.data(), 4);
  input.remove_prefix(4);
  const std::string_view blob = input.substr(0, map_bytes % (input.size() + 1));
  const std::string text = to_valid_utf8(input.substr(blob.size()).substr(0, 4096));
  try {
    const Charsmap map(blob, "charsmap");
    must_hold(is_valid_utf8(map.apply(text)), "the result is UTF-8");
    for (std::string_view rest = text; !rest.empty();) {
      const Charsmap::Hit hit = map.longest(rest);
      must_hold(hit.length <= rest.size() && is_valid_utf8(hit.replacement),
                "a hit lies in the text");
      rest.remove_prefix(std::max<std::size_t>(1, hit.length));
    }
  } catch (const Error& error) {
    must_hold(error.kind() == sluice::ErrorKind::kBadInput, error.what());
  }
}

std::vector<std::string> seeds() {
  const std::string blob = small_charsmap();
  must_hold(Charsmap(blob, "seed").apply("A\xEF\xBC\xA1\xE3\x80\x80!") == "bcA !",
            "the seed is a map");
  std::vector<std::string> all;
  for (const char* text : {"Hello \xEF\xBC\xA1\xE2\x91\xA0\xE3\x80\x80 e\xCC\x81\r\n",
                           "\xEF\xBD\xB6\xEF\xBE\x9E\xE2\x84\xA2 x", "AA"}) {
    std::string seed(4, '\0');
    const auto size = static_cast<std::uint32_t>(blob.size());
    std::memcpy(seed.data(), &size, 4);
    all.push_back(seed + blob + text);
  }
  return all;
}

}  // namespace sluice::fuzz
