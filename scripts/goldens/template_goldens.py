"""Renders our own templates with the engine of transformers and records the texts and errors.

    python template_goldens.py <directory>

`constructs.json` has one small template per construct, `families.json` one template per model family over several
conversations. The clock is frozen.
"""

import datetime
import json
import os
import sys
from pathlib import Path

os.environ["TZ"] = "UTC"

import jinja2
import transformers
import transformers.utils.chat_template_utils as chat

PINNED = {"transformers": "5.22.2", "jinja2": "3.1.6"}


class Frozen(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 3, 5, 14, 7, 9)


chat.datetime = Frozen

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": 'The weather in a <city> & "region" – é',
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "City's name"},
                    "days": {"type": "integer", "default": 3},
                    "share": {"type": "number", "default": 1.0},
                    "unit": {"type": ["string", "null"], "enum": ["c", None]},
                },
                "required": ["city"],
            },
        },
    },
    {"type": "function", "function": {"name": "noop", "description": "Nothing.", "parameters": {"type": "object", "properties": {}}}},
]


def call(id, name, arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


CONVERSATIONS = {
    "one": [{"role": "user", "content": "Hello there"}],
    "system": [
        {"role": "system", "content": "Be brief. "},
        {"role": "user", "content": " Hi\n"},
        {"role": "assistant", "content": "Hello! 👋"},
        {"role": "user", "content": "Plus d'été ?"},
    ],
    "reasoning": [
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "4", "reasoning": "add\n them"},
        {"role": "user", "content": "3+3?"},
        {"role": "assistant", "content": "<think>\nagain\n</think>\n\n6"},
    ],
    "tools": [
        {"role": "system", "content": "Use tools."},
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "look it up",
            "tool_calls": [call("abcdefgh1", "get_weather", {"city": "Zürich", "share": 1.0, "big": 2**60, "nest": {"b": [1, None, True], "1": {}}}), call("abcdefgh2", "noop", {})],
        },
        {"role": "tool", "content": '{"temp": 20.0}', "tool_call_id": "abcdefgh1", "name": "get_weather"},
        {"role": "tool", "content": "ok", "tool_call_id": "abcdefgh2", "name": "noop"},
        {"role": "assistant", "content": "20 °C"},
    ],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "look "}, {"type": "image"}, {"type": "text", "text": "here"}]}],
    "twice": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
}
OPTIONS = [
    {"add_generation_prompt": True},
    {"add_generation_prompt": True, "tools": TOOLS, "enable_thinking": False},
    {"continue_final_message": True},
]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}

# The variables of the construct templates.
VARIABLES = {
    "n": 7,
    "x": 2.5,
    "whole": 1.0,
    "big": 2**60,
    "yes": True,
    "nothing": None,
    "word": "Grün & <b>'ß'</b>",
    "astral": "a👍🏽b𝒳c",
    "spaced": "\t  a  b \n c\u00a0\x1c ",
    "lines": "one\n\n  two\r\nthree\u2028four",
    "names": ["b", "A", "c", "a", "B"],
    "numbers": [3, 1, 2.5, True, 10],
    "empty": [],
    "d": {"b": 1, "a": [1, "x", None], "10": {}, "9": {"k": 1.0}, "items": "own"},
    "people": [{"name": "Al", "age": 3, "tags": ["x"]}, {"name": "bo", "age": 1}, {"name": "Cy", "age": 3, "tags": []}],
}

