#!/usr/bin/env python3
"""Compares text/jinja with Jinja2 3.1.6 on random templates.

    go build -o /tmp/jinja_server ./scripts/jinja_server
    python scripts/jinja_fuzz.py --server /tmp/jinja_server --seed 1 --count 100000 [--found FILE]

Templates are made by a grammar: operators, filters, tests and methods on random values, and all statements.
Numbers of a template are now and then replaced by extreme ones: not finite, huge, negative, fractions.
Equal means: the same text and the same generation spans, or both refuse. A difference is made smaller and printed;
with --found it is added to FILE, one JSON object a line. Needs jinja2 3.1.6.
"""
import argparse
import contextlib
import datetime
import json
import random
import re
import resource
import signal
import subprocess
import sys
import warnings

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

warnings.simplefilter("ignore")
NOW = datetime.datetime(2025, 3, 14, 15, 9, 26)
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Generation(Extension):
    """{% generation %} renders its body and notes where that lies in the text that was yielded."""

    tags = {"generation"}
    blocks, spans = [], []

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_note"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _note(self, context, caller):
        text = caller()
        start = len("".join(Generation.blocks))
        Generation.spans.append([start, start + len(text)])
        return text


def environment():
    def fail(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols], cache_size=0)
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = fail
    env.globals["strftime_now"] = NOW.strftime
    return env


ENV = environment()


class Slow(BaseException):
    """Python would be busy for too long; no Exception, which folding of constants would catch."""


def too_slow(*_):
    raise Slow


def bounded():
    """Bounds what a template may cost Python: a second each, and memory."""
    signal.signal(signal.SIGALRM, too_slow)
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


def reference(source, variables):
    """What Jinja2 gives: text and spans, or the exception's name."""
    try:
        signal.setitimer(signal.ITIMER_REAL, 1)
        return rendered(source, variables)
    except (Slow, MemoryError):
        return {"kind": "slow", "error": ""}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def rendered(source, variables):
    Generation.blocks, Generation.spans = [], []
    try:
        for block in ENV.from_string(source).generate(**variables):
            Generation.blocks.append(block)
        text = "".join(Generation.blocks)
        text.encode()
    except MemoryError:
        raise
    except RecursionError as e:
        return {"kind": "RecursionError", "error": str(e)}
    except Exception as e:
        return {"kind": type(e).__name__, "error": str(e)}
    if ADDRESS.search(text):
        return {"kind": "address", "error": text}  # differs from run to run: ours refuses
    out = {"text": text}
    if Generation.spans:
        out["generation"] = Generation.spans
    return out


