"""Statements, white space, scopes, macros."""


def cases():
    out = []

    def add(name, template, variables=None, error=None):
        out.append((name, template, variables or {}) + ((error,) if error is not None else ()))

    # White space.
    add("trim newline after block", "{% if true %}\nA\n{% endif %}\nB")
    add("lstrip before block", "x\n   {% if true %}\n  A\n   {% endif %}\nB")
    add("no lstrip after text", "x   {% if true %}A{% endif %}  \nB")
    add("variable keeps newline", "{{ 1 }}\n\n  {{ 2 }}\n")
    add("final newline goes", "a\n")
    add("two final newlines", "a\n\n")
    add("crlf", "a\r\n{% if 1 %}\r\nb\r{% endif %}\r\nc\r\n")
    add("minus both sides", "a  \n {%- if true -%} \n b \n {%- endif -%} \n c")
    add("minus in variables", "a \n {{- 1 -}} \n b")
    add("plus keeps indentation", "a\n   {%+ if true %}x{% endif %}")
    add("plus end keeps newline", "{% if true +%}\nx{% endif %}")
    add("comment lines vanish", "a\n   {# note #}\nb")
    add("comment minus", "a \n {#- note -#} \n b")
    add("comment plus", "a\n  {#+ note +#}\nb")
    add("comment in line", "a {# x #} b")
    add("comment with tags", "{# {{ x }} {% if %} #}ok")
    add("raw", "{% raw %}{{ x }} {% if %}{% endraw %}")
    add("raw newline", "{% raw %}\n{{ x }}\n{% endraw %}\nz")
    add("raw minus", "a {%- raw -%}  {{ x }}  {%- endraw -%} b")
    add("raw lstrip", "a\n   {% raw %}b\n   {% endraw %}\nc")
    add("tabs lstrip", "\t\t{% if true %}x{% endif %}\n\t{% if true %}y{% endif %}")
    add("block at start of file indented", "   {% if true %}x{% endif %}")
    add("two blocks in a line", "  {% if true %}  {% if true %}x{% endif %}{% endif %}\n")
    add("block after trimmed newline", "{% if true %}\n    {% if true %}\n x\n    {% endif %}\n{% endif %}\n")
    add("after comment newline lstrip", "{# c #}\n   {% if true %}x{% endif %}")
    add("after variable no lstrip", "{{ 1 }}   {% if true %}x{% endif %}")
    add("nbsp is white space", "a\n\u00a0{% if true %}x{% endif %}\u00a0{%- if true %}y{% endif %}")
    add("brace alone", "{ a } {a} }} %} #}")
    add("brace then tag", "{{{1: 2}}}")
    add("brace before tag", "{{{'a': {}}.a}}")
    add("dict in output", "{{ {'a': {'b': 1}}['a']['b'] }}")
    add("percent brace in string", "{{ '%}' }}{{ '}}' }}{% set x = '%}' %}{{ x }}")
    add("tag over lines", "{% if\n  true\n%}\nyes{% endif %}")
    add("unicode text", "héllo 你好 {{ 'ñ' }} 🎉")
    add("nothing", "")
    add("only newline", "\n")

    # if
    add("if elif else", "{% for x in [1,2,3] %}{% if x == 1 %}one{% elif x == 2 %}two{% else %}many{% endif %} {% endfor %}")
    add("if falsy values", "{% for x in values %}{% if x %}T{% else %}F{% endif %}{% endfor %}",
        {"values": [0, 1, "", "a", [], [0], {}, {"a": 1}, None, True, False, 0.0, 0.1]})
    add("if undefined", "{% if nope %}T{% else %}F{% endif %}")
    add("if without else", "[{% if false %}x{% endif %}]")
    add("nested if", "{% if a %}{% if b %}ab{% else %}a{% endif %}{% else %}-{% endif %}", {"a": 1, "b": 0})
    add("if tuple", "{% if 1, %}T{% endif %}")
    add("many elif", "{% if x == 0 %}0{% elif x == 1 %}1{% elif x == 2 %}2{% elif x == 3 %}3{% endif %}", {"x": 3})

    # for
    add("loop variables", "{% for x in 'abc' %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}")
    add("previtem nextitem", "{% for x in [1,2,3] %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}")
    add("previtem defined", "{% for x in [1,2] %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}")
    add("loop cycle", "{% for x in range(5) %}{{ loop.cycle('a','b') }}{% endfor %}")
    add("loop changed", "{% for x in [1,1,2,2,1] %}{{ loop.changed(x) }} {% endfor %}")
    add("for else", "{% for x in [] %}x{% else %}none{% endfor %}{% for x in [1] %}x{% else %}none{% endfor %}")
    add("for undefined", "{% for x in nope %}x{% else %}none{% endfor %}")
    add("for dict", "{% for k in d %}{{ k }},{% endfor %}{% for k, v in d.items() %}{{ k }}={{ v }},{% endfor %}", {"d": {"a": 1, "b": 2}})
    add("for string", "{% for c in 'aé🎉' %}[{{ c }}]{% endfor %}")
    add("for unpack", "{% for a, (b, c) in [(1, (2, 3)), (4, (5, 6))] %}{{ a }}{{ b }}{{ c }};{% endfor %}")
    add("for filter", "{% for x in range(10) if x % 2 %}{{ x }}/{{ loop.index }}/{{ loop.length }} {% endfor %}")
    add("for filter last", "{% for m in ms if m.role != 'system' %}{{ m.role }}{% if not loop.last %}, {% endif %}{% endfor %}",
        {"ms": [{"role": "system"}, {"role": "user"}, {"role": "assistant"}, {"role": "system"}]})
    add("for filter else", "{% for x in [1,3] if x is even %}x{% else %}none{% endfor %}")
    add("for filter sees namespace", "{% set ns = namespace(stop=false) %}{% for x in [1,2,3,4] if not ns.stop %}{{ x }}{% if x == 2 %}{% set ns.stop = true %}{% endif %}{% endfor %}")
    add("break", "{% for x in range(10) %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}")
    add("continue", "{% for x in range(5) %}{% if x == 3 %}{% continue %}{% endif %}{{ x }}{% endfor %}")
    add("break inner", "{% for a in [1,2] %}{% for b in [1,2,3] %}{% if b == 2 %}{% break %}{% endif %}{{ a }}{{ b }} {% endfor %}{% endfor %}")
    add("break then else", "{% for a in [1] %}{% break %}{% else %}E{% endfor %}.")
    add("continue then else", "{% for a in [1] %}{% continue %}{% else %}E{% endfor %}.")
    add("break after a whole round", "{% for a in [1,2] %}{% if a == 2 %}{% break %}{% endif %}{{ a }}{% else %}E{% endfor %}.")
    add("nested loop parent", "{% for a in [1,2] %}{% set outer = loop %}{% for b in 'xy' %}{{ outer.index }}.{{ loop.index }} {% endfor %}{% endfor %}")
    add("loop over slice", "{% for m in xs[1:] %}{{ m }}{% endfor %}{% for m in xs[::-1] %}{{ m }}{% endfor %}", {"xs": [1, 2, 3]})
    add("for conditional iterable", "{% for m in (xs if xs else [9]) %}{{ m }}{% endfor %}", {"xs": []})
    add("for tuple literal", "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}")
    add("recursive loop", "{% for n in tree recursive %}{{ n.v }}{% if n.c %}({{ loop(n.c) }}){% endif %}{{ loop.depth }}{% endfor %}",
        {"tree": [{"v": 1, "c": [{"v": 2, "c": [{"v": 3}]}, {"v": 4}]}, {"v": 5}]})
    add("not recursive", "{% for n in [1] %}{{ loop([2]) }}{% endfor %}", None, "recursive")
    add("for int", "{% for x in 5 %}{% endfor %}", None, "'int' object is not iterable")
    add("for none", "{% for x in n %}{% endfor %}", {"n": None}, "'NoneType' object is not iterable")
    add("unpack too many", "{% for a, b in [(1,2,3)] %}{% endfor %}", None, "too many values to unpack (expected 2)")
    add("unpack too few", "{% for a, b in [(1,)] %}{% endfor %}", None, "not enough values to unpack (expected 2, got 1)")
    add("loop attribute missing", "{% for a in [1] %}{{ loop.wat is defined }}{% endfor %}")

    # set and scopes
    add("set in loop does not leak", "{% set x = 1 %}{% for i in [1,2] %}{{ x }}{% set x = i * 10 %}{{ x }} {% endfor %}{{ x }}")
    add("set in if leaks", "{% if true %}{% set x = 5 %}{% endif %}{{ x }}")
    add("set only in loop", "{% for i in [1] %}{% set y = 2 %}{% endfor %}{{ y is defined }}")
    add("set tuple", "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}")
    add("set swap", "{% set a, b = 1, 2 %}{% set a, b = b, a %}{{ a }}{{ b }}")
    add("set block", "{% set x %}\n  hi {{ 1 + 1 }}\n{% endset %}\n[{{ x }}]")
    add("set block filter", "{% set x | upper | trim %} hi {% endset %}[{{ x }}]")
    add("set block scope", "{% set x %}{% set y = 3 %}{{ y }}{% endset %}{{ x }}{{ y is defined }}")
    add("namespace", "{% set ns = namespace(a=1, found=false) %}{% for i in [1,2,3] %}{% set ns.a = ns.a + i %}{% if i == 2 %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.a }}{{ ns.found }}")
    add("namespace from dict", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}")
    add("namespace block set", "{% set ns = namespace() %}{% set ns.x %}body{% endset %}{{ ns.x }}")
    add("namespace printed", "{% set ns = namespace(a=1, b='x') %}{{ ns }}")
    add("namespace subscript", "{% set ns = namespace(a=1) %}{{ ns['a'] }}")
    add("attribute on plain value", "{% set x = {} %}{% set x.a = 1 %}", None, "cannot assign attribute on non-namespace object")
    add("with", "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}")
    add("with sees outer", "{% set a = 1 %}{% with b = a + 1 %}{{ b }}{% set a = 9 %}{% endwith %}{{ a }}")
    add("filter block", "{% filter upper %}abc {{ 'd' }}{% endfilter %}")
    add("filter block chain", "{% filter trim | replace('a', 'b') %}  banana {% endfilter %}")
    add("print tag", "{% print 1, 2 %}{% print 'x' %}")
    add("generation", "{% for m in [1,2] %}{% generation %}<{{ m }}>{% endgeneration %}\n{% endfor %}")
    add("generation scope", "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}")
    add("shadow global", "{% set range = 5 %}{{ range }}")
    add("variable shadows global", "{{ dict }}", {"dict": "mine"})
    add("self assignment", "{% set x = x ~ 'b' %}{{ x }}", {"x": "a"})
    add("set in inner loop only", "{% for i in [1,2] %}{% for j in [1,2] %}{% set k = i * j %}{% endfor %}{{ k is defined }}{% endfor %}")

    # Macros.
    add("macro", "{% macro hi(name, mark='!') %}Hi {{ name }}{{ mark }}{% endmacro %}{{ hi('a') }}{{ hi('b', '?') }}{{ hi(name='c') }}{{ hi(mark='.', name='d') }}")
    add("macro missing argument", "{% macro f(a, b) %}{{ a }}[{{ b }}]{{ b is defined }}{% endmacro %}{{ f(1) }}")
    add("macro default sees argument", "{% macro f(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(1, 2) }}")
    add("macro varargs", "{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, x=4) }}")
    add("macro too many", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", None, "takes not more than 1 argument")
    add("macro unknown keyword", "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", None, "takes no keyword argument 'b'")
    add("macro sees later set", "{% macro f() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}{% set x = 2 %}{{ f() }}")
    add("macro sees context", "{% macro f() %}{{ bos }}{% endmacro %}{{ f() }}", {"bos": "<s>"})
    add("macro set does not leak", "{% set x = 1 %}{% macro f() %}{% set x = 2 %}{{ x }}{% endmacro %}{{ f() }}{{ x }}")
    add("macro recursion", "{% macro f(n) %}{{ n }}{% if n > 0 %} {{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}")
    add("macro result is text", "{% macro f() %} 5 {% endmacro %}{{ f() | trim | int + 1 }}")
    add("macro in variable", "{% macro f(x) %}<{{ x }}>{% endmacro %}{% set g = f %}{{ g(1) }}")
    add("macro attributes", "{% macro f(x, y=1) %}{{ x }}{% endmacro %}{{ f.name }}{{ f.arguments }}")
    add("macro whitespace", "{% macro f() %}\n  a\n{% endmacro %}\n[{{ f() }}]")
    add("macro in loop", "{% for i in [1,2] %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}")
    add("call block", "{% macro box(t) %}[{{ t }}:{{ caller() }}]{% endmacro %}{% call box('x') %}body{% endcall %}")
    add("call with arguments", "{% macro each(xs) %}{% for x in xs %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(v, i) each([7,8]) %}{{ i }}={{ v }};{% endcall %}")
    add("macro without caller use", "{% macro f() %}x{% endmacro %}{% call f() %}b{% endcall %}", None, "caller")
    add("caller undefined", "{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}")
    add("macro star arguments", "{% macro f(a, b, c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(*[1, 2], **{'c': 3}) }}")
    add("macro expression default", "{% macro f(a=[1,2]|length, b={'k': 'v'}.k) %}{{ a }}{{ b }}{% endmacro %}{{ f() }}")
    add("macro undefined default", "{% macro f(tools=none) %}{{ tools is none }}{% endmacro %}{{ f() }}{{ f(1) }}{{ f(nope) }}")
    add("macro concatenation", "{% macro f(x) %}{{ x }}{% endmacro %}{{ 'a' + f('b') ~ f('c') }}")

    # Errors at parse time.
    for index, (template, words) in enumerate([
            ("{% if x %}", "Unexpected end of template"),
            ("{% endif %}", "unknown tag 'endif'"),
            ("{{ x", "unexpected end of template"),
            ("{{ 1 + }}", "unexpected '"),
            ("{{ 'abc }}", "unexpected char"),
            ("{# never closed", "Missing end of comment tag"),
            ("{% raw %} x", "Missing end of raw directive"),
            ("{{ (1, 2 }}", "unexpected '}'"),
            ("{{ [1, 2) }}", "unexpected ')'"),
            ("{% for x %}{% endfor %}", "expected "),
            ("{% set 1 = 2 %}", ""),
            ("{% set true = 2 %}", "can't assign to '"),
            ("{% break %}", "outside"),
            ("{{ x|nofilter }}", "No filter named 'nofilter'"),
            ("{{ x is notest }}", "No test named 'notest'"),
            ("{% nosuch %}", "unknown tag 'nosuch'"),
            ("{% macro f(a=1, b) %}{% endmacro %}", "non-default argument follows default argument"),
            ("{% call x %}{% endcall %}", ""),
            ("{{ a b }}", "got 'b'"),
            ("{{ f(a=1, 2) }}", "invalid syntax for function call expression"),
            ("{{ ? }}", "unexpected char"),
            ("{% else %}", "unknown tag 'else'"),
            ("{{ x is defined is none }}", "You cannot chain multiple tests with is"),
            ("{{ }}", ""),
            ("{% if %}x{% endif %}", ""),
            ("{% for x in [1] %}{% if x %}{% endfor %}", ""),
            ("{{ {'a' 1} }}", ""),
            ("{{ 1 if }}", ""),
            ("{{ x. }}", "expected name or number"),
    ]):
        out.append((f"syntax error {index}: {template}", template, {}, words))
    return out