CONSTRUCTS = """
# printing
{{ none }} {{ true }} {{ false }} {{ nothing }} {{ yes }} [{{ missing }}]
{{ 1 }} {{ 1.0 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 1e16 }} {{ 123456789.125 }} {{ 0.1 + 0.2 }} {{ -0.0 }} {{ 1_000 }} {{ 0xff }} {{ 0b101 }} {{ 0o17 }}
{{ big }} {{ big + 1 }} {{ 2 ** 100 }} {{ 2 ** 53 + 1 }} {{ 10 ** 20 }} {{ -big * 3 }} {{ big // 7 }} {{ big % 1000 }}
{{ [1, 'a', none, true, 1.0, missing] }} {{ (1,) }} {{ () }} {{ (1, 'b') }} {{ {'a': [1.0], 2: none, none: 3} }}
{{ ["it's", 'say "x"', 'both \\' and "', 'tab\\t nl\\n cr\\r bs\\\\ nul\\x00 del\\x7f nbsp\\xa0 zwsp\\u200b é 日本 \\U0001f600'] }}
{{ d }} {{ d.keys() }} {{ d.values() }} {{ d['items'] }} {{ {'a': 1}.items() }}
{{ range(3) }} {{ range(1, 9, 3) }} {{ range(5, 0, -2)|list }} {{ namespace(a=1, b='x') }}
{{ 1, 2 }} {{ 'a' 'b' "c" }}
{{ '\\x41\\u00e9\\101\\n|\\d|\\a' }}
# json
{{ d|tojson }} {{ d|tojson(indent=2) }}
{{ {}|tojson(indent=4) }} {{ []|tojson(indent=4) }} {{ [[], {}]|tojson(indent=1) }}
{{ d|tojson(separators=(',', ':')) }} {{ d|tojson(sort_keys=true) }} {{ d|tojson(indent='--') }} {{ [1]|tojson(indent=0) }}
{{ word|tojson }} {{ word|tojson(ensure_ascii=true) }} {{ '\\x7f\\u2028</script>\\x1f"\\\\' |tojson }} {{ '\\x7f\\U0001f600'|tojson(true) }}
{{ 1.0|tojson }} {{ big|tojson }} {{ 1e20|tojson }} {{ (1, none)|tojson }} {{ {1: true, none: 1.5}|tojson }}
{{ missing|tojson }}
{{ {'a': [missing]}|tojson }}
{{ names|map('upper')|tojson }}
{{ d.items()|tojson }}
# operators
{{ 7 / 2 }} {{ 6 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -1 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ +n }} {{ true + 1 }}
{{ 'ab' * 3 }} {{ 3 * 'x' }} {{ [1] * 2 }} {{ [1] + [2] }} {{ (1,) + (2,) }} {{ 'a' * -1 }}|
{{ 1 ~ 'a' ~ none ~ missing ~ 1.0 }} {{ 'a' + 'b' ~ 1 }} {{ 1 ~ 2 + '3' }}
{{ 1 + 2 ~ 3 }}
{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 < 2 == 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 == 1.0 }} {{ true == 1 }} {{ [1, 2] == [1.0, 2] }} {{ (1,) == [1] }} {{ {'a': 1} == {'a': 1.0} }} {{ none == missing }}
{{ 'b' in names }} {{ 'z' not in names }} {{ 'ü' in word }} {{ 'b' in d }} {{ 1 in [1.0] }} {{ 1 in missing }} {{ not 'b' in names }}
{{ 0 or 'x' }} {{ '' and 1 }}| {{ not [] }} {{ not {} }} {{ none or missing }}| {{ 1 and 2 or 3 }}
{{ 'yes' if n > 5 else 'no' }} {{ 'x' if n < 5 }}| {{ 'a' if 0 else 'b' if 0 else 'c' }} {{ ('x' if n < 5) is defined }}
{{ '%s-%r-%5d|%-5s|%05d|%.2f|%+d|%x|%%' % ('a', 'b', 42, 'c', 42, 3.14159, 5, 255) }} {{ '%s' % n }} {{ '%(a)s' % {'a': 1} }}
{{ '%.2f %.0f %.0f %.1f %.2f' % (2.675, 0.5, 2.5, 0.25, 1.005) }}
{{ 'a' + 1 }}
{{ 'a' + none }}
{{ 1 + 'a' }}
{{ [1] + (2,) }}
{{ none + 1 }}
{{ 1 / 0 }}
{{ 'a' < 1 }}
{{ none > 1 }}
{{ missing + 1 }}
{{ 1 in 5 }}
{{ 1 in 'abc' }}
{{ -'a' }}
{{ '%d' % 'a' }}
{{ '%s %s' % 'a' }}
# lookup
{{ d.b }} {{ d['a'][-1] }} {{ d.nope }}| {{ d['nope'] is defined }} {{ d.items is string }} {{ names[0] }} {{ names[9] }}| {{ names.0 }} {{ astral[1] }} {{ astral[-1] }} {{ none.x is defined }} {{ 'abc'['x'] is defined }} {{ d[missing] is defined }}
{{ names[1:3] }} {{ names[::-1] }} {{ names[-2:] }} {{ names[:-9] }} {{ names[9:] }} {{ astral[1:3] }} {{ astral[::-1] }} {{ names[::2] }} {{ names[3:0:-2] }} {{ 'abc'[none:2] }} {{ (1, 2, 3)[1:] }}
{{ missing.x }}
{{ missing[0] }}
{{ d.nope.x }}
{{ none[1:] }}|{{ 'abc'['x':] is defined }}
{{ nothing[1:] }}
{{ d[1:] }}
{{ names['a':] }}
{{ missing() }}
{{ n() }}
{{ names.append('x') }}
{{ d.update({}) }}
{{ d.pop }}|{{ names.append is defined }}
# text methods
{{ spaced.strip()|tojson }} {{ spaced.lstrip()|tojson }} {{ spaced.rstrip()|tojson }} {{ 'xxaxyx'.strip('xy') }} {{ 'xxaxyx'.lstrip('x') }} {{ 'xxaxyx'.rstrip('xy') }} {{ ' a '.strip('')|tojson }} {{ ' a '.strip(none)|tojson }} {{ '👍a👍'.strip('👍') }}
{{ spaced.split() }} {{ ' a b  c '.split(none, 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', maxsplit=1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'aaa'.rsplit('aa', 1) }}
{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ ''.splitlines() }} {{ 'a\\n'.splitlines() }}
{{ word.upper() }} {{ word.lower() }} {{ word.title() }} {{ 'ßa ǆb'.capitalize() }} {{ "they're bill's".title() }} {{ 'ΑΣ ΑΣ'.lower() }} {{ 'İ'.lower()|length }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.endswith('c') }} {{ 'abc'.endswith('') }} {{ 'abc'.startswith('b', 1) }} {{ 'abc'.endswith('b', 0, 2) }}
{{ astral.find('b') }} {{ astral.find('z') }} {{ astral.rfind('c') }} {{ 'aXbX'.index('X') }} {{ 'aXbX'.rindex('X') }} {{ 'abcabc'.find('c', 3) }} {{ 'aaa'.count('aa') }} {{ 'abc'.count('') }} {{ 'abc'.find('', 9) }}
{{ 'a-b-c'.replace('-', '+') }} {{ 'a-b-c'.replace('-', '', 1) }} {{ 'ab'.replace('', '.') }} {{ 'ab'.replace('', '.', 2) }}
{{ ', '.join(['a', 'b']) }} {{ '-'.join('abc') }} {{ ''.join(d) }}
{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ 'abc'.removesuffix('') }}
{{ 'a'.ljust(3, '.') }} {{ 'a'.rjust(3) }} {{ 'ab'.center(5, '*') }} {{ 'abc'.center(6, '*') }} {{ '-7'.zfill(4) }} {{ '7'.zfill(3) }}
{{ '{} {}'.format('a', 1.0) }} {{ '{1}{0}'.format('a', 'b') }} {{ '{a}-{b[0]}-{c.k}'.format(a=1, b=[2], c={'k': 3}) }} {{ '{{}} {!r} {:>5}|{:<4}|{:^5}|{:05d}|{:.2f}|{:,}'.format('q', 'r', 's', 't', 42, 2.5, 1234567) }}
{{ 'a1'.isalnum() }} {{ '12'.isdigit() }} {{ ''.isdigit() }} {{ 'aé'.isalpha() }} {{ ' \\n'.isspace() }} {{ 'aB'.islower() }} {{ 'AB1'.isupper() }} {{ '٣'.isdecimal() }} {{ 'é'.isascii() }}
{{ 'a'.split('') }}
{{ ','.join([1]) }}
{{ 'a'.startswith(['a']) }}
{{ 'a'.replace('a') }}
{{ 'abc'.index('z') }}
{{ 'a'.strip(1) }}
{{ 'a'.upper(1) }}
# dict and list methods
{{ d.get('b') }} {{ d.get('z') }} {{ d.get('z', 1) }} {{ {'a': none}.get('a', 1) }} {{ names.index('c') }} {{ [1, 1.0, true].count(1) }} {{ {'a': 1}.keys()|list }} {{ d.copy() == d }} {{ (1, 2).index(2) }}
{% for k, v in {'b': 1, 'a': 2}.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }},{% endfor %}{% for v in {'a': 1}.values() %}{{ v }}{% endfor %}
{{ names.index('zz') }}
{{ d.get([]) }}
# filters on text
{{ word|upper }} {{ word|lower }} {{ word|title }} {{ word|capitalize }} {{ none|upper }} {{ names|lower }} {{ 'foo-bar (baz) [q]'|title }}
{{ spaced|trim|tojson }} {{ 'xax'|trim('x') }} {{ none|trim }} {{ [' a ']|trim }} {{ 'abc'|reverse }} {{ astral|reverse|length }}
{{ word|length }} {{ astral|length }} {{ d|length }} {{ missing|length }} {{ range(4)|count }} {{ names|length }}
{{ 'a-b'|replace('-', '+') }} {{ 1.5|replace('.', ',') }} {{ 'aaa'|replace('a', 'b', 2) }}
{{ lines|indent }}|{{ lines|indent(2, true) }}|{{ lines|indent(width='> ', blank=true) }}|{{ 'a\\n'|indent|tojson }}
{{ '%s %d'|format('a', 3) }} {{ '%(a)s'|format(a=1) }} {{ 'a b c'|wordcount }} {{ 'ab'|center(6) }}|
{{ 'one two three four'|truncate(9) }} {{ 'one two three'|truncate(9, true, '…', 0) }} {{ 'short'|truncate(3) }}
{{ word|e }} {{ word|safe }} {{ '<'|e|e }} {{ '<'|escape ~ '<' }} {{ ('<'|e) + '<' }} {{ '<' + ('<'|safe) }} {{ '<'|e|upper }} {{ ('<b>'|safe).strip('<') }} {{ ['<'|safe] }} {{ '<'|e|forceescape }} {{ ('a'|safe) == 'a' }} {{ ('a'|safe) is string }} {{ ('a'|safe)|tojson }} {{ ('<'|safe) is escaped }}
{{ 3|string + 'x' }} {{ none|string }} {{ [1]|string|length }}
{{ none|length }}
{{ 5|indent }}
{{ 'a'|replace('a') }}
# filters on numbers
{{ '12'|int }} {{ ' 1_0 '|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ '3.9'|int }} {{ 3.9|int }} {{ -3.9|int }} {{ none|int }} {{ true|int }} {{ 'x'|int(none) }} {{ '1e3'|int }} {{ [1]|int(5) }}
{{ '1.5'|float }} {{ 2|float }} {{ 'x'|float }} {{ 'x'|float(1) }} {{ 'inf'|float }} {{ '-nan'|float }} {{ '1_0.5'|float }}
{{ -5|abs }} {{ -2.5|abs }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 5|round }} {{ 2.1|round(0, 'ceil') }} {{ 2.19|round(1, 'floor') }} {{ 7|round(1, 'ceil') }}
{{ missing|int }}
{{ 'a'|abs }}
# filters on sequences
{{ names|first }} {{ names|last }} {{ empty|first }}| {{ empty|last is defined }} {{ 'abc'|first }} {{ d|first }} {{ d|last }} {{ missing|first is defined }} {{ missing|last is defined }}
{{ names|join }} {{ names|join(', ') }} {{ [1, none, true]|join('-') }} {{ people|join('+', attribute='name') }} {{ d|join }} {{ names|join(none) }}
{{ names|sort }} {{ names|sort(case_sensitive=true) }} {{ names|sort(reverse=true) }} {{ people|sort(attribute='age')|map(attribute='name')|list }} {{ people|sort(attribute='age,name', reverse=true)|map(attribute='name')|join }} {{ numbers|sort }}
{{ d|dictsort|map('first')|list }} {{ {'b': 1, 'a': 2}|dictsort(by='value') }} {{ {'b': 1, 'A': 2}|dictsort(true) }} {{ {'b': 1, 'a': 2}|dictsort(reverse=true) }}
{{ names|map('upper')|list }} {{ people|map(attribute='tags', default='-')|list }} {{ people|map(attribute='tags.0')|list }} {{ none|map('upper')|list }} {{ ['a-b']|map('replace', '-', '+')|list }} {{ [[1, 2]]|map(attribute=1)|list }} {{ [1, none]|map('default', 'x')|list }}
{{ numbers|select('odd')|list }} {{ numbers|reject('>', 2)|list }} {{ [0, 1, '', 'a']|select|list }} {{ people|selectattr('tags')|map(attribute='name')|list }} {{ people|selectattr('age', 'equalto', 3)|map(attribute='name')|list }} {{ people|rejectattr('tags', 'defined')|map(attribute='name')|list }} {{ names|select('in', ['a', 'b'])|list }} {{ none|selectattr('x')|list }}
{{ names|unique|list }} {{ names|unique(true)|list }} {{ people|unique(attribute='age')|map(attribute='name')|list }}
{{ numbers|max }} {{ numbers|min }} {{ people|max(attribute='age') }} {{ empty|max is defined }} {{ numbers|sum }} {{ people|sum('age') }} {{ [[1], [2]]|sum(start=[]) }}
{% for key, group in people|groupby('age') %}{{ key }}:{{ group|map(attribute='name')|join(',') }};{% endfor %}{% for g in people|groupby('age') %}{{ g.grouper }}{{ g.list|length }}{% endfor %}
{{ range(5)|batch(2)|list }} {{ range(5)|batch(2, 'x')|list }} {{ range(5)|slice(3)|list }} {{ range(5)|slice(3, 'x')|list }}
{{ d|items|list }} {{ missing|items|list }} {{ 'abc'|list }} {{ d|list }} {{ (1, 2)|list }} {{ names|reverse|list }}
{{ missing|default('x') }} {{ none|default('x') }} {{ ''|default('x', true) }} {{ none|d('x', boolean=true) }} {{ missing|d }}| {{ d.nope|default(none) }}
{% set g = names|map('upper') %}{{ g|list }}{{ g|list }}
{% set g = names|select %}{{ g is iterable }}{{ g is sequence }}{{ g is sequence or g|first }}{{ g|list|length }}
{{ [1, 'a']|sort }}
{{ none|list }}
{{ none|join }}
{{ none|first }}
{{ names|map('upper')|last }}
{{ names|select|length }}
{{ 5|map('upper')|list }}
{{ d|sum }}
{{ names|items|list }}
# tests
{{ n is defined }} {{ missing is undefined }} {{ none is none }} {{ nothing is not none }} {{ yes is boolean }} {{ yes is true }} {{ 1 is true }} {{ 1 is integer }} {{ true is integer }} {{ 1.0 is float }} {{ true is number }} {{ 'a' is number }}
{{ 'a' is string }} {{ 'a' is iterable }} {{ 'a' is sequence }} {{ d is mapping }} {{ d is sequence }} {{ d.items() is sequence }} {{ none is iterable }} {{ missing is iterable }} {{ 5 is sequence }} {{ range is callable }} {{ names is sequence }} {{ names is not mapping }} {{ namespace() is mapping }}
{{ 3 is odd }} {{ 4 is even }} {{ -3 is odd }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 'a' is in names }} {{ 'a' is eq 'a' }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 2 is ge(2) }} {{ 'ab' is lower }} {{ 'AB' is upper }} {{ none is sameas none }} {{ 1 is sameas true }} {{ n is gt 5 and n is lessthan 9 }} {{ 'a' is not in 'xyz' }}
{{ 'a' is odd }}
{% if n %}{{ n }}{% elif n|nobody_knows %}{{ n|nobody_knows }}{% elif n is nobody_knows %}{% endif %}
{% if n %}{{ n|nobody_knows }}{% endif %}
# white space
{% if true %}
a
  {% if true %}
  b
  {% endif %}
{% endif %}
a {%- if true -%}  b  {%- endif -%} c
 {%+ if true %} x {% endif +%}
 y
  {{- 'z' -}}  
w
  {# comment #}
x {#- comment -#} y
{% raw %}{{ not }} {% this %}{% endraw %} {%- raw -%}  a  {%- endraw -%} b
  {% raw %}
 q
  {% endraw %}
tail
# statements
{% set a, b = 1, (2, 3) %}{{ a }}{{ b }}{% set (p, q) = 'xy' %}{{ p }}{{ q }}{% set c = 1, %}{{ c }}
{% set t %}a{{ n }}{% endset %}[{{ t }}]{% set u | upper | trim %} shout {% endset %}[{{ u }}]
{% set ns = namespace(i=0) %}{% for x in names %}{% set ns.i = ns.i + loop.index %}{% set lost = x %}{% endfor %}{{ ns.i }}{{ lost is defined }}{{ ns['i'] }}{{ ns.none is defined }}
{% for x in names %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('o', 'e') }}{{ loop.changed(x|lower) }};{% endfor %}
{% for x in names if x != 'c' %}{{ loop.index }}/{{ loop.length }}{{ x }}{{ loop.last }}{% endfor %}
{% for x in [] %}x{% else %}none{% endfor %}{% for x in [1] %}{% continue %}{% else %}left{% endfor %}{% for x in [1, 2] %}{% if x == 2 %}{% break %}{% endif %}{% else %}left{% endfor %}
{% for x in names %}{% if x == 'A' %}a{% continue %}b{% endif %}{% if x == 'a' %}!{% break %}{% endif %}{{ x }}{% endfor %}
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for x in missing %}x{% endfor %}{% for c in astral %}[{{ c }}]{% endfor %}
{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}
{% set found = namespace(is=false) %}{% for m in names if not found.is %}{{ m }}{% set found.is = m == 'A' %}{% endfor %}
{% if n < 5 %}a{% elif n < 8 %}b{% elif 1 %}c{% else %}d{% endif %}{% if missing %}a{% else %}b{% endif %}
{% if yes %}{% set inside = 1 %}{% endif %}{{ inside }}{% if not yes %}{% set n = 0 %}{% endif %}{{ n }}
{% for i in [1] %}{{ n }}{% endfor %}{% set n = 0 %}{{ n }}
{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=3) }} {{ m() }}| {{ m(b=5, a=none) }} {{ m(*[1, 2], **{'c': 4}) }}
{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, a=3) }}{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}
{% macro box(t) %}[{{ t }}:{{ caller() }}]{% endmacro %}{% call box('a') %}in{{ n }}{% endcall %}{% macro each(xs) %}{% for x in xs %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(x) each(names) %}<{{ x }}>{% endcall %}
{% macro outer() %}{{ late }}{% endmacro %}{{ outer() }}|{% set late = 1 %}{{ outer() }}{% set v = 5 %}{% macro scope() %}{{ v }}{% set v = 6 %}{{ v }}{% endmacro %}{{ scope() }}{{ v }}
{% filter upper %}a{{ word }}{% endfilter %}{% filter replace('a', 'b')|trim %} aa {% endfilter %}|
{% with a = 1, b = n %}{{ a }}{{ b }}{% set c = 3 %}{{ c }}{% endwith %}{{ a is defined }}{{ c is defined }}
{% generation %}a{% set g = 1 %}{{ n }}{% endgeneration %}{{ g is defined }}
  {% generation %}
 x
  {%- endgeneration %}
 y
{% print n, 'a' %}{{ dict(a=1, **{'b': 2}) }}{{ dict([('x', 1)]) }}{{ dict({'a': 1}, b=2) }}
{{ strftime_now('%Y-%m-%d %H:%M:%S %d %b %B %a %A %j %y %I %p %-d %e %%') }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(z=2) }}
{% for a, b in [1] %}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for x in none %}{% endfor %}
{% set d.x = 1 %}
{% set ns = namespace() %}{% set ns._x = 1 %}
{{ raise_exception('No, "' ~ n ~ '" é!') }}
{{ raise_exception(none) }}
{{ range(100001) }}
{{ range('a') }}
{{ dict(1) }}
# syntax
{% if %}
{{ }}
{{ 1 + }}
{{ [1 2] }}
{{ (1 }}
{{ a b }}
{{ 'a }}
{{ a is string is none }}
{% endif %}
{% for x in y %}
{% for x %}{% endfor %}
{% if a if b else c %}{% endif %}
{% unknown %}
{% break %}
{% macro m() %}{% continue %}{% endmacro %}
{% for x in y %}{% generation %}{% break %}{% endgeneration %}{% endfor %}
{% set 1 = 2 %}
{% set true = 2 %}
{% for loop in y %}{% endfor %}
{{ f(a=1, 2) }}
{{ f(a=1, a=2) }}
{% macro m(a=1, b) %}{% endmacro %}
{{ {'a': 1, 'b'} }}
{{ 1 ** }}
{# never closed
{% raw %} never closed
{{ not }}
{{ a.b. }}
{{ '\\x4' }}
{{ a ? b : c }}
{{ a && b }}
"""

