"""Random templates: expressions over every filter, test, function and method, statements, and pieces of syntax."""
import re

CONTEXT = {
    "s": "Hello, World", "n": 7, "f": 2.5, "t": True, "no": None, "e": "", "l": [3, 1, 2], "el": [],
    "d": {"a": 1, "b": {"c": [10, 20]}, "items": "shadow", "Z": None}, "ed": {}, "u": "żółć 世界 🎉 ǆß",
    "multi": "line1\n  line2\r\n\nline4\n", "html": "<a href='x'>&\"</a> &lt; <!-- c --> x", "num": "42", "neg": -3,
    "people": [{"n": "Bo", "a": 3, "c": {"k": "x"}}, {"n": "al", "a": 1, "c": {"k": "Y"}}, {"n": "Cy", "c": {}}],
    "big": 12345678901234567890, "huge": 123456789012345678901234567890123456789012345678, "minus": -2**70,
    "real": 1e300, "tiny": 1.5e-7, "zero": 0, "nz": -0.0, "whole": 3.0, "long": 123456789.123456789,
    "nested": [[1, 2], [3, [4]]], "words": ["foo", "Bar", "baz", "foo", "FOO", ""], "mixed": [1, "a", None, 2.5, True],
    "tree": [{"v": 1, "k": [{"v": 2, "k": []}, {"v": 3, "k": [{"v": 4}]}]}, {"v": 5}],
    "text": "  The quick-brown fox's jumps over https://example.com/a?b=c a_very_long_word_indeed and\tmore   ",
    "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": [
        {"function": {"name": "f", "arguments": {"x": 1.0, "y": [1, {"z": "é"}], "b": 2**80}}}]}],
}
STRINGS = ["''", "'a'", "'abc'", "'A b'", "'x,y,z'", "'<b>'", "'%s-%d'", "'{}:{}'", "'{0}{a}'", "'ß'", "'世界'", "'1.5'",
           "' 12 '", "'0x1f'", "'a\\nb'", "'\\u00e9\\t'", "\"it's\"", "'q\"'", "'1e3'", "'-7'", "'true'", "'ab' 'cd'",
           "'\\x41\\101\\\\'", "'a.b.c'", "'&amp;'", "'1_000'", "'nan'", "'inf'", "'Ab-cd ef'", "'  x '", "'%'", "'{'"]
INTS = ["0", "1", "2", "3", "7", "-1", "-2", "10", "0x1F", "0b101", "0o17", "1_000", "9223372036854775807", "100",
        "18446744073709551616", "12345678901234567890123456789012345678901234567890", "-5", "16"]
FLOATS = ["0.0", "1.0", "2.5", "-0.5", "1e3", "1e16", "1e-7", "0.1", "1e300", "3.14159", "123456789.125", "1e22", "2.675"]
NAMES = {"str": ["s", "e", "u", "multi", "html", "num", "text"], "int": ["n", "big", "huge", "minus", "zero", "neg"],
         "float": ["f", "real", "tiny", "nz", "whole", "long"], "bool": ["t"], "none": ["no"],
         "list": ["l", "el", "people", "nested", "words", "mixed", "tree", "messages"], "dict": ["d", "ed"]}
FILTERS = {  # name -> arguments; an argument is a kind, or =name of a keyword with a kind
    "abs": [[]], "attr": [["'a'"], ["'upper'"], ["'__class__'"], ["'items'"]], "batch": [["2"], ["3", "'x'"]],
    "capitalize": [[]], "center": [[], ["20"], ["width=9"]], "count": [[]],
    "d": [[], ["'x'"], ["1", "true"]], "default": [["'x'"], ["default_value=2"], ["'x'", "boolean=true"]],
    "dictsort": [[], ["true"], ["false", "'value'"], ["reverse=true"], ["by='key'"], ["by='x'"]], "e": [[]],
    "escape": [[]], "filesizeformat": [[], ["true"], ["binary=true"]], "first": [[]], "float": [[], ["1.5"], ["default='x'"]],
    "forceescape": [[]], "format": [["str"], ["int", "str"], ["a=1"], []],
    "groupby": [["'n'"], ["'a'"], ["'c.k'"], ["'a'", "9"], ["attribute='n'", "case_sensitive=true"], ["'a'", "default=0"],
                ["0"], []],
    "indent": [[], ["2"], ["2", "true"], ["'> '"], ["width=3", "blank=true"], ["first=true"]],
    "int": [[], ["5"], ["default=-1"], ["0", "16"], ["base=2"], ["0", "0"], ["0", "40"]], "items": [[]],
    "join": [[], ["', '"], ["'|'", "attribute='n'"], ["'-'", "'a'"], ["d='+'"], ["1"]], "last": [[]], "length": [[]],
    "list": [[]], "lower": [[]],
    "map": [["'upper'"], ["attribute='n'"], ["attribute='a'", "default=0"], ["'default'", "'x'"], ["'int'"], ["'string'"],
            ["'tojson'"], ["attribute='c.k'"], ["attribute=0"], [], ["'nope'"], ["'abs'"], ["'replace'", "'a'", "'b'"],
            ["'first'"], ["'length'"], ["bad=1"], ["attribute='n'", "bad=1"], ["'map'", "'string'"]],
    "max": [[], ["attribute='a'"], ["true"], ["case_sensitive=true"], ["attribute='n'"]],
    "min": [[], ["attribute='a'"], ["true"], ["attribute='n'"]], "pprint": [[]],
    "reject": [[], ["'odd'"], ["'none'"], ["'eq'", "1"], ["'string'"], ["'in'", "[1,2]"], ["'nope'"]],
    "rejectattr": [["'a'"], ["'a'", "'defined'"], ["'n'", "'eq'", "'Bo'"], [], ["'c.k'"]],
    "replace": [["'a'", "'b'"], ["'l'", "'L'", "1"], ["''", "'-'"], ["old='o'", "new='0'"], ["'l'", "'L'", "count=2"],
                ["'a'"], ["1", "2"], ["'l'", "'<'", "-1"]],
    "reverse": [[]], "round": [[], ["1"], ["2", "'floor'"], ["0", "'ceil'"], ["-1"], ["method='ceil'"], ["precision=1"],
                               ["1", "'x'"], ["none"]],
    "safe": [[]], "select": [[], ["'odd'"], ["'string'"], ["'gt'", "1"], ["'=='", "'foo'"], ["'none'"], ["'mapping'"]],
    "selectattr": [["'a'"], ["'a'", "'defined'"], ["'n'", "'equalto'", "'Bo'"], ["'c.k'", "'eq'", "'x'"], [],
                   ["'role'", "'in'", "['user','x']"], ["'a'", "'gt'", "1"], ["0"]],
    "slice": [["2"], ["3", "'x'"], ["0"], ["slices=2"]],
    "sort": [[], ["true"], ["attribute='n'"], ["attribute='a'"], ["attribute='c.k,n'"], ["case_sensitive=true"],
             ["reverse=true", "attribute='n'"], ["true", "true"], ["attribute=0"]],
    "string": [[]], "striptags": [[]], "sum": [[], ["attribute='a'"], ["'a'", "5"], ["start=1.5"], ["start=[]"], ["start=''"]],
    "title": [[]],
    "tojson": [[], ["indent=2"], ["ensure_ascii=true"], ["separators=(',', ':')"], ["sort_keys=true"], ["true"],
               ["false", "1"], ["indent='--'"], ["indent=0"], ["none"], ["indent=none", "sort_keys=true"], ["bad=1"],
               ["false", "none", "[',', '=']", "true"], ["indent=true"], ["indent=-1"], ["separators=('a',)"],
               ["separators=(1, 2)"], ["indent=1.5"]],
    "trim": [[], ["'x '"], ["chars='ab'"], ["none"], ["''"], ["1"]],
    "truncate": [[], ["5"], ["5", "true"], ["5", "true", "'!'"], ["5", "false", "'', "], ["9", "leeway=0"], ["2"],
                 ["length=8", "end='>>'", "leeway=1"], ["5", "true", "'.'", "-1"]],
    "unique": [[], ["true"], ["attribute='n'"], ["case_sensitive=true"], ["attribute='a'"]], "upper": [[]],
    "urlencode": [[]], "urlize": [[], ["10"], ["nofollow=true"], ["target='_blank'"], ["rel='x y'"], ["12", "true"],
                                  ["extra_schemes=['tel:']"], ["extra_schemes=['x y']"]],
    "wordcount": [[]],
    "wordwrap": [[], ["10"], ["5", "false"], ["5", "true", "'|'"], ["8", "break_on_hyphens=false"], ["0"], ["-1"],
                 ["7", "wrapstring='<br>'"], ["6", "break_long_words=false"]],
    "xmlattr": [[], ["false"], ["autospace=true"]], "nope": [[]],
}
TESTS = {"boolean": [[]], "callable": [[]], "defined": [[]], "divisibleby": [["2"], ["0"], ["1.5"], ["'a'"]],
         "eq": [["1"], ["any"]], "equalto": [["any"]], "escaped": [[]], "even": [[]], "odd": [[]], "false": [[]],
         "true": [[]], "float": [[]], "filter": [[]], "test": [[]], "ge": [["2"], ["any"]], "gt": [["any"]],
         "greaterthan": [["1"]], "le": [["any"]], "lt": [["3"], ["any"]], "lessthan": [["'b'"]], "in": [["[1, 'a']"], ["any"]],
         "integer": [[]], "iterable": [[]], "lower": [[]], "upper": [[]], "mapping": [[]], "ne": [["any"]], "none": [[]],
         "number": [[]], "sameas": [["true"], ["none"], ["1"], ["any"]], "sequence": [[]], "string": [[]],
         "undefined": [[]], "nope": [[]]}
