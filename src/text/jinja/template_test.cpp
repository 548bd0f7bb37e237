// The interpreter's limits: fuel, depth, hostile templates, concurrent use.
// template_oracle_test.cpp tests the meaning of templates against recorded renderings.
#include "text/jinja/template.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "base/testing/processor_time.h"

// Present only in instrumented builds, which take several times as long: the time limits below are
// for other builds.
extern "C" {
__attribute__((weak)) void __asan_init();
__attribute__((weak)) void __tsan_init();
}

namespace sluice::jinja {
namespace {

double slack() {
  return &__asan_init != nullptr || &__tsan_init != nullptr ? 20 : 1;
}

struct Failure {
  ErrorKind kind;
  std::string type, message;
  int line;
};

std::string render(const std::string& source, const Json& variables = Json::object(),
                   const Limits& limits = {}) {
  return Template::compile(source).render(variables, limits).text;
}

Failure failure_of(const std::string& source, const Json& variables = Json::object(),
                   const Limits& limits = {}) {
  try {
    const std::string text = render(source, variables, limits);
    ADD_FAILURE() << "rendered " << text.size() << " bytes: " << source.substr(0, 80);
    return {ErrorKind::kRaised, "", "", 0};
  } catch (const TemplateError& error) {
    return {error.kind(), error.type(), error.what(), error.line()};
  }
}

std::string times(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(JinjaFuel, BombsEndInTime) {
  const std::string bombs[] = {
      // docs/rules.md, R16: the nested range, and other ways to build many bytes from a short
      // template
      "{% for a in range(999) %}{% for b in range(999) %}{% for c in range(999) %}{% endfor %}{% "
      "endfor %}{% endfor %}",
      "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
      "{{ 'x' * 10 ** 12 }}",
      "{{ 9 ** (9 ** 9) }}",
      "{% set n = namespace(x=3) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
      "{{ [0] * 10 ** 12 }}",
      "{{ ('x' * 100000) * 100000 }}",
      "{% set ns = namespace(x='x') %}{% for i in range(99999) %}{% set ns.x = ns.x + ns.x %}{% "
      "endfor %}{{ ns.x }}",
      "{% set ns = namespace(x='xy') %}{% for i in range(99999) %}{% set ns.x = ns.x.replace('x', "
      "'xx') %}{% endfor %}{{ ns.x }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(99999) %}{% set ns.x = ns.x + ns.x %}{% "
      "endfor %}{{ ns.x }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% "
      "endfor %}{{ ns.x }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% "
      "endfor %}{{ ns.x | tojson }}",
      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] "
      "%}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
      "{{ 'x'.center(10 ** 12) }}",
      "{{ '%1000000000d' % 1 }}",
      "{{ '{:1000000000}'.format(1) }}",
      "{{ '{:>99999}'.format(1) * 100000 }}",
      "{{ range(100000) | list | batch(1) | list | tojson(indent=100000) }}",
      "{% macro m(n) %}{% for i in range(9) %}{{ m(n + 1) }}{% endfor %}{% endmacro %}{{ m(0) }}",
      "{% for i in range(99999) recursive %}{{ loop(range(99999)) }}{% endfor %}",
      "{% for i in range(99999) %}{% for c in 'x' * 99999 %}{% endfor %}{% endfor %}",
      "{{ range(100000) | map('string') | join(',' * 100000) }}",
      "{% set s = '\u00e9' * 100000 %}{% for i in range(99999) %}{{ s[i] }}{% endfor %}",
      "{% set s = 'ab' * 100000 %}{% for i in range(99999) %}{{ s.find('zz') }}{% endfor %}",
      "{% set l = range(100000) | list %}{% for i in range(99999) %}{{ -1 in l }}{% endfor %}",
      "{% set l = range(100000) | list %}{% for i in range(99999) %}{{ l | sort | first }}{% "
      "endfor %}",
      "{{ 'a' | indent(10 ** 12) }}",
      "{{ 'a\n' * 100000 | indent('x' * 100000) }}",
      "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
      "{{ 'x'.ljust(10 ** 12) }}",
      "{{ ('\t' * 100000).expandtabs(10 ** 9) }}",
      "{{ [1] | slice(10 ** 12) | list }}",
      "{{ [1] | batch(10 ** 12, 0) | list }}",
  };
  double slowest = 0;
  for (const std::string& bomb : bombs) {
    SCOPED_TRACE(bomb);
    const double limit = 1000 * slack();
    const double spent = idle_core_milliseconds(limit, [&] {
      const Failure failure = failure_of(bomb);
      EXPECT_TRUE(failure.kind == ErrorKind::kFuel || failure.kind == ErrorKind::kPython)
          << failure.message;
    });
    EXPECT_LT(spent, limit);
    slowest = std::max(slowest, spent);
  }
  RecordProperty("slowest_milliseconds", static_cast<int>(slowest));
}

TEST(JinjaFuel, NestedRangesEndWithinAQuarterSecond) {
  const std::string bomb =
      "{% for a in range(999) %}{% for b in range(999) %}{% for c in range(999) %}{% endfor %}{% "
      "endfor %}{% endfor %}";
  const double limit = 250 * slack();
  const double spent =
      idle_core_milliseconds(limit, [&] { EXPECT_EQ(failure_of(bomb).kind, ErrorKind::kFuel); });
  RecordProperty("milliseconds", static_cast<int>(spent));
  EXPECT_LT(spent, limit);
}

TEST(JinjaFuel, CountsAndLimits) {
  Limits limits;
  limits.fuel = 100;
  EXPECT_EQ(render("{% for i in range(10) %}{{ i }}{% endfor %}", {}, limits), "0123456789");
  EXPECT_EQ(failure_of("{% for i in range(100) %}{{ i }}{% endfor %}", {}, limits).kind,
            ErrorKind::kFuel);
  limits = {};
  limits.max_output_bytes = 10;
  EXPECT_EQ(render("{{ 'x' * 10 }}", {}, limits).size(), 10u);
  EXPECT_EQ(failure_of("{{ 'x' * 11 }}", {}, limits).kind, ErrorKind::kFuel);
  EXPECT_GT(Template::compile("{{ 1 + 1 }}").render(Json::object()).fuel_used, 2);
}

TEST(JinjaFuel, ALongConversationFits) {
  Json messages = Json::array();
  for (int i = 0; i < 2000; ++i)
    messages.push_back({{"role", i % 2 ? "assistant" : "user"},
                        {"content", std::string(1000, 'x') + "</think>" + std::string(500, 'y')}});
  const std::string text = render(
      "{% for m in messages %}<|{{ m.role }}|>{% if '</think>' in m.content %}{{ "
      "m.content.split('</think>')[-1] | trim }}"
      "{% endif %}{% endfor %}",
      {{"messages", messages}});
  EXPECT_GT(text.size(), 1'000'000u);
}

TEST(JinjaDepth, NestingIsAnErrorAndNeverACrash) {
  struct Row {
    std::string source;
    ErrorKind kind;
  };
  const Row rows[] = {
      {"{{ " + times("(", 100'000) + "1" + times(")", 100'000) + " }}", ErrorKind::kTemplate},
      {"{{ " + times("[", 100'000) + " }}", ErrorKind::kTemplate},
      {"{{ " + times("{1:", 100'000) + " }}", ErrorKind::kTemplate},
      {"{{ " + times("not ", 100'000) + "1 }}", ErrorKind::kTemplate},
      {"{{ " + times("-", 100'000) + "1 }}", ErrorKind::kTemplate},
      {"{{ " + times("1 + ", 100'000) + "1 }}", ErrorKind::kTemplate},
      {"{{ " + times("1 if 1 else ", 50'000) + "1 }}", ErrorKind::kTemplate},
      {"{{ a" + times(".a", 100'000) + " }}", ErrorKind::kTemplate},
      {"{{ a" + times("|d", 100'000) + " }}", ErrorKind::kTemplate},
      {"{{ f" + times("(f", 100'000) + " }}", ErrorKind::kTemplate},
      {"{{ a" + times("[a", 100'000) + " }}", ErrorKind::kTemplate},
      {times("{% if 1 %}", 50'000), ErrorKind::kTemplate},
      {times("{% for a in b %}", 50'000), ErrorKind::kTemplate},
      {times("{% macro m() %}", 50'000), ErrorKind::kTemplate},
      {times("{% filter upper %}", 50'000), ErrorKind::kTemplate},
      {"{% for " + times("(", 50'000) + "a in b %}", ErrorKind::kTemplate},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", ErrorKind::kPython},
      {"{% macro m() %}{{ caller() }}{% endmacro %}{% macro o() %}{% call m() %}{{ o() }}{% "
       "endcall %}{% endmacro %}{{ o() }}",
       ErrorKind::kPython},
      {"{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = [n.x] %}{% endfor "
       "%}{{ n.x }}",
       ErrorKind::kPython},
      {"{% set n = namespace(x={}) %}{% for i in range(99999) %}{% set n.x = {'a': n.x} %}{% "
       "endfor %}",
       ErrorKind::kPython},
      {"{% set n = namespace(x=1) %}{% for i in range(99999) %}{% set n.x = [n.x].count %}{% "
       "endfor %}",
       ErrorKind::kPython},
      {"{% set n = namespace(x=1) %}{% for i in range(99999) %}{% set n.x = joiner(n.x) %}{% "
       "endfor %}",
       ErrorKind::kPython},
      {"{% set n = namespace(x=[1]) %}{% for i in range(99999) %}{% set n.x = [n.x] | reverse %}{% "
       "endfor %}",
       ErrorKind::kPython},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.source.substr(0, 120));
    const Failure failure = failure_of(row.source);
    EXPECT_EQ(failure.kind, row.kind) << failure.type << ": " << failure.message;
  }
  // Long chains of objects that only refer to each other are released without deep recursion.
  EXPECT_EQ(render("{% set n = namespace(x=1) %}{% for i in range(9999) %}{% set m = "
                   "namespace(x=n.x) %}{% set n.x = m %}{% endfor %}ok"),
            "ok");
  EXPECT_EQ(render("{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% for j in [n.x] %}{% "
                   "set n.x = loop %}{% endfor %}{% endfor %}ok"),
            "ok");
  EXPECT_EQ(render("{% set n = namespace(x=0) %}{% for i in range(9999) %}{% macro m() %}{% "
                   "endmacro %}{% set p = n.x %}{% set n.x = m %}{% endfor %}ok"),
            "ok");
  EXPECT_EQ(render("{% set n = namespace() %}{% set n.self = n %}{% set n.list = [n] %}{{ "
                   "n.self.self.list | length }}"),
            "1");
}

TEST(JinjaErrors, SayWhere) {
  struct Row {
    const char* source;
    const char* message;
    int line;
  };
  const Row rows[] = {
      {"a\nb\n{% if x %}\n", "looking for the following tags: 'elif' or 'else' or 'endif'", 3},
      {"a\n{{ 1 +\n }}", "unexpected 'end of print statement'", 3},
      {"\n\n{{ 'abc }}", "unexpected char", 3},
      {"\n{# open", "Missing end of comment tag", 2},
      {"\n{% raw %}x\n", "Missing end of raw directive", 2},
      {"\n\n\n{{ x.y.z }}", "'x' is undefined", 4},
      {"\n{% for a in 3 %}{% endfor %}", "'int' object is not iterable", 2},
      {"{{ (1 }}", "unexpected '}', expected ')'", 1},
      {"{{ 1 ) }}", "unexpected ')'", 1},
      {"{{ \"\\ud8\" }}", "truncated", 1},
      {"{% set true = 1 %}", "can't assign", 1},
      {"{% macro m(a=1, b) %}{% endmacro %}", "non-default argument", 1},
      {"{{ f(a=1, 2) }}", "invalid syntax for function call", 1},
      {"{% call 1 %}{% endcall %}", "expected call", 1},
      {"{{ 'a' | tojson(bad=1) }}", "unexpected keyword argument 'bad'", 1},
      {"{{ 10 ** 4300 }}", "4300 digits", 1},
      {"a\n{{ '\xFF\xFF\xFF\xFF"
       "bcd'[::-1] }}",
       "not UTF-8", 2},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.source);
    const Failure failure = failure_of(row.source);
    EXPECT_NE(failure.message.find(row.message), std::string::npos) << failure.message;
    EXPECT_EQ(failure.line, row.line);
  }
  EXPECT_EQ(failure_of(std::string((1u << 20) + 1, ' ')).type, "TemplateSyntaxError");
}

TEST(JinjaErrors, TextsOfACheckpointThatAreNoUtf8HaveReplacements) {
  const Json variables{{"bos_token", "a\xFF\xF0\x9F"}, {"messages", {{{"k\xFE", "\xC3"}}}}};
  EXPECT_EQ(render("{{ bos_token[::-1] }} {{ bos_token | length }} {{ messages[0] | length }}",
                   variables),
            "\uFFFD\uFFFDa 3 1");
}

TEST(JinjaSandbox, NothingOfTheHostIsReachable) {
  for (const char* source :
       {"{{ ''.__class__.__mro__ }}", "{{ [].__init__.__globals__ }}", "{{ range.__self__() }}",
        "{{ (1).__add__(2) }}", "{{ {}.__class__() }}", "{{ raise_exception.__globals__['os'] }}",
        "{{ '{0.__class__.__mro__}'.format(1) }}", "{{ ''|attr('__class__')|attr('x') }}"}) {
    SCOPED_TRACE(source);
    EXPECT_EQ(failure_of(source).type, "SecurityError");
  }
}

// Random bytes and random splices of real syntax must give a text or a TemplateError, nothing else.
TEST(JinjaProperty, AnyTextIsTextOrError) {
  const std::string pieces[] = {
      "{{",       "}}",          "{%",       "%}",     "{#",    "#}",   "-",    "+",     " if ",
      " for ",    "x",           " in ",     "endfor", "endif", "else", "set",  "=",     "macro",
      "endmacro", "call",        "(",        ")",      "[",     "]",    "{",    "}",     "'",
      "\"",       "\\",          "|",        ".",      ",",     ":",    "1",    "0x",    "1e",
      "~",        "*",           "**",       "//",     "%",     "is",   "not",  "raw",   "endraw",
      "\n",       " ",           "\t",       "é",      "世",    "\xff", "loop", "upper", "tojson",
      "format",   "namespace()", "range(3)", "%s",     "{0}",   "None"};
  std::mt19937 random(7);
  int texts = 0, errors = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string source = round % 3 == 0 ? "{{ " : round % 3 == 1 ? "{% " : "";
    const int count = 1 + static_cast<int>(random() % 12);
    for (int i = 0; i < count; ++i) source += pieces[random() % std::size(pieces)];
    if (round % 3 == 0) source += " }}";
    if (round % 3 == 1) source += " %}";
    Limits limits;
    limits.fuel = 20'000;
    try {
      render(source, {{"x", Json::array({1, "a", Json::object()})}}, limits);
      ++texts;
    } catch (const TemplateError&) {
      ++errors;
    }
  }
  EXPECT_GT(texts, 500);
  EXPECT_GT(errors, 500);
}

TEST(JinjaThreads, OneTemplateManyThreads) {
  const Template shared = Template::compile(
      "{% set ns = namespace(n=0) %}{% macro m(x) %}[{{ x }}]{% endmacro %}{% for i in range(k) "
      "%}{% set ns.n = ns.n + i %}"
      "{{ m(i) if i % 2 else 'é' | upper }}{% endfor %}{{ ns.n }}{{ {'a': [1.5, none]} }}");
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Json variables = {{"k", 10 + t}};
      const std::string first = shared.render(variables).text;
      for (int i = 0; i < 300; ++i)
        wrong[static_cast<std::size_t>(t)] += shared.render(variables).text != first;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

// Behaviour outside the recorded templates; the expectations are those of Python and Jinja.
TEST(JinjaLanguage, Corners) {
  struct Row {
    const char* source;
    const char* expected;
  };
  const Row rows[] = {
      {"{% set g = [1, 2] | map('string') %}{{ g | list }}{{ g | list }}", "['1', '2'][]"},
      {"{{ [1, 2, 3] | select('odd') | first }}", "1"},
      {"{{ {'a': 1}.items() }}{{ {'a': 1}.keys() }}", "dict_items([('a', 1)])dict_keys(['a'])"},
      {"{{ 'a\\nb' | indent(2, true) }}", "  a\n  b"},
      {"{{ -7 // 2 }} {{ -7 % 3 }} {{ 7.5 % -2 }} {{ 2 ** -1 }}", "-4 2 -0.5 0.5"},
      {"{{ 'x' in 'xyz' and 1 not in [2] }}", "True"},
      {"{% for i in [1, 2] %}{{ loop.index }}{% set j = i %}{% endfor %}{{ j is defined }}",
       "12False"},
      {"{% for i in [1, 2, 3] if i != 2 %}{{ loop.index }}/{{ loop.length }}{% if not loop.last "
       "%},{% endif %}{% endfor %}",
       "1/2,2/2"},
      {"{% for i in [1, 2, 3] %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}",
       "<1>2 1<2>3 2<3> "},
      {"{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}", "1112"},
      {"{% macro w(t) %}<{{ t }}>{{ caller('c') }}</{{ t }}>{% endmacro %}{% call(x) w('p') %}{{ x "
       "}}{% endcall %}",
       "<p>c</p>"},
      {"{% set a %}x{% endset %}{{ a ~ 1 }}", "x1"},
      {"{% set b = 'ża'.encode() %}{{ b | length }} {{ b[0] }} {{ b[-1] }} {{ b | list }}",
       "3 197 97 [197, 188, 97]"},
      {"{{ range(10)[2:5] | list }} {{ range(10)[::-3] | list }}", "[2, 3, 4] [9, 6, 3, 0]"},
      {"{{ [3, 1] | sort(reverse=true) }}{{ ['b', 'A'] | sort }}", "[3, 1]['A', 'b']"},
      {"{{ 'a b c'.rsplit(None, 1) }} {{ ' a  b '.split(None, 1) }}", "['a b', 'c'] ['a', 'b ']"},
      {"{{ '%5.2f|%-4d|%+d|%c|%%' % (3.14159, 7, 5, 'x') }}", " 3.14|7   |+5|x|%"},
      {"{{ '{:*^9}|{:<4}|{:06.2f}|{:,}'.format('mid', 'a', 2.5, 1234567) }}",
       "***mid***|a   |002.50|1,234,567"},
      {"{{ 1.0 }} {{ 1e16 }} {{ 1e-5 }} {{ 123456789.125 }} {{ 1e22 }}",
       "1.0 1e+16 1e-05 123456789.125 1e+22"},
      {"{{ 'ΑΣ ΑΣΑ'.lower() }} {{ 'ß'.upper() }} {{ 'ǆ'.title() }}", "ας ασα SS ǅ"},
      {"{{ {'b': 1, 'a': [true, none, 1.5]} | tojson(sort_keys=true) }}",
       "{\"a\": [true, null, 1.5], \"b\": 1}"},
      {"{{ 'é' | tojson(ensure_ascii=true) }}", "\"\\u00e9\""},
      {"{{ x.get('k', 'd') if x is mapping else 'no' }}", "no"},
      {"{{ ('a', 1) == ('a', 1) }} {{ [1] < [1, 2] }} {{ 'a' < 'b' < 'c' }}", "True True True"},
      {"{{ loop is defined }}{% for i in [1] %}{{ loop is defined }}{% endfor %}", "FalseTrue"},
      {"{{ none is none }}{{ 1 is number }}{{ true is number }}{{ 'x' is not mapping }}",
       "TrueTrueTrueTrue"},
      {"a{# c #}b\n{%- if true %}\n  c\n{%- endif %}", "ab  c"},
      {"{% for a, (b, c) in [(1, (2, 3))] %}{{ a + b + c }}{% endfor %}", "6"},
      {"{{ [[1, 2], [3, 4]] | sum(start=[]) }}", "[1, 2, 3, 4]"},
      {"{{ '<a>' ~ ('b'|safe) ~ '</a>' }}", "<a>b</a>"},
      {"{{ 2 ** 127 }} {{ -(2 ** 127) - 1 }} {{ 2 ** 200 // 3 ** 50 }} {{ -(10 ** 40) % 7 }}",
       "170141183460469231731687303715884105728 -170141183460469231731687303715884105729 "
       "2238393297946874000179418290327143433 3"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.source);
    EXPECT_EQ(render(row.source), row.expected);
  }
}

}  // namespace
}  // namespace sluice::jinja
