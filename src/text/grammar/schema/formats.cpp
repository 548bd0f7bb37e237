#include "text/grammar/schema/formats.h"

#include <functional>
#include <map>
#include <string>

#include "text/grammar/regex.h"

namespace sluice::grammar {
namespace {

// The pieces are regular expressions for a full match, in ASCII classes only.
const std::string kDate =
    "([0-9]{4}-(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
    "|[0-9]{4}-(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    "|[0-9]{4}-02-(0[1-9]|1[0-9]|2[0-8])"
    "|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)";
// A leap second ends a day in UTC.
const std::string kTime =
    "(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?"
    "([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
    "|23:59:60(\\.[0-9]+)?([Zz]|[+-]00:00))";
const std::string kDuration =
    "P([0-9]+W|([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"
    "(T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S))?"
    "|T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S))";
const std::string kLabel = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
const std::string kHostname = kLabel + "(\\." + kLabel + ")*";
const std::string kByte = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
const std::string kIpv4 = kByte + "(\\." + kByte + "){3}";
const std::string kHex4 = "[0-9A-Fa-f]{1,4}";

// RFC 3986, section 3.2.2: up to eight groups, of which one run may be "::".
std::string ipv6() {
  const std::string last = "(" + kHex4 + ":" + kHex4 + "|" + kIpv4 + ")";
  std::string text = "((" + kHex4 + ":){6}" + last;
  for (int before = 0; before <= 7; ++before) {
    const int after = 7 - before;  // groups that may follow "::"
    std::string head =
        before == 0 ? "" : "(" + kHex4 + ":){0," + std::to_string(before - 1) + "}" + kHex4;
    if (before > 0) head = "(" + head + ")";
    std::string tail;
    if (after >= 3) {
      tail = "(" + kHex4 + ":){" + std::to_string(after - 2) + "}" + last;
    } else if (after == 2) {
      tail = last;
    } else if (after == 1) {
      tail = kHex4;
    }
    // Exactly `after` groups behind at most `before` groups.
    text += "|" + (before == 0 ? "" : head + "?") + "::" + tail;
  }
  return text + ")";
}

const std::string kPercent = "%[0-9A-Fa-f]{2}";
const std::string kUnreserved = "A-Za-z0-9._~!$&'()*+,;=";

struct UriParts {
  std::string wide;  // characters beyond ASCII
  std::string segment(std::string_view more) const {
    return "([" + kUnreserved + std::string(more) + wide + "-]|" + kPercent + ")";
  }
  std::string authority() const {
    return "(" + segment(":") + "*@)?(\\[(" + ipv6() + "|[Vv][0-9A-Fa-f]+\\.[" + kUnreserved +
           ":-]+)\\]|" + segment("") + "*)(:[0-9]*)?";
  }
  std::string tail() const {  // query and fragment
    return "(\\?" + segment(":@/?") + "*)?(#" + segment(":@/?") + "*)?";
  }
  std::string path() const { return "(/" + segment(":@") + "*)*"; }
  std::string absolute() const {
    return "[A-Za-z][A-Za-z0-9+.-]*:(//" + authority() + path() + "|/(" + segment(":@") + "+" +
           path() + ")?|" + segment(":@") + "+" + path() + "|)" + tail();
  }
  std::string relative() const {
    return "(//" + authority() + path() + "|/(" + segment(":@") + "+" + path() + ")?|" +
           segment("@") + "+" + path() + "|)" + tail();
  }
};

const std::string kAtom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
const std::string kEmail = "(" + kAtom + "(\\." + kAtom + ")*|\"([ !#-\\[\\]-~]|\\\\[ -~])*\")@(" +
                           kHostname + "|\\[" + kIpv4 + "\\])";
const std::string kPointer = "(/([^~/]|~[01])*)*";
const std::string kName = "([A-Za-z0-9_]|" + kPercent + ")(\\.?([A-Za-z0-9_]|" + kPercent + "))*";
const std::string kVariable = kName + "(:[1-9][0-9]{0,3}|\\*)?";

std::string make_expression(std::string_view format) {
  const UriParts ascii{""};
  const UriParts wide{"\xC2\xA0-\xF4\x8F\xBF\xBF"};  // U+00A0 to U+10FFFF
  if (format == "date") return kDate;
  if (format == "time") return kTime;
  if (format == "date-time") return kDate + "[Tt]" + kTime;
  if (format == "duration") return kDuration;
  if (format == "email") return kEmail;
  if (format == "hostname") return kHostname;
  if (format == "ipv4") return kIpv4;
  if (format == "ipv6") return ipv6();
  if (format == "uri") return ascii.absolute();
  if (format == "uri-reference") return "(" + ascii.absolute() + "|" + ascii.relative() + ")";
  if (format == "iri") return wide.absolute();
  if (format == "iri-reference") return "(" + wide.absolute() + "|" + wide.relative() + ")";
  if (format == "uuid") {
    return "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}";
  }
  if (format == "json-pointer") return kPointer;
  if (format == "relative-json-pointer") return "(0|[1-9][0-9]*)(#|" + kPointer + ")";
  if (format == "uri-template") {
    return "([!#$&(-;=?-\\[\\]_a-z~\xC2\xA0-\xF4\x8F\xBF\xBF]|" + kPercent + "|\\{[+#./;?&=,!@|]?" +
           kVariable + "(," + kVariable + ")*\\})*";
  }
  return "";
}

// The expression of an asserted format; empty for every other.
const std::string& expression(std::string_view format) {
  static const std::string kNone;
  static const std::map<std::string, std::string, std::less<>> kExpressions = [] {
    std::map<std::string, std::string, std::less<>> all;
    for (const char* name : {"date", "time", "date-time", "duration", "email", "hostname", "ipv4",
                             "ipv6", "uri", "uri-reference", "iri", "iri-reference", "uuid",
                             "json-pointer", "relative-json-pointer", "uri-template"})
      all.emplace(name, make_expression(name));
    return all;
  }();
  const auto found = kExpressions.find(format);
  return found == kExpressions.end() ? kNone : found->second;
}

}  // namespace

bool is_asserted_format(std::string_view format) {
  return format == "regex" || !expression(format).empty();
}

std::optional<LanguageId> format_language(Languages& languages, std::string_view format) {
  const std::string& text = expression(format);
  if (text.empty()) return std::nullopt;
  return own_regex(languages, text);
}

std::uint64_t format_max_length(std::string_view format) {
  return format == "hostname" ? 253 : kUnbounded;
}

}  // namespace sluice::grammar