METHODS = {
    "str": {"strip": [[], ["'x'"], ["none"], ["''"], ["1"]], "lstrip": [[], ["' H'"]], "rstrip": [[], ["'d\\n'"]],
            "split": [[], ["','"], ["' '", "1"], ["sep=' '"], ["none", "1"], ["maxsplit=1"], ["''"], ["1"], ["', '", "-1"]],
            "rsplit": [[], ["' '", "1"], ["','"], ["none", "2"]], "splitlines": [[], ["true"], ["keepends=true"]],
            "partition": [["' '"], ["'zz'"], ["''"], []], "rpartition": [["' '"], ["'zz'"]],
            "startswith": [["'H'"], ["('H', 'z')"], ["'e'", "1"], ["'H'", "0", "2"], [], ["1"], ["['H']"], ["''", "99"]],
            "endswith": [["'d'"], ["('d', 'x')"], ["'W'", "0", "8"]], "find": [["'o'"], ["'o'", "5"], ["'zz'"], ["''"], ["1"]],
            "rfind": [["'o'"], ["'o'", "0", "5"]], "index": [["'l'"], ["'zz'"]], "rindex": [["'l'"], ["'zz'"]],
            "count": [["'l'"], ["''"], ["'l'", "3"], []],
            "replace": [["'l'", "'L'"], ["'l'", "'L'", "1"], ["'l'"], ["''", "'-'"], ["'a'", "1"], ["'l'", "'x'", "-1"]],
            "join": [["words"], ["l"], ["d"], ["'abc'"], ["[]"], [], ["1"], ["('a','b')"], ["people|map(attribute='n')"]],
            "format": [["1", "2"], ["a=1"], ["s", "n"], [], ["1", "a=2"], ["*l"], ["**d"]], "format_map": [["d"], ["{}"]],
            "upper": [[]], "lower": [[], ["1"]], "title": [[]], "capitalize": [[]], "swapcase": [[]], "casefold": [[]],
            "ljust": [["15"], ["15", "'*'"], ["1"], ["15", "'ab'"]], "rjust": [["15"], ["15", "'é'"]], "center": [["14"], ["15", "'*'"]],
            "zfill": [["15"], ["1"]], "removeprefix": [["'He'"], ["''"], ["1"]], "removesuffix": [["'ld'"]],
            "expandtabs": [[], ["4"], ["tabsize=2"], ["0"]], "encode": [[], ["'utf-8'"], ["'ascii'"], ["'latin-1'"]], "isdigit": [[]],
            "isdecimal": [[]], "isnumeric": [[]], "isalpha": [[]], "isalnum": [[]], "isspace": [[]], "isupper": [[]],
            "islower": [[]], "istitle": [[]], "isprintable": [[]], "isascii": [[]], "isidentifier": [[]], "maketrans": [["'a'", "'b'"]],
            "translate": [["{97: 'x'}"], ["{}"]], "nope": [[]]},
    "int": {"bit_length": [[]], "bit_count": [[]], "conjugate": [[]], "as_integer_ratio": [[]], "real": None, "imag": None,
            "numerator": None, "denominator": None, "to_bytes": [["8", "'big'"], []], "is_integer": [[]], "nope": None},
    "float": {"is_integer": [[]], "hex": [[]], "as_integer_ratio": [[]], "conjugate": [[]], "real": None, "imag": None},
    "list": {"count": [["1"], ["'foo'"], []], "index": [["1"], ["'zz'"], ["'foo'", "1"], ["2", "0", "9"]], "copy": [[]],
             "append": [["1"]], "pop": [[]], "sort": [[]], "extend": [["l"]], "nope": None},
    "dict": {"get": [["'a'"], ["'q'"], ["'q'", "5"], [], ["[]"], ["key='a'"]], "keys": [[]], "values": [[]], "items": [[]],
             "copy": [[]], "pop": [["'a'"]], "update": [["{}"]], "fromkeys": [["l"], ["'ab'", "1"]], "a": None, "b": None,
             "b.c": None, "nope": None, "_x": None, "__class__": None, "setdefault": [["'a'"]]},
}
GLOBALS = ["range(5)", "range(1, 4)", "range(5, 0, -2)", "range(3, 3)", "range()", "range(1, 2, 0)", "range(100001)", "dict(a=1)",
           "dict([('a', 1), ('b', 2)])", "dict(d, z=1)", "dict(l)", "namespace(a=1)", "namespace()", "cycler(1, 2)", "joiner()",
           "joiner('|')", "cycler()", "dict.fromkeys('ab')", "range(10)[2:5]", "range(n)", "dict(d)", "dict(**d)",
           "strftime_now('%Y-%m-%d')", "strftime_now('%d %b %Y %H:%M:%S %j %A %y %p %I %% %-d %e')", "raise_exception('boom')", "raise_exception(1)",
           "raise_exception()", "range('a')", "range(2.0)", "range(-3)", "range(3).start", "range(3).count(1)", "range(3).index(2)"]