FAMILIES = {
    "chatml": """{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "header": """{{- bos_token }}
{%- if messages[0].role == 'system' %}{% set system = messages[0]['content'] | trim %}{% set rest = messages[1:] %}{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}
{{- '<|start|>system<|end|>\\n\\nToday: ' + strftime_now('%d %b %Y') + '\\n' + system + '<|eot|>' }}
{%- for message in rest %}
  {%- if message.role == 'tool' or message.role == 'ipython' %}
{{- '<|start|>ipython<|end|>\\n\\n' }}{% if message.content is mapping or (message.content is iterable and message.content is not string) %}{{ message.content | tojson }}{% else %}{{ message.content }}{% endif %}{{ '<|eot|>' }}
  {%- elif message.tool_calls %}
    {%- if not message.tool_calls | length == 1 %}{{ raise_exception('Only one call at a time!') }}{% endif %}
{{- '{"name": "' + message.tool_calls[0].function.name + '", "parameters": ' }}{{ message.tool_calls[0].function.arguments | tojson }}{{ '}<|eot|>' }}
  {%- else %}
{{- '<|start|>' + message.role + '<|end|>\\n\\n' + message.content | trim + '<|eot|>' }}
  {%- endif %}
{%- endfor %}
{%- if tools is not none %}{% for tool in tools %}{{ tool | tojson(indent=4) }}
{% endfor %}{% endif %}
{%- if add_generation_prompt %}{{- '<|start|>assistant<|end|>\\n\\n' }}{%- endif %}""",
    "thinking": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- '<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(open=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.open and message.role == 'user' and message.content is string and not (message.content.startswith('<r>') and message.content.endswith('</r>')) %}
        {%- set ns.open = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{% set content = message.content %}{% else %}{% set content = '' %}{% endif %}
    {%- if message.role == 'assistant' %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}{% if loop.index0 > ns.last or loop.last %}{{ '<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' }}{% endif %}{{ content.lstrip('\\n') }}
        {%- for call in message.tool_calls or [] %}
            {%- if call.function %}{% set call = call.function %}{% endif %}
            {{- '\\n<tool_call>\\n{"name": "' ~ call.name ~ '", "arguments": ' }}
            {%- if call.arguments is string %}{{ call.arguments }}{% else %}{{ call.arguments | tojson }}{% endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
        {{- '\\n<r>\\n' + content + '\\n</r>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}""",
    "schema_macros": """{%- macro type_of(spec) -%}
  {%- if spec.type is string -%}
    {%- if spec.type == 'object' and spec.properties -%}{ {%- for name, inner in spec.properties.items() %}
{{ name }}{{ '' if name in (spec.required or []) else '?' }}: {{ type_of(inner) }}{% if inner.default is defined %} // default: {{ inner.default | tojson }}{% endif %},
      {%- endfor %}
} {%- elif spec.enum %}{{ spec.enum | map('tojson') | join(' | ') }}{% else %}{{ {'integer': 'number', 'object': 'any'}.get(spec.type, spec.type) }}{% endif -%}
  {%- elif spec.type is iterable -%}{{ spec.type | join(' | ') }}
  {%- else -%}any{%- endif -%}
{%- endmacro -%}
{%- macro tools_of(tools) -%}
namespace functions {
{% for tool in tools %}// {{ tool.function.description }}
type {{ tool.function.name }} = (_: {{ type_of(tool.function.parameters) }}) => any;
{% endfor %}}
{%- endmacro -%}
<|start|>system<|message|>Date: {{ strftime_now('%Y-%m-%d') }}
{% if tools %}{{ tools_of(tools) }}{% endif %}<|end|>
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {%- if message.thinking %}<|start|>assistant<|channel|>analysis<|message|>{{ message.thinking }}<|end|>{% endif -%}
    {%- if message.tool_calls -%}
      {%- for call in message.tool_calls %}<|start|>assistant to=functions.{{ call.function.name }}<|channel|>commentary json<|message|>{{ call.function.arguments | tojson }}<|call|>{% endfor -%}
    {%- else %}<|start|>assistant<|channel|>final<|message|>{{ message.content }}<|end|>{% endif -%}
  {%- elif message.role == 'tool' %}<|start|>functions.{{ message.name }} to=assistant<|channel|>commentary<|message|>{{ message.content | tojson }}<|end|>
  {%- else %}<|start|>{{ message.role }}<|message|>{{ message.content }}<|end|>
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|start|>assistant{% endif -%}""",
    "strict": """{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}{%- set turns = messages[1:] %}{%- else %}{%- set turns = messages %}{%- endif %}
{%- set user_turns = turns | selectattr('role', 'equalto', 'user') | list %}
{{- bos_token }}
{%- set ns = namespace(index=0) %}
{%- for message in turns %}
    {%- if not (message.role == 'tool' or message.role == 'tool_results' or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message['role'] == 'user') != (ns.index % 2 == 0) %}{{ raise_exception('After the optional system message, roles must alternate user/assistant/user/assistant/...') }}{%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{%- for message in turns %}
    {%- if message['role'] == 'user' %}
        {%- if tools is not none and message == user_turns[-1] %}{{- '[TOOLS][' }}{%- for tool in tools %}{%- set tool = tool.function %}{{- '{"type": "function", "function": {' }}{%- for key, val in tool.items() if key != 'return' %}{%- if val is string %}{{- '"' + key + '": "' + val + '"' }}{%- else %}{{- '"' + key + '": ' + val|tojson }}{%- endif %}{%- if not loop.last %}{{- ', ' }}{%- endif %}{%- endfor %}{{- '}}' }}{%- if not loop.last %}{{- ', ' }}{%- endif %}{%- endfor %}{{- ']' }}{%- endif %}
        {{- '[INST]' + (system + '\\n\\n' if loop.last and system is defined else '') + message['content'] + '[/INST]' }}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- '[CALLS][' }}{%- for call in message.tool_calls %}{%- set out = call.function|tojson %}{{- out[:-1] }}{%- if call.id is undefined or call.id|length != 9 %}{{ raise_exception('Tool call IDs should be of length 9!') }}{%- endif %}{{- ', "id": "' + call.id + '"}' }}{{- ', ' if not loop.last else ']' + eos_token }}{%- endfor %}
    {%- elif message['role'] == 'assistant' %}{{- ' ' + message['content']|trim + eos_token }}
    {%- elif message['role'] in ['tool', 'tool_results'] %}{%- set content = message.content %}{{- '[RESULTS]{"content": ' + content|string + ', "id": "' + message.tool_call_id + '"}' }}
    {%- else %}{{ raise_exception('Only user, assistant and tool roles are supported') }}
    {%- endif %}
{%- endfor %}""",
    "turns": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}{%- set prefix = messages[0]['content'] + '\\n\\n' -%}{%- else -%}{%- set prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}{%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}{%- set prefix = '' -%}{%- set loop_messages = messages -%}{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}{%- endif -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<turn>' + role + '\\n' + (prefix if loop.first else '') }}
    {%- if message['content'] is string -%}{{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}{%- if item['type'] == 'image' -%}{{ '<image>' }}{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}{%- endfor -%}
    {%- else -%}{{ raise_exception('Invalid content type') }}{%- endif -%}
    {{ '</turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<turn>model\\n' }}{%- endif -%}""",
    "flags": """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{ '<｜User｜>' + message['content'] }}{%- endif %}{%- if message['role'] == 'assistant' and message['tool_calls'] %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls'] %}{%- if not ns.is_first %}{{ '<｜Assistant｜><｜calls｜>' + tool['type'] + '<｜sep｜>' + tool['function']['name'] + '\\n```json\\n' + tool['function']['arguments']|tojson + '\\n```' }}{%- set ns.is_first = true -%}{%- else %}{{ '\\n' + tool['function']['name'] }}{%- endif %}{%- endfor %}{{ '<｜end｜>' }}{%- elif message['role'] == 'assistant' and message['content'] is not none %}{%- if ns.is_tool %}{{ '<｜outputs_end｜>' + message['content'] + eos_token }}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{ '<｜Assistant｜>' + content + eos_token }}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}{{ '<｜outputs｜>' + message['content'] }}{%- set ns.is_output_first = false %}{%- else %}{{ '\\n' + message['content'] }}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{ '<｜outputs_end｜>' }}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{ '<｜Assistant｜>' }}{% endif %}""",
    "middle": """{%- if tools -%}<|system|>tool_declare<|middle|>{{ tools | tojson(separators=(',', ':')) }}<|end|>{%- endif -%}
{% macro render_content(msg) -%}{% set c = msg.get('content') %}{% if c is string %}{{ c }}{% elif c is not none %}{% for part in c -%}{% if part['type'] == 'image' or 'image' in part %}<|media|>{% else %}{{ part['text'] }}{% endif %}{%- endfor %}{% endif %}{%- endmacro %}
{%- for message in messages -%}
  {%- if loop.first and messages[0]['role'] != 'system' %}<|system|>system<|middle|>Be helpful.<|end|>{% endif %}
  {%- set name = message.get('name') or message['role'] -%}
  {%- if message['role'] == 'user' %}<|user|>{{ name }}<|middle|>{% elif message['role'] == 'assistant' %}<|assistant|>{{ name }}<|middle|>{% else %}<|system|>{{ name }}<|middle|>{% endif %}
  {%- if message['role'] == 'assistant' and message.get('tool_calls') -%}{{ render_content(message) }}<|calls|>{% for call in message['tool_calls'] %}<|call|>{{ call['id'] }}<|arg|>{% if call['function']['arguments'] is string %}{{ call['function']['arguments'] }}{% else %}{{ call['function']['arguments'] | tojson }}{% endif %}<|end_call|>{% endfor %}
  {%- elif message['role'] == 'tool' -%}## Return of {{ message.tool_call_id }}
{{ render_content(message) }}
  {%- elif message['content'] is not none -%}{{ render_content(message) }}{%- endif -%}<|end|>
{%- endfor -%}
{%- if add_generation_prompt %}<|assistant|>assistant<|middle|>{% endif -%}""",
}


def outcome(work):
    try:
        return {"text": work()}
    except Exception as problem:
        # `raise_exception` raises exactly this class, not a subclass.
        if type(problem) is jinja2.TemplateError:
            return {"raised": str(problem)}
        return {"error": type(problem).__name__}


def constructs():
    """Each line is a template, except under "white space", where all lines up to the next mark form one template."""
    group, multi, rows = "", [], []
    for line in CONSTRUCTS.strip("\n").split("\n"):
        if line.startswith("# "):
            if multi:
                rows.append((group, "\n".join(multi) + "\n"))
            group, multi = line[2:], []
        elif group == "white space" or (group == "statements" and (line.startswith(" ") or line == "  {% generation %}")):
            multi.append(line)
        else:
            rows.append((group, line))
    if multi:
        rows.append((group, "\n".join(multi) + "\n"))
    for kind, source in rows:
        yield {
            "group": kind,
            "source": source,
            **outcome(lambda source=source: chat._compile_jinja_template(source).render(messages=[], tools=None, documents=None, add_generation_prompt=False, **VARIABLES)),
        }


def families():
    for name, source in FAMILIES.items():
        for conversation, messages in CONVERSATIONS.items():
            for index, options in enumerate(OPTIONS):
                yield {
                    "family": name,
                    "conversation": conversation,
                    "options": index,
                    **outcome(lambda: chat.render_jinja_template([messages], chat_template=source, **options, **SPECIAL)[0][0]),
                }


def main(directory):
    versions = {"transformers": transformers.__version__, "jinja2": jinja2.__version__}
    if versions != PINNED:
        sys.exit(f"expected {PINNED}, got {versions}")
    directory.mkdir(parents=True, exist_ok=True)

    def write(name, value):
        (directory / name).write_text(json.dumps(value, indent=1, ensure_ascii=True) + "\n", encoding="utf-8")

    write("constructs.json", {"variables": VARIABLES, "cases": list(constructs())})
    write("families.json", {"templates": FAMILIES, "conversations": CONVERSATIONS, "options": OPTIONS, "special": SPECIAL, "cases": list(families())})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