class Server:
    def __init__(self, path):
        self.p = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, source, variables):
        self.p.stdin.write(json.dumps({"source": source, "vars": variables}).encode() + b"\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            raise SystemExit(f"the server died on {source!r} {variables!r}")
        return json.loads(line)


# What ours refuses on purpose: texts that would differ from run to run, and types that a template has no use for.
ON_PURPOSE = ("address in memory", "complex number", "not supported in chat templates", "not available in chat templates", "has no place in a chat template", "LimitError", "surrogate pair")


def on_purpose(ours):
    return any(p in ours.get("error", "") for p in ON_PURPOSE)


def differs(ours, theirs):
    if on_purpose(ours) or theirs.get("kind") == "slow":
        return False
    if "text" in ours or "text" in theirs:
        return ours.get("text") != theirs.get("text") or ours.get("generation") != theirs.get("generation")
    return False


TEXTS = ["", "a", "abc", "Hello World", "  padded \n", "ünïcödé 🙂", "a,b,,c", "<b>&'\"", "x\ty\nz", "42", " -7 ", "3.14", "1e3", "true",
         "ß", "ΑΣ", "ǆ", "İ", "a-b c_d", "one two  three", "{x}", "%s", "0x1f", "１２", "don't", "A\u2028B", "e\u0301", "foo.bar", "_x", "\x1f", "\xa0",
         "the quick brown-fox jumps -- over the lazy-dog", "role", "content", "None", "1_000", "inf", "nan", "-0", "007"]
NUMBERS = ["0", "1", "2", "3", "-1", "7", "10", "255", "1000000", "10**20", "2**63", "-2**63", "1_000", "0x1F", "0b101", "0o17"]
EXTREMES = ["('nan'|float)", "('inf'|float)", "(-('inf'|float))", "(-0.0)", "(2**63)", "(-2**63)", "(2**63-1)", "(2**64)", "(10**400)", "(-10**400)", "(10**4000)", "0.5", "(-2.5)", "1e308", "5e-324",
            "none", "true", "'7'", "(-1)", "0", "0.0", "55296", "1114112", "(2**31)", "(-2**31-1)", "missing"]
FLOATS = ["0.0", "1.0", "0.5", "-2.5", "1.5", "3.14159", "1e16", "1e-5", "123456789.123", "2.675", "1e22", "0.1", "1e300", "5e-324", "100.0"]
VARIABLES = {
    "s": "Hello World", "t": "  padded \n", "u": "ünïcödé 🙂", "e": "", "n": 7, "z": 0, "big": 12345678901234567890123, "neg": -3, "f": 2.5, "g": 1e16,
    "yes": True, "no": False, "nil": None, "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "mixed": [1, "a", None, 2.5, [1], {"k": 1}], "em": [],
    "d": {"b": 1, "a": "x", "C": None}, "dd": {"k": {"x": [1, {"y": "deep"}]}, "items": 5, "1": 2}, "ed": {},
    "ms": [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "Hi <b>"},
           {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": {"x": 1, "y": "ü"}}]}, {"role": "tool", "content": "{\"a\": 1}"}],
    "pairs": [["a", 1], ["b", 2]], "people": [{"n": "Bo", "a": 3, "c": {"x": 1}}, {"n": "al", "a": 1}, {"n": "Cy", "a": 2, "c": {"x": 0}}],
}
BY_TYPE = {"str": ["s", "t", "u", "e"], "int": ["n", "z", "big", "neg"], "float": ["f", "g"], "bool": ["yes", "no"],
           "list": ["l", "ls", "mixed", "em", "ms", "pairs", "people"], "dict": ["d", "dd", "ed", "ms[0]", "ms[2]", "people[0]"]}
TYPES = list(BY_TYPE)


class Grammar:
    def __init__(self, rng):
        self.r, self.names, self.macros, self.loops, self.budget = rng, [], [], 0, 0

    def pick(self, *options):
        return self.r.choice(options)

    def chance(self, p):
        return self.r.random() < p

    def string(self):
        text = self.r.choice(TEXTS)
        quote = self.pick("'", '"')
        out = text.replace("\\", "\\\\").replace(quote, "\\" + quote)
        if self.chance(0.3):
            out = out.replace("\n", "\\n").replace("\t", "\\t")
        if self.chance(0.03):
            out += self.pick("\\x41", "\\u00e9", "\\q", "\\101", "\\\n", "\\é", "\\U0001f642", "\\x4", "\\0")
        return quote + out + quote

    def any(self, depth):
        return self.expr(self.r.choice(TYPES), depth)

    def expr(self, kind, depth):
        if self.chance(0.03):
            return self.pick("missing", "nil", "d.nope", "none", "loop", "missing.x", "ms[9]", "s.nope", "em|first", "ns", "ns.a", "range", "dict")
        if self.chance(0.04):
            kind = self.r.choice(TYPES)
        if depth <= 0:
            if self.names and self.chance(0.3):
                return self.r.choice(self.names)
            if self.chance(0.5):
                return self.r.choice(BY_TYPE[kind])
            return self.literal(kind)
        make = getattr(self, kind + "_expr")
        out = make(depth - 1)
        if self.chance(0.05):
            out = f"({out} if {self.any(depth - 2)}" + (f" else {self.expr(kind, depth - 1)})" if self.chance(0.7) else ")")
        if self.chance(0.03):
            out = f"({out} {self.pick('and', 'or')} {self.expr(kind, depth - 1)})"
        return out

    def literal(self, kind):
        r = self.r
        if kind == "str":
            return self.string() + (" " + self.string() if self.chance(0.05) else "")
        if kind == "int":
            return "(" + r.choice(NUMBERS) + ")"
        if kind == "float":
            return "(" + r.choice(FLOATS) + ")"
        if kind == "bool":
            return self.pick("true", "false", "True", "False")
        if kind == "list":
            return self.pick("[]", "[1, 2, 3]", "['a', 'b']", "(1, 2)", "()", "(1,)", "[[1, 2], [3]]", "range(4)", "range(5, 0, -2)", "'abc'", "[1, 'a', none]", "[1.0, true]",
                             "dict(a=1).items()", "d.keys()", "d.values()", "['x', 'X', 'y']", "range(3)|map('string')")
        return self.pick("{}", "{'a': 1}", "{'b': 2, 'a': [1]}", "{1: 'x', 2.5: none, true: 'y'}", "dict(a=1, b='x')", "dict([('k', 1)])", "{'x': {'y': 'z'}}", "{(1, 2): 3}", "{none: 1}")

    def str_expr(self, d):
        x = self.expr("str", d)
        i = lambda: self.pick("0", "1", "2", "-1", "-2", "5", "100", "none", "3")
        return self.r.choice([
            lambda: f"({x} + {self.expr('str', d)})", lambda: f"({x} ~ {self.any(d)})", lambda: f"({x} ~ {self.any(d)} ~ {self.any(d)})",
            lambda: f"({x} * {self.pick('0', '2', '3', '-1', 'true')})", lambda: f"{self.paren(x)}[{self.pick('0', '-1', '1', '2', '99')}]",
            lambda: f"{self.paren(x)}[{self.pick('', i())}:{self.pick('', i())}{self.pick('', ':', ':' + self.pick('1', '2', '-1', '-2', '0'))}]",
            lambda: f"{self.paren(x)}.{self.pick('strip', 'lstrip', 'rstrip')}({self.pick('', self.string(), 'none')})",
            lambda: f"{self.paren(x)}.{self.pick('upper', 'lower', 'title', 'capitalize')}()",
            lambda: f"{self.paren(x)}.replace({self.expr('str', 0)}, {self.expr('str', 0)}{self.pick('', '', ', 1', ', 0', ', -1', ', count=1')})",
            lambda: f"{self.paren(x)}.{self.pick('removeprefix', 'removesuffix')}({self.string()})",
            lambda: f"{self.paren(x)}.join({self.expr('list', d)})", lambda: f"{self.paren(x)}.join({self.expr('list', d)}|map('string'))",
            lambda: f"({x} | {self.pick('upper', 'lower', 'title', 'capitalize', 'trim', 'string', 'safe', 'e', 'escape', 'reverse', 'indent')})",
            lambda: f"({x} | trim({self.string()}))", lambda: f"({self.any(d)} | string)", lambda: f"({self.any(d)} | tojson)",
            lambda: f"({self.any(d)} | tojson({self.pick('indent=2', 'ensure_ascii=true', 'sort_keys=true', 'indent=0', 'true', 'separators=(¤,¤, ¤:¤)', 'indent=¤--¤', 'indent=4, sort_keys=true')}))",
            lambda: f"({x} | replace({self.expr('str', 0)}, {self.any(0)}{self.pick('', ', 1')}))",
            lambda: f"({self.expr('list', d)} | join({self.pick('', self.string(), '¤, ¤')}))", lambda: f"(people | join(', ', attribute={self.pick('¤n¤', '¤c.x¤', '¤a¤')}))",
            lambda: f"({x} | indent({self.pick('', '2', '¤>¤', '2, true', '2, true, true', 'first=true', 'blank=true')}))",
            lambda: f"({self.any(d)} | default({self.expr('str', d)}{self.pick('', ', true')}))", lambda: f"{self.paren(x)}.{self.pick('partition', 'rpartition')}({self.string()})[{self.pick('0', '2', '1')}]",
            lambda: f"({self.expr('dict', d)} | string)",
            lambda: f"strftime_now({self.pick('¤%Y-%m-%d¤', '¤%d %b %Y¤', '¤%A %B %-d, %H:%M:%S %p %j %U %W %y %I %c %x %X %%¤', '¤%e|%k|%l|%G|%V|%u|%w|%C|%D|%F|%T|%R|%r|%h|%n|%t|%s|%P|%f|%z|%Z|%Q|%_d|%^a|%#p|%010Y¤')})",
            lambda: f"{self.macro()}", lambda: f"({self.pick('s', 't', 'u', 'ms[0].content', 'ms[0]')}|attr('{self.pick('upper', 'role', 'nope', '__class__')}')|default('-')|string)",
        ])()

    def paren(self, x):
        return x if re.fullmatch(r"\w+|\(.*\)|'[^']*'|\"[^\"]*\"", x) else f"({x})"

    def int_expr(self, d):
        x = self.expr("int", d)
        return self.r.choice([
            lambda: f"({x} {self.pick('+', '-', '*', '//', '%')} {self.expr('int', d)})", lambda: f"({self.pick('-', '+', '')}{self.paren(x)})", lambda: f"({self.paren(x)} ** {self.pick('0', '1', '2', '3', '-1')})",
            lambda: f"({self.any(d)} | {self.pick('length', 'count', 'int')})", lambda: f"({self.expr('str', d)} | int({self.pick('5', 'default=3', '0, 16', '7, base=2', 'base=0', '0, 8', '1, 36')}))",
            lambda: f"({self.expr('list', d)} | {self.pick('sum', 'first', 'last', 'min', 'max')})", lambda: f"{self.paren(self.expr('str', d))}.{self.pick('find', 'rfind', 'count', 'index', 'rindex')}({self.string()}{self.pick('', ', 1', ', 1, 4', ', -3', ', 2, none')})",
            lambda: f"({x} | abs)", lambda: f"({self.expr('list', d)} | sum({self.pick('start=1', 'start=2.5', 'attribute=¤a¤', 'start=[]', '¤a¤, 1')}))", lambda: f"{self.paren(self.expr('list', d))}.{self.pick('index', 'count')}({self.any(0)})",
            lambda: f"(people | sum('a'))", lambda: f"(people|{self.pick('min', 'max')}(attribute='{self.pick('a', 'n', 'c.x')}')).a",
        ])()

    def float_expr(self, d):
        x = self.expr("float", d)
        return self.r.choice([
            lambda: f"({x} {self.pick('+', '-', '*', '/', '//', '%')} {self.expr(self.pick('float', 'int'), d)})", lambda: f"({self.expr('int', d)} / {self.expr('int', d)})",
            lambda: f"({x} | round{self.pick('', '(1)', '(2)', '(-1)', '(0, ¤ceil¤)', '(1, ¤floor¤)', '(precision=3)', '(2, ¤common¤)', '(-2)', '(1, ¤x¤)')})", lambda: f"({self.any(d)} | float{self.pick('', '(1.5)')})",
            lambda: f"(-{self.paren(x)})", lambda: f"({x} | abs)", lambda: f"({self.expr('int', d)} | round({self.pick('-1', '0', '2', '-2')}))", lambda: f"({self.paren(x)} ** {self.pick('2', '0.5', '-1', '0')})",
        ])()

    def bool_expr(self, d):
        a = self.any(d)
        return self.r.choice([
            lambda: f"({a} {self.pick('==', '!=')} {self.any(d)})", lambda: f"({self.expr('int', d)} {self.pick('<', '<=', '>', '>=')} {self.expr(self.pick('int', 'float'), d)})",
            lambda: f"({self.expr('str', d)} {self.pick('<', '<=', '>', '>=', 'in', 'not in')} {self.expr('str', d)})", lambda: f"({self.any(d)} {self.pick('in', 'not in')} {self.expr(self.pick('list', 'dict', 'str'), d)})",
            lambda: f"(1 < {self.expr('int', d)} <= {self.expr('int', d)} {self.pick('', '!= 3')})", lambda: f"(not {a})", lambda: f"({a} {self.pick('and', 'or')} {self.any(d)})",
            lambda: f"({a} is {self.pick('', 'not ')}{self.pick('defined', 'undefined', 'none', 'boolean', 'true', 'false', 'integer', 'float', 'number', 'string', 'mapping', 'sequence', 'iterable', 'callable', 'lower', 'upper', 'odd', 'even')})",
            lambda: f"({a} is {self.pick('divisibleby', 'eq', 'ne', 'lt', 'gt', 'le', 'ge', 'in', 'equalto', 'sameas')} {self.pick('(', '(')}{self.any(0)}))", lambda: f"({self.expr('int', d)} is divisibleby 3)",
            lambda: f"{self.paren(self.expr('str', d))}.{self.pick('startswith', 'endswith')}({self.pick(self.string(), '(¤a¤, ¤H¤)', '¤¤', self.string() + ', 1', self.string() + ', 0, 2', '()')})",
            lambda: f"{self.paren(self.expr('str', d))}.{self.pick('isalpha', 'isdigit', 'isalnum', 'isspace', 'isupper', 'islower', 'isnumeric')}()",
            lambda: f"({self.expr('list', d)} {self.pick('==', '<', '>')} {self.expr('list', d)})",
        ])()

    def list_expr(self, d):
        x = self.expr("list", d)
        return self.r.choice([
            lambda: f"[{', '.join(self.any(d) for _ in range(self.r.randrange(4)))}]", lambda: f"({x} + {self.expr('list', d)})", lambda: f"({x} | list)", lambda: f"({x} | {self.pick('sort', 'unique', 'reverse', 'sort(true)', 'sort(case_sensitive=true)', 'unique(true)', 'sort(reverse=yes)')}{self.pick('', ' | list')})",
            lambda: f"{self.paren(self.expr('str', d))}.{self.pick('split', 'rsplit')}({self.pick('', self.string(), '¤,¤', 'none, 1', '¤ ¤, 1', 'maxsplit=1', 'sep=¤ ¤', '¤¤', '¤,¤, -1', 'none, 0')})", lambda: f"{self.paren(self.expr('str', d))}.splitlines({self.pick('', 'true', 'keepends=true')})",
            lambda: f"({x} | map({self.pick('¤string¤', '¤upper¤', '¤length¤', 'attribute=¤role¤', 'attribute=¤n¤, default=¤?¤', '¤default¤, 1', '¤int¤', '¤tojson¤', '¤nope¤', '¤trim¤', '¤replace¤, ¤a¤, ¤b¤', 'attribute=0')}) | list)",
            lambda: f"({x} | {self.pick('select', 'reject')}({self.pick('', '¤string¤', '¤odd¤', '¤defined¤', '¤gt¤, 1', '¤in¤, [1, 2]', '¤nope¤', '¤none¤', '¤eq¤, ¤a¤')}) | list)",
            lambda: f"({self.pick('ms', 'people')} | {self.pick('selectattr', 'rejectattr')}({self.pick('¤role¤, ¤eq¤, ¤user¤', '¤content¤', '¤a¤, ¤gt¤, 1', '¤c¤, ¤defined¤', '¤c.x¤', '', '¤role¤, ¤in¤, [¤user¤]')}) | list)",
            lambda: f"{self.paren(x)}[{self.pick('', '1', '-2', '0')}:{self.pick('', '2', '-1')}{self.pick('', ':', ':2', ':-1')}]",
            lambda: f"({self.expr('dict', d)} | {self.pick('list', 'dictsort', 'dictsort(true)', 'dictsort(false, ¤value¤)', 'dictsort(reverse=true)', 'items | list', 'items')})", lambda: f"{self.paren(self.expr('dict', d))}.{self.pick('items', 'keys', 'values')}() {self.pick('', '| list')}",
            lambda: f"(people | sort(attribute='{self.pick('a', 'n', 'a,n', 'c.x')}'{self.pick('', ', reverse=true')}) | map(attribute='n') | list)",
            lambda: f"range({self.pick('3', '1, 4', '5, 0, -1', '0', '2, 2', '0, 10, 3', '100001', '1, 2, 0', '2.0')}) {self.pick('', '| list', '| reverse | list')}", lambda: f"({x} * {self.pick('2', '0', '-1')})", lambda: f"({self.any(d)},)",
            lambda: f"({x} | default([1]))", lambda: f"{self.paren(x)}.copy()", lambda: f"({x} | map('list') | list)", lambda: f"{self.paren(self.expr('str', d))} | list",
        ])()

    def dict_expr(self, d):
        return self.r.choice([
            lambda: "{" + ", ".join(f"{self.pick(self.string(), '1', 'none', '1.0', '(1, 2)', 'yes', self.expr('int', 0))}: {self.any(d)}" for _ in range(self.r.randrange(4))) + "}",
            lambda: f"dict({self.pick('', self.expr('dict', d), 'pairs')}{self.pick('', '')})", lambda: f"dict(a={self.any(d)}, b={self.any(d)})", lambda: f"dict({self.expr('dict', d)}, **{self.expr('dict', 0)})", lambda: f"{self.paren(self.expr('dict', d))}.copy()",
            lambda: f"{self.paren(self.expr('dict', d))}.get({self.string()}, {{}})", lambda: f"dict({self.expr('list', d)})", lambda: f"(ms | {self.pick('first', 'last')})", lambda: "ms[1]", lambda: f"(people | {self.pick('min', 'max')}(attribute='a'))",
            lambda: f"{self.paren(self.expr('dict', d))}.{self.pick('pop', 'update', 'a', 'get', 'items', '_x', '__class__', 'k')}", lambda: f"{self.paren(self.expr('dict', d))}[{self.any(0)}]",
        ])()

    def macro(self):
        if not self.macros:
            return "joiner('-')()"
        name, n = self.r.choice(self.macros)
        args = [self.any(0) for _ in range(self.r.randrange(n + 2))]
        if self.chance(0.2):
            args.append(f"{self.pick('a', 'b', 'zz')}={self.any(0)}")
        if self.chance(0.05):
            args.append(f"*{self.expr('list', 0)}")
        if self.chance(0.05):
            args.append(f"**{self.expr('dict', 0)}")
        return f"{name}({', '.join(args)})"

    # ---- statements

    def open(self):
        return "{%" + self.pick("", "", "", "-", "-", "+") + " "

    def close(self):
        return " " + self.pick("", "", "", "-", "-", "+") + "%}"

    def tag(self, text):
        return self.open() + text + self.close()

    def data(self):
        return self.pick("", " ", "\n", "  \n", "text", " text ", "\n  ", "a\n\n", "{", "}", "% ", "\t", "é", "#", "\n\n", "x {\n", "\r\n", "\u00a0", "}}", "\n    <|im_start|>")

    def body(self, depth):
        return "".join(self.data() + self.statement(depth) for _ in range(self.r.randrange(1, 4))) + self.data()

    def output(self, depth):
        return "{{" + self.pick("", "", "-") + " " + self.pick(lambda: self.any(depth), lambda: self.any(depth), lambda: self.loop_or_any(depth))() + " " + self.pick("", "", "-") + "}}"

    def loop_or_any(self, depth):
        if not self.loops:
            return self.any(depth)
        return "loop." + self.pick("index", "index0", "first", "last", "length", "revindex", "revindex0", "depth", "depth0", "previtem", "nextitem", "cycle('a', 'b')", "changed(n)", "changed(x)", "nope", "cycle()")

    def target(self):
        return self.pick("x", "y", "s", "n", "l", "x, y", "q", "ns.a", "ns.b", "(x, y)", "d")

    def statement(self, depth):
        if depth <= 0 or self.chance(0.3):
            return self.output(self.r.randrange(4))
        return self.pick(self.set, self.set, self.set_block, self.if_, self.if_, self.for_, self.for_, self.for_, self.macro_def, self.call, self.filter_block, self.with_,
                         self.comment, self.raw, self.generation, self.namespace, self.control, self.output_set, self.print_)(depth - 1)

    def set(self, depth):
        target = self.target()
        value = self.any(2) if "," not in target else self.pick("1, 2", "('a', 'b')", "l", "pairs[0]", self.any(1))
        if target.isidentifier() and target in ("x", "y", "q"):
            self.names.append(target)
        return self.tag(f"set {target} = {value}")

    def output_set(self, depth):
        return self.tag("set x = " + self.any(3)) + "{{ x }}"

    def print_(self, depth):
        return self.tag(f"print {self.any(1)}{self.pick('', ', ' + self.any(1))}")

    def namespace(self, depth):
        return self.tag(f"set ns = namespace({self.pick('', 'a=1', 'a=1, b=[]', 'd', 'd, a=2')})")

    def set_block(self, depth):
        return self.tag(f"set {self.pick('x', 'y', 'ns.a', 's')}{self.pick('', '', ' | upper', ' | trim', ' | replace(¤a¤, s)', ' | length', ' | list')}") + self.body(depth) + self.tag("endset")

    def if_(self, depth):
        out = self.tag("if " + self.any(2)) + self.body(depth)
        if self.chance(0.3):
            out += self.tag("elif " + self.any(1)) + self.body(depth)
        if self.chance(0.4):
            out += self.tag("else") + self.body(depth)
        return out + self.tag("endif")

    def for_(self, depth):
        names, loops = list(self.names), self.loops
        if self.chance(0.2):
            head = f"{self.pick('k, v', 'x, y')} in {self.pick('d.items()', 'pairs', 'd | items', 'dd | dictsort', self.expr('list', 1))}"
        else:
            head = f"{self.pick('x', 'y', 'i', 'm')} in {self.expr('list', 2)}"
        if self.chance(0.25):
            head += f" if {self.pick('x', 'y', 'loop.index', 'i is odd', 'm.role == ¤user¤', self.any(1))}"
        recursive = self.chance(0.08)
        if recursive:
            head += " recursive"
        self.names += re.findall(r"\w+", head.split(" in ")[0])
        self.loops += 1
        body = self.body(depth)
        if recursive:
            body += "{% if loop.depth < 3 %}{{ loop(" + self.pick("[1, 2]", "l", "em", self.names[-1]) + ") }}{% endif %}"
        self.names, self.loops = names, loops
        out = self.tag("for " + head) + body
        if self.chance(0.25):
            out += self.tag("else") + self.body(depth)
        return out + self.tag("endfor")

    def macro_def(self, depth):
        name = self.pick("mm", "nn", "oo")
        n = self.r.randrange(3)
        args = ["a", "b", "c"][:n]
        first_default = self.r.randrange(n + 1)
        sig = [a if i < first_default else f"{a}={self.pick(self.any(0), 'a' if i else '1')}" for i, a in enumerate(args)]
        names, loops = list(self.names), self.loops
        self.names += args + self.r.sample(["varargs", "kwargs", "caller()", "caller"], self.r.randrange(2))
        self.loops = 0
        body = self.body(depth)
        self.names, self.loops = names, loops
        self.macros.append((name, n))
        return self.tag(f"macro {name}({', '.join(sig)})") + body + self.tag("endmacro")

    def call(self, depth):
        loops, self.loops = self.loops, 0
        out = self.tag(f"call{self.pick('', '', '(x)', '(x, y=2)')} {self.macro()}") + self.body(depth) + self.tag("endcall")
        self.loops = loops
        return out

    def filter_block(self, depth):
        return self.tag(f"filter {self.pick('upper', 'trim', 'replace(¤a¤, n)', 'indent(2)', 'length', 'lower | title', 'e', 'nope')}") + self.body(depth) + self.tag("endfilter")

    def with_(self, depth):
        return self.tag(f"with {self.pick('', 'x = ' + self.any(1), 'x = 1, y = x', 'x, y = pairs[0]', 's = n')}") + self.body(depth) + self.tag("endwith")

    def comment(self, depth):
        return "{#" + self.pick("", "-", "+") + self.pick(" c ", "\n", "{{ x }}", "") + self.pick("", "-", "+") + "#}"

    def raw(self, depth):
        return "{%" + self.pick("", "-", "+") + " raw " + self.pick("", "-") + "%}" + self.data() + "{{ x }}{% if %}" + self.data() + "{%" + self.pick("", "-", "+") + " endraw " + self.pick("", "-", "+") + "%}"

    def generation(self, depth):
        loops, self.loops = self.loops, 0
        out = self.tag("generation") + self.body(depth) + self.tag("endgeneration")
        self.loops = loops
        return out

    def control(self, depth):
        if not self.loops and self.chance(0.9):
            return self.output(1)
        return self.tag(f"if {self.any(1)}") + self.tag(self.pick("break", "continue")) + self.tag("endif")

    def template(self):
        out = self.source().replace("¤", '"')
        while self.chance(0.25):  # a number becomes an extreme one
            places = list(re.finditer(r"(?<![\w.'\"])\d[\d.]*(?![\w.'\"])", out))
            if not places:
                break
            m = self.r.choice(places)
            out = out[:m.start()] + self.r.choice(EXTREMES) + out[m.end():]
        return out

    def source(self):
        self.names, self.macros, self.loops = [], [], 0
        if self.chance(0.55):
            return "{{ " + self.any(self.r.randrange(1, 5)) + " }}"
        out = self.body(self.r.randrange(1, 4))
        if self.chance(0.03):  # broken on purpose
            i = self.r.randrange(len(out) + 1)
            out = out[:i] + self.pick("", "{%", "}}", "'", ")", "[", " if ", "{#", "|", "endfor") + out[i + self.r.randrange(3):]
        return out


def too_big(source):
    """Templates whose numbers would keep Python busy."""
    return source.count("**") > 4


def shrink(server, source, variables):
    """The shortest template found by cutting that still differs."""
    def bad(s):
        return differs(server.render(s, variables), reference(s, variables))

    size = len(source) // 2
    while size > 0:
        i = 0
        while i < len(source):
            shorter = source[:i] + source[i + size:]
            if bad(shorter):
                source = shorter
            else:
                i += max(size // 2, 1)
        size //= 2
    used = {k: v for k, v in variables.items() if re.search(rf"\b{k}\b", source)}
    return (source, used) if differs(server.render(source, used), reference(source, used)) else (source, variables)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--server", required=True)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=10000)
    p.add_argument("--stop", type=int, default=20, help="after so many differences")
    p.add_argument("--found")
    p.add_argument("--kinds", action="store_true", help="also count refusals whose exceptions differ")
    o = p.parse_args()
    if jinja2.__version__ != "3.1.6":
        raise SystemExit(f"jinja2 is {jinja2.__version__}, not 3.1.6")
    server, rng = Server(o.server), random.Random(o.seed)
    bounded()
    grammar, texts, refusals, found, purposely, kinds = Grammar(rng), 0, 0, 0, 0, {}
    for i in range(o.count):
        source = grammar.template()
        if too_big(source):
            continue
        theirs, ours = reference(source, VARIABLES), server.render(source, VARIABLES)
        texts, refusals = texts + ("text" in theirs), refusals + ("text" not in theirs)
        if o.kinds and "kind" in theirs and ours.get("kind") not in (theirs["kind"], None):
            key = (theirs["kind"], ours["kind"])
            kinds.setdefault(key, [0, source[:200], theirs["error"][:100], ours["error"][:100]])[0] += 1
        if not differs(ours, theirs):
            purposely += "text" in theirs and "text" not in ours
            continue
        found += 1
        small, used = shrink(server, source, VARIABLES)
        theirs, ours = reference(small, used), server.render(small, used)
        print(f"{i}: {small!r}\n   theirs {theirs}\n   ours   {ours}", flush=True)
        if o.found:
            with open(o.found, "a") as f:
                f.write(json.dumps({"source": small, "vars": used, **theirs}, ensure_ascii=False) + "\n")
        if found >= o.stop:
            break
    print(f"seed {o.seed}: {i + 1} templates, {texts} texts, {refusals} refusals by Jinja2, {found} differences, {purposely} refused here on purpose")
    for key, (n, *example) in sorted(kinds.items(), key=lambda kv: -kv[1][0]):
        print(f"  {n} times {key[0]} there, {key[1]} here: {example}")
    sys.exit(found > 0)


if __name__ == "__main__":
    main()