KINDS = ["str", "int", "float", "bool", "none", "list", "dict", "undefined"]


def is_unrepeatable(template):
    """The reference draws lots in these."""
    return re.search(r"random|lipsum", template) is not None


class Maker:
    def __init__(self, rnd):
        self.r = rnd
        self.names = []

    def pick(self, items):
        return self.r.choice(items)

    def kind(self):
        return self.r.choices(KINDS, [8, 7, 4, 2, 2, 7, 4, 2])[0]

    def atom(self, kind):
        if self.names and self.r.random() < 0.2:
            return self.pick(self.names)
        if kind == "undefined":
            return self.pick(["zz", "d.zz", "zz", "l[9]"])
        if kind in NAMES and self.r.random() < 0.5:
            return self.pick(NAMES[kind])
        if kind == "str":
            return self.pick(STRINGS)
        if kind == "int":
            return self.pick(INTS)
        if kind == "float":
            return self.pick(FLOATS)
        if kind == "bool":
            return self.pick(["true", "false", "True", "False"])
        if kind == "none":
            return self.pick(["none", "None"])
        if kind == "list":
            items = [self.atom(self.kind()) for _ in range(self.r.randrange(4))]
            if self.r.random() < 0.3:
                return "(" + "".join(item + ", " for item in items) + ")"
            return "[" + ", ".join(items) + "]"
        pairs = [f"{self.atom(self.pick(['str', 'str', 'int']))}: {self.atom(self.kind())}" for _ in range(self.r.randrange(3))]
        return "{" + ", ".join(pairs) + "}"

    def argument(self, text, depth):
        name, mark, value = text.partition("=")
        if mark and name.isidentifier():
            return f"{name}={self.argument(value, depth)}"
        if text == "any" or text in KINDS:
            return self.expression(depth - 1, None if text == "any" else text)
        return text

    def call(self, rows, depth, bare=False):
        if rows is None:
            return ""
        args = [self.argument(a, depth) for a in self.pick(rows)]
        if self.r.random() < 0.03:
            args.append(self.pick(["1", "bad=1", "'x'", "*l", "**ed"]))
        if not args and bare:
            return ""
        return "(" + ", ".join(args) + ")"

    def expression(self, depth, kind=None):
        kind = kind or self.kind()
        if self.r.random() < 0.08:
            kind = self.kind()
        if depth <= 0:
            return self.atom(kind)
        shape = self.r.randrange(21)
        sub = lambda k=None: self.expression(depth - 1, k)
        if shape < 6:
            name = self.pick(list(FILTERS))
            return f"{self.wrapped(sub(kind))}|{name}{self.call(FILTERS[name], depth, True)}"
        if shape < 9:
            group = self.pick(list(METHODS)) if kind not in METHODS else kind
            name = self.pick(list(METHODS[group]))
            return f"{self.wrapped(sub(group))}.{name}{self.call(METHODS[group][name], depth)}"
        if shape < 11:
            name = self.pick(list(TESTS))
            return f"{self.wrapped(sub(kind))} is {self.pick(['', '', 'not '])}{name}{self.call(TESTS[name], depth, True)}"
        if shape < 14:
            op = self.pick(["+", "-", "*", "/", "//", "%", "~", "~", "+", "%", "*"])
            return f"{self.wrapped(sub(kind))} {op} {self.wrapped(sub(kind))}"
        if shape == 14:
            return f"{self.wrapped(sub(kind))} ** {self.pick(['2', '0', '-1', '0.5', '3', 'f', 'neg', '20', 't', 'zz'])}"
        if shape == 15:
            text = self.wrapped(sub(kind))
            for _ in range(self.r.randrange(1, 3)):
                text += f" {self.pick(['==', '!=', '<', '<=', '>', '>=', 'in', 'not in'])} {self.wrapped(sub(kind))}"
            return text
        if shape == 16:
            return f"{sub()} {self.pick(['and', 'or'])} {sub()}"
        if shape == 17:
            return f"{self.pick(['not ', '-', '+', 'not '])}{self.wrapped(sub(kind))}"
        if shape == 18:
            index = self.pick(["0", "-1", "1", "'a'", "1:", ":2", "::-1", "1:3", "::2", "-2:", "9", "none", "'items'", "f", ":-1",
                               "0, 1", "t", "5:1:-2", "big", "'__class__'", "zz", "1:f", "::0", "huge:", ":huge"])
            return f"{self.wrapped(sub(self.pick(['str', 'list', 'dict', kind])))}[{index}]"
        if shape == 19:
            return f"{sub(kind)} if {sub()}" + (f" else {sub(kind)}" if self.r.random() < 0.7 else "")
        return self.pick(GLOBALS)

    def wrapped(self, text):
        simple = re.fullmatch(r"[\w.]+|'[^']*'", text)
        return text if simple and self.r.random() < 0.9 else f"({text})"

    # Statements.

    def open(self):
        return self.r.choices(["{%", "{%-", "{%+"], [8, 2, 1])[0] + " "

    def close(self):
        return " " + self.r.choices(["%}", "-%}", "+%}"], [8, 2, 1])[0]

    def tag(self, text):
        return self.open() + text + self.close()

    def space(self):
        return self.pick(["", "", " ", "\n", "\n  ", "  \n", "\n\n", " x ", "é", "\t"])

    def body(self, depth):
        return "".join(self.space() + self.statement(depth) for _ in range(self.r.randrange(1, 4))) + self.space()

    def output(self, depth=1):
        left, right = self.pick([("{{ ", " }}"), ("{{ ", " }}"), ("{{- ", " }}"), ("{{ ", " -}}"), ("{{-", "-}}"), ("{{+ ", " }}")])
        return left + self.expression(self.r.randrange(depth + 1)) + right

    def with_name(self, name, make):
        self.names.append(name)
        out = make()
        self.names.remove(name)
        return out

    def statement(self, depth):
        if depth <= 0:
            return self.output()
        shape = self.r.randrange(24)
        name = self.pick(["a", "b", "x", "y", "n", "l"])
        if shape < 4:
            return self.output(2)
        if shape < 8:
            return self.loop(depth, name)
        if shape < 11:
            text = self.tag("if " + self.expression(1)) + self.body(depth - 1)
            if self.r.random() < 0.3:
                text += self.tag("elif " + self.expression(1)) + self.body(depth - 1)
            if self.r.random() < 0.5:
                text += self.tag("else") + self.body(depth - 1)
            return text + self.tag("endif")
        if shape < 14:
            if name not in self.names:
                self.names.append(name)
            targets = self.pick([name, name, name, f"{name}, b", "ns.v"])
            value = self.expression(2) if "," not in targets else self.pick(["1, 2", "l[:2]", "'ab'", "l", "(1, 2)", "d", "no", "zz"])
            return self.tag(f"set {targets} = {value}")
        if shape == 14:
            return self.tag(f"set {name}{self.pick(['', ' | upper', ' | trim | length', ' | safe'])}") + self.body(depth - 1) + self.tag("endset")
        if shape == 15:
            bound = self.pick([f"{name}={self.expression(1)}", f"{name}=1, b={name}", "", f"{name}={self.expression(0)}, y=2"])
            return self.tag("with " + bound) + self.with_name(name, lambda: self.body(depth - 1)) + self.tag("endwith")
        if shape < 18:
            return self.macro(depth)
        if shape == 18:
            chain = self.pick(["upper", "trim", "replace('a', 'b')", "indent(2)", "upper|trim", "length", "e", "tojson", "default('x')", "nope"])
            return self.tag("filter " + chain) + self.body(depth - 1) + self.tag("endfilter")
        if shape == 19:
            return self.pick(["{# c #}", "{#- c -#}", "{# {{ x }} #}", "{% raw %}{{ x }}{% endraw %}", "{%- raw -%} {% x %} {%- endraw -%}",
                              "{% raw %}\n a\n{% endraw %}\n", "{#+ c +#}\n", "\n  {# c #}\n", "{% raw +%}\n x{%+ endraw +%}\n"])
        if shape == 20:
            return self.tag(self.pick(["generation"])) + self.body(depth - 1) + self.tag("endgeneration")
        if shape == 21:
            return self.pick(["{% set ns = namespace(v=1) %}", "{% set ns = namespace() %}{% set ns.v = 1 %}{{ ns.v }}", "{{ ns.v }}",
                              "{% set d.a = 1 %}", "{% break %}", "{% continue %}", "{% print 1 %}", "{% print s, n %}", "{% do 1 %}"])
        if shape == 22:
            escape = self.pick(["false", "true", "t", "zz"])
            return self.tag("autoescape " + escape) + self.body(depth - 1) + self.tag("endautoescape")
        return self.pick(["{% include 'x' %}", "{% include 'x' ignore missing %}", "{% import 'x' as y %}", "{% from 'x' import y %}",
                          "{% extends 'x' %}", "{% block " + name + " %}{{ " + name + " }}{% endblock %}", "{{ self.a() }}", "{{ self }}",
                          "{% include zz %}", "{% block c %}1{% endblock c %}{{ self.c() }}", "{{ super() }}"])

    def loop(self, depth, name):
        over = self.pick(["l", "people", "d", "d.items()", "range(4)", "words", "s", "zz", "nested", "el", "mixed", "d|items",
                          "people|map(attribute='n')", "tree", "tree", self.expression(1, "list"), "1, 2, 3", "no", "n", "l|reverse",
                          "people|groupby('n')", "d|dictsort"])
        target = self.pick([name, name, name, name, "k, v", "(k, v)", "loop"])
        condition = self.pick(["", "", "", "", f" if {name} != 2", f" if {self.expression(1)}", " if loop.index > 1"])
        recursive = self.pick(["", "", "", "", " recursive"])
        parts = ["loop.index", "loop.index0", "loop.first", "loop.last", "loop.length", "loop.revindex", "loop.revindex0", "loop.depth",
                 "loop.depth0", "loop.previtem", "loop.nextitem", "loop.cycle('a', 'b')", f"loop.changed({name})", "loop", "loop.nope",
                 "loop.cycle()", "loop.changed()", "loop is callable", "loop|length", "loop.index is odd", "loop.nextitem is defined"]

        def body():
            text = self.body(depth - 1)
            for _ in range(self.r.randrange(3)):
                text += "{{ " + self.pick(parts) + " }}" + self.space()
            if recursive:
                text += "{{ loop(" + self.pick([f"{name}.k", f"{name}.k or []", "el", f"{name}", ""]) + ") if " + self.pick(
                    [f"{name}.k", "loop.depth < 3", f"{name}.k is defined"]) + " }}"
            if self.r.random() < 0.2:
                text += self.tag("if " + self.pick([f"{name} == 2", "loop.index == 2", "loop.last", self.expression(1)])) + self.tag(
                    self.pick(["break", "continue"])) + self.tag("endif") + self.space() + "."
            return text
        text = self.tag(f"for {target} in {over}{condition}{recursive}") + self.with_name(name, body)
        if self.r.random() < 0.2:
            text += self.tag("else") + self.body(depth - 1)
        return text + self.tag("endfor")

    def macro(self, depth):
        signature = self.pick(["", "p", "p, q=1", "p, q=p", "p='x', q=n", "p, caller", "q=zz", "caller=none", "l=l"])
        self.names += ["p", "q"]
        body = self.body(depth - 1)
        self.names.remove("p")
        self.names.remove("q")
        if self.r.random() < 0.4:
            body += "{{ " + self.pick(["varargs", "kwargs", "caller()", "caller(1)", "caller is defined", "varargs|length", "kwargs.items()|list",
                                       "caller('x', 2)", "kwargs|tojson", "m", "caller", "p is defined", "q"]) + " }}"
        text = self.tag(f"macro m({signature})") + body + self.tag("endmacro")
        arguments = self.pick(["", "1", "1, 2", "1, 2, 3", "p=1", "q=2, p=1", "1, z=3", "*l", "**d", "p=1, **ed", "1, p=2", "caller=1", "*l, z=1",
                               "1, *[2]", "zz", "s, q=e"])
        if self.r.random() < 0.4:
            params = self.pick(["", "", "(x)", "(x, y=2)", "()"])
            self.names.append("x")
            inner = self.body(depth - 1)
            self.names.remove("x")
            return text + self.tag(f"call{params} m({arguments})") + inner + self.tag("endcall")
        text += "{{ m(" + arguments + ") }}"
        if self.r.random() < 0.2:
            text += "{{ " + self.pick(["m", "m.name", "m.arguments", "m.catch_kwargs", "m.catch_varargs", "m.caller", "m.nope", "m is callable"]) + " }}"
        return text


