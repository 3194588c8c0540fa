#!/usr/bin/env python3
"""Writes text/jinja/testdata/language.jsonl.gz: templates with what Jinja2 3.1.6 (Python 3.11) gives.

    python scripts/jinja_cases.py text/jinja/testdata/language.jsonl.gz

Three kinds: cases written by hand below, templates on which text/jinja once differed (FOUND), and random
ones by the grammar of jinja_fuzz.py. Each has the text and the generation spans, or the exception's name.
"""
import gzip
import io
import json
import random
import re
import sys

import jinja2
import jinja_fuzz

V = jinja_fuzz.VARIABLES

HAND = [
    # white space around tags
    "  {% if yes %}\n  a\n  {% endif %}\nb", "a\n  {%- if yes -%}  \n b \n{%- endif %}\n\nc\n", "  {%+ if yes +%}\n x {%+ endif %}", "{{ 1 }}\n{{- 2 -}}\n {{ 3 }}\n", "a {# c #}\nb", "a\n  {#- c -#}\n b", "  {# x #}\ny",
    "{% raw %}\n{{ x }}\n{% endraw %}\nz", "  {%- raw -%} {% if %} {%- endraw -%}  y", "\n", "a\n\n", "\r\na\rb\n", "{%if yes%}a{%endif%}\n\nb",
    # literals and strings
    "{{ 'a' \"b\" 'c' }}", "{{ '\\x41\\u00e9\\n\\101\\q' }}", "{{ '\\é' }}", "{{ 1_000 + 0x1F + 0b11 + 0o17 }}", "{{ 1e3 }} {{ 1.5e-7 }} {{ 10**16 }} {{ 1e16 }} {{ 123456789012345678901234567890 }}", "{{ [1, 'a', none, true, 2.0, (1,), {'k': []}] }}", "{{ \"it's\" }} {{ [\"it's\", 'a\"b', '\\n\\t\\x01é🙂'] }}",
    "{{ -3 // 2 }} {{ -3 % 2 }} {{ 7 // -2 }} {{ 7.5 % -2 }} {{ 2 ** -1 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }}", "{{ 7 / 2 }} {{ 1 / 3 }} {{ 2**100 / 3 }}", "{{ 1e999 }}", "{% set x = 1e999 %}{{ x }}", "{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 'a' < 'b' }}", "{{ 1 == 1.0 == true }}", "{{ 9007199254740993 == 9007199254740992.0 }}",
    # undefined
    "{{ missing }}", "{{ missing.x }}", "{{ missing + 'a' }}", "{{ 'a' + missing }}", "{{ d.nope }}|{{ d.nope.x }}", "{{ missing is defined }} {{ d.a is defined }} {{ d['nope'] is undefined }}", "{{ 'x' ~ missing ~ 'y' }}", "{{ missing == d.nope }}", "{{ missing in [1] }}", "{{ 1 < missing }}", "{% for x in missing %}a{% else %}b{% endfor %}", "{{ missing() }}", "{{ missing | length }}", "{{ missing | tojson }}", "{{ d.__class__ }}", "{{ d.__class__.x }}", "{{ l.append(1) }}", "{{ d.update({}) }}", "{{ d.pop }}", "{{ ('a' if false) }}", "{{ ('a' if false) + 'b' }}",
    # scopes
    "{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "{% if yes %}{% set x = 1 %}{% endif %}{{ x }}", "{% set ns = namespace(n=0) %}{% for i in l %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "{% set ns.a = 1 %}", "{% with x = 1, y = x %}{{ x }}{{ y }}{% endwith %}{{ x }}", "{% for i in l %}{{ x }}{% set x = i %}{{ x }}{% endfor %}", "{% for x in l %}{% endfor %}{{ x }}",
    "{% macro m(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ m(1, 3, 4, z=5) }}", "{% macro m(a) %}{{ a }}{{ x }}{% endmacro %}{% set x = 7 %}{{ m() }}{{ m(1) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m() %}{{ caller('x') }}{% endmacro %}{% call(v) m() %}<{{ v }}>{% endcall %}", "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(3) }}", "{{ m }}{% macro m() %}{% endmacro %}{{ m }}", "{% macro fact(n) %}{% if n < 2 %}1{% else %}{{ n * fact(n - 1) | int }}{% endif %}{% endmacro %}{{ fact(20) }}",
    "{% macro m(caller) %}{{ caller() }}{% endmacro %}", "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [1] %}", "{% set x %}a{{ n }}{% endset %}{{ x | upper }}", "{% set x | upper %}a{% endset %}{{ x }}", "{% set x | replace('a', q) %}a{% endset %}{{ x }}",
    # loops
    "{% for k, v in d.items() %}{{ loop.index }}{{ k }}{{ v }}{{ loop.last }}{% endfor %}", "{% for i in range(6) if i is odd %}{{ loop.length }}{{ i }},{{ loop.revindex0 }};{% endfor %}", "{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% else %}none{% endfor %}", "{% for i in l recursive %}{{ i }}{% if loop.depth < 3 %}[{{ loop(l) }}]{% endif %}{% endfor %}", "{% for i in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i > 1) }}{{ loop.previtem }}{{ loop.nextitem }}{% endfor %}", "{% for i in 'aé🙂' %}{{ i }}-{% endfor %}", "{% for a, b in [[1, 2], [3]] %}{{ a }}{% endfor %}", "{% break %}", "{% for x in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}", "{% for i in 5 %}{% endfor %}", "{% for loop in l %}{% endfor %}", "{% for i in l %}{{ loop }}{% endfor %}",
    # generation blocks
    "a{% generation %}b{{ n }}{% endgeneration %}c{% generation %}ü{% endgeneration %}", "{% for m in ms %}\n{%- generation %}{{ m.role }}{% endgeneration %}\n{% endfor %}", "x{% set q %}y{% generation %}z{% endgeneration %}{% endset %}{{ q }}",
    # what chat templates do
    "{{ raise_exception('no ' ~ ms[0].role) }}", "{{ strftime_now('%d %b %Y') }}", "{{ ms[1:] | length }} {{ ms[::-1][0].role }} {{ ms[-1]['content'] }}", "{% for m in ms %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ loop.index0 }}{% endif %}{% endfor %}", "{{ ms | tojson }}", "{{ ms[2] | tojson(indent=4) }}", "{{ {'b': 1, 'a': [1.0, 1e30, none, 'é<>&']} | tojson(sort_keys=true) }}", "{{ {1: 2, none: 3, 1.5: 4, true: 5} | tojson }}", "{{ {(1, 2): 3} | tojson }}", "{{ ms | selectattr('role', 'in', ['user', 'tool']) | map(attribute='role') | list }}", "{{ ms | map('nope') | list }}", "{{ 'x' | nope }}", "{% if no %}{{ 'x' | nope }}{% endif %}", "{{ true or 'x' | nope }}",
    "{{ (ms[2].content or '') + 'x' }}", "{{ ms[2].content + 'x' }}", "{{ ms[2].tool_calls[0].arguments | items | list }}", "{{ dd.items }}", "{{ dd['items'] }}{{ dd.items() | list }}", "{{ d.get('zz', 'q') }}{{ d.get('a') }}{{ d.get('zz') }}", "{{ 'a,b'.split(',')[-1] }}", "{{ '<think>a</think>b'.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}", "{{ s.startswith(('He', 'x')) }}", "{{ ['a', 'b'] | join('-') }}", "{{ ms is iterable and ms is not string and ms is not mapping }}", "{{ namespace(a=1) }}", "{{ ('<' | e) + '>' }}", "{{ '<a>' | safe }}", "{{ range(100001) }}", "{{ dict(a=1, **{'b': 2}) }}", "{% set j = joiner() %}{{ j() }}{{ j() }}", "{{ lipsum is defined }}",
    # what is refused
    "{% if %}", "{% endif %}", "{{ 1 + }}", "{{ (1 }}", "{{ 1) }}", "{% set 1 = 2 %}", "{% set none = 2 %}", "{% for x l %}{% endfor %}", "{{ 'a }}", "{% raw %}", "{# a", "{{ a b }}", "{{ f(a=1, a=2) }}", "{{ f(**d, *l) }}", "{{ f(a=1, 2) }}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(a, a) %}{% endmacro %}", "{% nope %}", "{{ x is }}", "{{ x is nope }}", "{% call 1 %}{% endcall %}", "{{ 1 is odd is even }}", "{{ $ }}", "{{ '\\x4' }}", "{{ l[1:2, 3] }}",
]

# Functions without a call, whose text is an address.
ADDRESS = re.compile(r"\brange\b(?!\()|attr\('upper'\)|\bdict\b(?!\()|\.upper\b(?!\()|\*\* 0\.5")

# What text/jinja refuses on purpose: ranges of huge integers, methods of a range.
REFUSED = re.compile(r"range\([^)]*\*\*|range\([^)]*\)\)*\.(index|count)")

# Templates on which text/jinja differed from Jinja2 before it was mended.
FOUND = [
    "{#", "{% raw %}", "{%filter upper%}{{(('\x1f7')|int())}}{%endfilter%}",
    "{%set e%}{%generation%} {%endgeneration%}{%endset%}", "{%generation%}t{%generation%}é{%endgeneration%}{%endgeneration%}", "{%filter upper%}\xa0{%generation%}}}{%endgeneration%}{%endfilter%}", "{{({'':1})[:]}}", "{% set x = none[:] %}", "{%for m in((1))[:]%}{%endfor%}", "{{(True[:]|min)}}", "{{((((3)|round()))|unique)[:]}}",
    "{{((o|last))}}", "{{ missing | reverse | list }}", "{{(0)/(-2**63)}}", "{{(range(4))[-1:2]}}", 
    "{{(d.values()in{e:1})}}", "{{((none[])[:]|min)}}", "{{ (0-(big|float))**3 }} {{ 1.1**7 }} {{ 2.5**-3 }} {{ 0.1**0.5 }}",
]


def main():
    if jinja2.__version__ != "3.1.6":
        raise SystemExit(f"jinja2 is {jinja2.__version__}, not 3.1.6")
    jinja_fuzz.bounded()
    grammar = jinja_fuzz.Grammar(random.Random(2026))
    sources = HAND + FOUND
    while len(sources) < len(HAND) + len(FOUND) + 1200:
        source = grammar.template()
        if len(source) < 400 and not jinja_fuzz.too_big(source) and not ADDRESS.search(source) and not REFUSED.search(source):
            sources.append(source)
    cases = []
    for source in sources:
        result = jinja_fuzz.reference(source, V)
        if result.get("kind") not in ("address", "slow"):
            cases.append({"source": source, **{k: result[k] for k in ("text", "generation", "kind") if k in result}})
    with io.TextIOWrapper(gzip.GzipFile(sys.argv[1], "wb", mtime=0)) as f:
        f.write(json.dumps({"made_by": "scripts/jinja_cases.py with jinja2 3.1.6, Python 3.11", "vars": V}, ensure_ascii=False) + "\n")
        f.writelines(json.dumps(c, ensure_ascii=False) + "\n" for c in cases)
    print(f"{len(cases)} cases, {sum('text' in c for c in cases)} of them texts")


main()
