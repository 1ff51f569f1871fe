"""Operators, literals, subscripts, undefined, printing."""


def cases():
    out = []

    def add(name, template, variables=None, error=None):
        out.append((name, template, variables or {}) + ((error,) if error is not None else ()))

    def show(expression, variables=None, error=None):
        add(f"show {expression}", "{{ " + expression + " }}", variables, error)

    for expression in [
            "1 + 2 * 3", "(1 + 2) * 3", "7 // 2", "-7 // 2", "7 % 3", "-7 % 3", "7 % -3", "7 / 2", "6 / 2", "2 ** 10",
            "2 ** -1", "2 ** 3 ** 2", "-2 ** 2", "2 ** 0.5", "7.5 // 2", "-7.5 % 2", "1e3", "1.5e-7", "1_000", "0x1f",
            "0b101", "0o17", "1.0", "100.0 * 3", "1e16", "1e15", "123456789.123", "0.1 + 0.2", "1/3", "1e300 * 1e10",
            "1 - -1", "+5", "-5|abs", "--5", "3 - 2 - 1", "2 * 3 % 4", "true + 1", "10 // 3 * 3 + 10 % 3",
            "9223372036854775807", "0.00001", "0.0001", "-0.0", "5 // 0.3", "1.5 + 1", "3 * 1.0"]:
        show(expression)
    for expression in [
            "1 == 1.0", "1 == true", "'a' == 'a'", "1 != 2", "1 < 2 < 3", "1 < 3 < 2", "3 > 2 > 1", "1 == 1 == 1",
            "'a' < 'b'", "'Z' < 'a'", "[1, 2] < [1, 3]", "(1, 2) == (1, 2)", "[1] == (1,)", "none == none",
            "none == false", "'1' == 1", "{'a': 1} == {'a': 1.0}", "1 <= 1 >= 1", "nope == nope2", "nope == none",
            "'a' in 'abc'", "'d' not in 'abc'", "1 in [1, 2]", "1 in (2,)", "'a' in {'a': 1}", "1 in {'a': 1}.values()",
            "'' in 'abc'", "not 1 in [1]", "not true", "not not true", "1 and 2", "0 and 2", "0 or 2", "'' or 'x'",
            "none or false or 0", "1 or nope.x", "0 and nope.x", "not nope", "true and not false", "x in nope",
            "1 if true else 2", "1 if false else 2", "1 if false", "'a' if nope else 'b' if nope else 'c'",
            "(1 if false) is defined", "1 + 1 if 0 else 5", "'x' ~ 1 ~ none ~ true ~ 1.5 ~ [1]", "1 ~ 2 * 3",
            "'a' + 'b'", "'ab' * 3", "3 * 'ab'", "[1] + [2]", "[0] * 3", "(1,) + (2,)", "'a' 'b'", "'x' * -1",
            "'%s-%d' % ('a', 5)", "'%5.2f|%-5s|%05d|%x' % (3.14159, 'ab', 42, 255)", "'%s' % 5", "'%%' % ()",
            "'%(a)s' % {'a': 1}", "'%r' % 'x'", "'%+d' % 3", "'%s %s' % (none, true)", "'%e' % 12345.678",
            "'%g' % 0.00001", "'%c' % 65", "'%5s|' % 'é'"]:
        show(expression, {"x": 1})
    for expression in [
            "none", "true", "false", "True", "None", "[1, 'a', none, true, 1.5]", "{'a': 1, 'b': [1, 2]}", "(1, 2)",
            "(1,)", "()", "[]", "{}", "'it\\'s'", "[\"it's\"]", "['a\"b', 'it\\'s \"q\"']", "['new\\nline\\ttab']",
            "['é', '你', '\\u200b', '\\x07']", "{1: 2, none: 3}", "[[1, [2]], {'a': {}}]", "range(3)",
            "range(1, 10, 2)", "{'a': 1}.keys()", "{'a': 1}.values()", "{'a': 1}.items()", "'\\\\'", "'\\u00e9\\x41'",
            "'a\\qb'", "\"double 'single'\"", "'tab\\tnl\\n.'", "[1,]", "{'a': 1,}", "(1, (2, 3))", "1, 2", "1,",
            "'\\101'", "[nope]", "{'k': nope}", "1.0 * 10 ** 18", "[1.0, 1e100]", "'🎉'|length", "['🎉\\u00a0']"]:
        show(expression)
    for expression in [
            "xs[0]", "xs[-1]", "xs[5] is defined", "xs[1:]", "xs[:2]", "xs[::-1]", "xs[-2:]", "xs[1:3:2]", "xs[10:]",
            "xs[:-1]", "s[0]", "s[-1]", "s[1:3]", "s[::-1]", "s[5:]", "t[1]", "d.a", "d['a']", "d.nope is defined",
            "d['nope'] is defined", "d.items", "d['items']", "d.get('a')", "d.get('z')", "d.get('z', 'dflt')",
            "d.n.m", "d.n['m']", "xs.0", "(xs)[1]", "[1,2,3][1]", "'abc'[1]", "{'k': 5}.k", "{'k': 5}['k']", "d.keys()|list",
            "d.values()|list", "d.items()|list", "xs[true]", "xs['a'] is defined", "xs|length", "s.upper()[0]",
            "u.x is defined", "xs[1:][0]", "d[1]", "'abc'[7] is defined", "u['keys'] is defined", "dd.get", "s[:0]",
            "xs[3:0:-1]", "xs[-100:100]", "range(10)[2:5]", "range(5)[-1]", "t[:1]", "d.count is defined"]:
        if expression in ("d.items", "dd.get", "d['items']"):
            continue
        show(expression, {"xs": [1, 2, 3, 4], "s": "hélloñ", "t": [9, 8], "d": {"a": 1, "n": {"m": 2}, "1": 3}, "u": {}})
    add("method beats key", "{{ d.items is callable }}{{ d['items'] }}{{ d.get('items') }}", {"d": {"items": 5}})
    add("key by attribute", "{{ d.content }}{{ d.role }}", {"d": {"content": "c", "role": "r"}})
    add("underscore key", "{{ d._x }}", {"d": {"_x": 1}})
    add("unsafe attribute printed", "[{{ 'a'.__class__ }}]")
    add("unsafe attribute used", "{{ 'a'.__class__.__mro__ }}", None, "unsafe")
    add("unsafe subscript", "{{ ''['__class__']['x'] }}", None, "unsafe")
    add("list append refused", "{% set x = [] %}{{ x.append(1) }}", None, "access to attribute 'append' of 'list' object is unsafe.")
    add("dict update refused", "{% set x = {} %}{{ x.update({'a': 1}) }}", None, "access to attribute 'update' of 'dict' object is unsafe.")
    add("dict pop refused", "{% set x = {'a': 1} %}{{ x.pop('a') }}", None, "access to attribute 'pop' of 'dict' object is unsafe.")

    # Undefined.
    add("undefined prints nothing", "[{{ nope }}]")
    add("undefined attribute", "{{ nope.x }}", None, "'nope' is undefined")
    add("undefined item", "{{ nope['x'] }}", None, "'nope' is undefined")
    add("undefined call", "{{ nope() }}", None, "'nope' is undefined")
    add("undefined plus", "{{ 'a' + nope }}", None, "'nope' is undefined")
    add("plus undefined", "{{ nope + 'a' }}", None, "'nope' is undefined")
    add("undefined minus", "{{ nope - 1 }}", None, "'nope' is undefined")
    add("undefined less", "{{ nope < 1 }}", None, "'nope' is undefined")
    add("undefined negative", "{{ -nope }}", None, "'nope' is undefined")
    add("undefined concat", "[{{ 'a' ~ nope ~ 'b' }}]")
    add("missing key then attribute", "{{ d.x.y }}", {"d": {}}, "'dict object' has no attribute 'x'")
    add("missing index then attribute", "{{ l[3].y }}", {"l": []}, "list object has no element 3")
    add("attribute of none", "{{ n.x.y }}", {"n": None}, "'None' has no attribute 'x'")
    add("attribute of none printed", "[{{ n.x }}]", {"n": None})
    add("attribute of int", "{{ n.x.y }}", {"n": 5}, "'int object' has no attribute 'x'")
    add("attribute of string", "{{ n.x.y }}", {"n": "s"}, "'str object' has no attribute 'x'")
    add("undefined slice", "{{ nope[1:] }}", None, "'nope' is undefined")
    add("undefined method", "{{ 'a'.nope() }}", None, "'str object' has no attribute 'nope'")
    add("undefined filters", "[{{ nope|upper }}{{ nope|length }}{{ nope|join(',') }}{{ nope|default('d') }}{{ nope|list }}{{ nope|trim }}{{ nope|first }}]")
    add("undefined tojson", "{{ nope|tojson }}", None, "Undefined is not JSON serializable")
    add("undefined in list", "{{ nope in [1] }}{{ 1 in nope }}")
    add("undefined equality", "{{ nope == '' }}{{ nope != none }}")
    add("default on missing key", "{{ m.get('x') or 'none' }}{{ m.x|default('y') }}", {"m": {}})

    # Type errors.
    add("str plus int", "{{ 'a' + 1 }}", None, 'can only concatenate str (not "int") to str')
    add("int plus str", "{{ 1 + 'a' }}", None, "unsupported operand type(s) for +: 'int' and 'str'")
    add("list plus str", "{{ [] + 'a' }}", None, 'can only concatenate list (not "str") to list')
    add("none plus str", "{{ none + 'a' }}", None, "unsupported operand type(s) for +: 'NoneType' and 'str'")
    add("str plus none", "{{ 'a' + none }}", None, 'can only concatenate str (not "NoneType") to str')
    add("divide by zero", "{{ 1 / 0 }}", None, "division by zero")
    add("floor by zero", "{{ 1 // 0 }}", None, "integer division or modulo by zero")
    add("mixed order", "{{ 1 < 'a' }}", None, "'<' not supported between instances of 'int' and 'str'")
    add("mixed order ge", "{{ none >= 1 }}", None, "'>=' not supported between instances of 'NoneType' and 'int'")
    add("in number", "{{ 1 in 5 }}", None, "argument of type 'int' is not iterable")
    add("int in string", "{{ 1 in 'abc' }}", None, "'in <string>' requires string as left operand, not int")
    add("not callable", "{{ 5() }}", None, "'int' object is not callable")
    add("unhashable", "{{ {[1]: 2} }}", None, "unhashable type: 'list'")
    add("none slice", "{{ n[1:] }}", {"n": None}, "'NoneType' object is not subscriptable")
    add("format too few", "{{ '%s %s' % ('a',) }}", None, "not enough arguments for format string")
    add("format too many", "{{ '%s' % ('a', 'b') }}", None, "not all arguments converted")
    add("format not number", "{{ '%d' % 'a' }}", None, "")
    add("range too big", "{{ range(10000000) }}", None, "Range too big")
    add("raise", "{{ raise_exception('Conversation roles must alternate') }}", None, "Conversation roles must alternate")
    add("raise in branch not taken", "{% if false %}{{ raise_exception('no') }}{% endif %}ok")
    add("concat binds before plus", "{{ 1 ~ 2 + 3 }}", None, 'can only concatenate str (not "int") to str')
    add("dict slice", "{{ d[1:] }}", {"d": {}}, "unhashable type: 'slice'")
    add("negate string", "{{ -'a' }}", None, "bad operand type for unary -: 'str'")
    add("length of int", "{{ 5|length }}", None, "object of type 'int' has no len()")

    # Globals.
    add("range forms", "{{ range(3)|list }}{{ range(1,4)|list }}{{ range(10,0,-3)|list }}{{ range(0)|list }}")
    add("dict global", "{{ dict(a=1, b='x') }}{{ dict([('k', 1)]) }}{{ dict({'a': 1}, b=2) }}")
    add("strftime_now", "{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y') }} {{ strftime_now('%A, %B %d %Y %H:%M:%S %%') }}")
    add("boolean values from json", "{{ a }}{{ b }}{{ c }}{{ d }}{{ e }}", {"a": True, "b": None, "c": 1.0, "d": 12345678901, "e": 1e-9})
    return out