PIECES = ["{{", "}}", "{%", "%}", "{#", "#}", "-", "+", " if ", " for ", "x", " in ", "endfor", "endif", "else", " set ", "=", "macro ",
          "endmacro", "call ", "(", ")", "[", "]", "{", "}", "'a'", "\"b\"", "\\", "|", ".", ",", ":", "1", "0x1", "1e2", "1.5", "~", "*",
          "**", "//", "%", " is ", " not ", "raw", "endraw", "\n", " ", "\t", "é", "世", "loop", "upper", "tojson", "s", "l", "d", "==", "<", "!",
          " and ", " or ", "true", "none", "@", "$", "#", "##", "a.b", "d['a']", "l[0]", "1_0", "1__0", "0b2", ".5", "5.", "'\\x4'", "'\\q'",
          "'\n'", "if 1", "endset", " recursive", "{{ 1 }}", "{% if 1 %}", "{% endif %}", "-%}", "{%-", "-}}", "{{-", "+%}", "{%+", "r'a'", ";",
          "&", "==1", "not in", "is not", "is defined", "is none", "|upper", "|length", "f(x)", "**d", "*l", "a=1", "lambda", "import ", "class"]


def syntax(rnd):
    pick = [rnd.choice(PIECES) for _ in range(rnd.randrange(1, 9))]
    text = "".join(pick)
    shape = rnd.randrange(4)
    if shape == 0:
        return "{{ " + text + " }}"
    if shape == 1:
        return "{% " + text + " %}"
    if shape == 2:
        return "{{ s" + text + " }}"
    return "a" + text + "b\n"


KNOWN = [  # readings of the language that people get wrong
    "{% macro m(n=n) %}{{ n }}{% endmacro %}{{ m() }}|{{ m(2) }}", "{% macro m(a=b, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m() }}|{{ m(b=3) }}|{{ m(1) }}",
    "{{ -0.5|round(0, 'ceil') }} {{ nz|round(1, 'floor') }} {{ 2|round(0, 1) }}", "{{ \"it's\".encode() }} {{ 'a'.encode() }}",
    "{% for a in l %}{{ n }}{% endfor %}{% set n = 1 %}{{ n }}", "{% if t %}{{ n }}{% endif %}{% set n = 1 %}{{ n }}",
    "{% for a in l %}{% for b in l %}{{ n }}{% endfor %}{% set n = a %}{{ n }}{% endfor %}", "{% macro m() %}{% for b in l %}{{ n }}{% endfor %}{% set n = 5 %}{{ n }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ n }}{% set n = 5 %}{{ n }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ n }}{% endmacro %}{{ m() }}{% set n = 1 %}{{ m() }}", "{% for x in l if n %}{{ x }}{% endfor %}{% set n = 1 %}",
    "{% block a %}{{ n }}{% endblock %}{% for a in l %}{{ n }}{% endfor %}{% set n = 3 %}{{ self.a() }}", "{% for i in l %}{% with x=i %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endwith %}{% endfor %}",
    "{% for i in l %}{% set z %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endset %}{{ z }}{% endfor %}", "{% for i in l %}{% filter upper %}a{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfilter %}{% endfor %}",
    "{% for a in l %}{{ q }}{% if a == 1 %}{% set q = 5 %}{% elif a == 2 %}{% set q = 6 %}{% else %}{% set q = 7 %}{% endif %}{{ q }}{% endfor %}", "{% if no %}{% set n = 1 %}{% endif %}{% for a in l %}{{ n }}{% endfor %}",
    "{% if no %}{% set n = 1 %}{% elif t %}{% set n = 2 %}{% else %}{% set n = 3 %}{% endif %}{% for a in l %}{{ n }}{% endfor %}", "{% for k, v in nested if k %}{{ loop.previtem }}{% endfor %}",
    "{% set n %}{% for a in l %}{{ n }}{% endfor %}{% endset %}{{ n }}", "{% macro m() %}{{ kwargs }}{% endmacro %}{% call m(z=1, **d) %}{% endcall %}", "{% for a in l %}{% set n = n + a %}{{ n }}{% endfor %}{{ n }}",
    "{% for a in l %}{% break %}{% else %}none{% endfor %}", "{% for a in l %}{% continue %}{% else %}none{% endfor %}", "{% for a in l %}{% if a == 2 %}{% break %}{% endif %}{% else %}none{% endfor %}",
    "{{ '<a>' ~ ('b'|safe) ~ '</a>' }}", "{{ ('<b>'|safe) + '<i>' }}", "{{ '<i>' + ('<b>'|safe) }}", "{{ ('%s'|safe) % '<i>' }}",
    "{{ ('{}'|safe).format('<i>') }}", "{{ ('a,<b>'|safe).split(',') }}", "{{ ['<a>', '<b>'|safe]|join('<') }}",
    "{{ ('<'|safe).join(['<a>', 'b'|safe]) }}", "{{ ('<a>'|e)|length }}", "{{ ('x'|safe) is escaped }}", "{{ 'a' ~ none ~ 1.0 ~ zz ~ [1, 'b'] }}",
    "{{ ('<x>'|safe)|upper|e }}", "{{ ('<x>'|safe)[0]|e }}", "{{ ('x'|safe)|tojson }}", "{{ {'a'|safe: 1}|tojson }}", "{{ ('<x>'|safe)|replace('x', '<') }}",
    "{{ ('<x>'|safe).replace('x', '<') }}", "{{ 'x'|safe == 'x' }}", "{{ [('<a>'|safe)] }}", "{{ ('<a>'|safe) ~ 'x' is escaped }}",
    "{{ ('<x>'|safe) * 2 }}", "{{ ('<x>'|safe)|string is escaped }}", "{{ ('  <x> '|safe)|trim|e }}", "{{ ('<x>'|e)|safe|e }}", "{{ none|safe }}",
    "{{ 5|safe }}", "{{ ('a'|safe) in ['a'] }}", "{{ {'a': 1}['a'|safe] }}", "{{ ('<x>'|safe)|striptags }}", "{{ ('&lt;'|safe).unescape() }}",
    "{{ ('<b>x</b>'|safe).striptags() }}", "{{ 2 ** 200 }}", "{{ huge * huge }}", "{{ huge // 7 }} {{ huge % 7 }} {{ -huge // 7 }} {{ -huge % 7 }}",
    "{{ huge / 3 }}", "{{ huge|float }}", "{{ huge|int }}", "{{ huge|string|int == huge }}", "{{ huge > 1e40 }}", "{{ huge == huge + 1 }}", "{{ huge|abs - minus }}",
    "{{ '%d' % huge }} {{ '%x' % huge }} {{ '%e' % huge }} {{ '{:,}'.format(huge) }} {{ '{:b}'.format(2**70) }}", "{{ huge|tojson }} {{ {'a': huge}|tojson }}",
    "{{ {huge: 1}[huge] }}", "{{ [huge, 1, minus]|sort }}", "{{ [huge, minus]|sum }}", "{{ huge is odd }} {{ huge is even }} {{ huge is divisibleby(3) }}",
    "{{ 10**25 }} {{ 10**25|float }} {{ 1e25|int }} {{ (10**25)|round(-3) }} {{ 10 ** -2 }}", "{{ 'x' * 2**70 }}", "{{ range(2**70) }}", "{{ 2**70 is integer }}",
    "{{ real * real }} {{ -real * real }} {{ (real * real)|tojson }}", "{{ (real * real)|int }}", "{{ real * real - real * real }}", "{{ -0.0 }} {{ nz }} {{ 0 * -1.0 }} {{ nz|tojson }}",
    "{{ 1.0|tojson }} {{ 1|tojson }} {{ 1e16|tojson }} {{ 1e-7|tojson }} {{ 100.0 }}", "{{ messages|tojson }}", "{{ messages[1].tool_calls[0].function.arguments|tojson(indent=4) }}",
    "{{ 7 // -2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7.5 // -2 }} {{ -7.5 % 2 }} {{ 5 % 2.5 }} {{ -0.0 // 1 }}", "{{ (-8) ** (1/3) }}", "{{ 0 ** 0 }} {{ 0.0 ** 0 }}",
    "{{ 0 ** -1 }}", "{{ 2 ** 0.5 }} {{ (-2) ** 2 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ 2 ** -1 }}", "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 == true }} {{ 3 > 2 in [2] }}",
    "{{ true + true }} {{ true * 3 }} {{ -true }} {{ +true }} {{ true / 2 }} {{ true ** 2 }} {{ 1 + true }}", "{{ 1 is none is false }}", "{{ 1 is integer is true }}", "{{ not 1 is none }}",
    "{{ 1 is defined and 2 is odd }} {{ 2 is even or zz }} {{ n is divisibleby 7 }} {{ n is eq 7 }} {{ 'a' is in 'abc' }} {{ n is not in [7] }}",
    "{% for a in l %}{% if loop.first %}{% set x = a %}{% endif %}{{ x }}{% endfor %}{{ x }}", "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% set x = 1 %}{% for i in [1] %}{{ x }}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}", "{% set x = 1 %}{% with %}{% set x = 2 %}{{ x }}{% endwith %}{{ x }}",
    "{% macro m() %}{{ x }}{% endmacro %}{% set x = 5 %}{{ m() }}", "{% macro m(x) %}{{ x }}{{ y }}{% endmacro %}{% for y in [1] %}{{ m(2) }}{% endfor %}",
    "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% set i = 9 %}{% for i in [1] %}{{ i }}{% else %}{{ i }}{% endfor %}{{ i }}",
    "{% for i in l %}{{ i }}{% set l = [9] %}{% endfor %}{{ l }}", "{% for x in [1, 2] recursive %}{{ x }}{{ loop.depth }}{% endfor %}",
    "{% for item in tree recursive %}{{ item.v }}{% if item.k %}({{ loop(item.k) }}){% endif %}{{ loop.depth0 }}{% endfor %}", "{{ zz.a }}", "{{ zz['a'] }}", "{{ zz() }}", "{{ zz|length }}",
    "{{ zz == zz }} {{ zz == none }} {{ zz != 1 }} {{ zz in [1] }} {{ 1 in zz }}", "{{ zz < 1 }}", "{{ zz + 1 }}", "{{ 1 + zz }}", "{{ -zz }}", "{{ zz|int }}", "{{ zz|float }}", "{{ zz|abs }}",
    "{{ zz|tojson }}", "{{ [zz]|tojson }}", "{{ [zz] }}", "{{ zz|list }}{{ zz|join }}{{ zz|first }}{{ zz|sort }}{{ zz|upper }}{{ zz|trim }}{{ zz|replace('a', 'b') }}", "{{ zz|round }}",
    "{{ zz|items|list }}", "{{ zz.items() }}", "{{ zz is mapping }} {{ zz is iterable }} {{ zz is sequence }} {{ zz is string }} {{ zz is number }} {{ zz is none }} {{ zz is callable }}", "{{ 'a' in zz }}",
    "{{ zz ~ 'a' }}", "{{ zz[1:] }}", "{{ zz and 1 }} {{ zz or 1 }} {{ not zz }}", "{{ l[zz] }}", "{{ d[zz] }}", "{{ 'a' % zz }}", "{{ '%s' % zz }}", "{{ '{}'.format(zz) }}", "{{ '%d' % zz }}",
    "{{ d.items }} {{ d['items'] }} {{ d.items() }}", "{{ d.keys() }} {{ d.values()|list }} {{ d.get('b').c[1] }}", "{{ {'get': 1}.get }}", "{{ {'get': 1}['get'] }}", "{{ l.0 }} {{ nested.1.1.0 }}", "{{ l[-1] }} {{ l[9] }} {{ l['0'] }}",
    "{{ s.upper }}", "{{ 'abc'.0 }} {{ 'abc'[1] }}", "{{ d|length }} {{ d|list }} {{ d|first }} {{ d|last }} {{ d|join(',') }}", "{{ {'a': 1, 'a': 2} }}", "{{ {1: 'a', 1.0: 'b', true: 'c'} }}", "{{ {[]: 1} }}",
    "{{ (1, 2) + (3,) }} {{ [1] + [2] }} {{ () }} {{ (1,) }} {{ 1, 2 }}", "{{ [1] + (2,) }}", "{{ 'a' < 'B' }} {{ [1, 2] < [1, 3] }} {{ (1,) < (1, 0) }}", "{{ 1 < 'a' }}", "{{ none < 1 }}", "{{ {} < {} }}",
    "{{ cycler('a', 'b').next() }}{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}", "{% set j = joiner() %}{{ j() }}{{ j() }}{{ j() }}", 
    "{% set ns = namespace(a=1) %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }} {{ ns }}", "{{ namespace(a=1).b }}", "{% set ns = namespace(_a=1) %}", "{{ ns is defined }}", "{{ namespace({'a': 1}).a }}", "{{ namespace([('a', 2)]).a }}",
    "{{ dict(a=1, **{'b': 2}) }}", "{{ dict() }} {{ dict([['a', 1]]) }}", "{{ lipsum is defined }}", "{{ range is callable }} {{ range }}", "{{ 'a'|upper ~ 'b'|upper }}", "{{ 1 if false }}|{{ (1 if false) is defined }}", "{{ 1 if zz else 2 if no else 3 }}",
    "{{ l|map('string')|join(',') }} {{ l|sum }} {{ l|max }} {{ l|min }} {{ l|sort }} {{ l|reverse|list }}", "{{ l|first }} {{ l|last }} {{ el|first }} {{ el|last is defined }} {{ el|max }} {{ el|sum }}", "{{ people|groupby('n') }}", "{{ people|groupby('a') }}",
    "{% for g in people|groupby('a', default=0) %}{{ g.grouper }}:{{ g.list|map(attribute='n')|list }};{% endfor %}", "{{ people|sort(attribute='a') }}", "{{ words|groupby(0) }}", "{{ words|unique|list }} {{ words|sort }} {{ words|sort(case_sensitive=true) }}",
    "{{ people|selectattr('a')|list }} {{ people|map(attribute='a')|list }} {{ people|map(attribute='a', default=7)|list }}", "{{ people|map(attribute='c.k')|list }}", "{{ people|map(attribute='a.b', default=1)|list }}", "{{ people|sum(attribute='a') }}",
    "{{ l|batch(2)|list }} {{ l|slice(2)|list }} {{ l|slice(5, 'x')|list }} {{ l|batch(2, 'x')|list }}", "{{ mixed|sort }}", "{{ mixed|unique|list }}", "{{ mixed|select('number')|list }}", "{{ mixed|join('|') }}", "{{ 'abc'|list }} {{ 'abc'|reverse }} {{ 'abc'|sort }}",
    "{{ 'a b'|title }} {{ \"it's a-b (c) [d] x\"|title }} {{ 'ÀB ß'|title }}", "{{ 'ab\ncd'|indent }} {{ 'ab\n\ncd\n'|indent(2, true, true) }}", "{{ text|wordwrap(20) }}", "{{ text|wordwrap(5) }}", "{{ text|wordwrap(5, false) }}", "{{ text|wordwrap(9, true, none, false) }}", "{{ 'a--b well-known x-y-z -- e-mail--or'|wordwrap(4) }}", "{{ text|truncate(20) }} {{ text|truncate(20, true) }}", "{{ text|urlize }}", "{{ '(http://a.bc/x(y)), <www.x-y.org>. see me@x.org, mailto:a@b.co HTTP://1.2.3.4:80/?q foo.com https://[::1]/ x@y ftp://a.b'|urlize }}", "{{ 'see https://example.com/a/very/long/path tel:12'|urlize(12, true, target='_blank', rel='b a', extra_schemes=['tel:']) }}", "{{ text|wordcount }}",
    "{{ 1536|filesizeformat }} {{ 1536|filesizeformat(true) }} {{ 1|filesizeformat }} {{ 1e30|filesizeformat }} {{ '5'|filesizeformat }} {{ huge|filesizeformat }}", "{{ 42.55|round(1) }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 1234|round(-2) }} {{ 42|round }} {{ 5.015|round(2) }}",
    "{{ '3.7'|int }} {{ '0x1f'|int(0, 16) }} {{ '11'|int(base=2) }} {{ 'z'|int(-1) }} {{ '1e3'|int }} {{ none|int }} {{ [1]|int(3) }} {{ '99999999999999999999999999999999999999999999'|int }}", "{{ 'inf'|float }} {{ 'nan'|float }} {{ '1_0.5'|float }} {{ 'x'|float(1) }}",
    "{{ '%5d|%-5s|%05.1f|%+d|%%|%c|%r|%x|%o|%e|%g' % (1, 'a', 2.25, 3, 65, 'q', 255, 8, 1234.5, 0.0001) }}", "{{ '%s' % [1] }} {{ '%s %s' % (1, 'a') }} {{ '%(a)s' % d }}", "{{ '%s %s' % 1 }}", "{{ '%d' % 'a' }}", "{{ '%s' % (1, 2) }}", "{{ 'a' % 1 }}", "{{ '%z' % 1 }}",
    "{{ '{:>10}|{:<5}|{:^7}|{:08.3f}|{:,}|{:x}|{:e}|{:%}|{!r}'.format('a', 'b', 'c', 3.14159, 1234567, 255, 12345.678, 0.25, 'q') }}", "{{ '{0} {1} {0}'.format(1, 2) }} {{ '{a[b]} {x.y}'.format(a={'b': 1}, x=namespace(y=2)) }}", "{{ '{} {0}'.format(1) }}", "{{ '{}'.format() }}",
    "{{ '{a}'.format() }}", "{{ '{:d}'.format('a') }}", "{{ '{:d}'.format(1.5) }}", "{{ '{:s}'.format(1) }}", "{{ '{!x}'.format(1) }}", "{{ '{0.__class__}'.format(1) }}", "{{ '{:{w}}'.format(1, w=5) }}", "{{ '{:.3}'.format('abcdef') }} {{ '{:.3}'.format(3.14159) }} {{ '{:10.2}'.format(1e10) }}",
    "{{ 'a\\tb\\n\\\\ \\x41 \\u00e9 \\U0001F389 \\101 \\q' }}", "{{ '\\ud83d' }}", "{{ 'a' 'b' \"c\" }}", "{{ 0x1F }} {{ 0b11 }} {{ 0o17 }} {{ 1_000 }} {{ 1e3 }} {{ 1.5e-3 }} {{ 1E5 }}", "{{ 007 }}", "{{ 1.e }}", "{{ .5 }}", "{{ 1.real }}",
    "{%- set x = 1 -%}\n a {{- x -}} b \n{%- if x -%} c {%- endif -%}\n d", "a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "  {%+ if true %} x{% endif +%}\n y", "{{ 1 }}\n\n{{ 2 }}\n", "a {# c #} b\n  {# d #}\ne", "{%- raw %}\n {{ x }} {% endraw -%}\n z", "a\r\nb\rc{{ 'x\r\ny' }}",
    "{% if 1 %}a\n{% endif %}\n\n", "{% for i in [1,2] -%}\n {{ i }}\n{%- endfor %}", "#{{ 1 }}", "{ { 1 } }", "{{ '}}' }} {{ '%}' }}", "{% set x = '%}' %}{{ x }}", "## x\n# for\n", "{{ {'a': {'b': 1}}.a.b }}", "{{ {'a':{'b':1}} }}", "{{ [[1,2],[3]][0][1] }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = 'xy' %}{{ a }}{{ b }}", "{% set a, b = [1] %}", "{% set a, b = 1, 2, 3 %}", "{% set (a, b) = (1, 2) %}{{ b }}", "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% set a = b = 1 %}", "{% set a.b = 1 %}",
    "{% macro m(a, b=2, *c) %}{% endmacro %}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, z=4) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=1) }}", "{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{% call m() %}{% endcall %}", "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}", "{% macro m() %}{{ m.name }}{{ m.arguments }}{% endmacro %}{{ m() }}{{ m }}",
    "{% macro m(n) %}{{ n }}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}", "{{ m() }}{% macro m() %}late{% endmacro %}", "{% filter upper %}a{{ 'b' }}{% endfilter %}", "{% set x | upper %}a{% endset %}{{ x }}", "{% set x %}<a>{% endset %}{{ x|e }}{{ x is escaped }}",
    "{% generation %}a{% set q = 1 %}{% endgeneration %}{{ q }}", "{% for i in [1,2] %}{% generation %}{{ i }}{% endgeneration %}{% endfor %}", "{% include 'a' %}", "{% include 'a' ignore missing %}x", "{% import 'a' as b %}", "{% extends 'a' %}", "{% if false %}{% include 'a' %}{% endif %}ok",
    "{% block a %}x{% endblock %}{{ self.a() }}", "{% set x = 1 %}{% block a %}{{ x }}{% endblock %}", "{% for i in [1] %}{% block a %}{{ i }}{% endblock %}{% endfor %}", "{% for i in [1] %}{% block a scoped %}{{ i }}{% endblock %}{% endfor %}", "{% block a %}{% endblock %}{% block a %}{% endblock %}",
    "{% autoescape true %}{{ '<a>' }}{{ '<b>'|safe }}{{ '<' ~ '>' }}{% endautoescape %}{{ '<c>' }}", "{% autoescape false %}{{ '<a>' }}{% endautoescape %}", "{% autoescape t %}{{ html }}{% endautoescape %}", "{% autoescape true %}{% macro m() %}<{{ '<' }}{% endmacro %}{{ m() }}{% endautoescape %}",
    "{% autoescape true %}{% set x %}<{{ '<' }}{% endset %}{{ x }}{{ ['<', '>']|join('&') }}{{ html|replace('a', '<') }}{{ {'a': '<'}|xmlattr }}{% endautoescape %}", "{% if 'x' is filter %}{% endif %}{{ 'upper' is filter }} {{ 'odd' is test }} {{ 'nope' is filter }}", "{{ 1|nope }}", "{% if false %}{{ 1|nope }}{% endif %}ok",
    "{{ 1 is nope }}", "{{ (1|nope) if false else 2 }}", "{% break %}", "{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% if i == 2 %}{% break %}{% endif %}{% endfor %}", "{% for i in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% do l.append(1) %}", "{{ l.append(1) }}",
    "{{ strftime_now('%Y-%m-%d %H:%M:%S %f %z %Z %c %x %X %U %w %G %V %u') }}", "{{ strftime_now('é %d') }}", "{{ strftime_now('') }}|", "{{ strftime_now(1) }}", "{{ strftime_now('%Q %') }}", "{{ raise_exception('a' ~ 1) }}", "{{ raise_exception(none) }}", "{{ raise_exception({'a': 1}) }}",
    "{{ ''.__class__ }}", "{{ l.__len__() }}", "{{ d._x }}", "{{ {'_x': 1}._x }}", "{{ {'__x': 1}['__x'] }}", "{{ {'__class__': 1}.__class__ }}", "{{ {'__class__': 1}['__class__'] }}", "{{ d.pop }}", "{{ d.update is defined }}", "{{ l.append }}", "{{ ({}).pop('a') }}", "{{ s|attr('upper') is callable }} {{ d|attr('a') }}",
    "{% set x = l.append %}{{ x is defined }}", "{{ true is sameas true }} {{ 1 is sameas 1 }} {{ l is sameas l }} {{ none is sameas none }} {{ [] is sameas [] }}", "{{ 1.0 is integer }} {{ 1 is float }} {{ true is integer }} {{ true is number }} {{ '1' is number }} {{ none is none }} {{ {} is mapping }} {{ () is sequence }}",
    "{{ 5 is between(1, 9) }}", "{{ s[::2] }} {{ u[::-1] }} {{ u[1:4] }} {{ l[1:][::-1] }} {{ (1,2,3)[:2] }} {{ l[::-2] }}", "{{ s * -1 }}|{{ l * 0 }}|{{ 2 * 'ab' }}", "{{ 'a' * 1.5 }}", "{{ s - 'a' }}", "{{ none + 1 }}", "{{ [] + {} }}", "{{ not none }} {{ not [] }} {{ not '' }} {{ not 0.0 }} {{ not {} }} {{ not ' ' }}",
    "{{ 'é'.encode() }} {{ 'a'.encode('ascii') }}", "{{ 'é'.encode('ascii') }}", "{{ 'a'.encode().decode() }}", "{{ 'abc'.translate({97: 'x', 98: none}) }}", "{{ (255).bit_length() }} {{ (3).real }} {{ 1.5.is_integer() }} {{ 2.0.as_integer_ratio() }} {{ (5).to_bytes(2, 'big') }}", "{{ 1.5.hex() }}", "{{ n.bit_length() }}",
    "{{ l.index(2) }} {{ l.count(3) }} {{ (1, 2).index(2) }}", "{{ l.index(9) }}", "{{ d.copy() }} {{ d.fromkeys('ab') }}", "{{ d.keys() | sort }} {{ 'a' in d.keys() }} {{ d.items() | list | length }} {{ d.values() | first }}", "{{ d.keys()[0] }}", "{{ d.keys() & ['a'] }}", "{{ d | dictsort(by='value') }}", "{{ {'b': 1, 'A': 2} | dictsort }} {{ {'b': 1, 'A': 2} | dictsort(true) }}",
    "{{ [1,2] | pprint }} {{ 'a' | pprint }} {{ d | pprint }}", "{{ people | pprint }}", "{{ messages | pprint }}", "{{ huge | pprint }} {{ 1.0 | pprint }}", "{{ html | striptags }} {{ html | e }} {{ html | forceescape }} {{ html | urlencode }} {{ {'a b': 'c&d', 'x': 1} | urlencode }} {{ [('a', 1)] | urlencode }}",
    "{{ {'class': 'a', 'id': none, 'x': zz, 'y': '<'} | xmlattr }}", "{{ {'a b': 1} | xmlattr }}", "{{ {1: 1} | xmlattr }}", "{{ 'x' | center(9) }}|{{ 'xy' | center(9) }}|", "{{ ' a ' | trim }}|{{ 'xax' | trim('x') }}", "{{ 'a' | default }} {{ zz | default }} {{ '' | default('x') }} {{ '' | default('x', true) }} {{ none | default('x') }}",
]


def template_of(kind, number, rnd):
    maker = Maker(rnd)
    if kind == "expression":
        return "{{ " + maker.expression(rnd.randrange(1, 4)) + " }}"
    if kind == "statement":
        return maker.body(rnd.randrange(1, 4))
    if kind == "syntax":
        return syntax(rnd)
    return KNOWN[number % len(KNOWN)]
