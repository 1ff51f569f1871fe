"""Filters, tests and methods."""


def cases():
    out = []
    people = [{"name": "Zed", "age": 30, "tags": ["a"]}, {"name": "amy", "age": 25, "tags": []},
              {"name": "Bob", "age": 30, "tags": ["b", "c"]}, {"name": "eve", "tags": None}]
    full = people[:3]
    variables = {"people": people, "full": full, "xs": [3, 1, 2, 3], "s": "  Hello World  ", "w": "the quick-brown (fox) it's",
                 "u": "Straße ÉCOLE ñandú", "d": {"b": 2, "a": 1, "C": 3}, "m": "line1\nline2\n\n  line4", "n": None,
                 "tool": {"type": "function", "function": {"name": "get", "description": "It's <b>\"x\"</b> & é",
                          "parameters": {"type": "object", "properties": {"q": {"type": "string", "enum": ["a", "b"]}},
                                         "required": []}}}}

    def show(expression, error=None):
        out.append((expression, "{{ " + expression + " }}", variables) + ((error,) if error is not None else ()))

    for expression in [
            "s|trim", "s|upper", "s|lower", "'heLLo wORLD'|capitalize", "w|title", "u|upper", "u|lower", "u|title", "'x-y z'|title",
            "'xxabcxx'|trim('x')", "s|length", "u|length", "s|replace('l', 'L')", "s|replace('l', 'L', 1)", "'aaa'|replace('a', 'b', 2)",
            "'abc'|replace('', '-')", "5|string + '1'", "none|string", "'a b  c'|wordcount", "'abc'|reverse", "'<a href=\"x\">&\\'</a>'|e",
            "'<b>'|escape", "'<b>'|safe", "m|indent", "m|indent(2)", "m|indent(2, true)", "m|indent(2, blank=true)", "m|indent('> ', first=true)",
            "''|indent(2, true)", "'abc'|center(9) ~ '|'", "'abc'|center(8) ~ '|'", "'foo bar baz qux'|truncate(9)", "'foo bar baz qux'|truncate(9, true)",
            "'foo bar baz qux'|truncate(11, false, '..', 0)", "'short'|truncate(9)", "'%s=%s'|format('a', 1)", "'%(x)s'|format(x=3)", "'a b&c/d'|urlencode",
            "{'a': 1, 'b c': 'd&e'}|urlencode", "'héé'|urlencode"]:
        show(expression)
    for expression in [
            "nope|default('x')", "''|default('x')", "''|default('x', true)", "none|default('x')", "none|d('x', true)", "nope|d", "0|default(5, boolean=true)",
            "'42'|int", "'42.7'|int", "'abc'|int", "'abc'|int(-1)", "3.9|int", "-3.9|int", "'ff'|int(0, 16)", "'0x1f'|int(0, 16)", "' 7 '|int", "true|int", "none|int(9)",
            "'1_000'|int", "'+5'|int", "'1e3'|int", "'1.5'|float", "'x'|float", "'x'|float(2.5)", "3|float", "'1e3'|float", "' 2.5 '|float", "-5|abs", "-5.5|abs",
            "2.5|round", "3.5|round", "2.345|round(2)", "2.7|round(method='floor')", "2.1|round(0, 'ceil')", "42|round", "42.1234|round(2, 'ceil')", "1234|round(-2)",
            "1250.0|round(-2)", "0.5|round", "1.005|round(2)", "'x'|attr('upper') is defined", "tool|attr('type') is defined"]:
        show(expression)
    for expression in [
            "xs|first", "xs|last", "[]|first is defined", "[]|last is defined", "'abc'|first", "'abc'|last", "xs|list", "'abc'|list", "d|list", "xs|join(',')",
            "xs|join", "['a', 1, none, true]|join('-')", "full|join(', ', attribute='name')", "xs|reverse|list", "xs|sum", "[1.5, 2]|sum", "full|sum('age')",
            "full|sum(attribute='age', start=100)", "[[1], [2]]|sum(start=[])", "xs|min", "xs|max", "[]|max is defined", "['b', 'A']|min", "['b', 'A']|max(case_sensitive=true)",
            "full|map(attribute='age')|max", "(full|min(attribute='age')).name", "xs|sort", "xs|sort(reverse=true)", "['b', 'A', 'c']|sort", "['b', 'A', 'c']|sort(case_sensitive=true)",
            "full|sort(attribute='name')|map(attribute='name')|list", "full|sort(attribute='age,name')|map(attribute='name')|join(' ')",
            "full|sort(true, attribute='age')|map(attribute='name')|list", "xs|unique|list", "['a', 'A', 'b']|unique|list", "['a', 'A']|unique(true)|list",
            "full|unique(attribute='age')|map(attribute='name')|list", "d|dictsort", "d|dictsort(true)", "d|dictsort(by='value', reverse=true)", "d|items|list", "nope|items|list",
            "d|length", "xs|count", "xs|batch(2)|list", "xs|batch(3, 0)|list", "xs|slice(3)|list", "xs|slice(3, 'x')|list", "xs|map('string')|join('+')", "['a', 'b']|map('upper')|list",
            "['a ', ' b']|map('trim')|list", "['x', 'y']|map('replace', 'x', 'z')|list", "full|map(attribute='tags')|map('length')|list", "people|map(attribute='age', default=0)|list",
            "full|map(attribute='tags.0', default='-')|list", "xs|select('odd')|list", "xs|reject('odd')|list", "[0, 1, '', 'a']|select|list", "[0, 1, '', 'a']|reject|list",
            "xs|select('gt', 1)|list", "xs|select('in', [1, 2])|list", "full|selectattr('age', 'equalto', 30)|map(attribute='name')|list", "full|selectattr('tags')|list|length",
            "full|rejectattr('age', 'gt', 26)|map(attribute='name')|list", "people|selectattr('age', 'defined')|list|length", "people|rejectattr('age', 'defined')|map(attribute='name')|first",
            "people|selectattr('tags', 'none')|map(attribute='name')|join", "full|groupby('age')", "full|groupby('age')|map(attribute='grouper')|list", "full|groupby('age')|map('last')|map('length')|list",
            "people|groupby('age', default=0)|map('first')|list", "(xs|map('string'))|length", "(xs|select('odd'))|last", "none|select|list", "none|map('upper')|list", "xs|map|list",
            "xs|join(', ')|upper|replace(',', ';')", "range(5)|reverse|list", "(xs|select('odd')|reverse)", "(1, 2)|list", "{'a': 1}.items()|list|first|last",
            "[3, 'a']|sort", "[none, 1]|max", "['x', 'y']|map('nofilter')|list", "xs|select('notest')|list", "d|first", "d|last"]:
        error = None
        if expression in ("(xs|map('string'))|length",):
            error = "object of type 'generator' has no len()"
        if expression == "(xs|select('odd'))|last":
            error = "'generator' object is not reversible"
        if expression == "xs|map|list":
            error = "map requires a filter argument"
        if expression == "[3, 'a']|sort":
            error = "'<' not supported between instances of 'str' and 'int'"
        if expression == "[none, 1]|max":
            error = "'>' not supported between instances of 'int' and 'NoneType'"
        if expression == "['x', 'y']|map('nofilter')|list":
            error = "No filter named 'nofilter'"
        if expression == "xs|select('notest')|list":
            error = "No test named 'notest'"
        show(expression, error)
    for expression in [
            "tool|tojson", "tool|tojson(indent=2)", "tool|tojson(indent=4, sort_keys=true)", "tool|tojson(ensure_ascii=true)", "tool|tojson(separators=(',', ':'))",
            "tool|tojson(separators=(', ', ': '), indent=1)", "[]|tojson(indent=2)", "{}|tojson(indent=2)", "[1, 2.0, none, true, 'x\\n\\t\\x01\\x7f']|tojson", "'é🎉'|tojson(true)",
            "'</script>'|tojson", "(1, 2)|tojson", "{1: 2, none: 3, true: 4, 1.5: 0}|tojson", "1e100|tojson", "'\\\\\"'|tojson", "{'b': 1, 'a': [{'d': 1, 'c': 2}]}|tojson(sort_keys=true)",
            "tool.function.parameters|tojson(indent='\\t')", "[[[]]]|tojson(indent=0)", "'x'|tojson|length", "d.items()|list|tojson"]:
        show(expression)
    show("range(3)|tojson", "Object of type range is not JSON serializable")
    show("{(1, 2): 3}|tojson", "keys must be str, int, float, bool or None, not tuple")
    # Tests.
    values = ["none", "true", "false", "0", "1", "5", "1.5", "''", "'abc'", "'ABC'", "[]", "[1]", "()", "{}", "nope", "range(2)", "d.items", "d.keys()", "'Ab1'"]
    tests = ["defined", "undefined", "none", "boolean", "true", "false", "integer", "float", "number", "string", "mapping", "sequence", "iterable", "callable"]
    for test in tests:
        template = "".join("{{ (" + value + ") is " + test + " }} " for value in values)
        out.append((f"is {test}", template, variables))
        out.append((f"is not {test}", template.replace(" is ", " is not "), variables))
    for expression in [
            "4 is even", "4 is odd", "-3 is odd", "9 is divisibleby 3", "9 is divisibleby(2)", "'abc' is lower", "'ABC' is upper", "'Abc' is lower", "'1' is upper", "5 is eq 5", "5 is equalto(5)",
            "5 is ne 4", "5 is gt 4", "5 is ge(5)", "5 is lt 4", "5 is le 4", "5 is greaterthan 4", "5 is lessthan 6", "1 is in [1, 2]", "'x' is in 'xyz'", "1 is not in [1]", "none is sameas none", "true is sameas 1",
            "'upper' is filter", "'nope' is filter", "'odd' is test", "not (1 is odd)", "1 is odd and 2 is even", "d is mapping and 'a' in d", "x is defined and x.y", "'a' is string or nope.x",
            "(1 is number) if true else 'f'", "5 is not none", "xs is iterable and xs is not mapping and xs is not string"]:
        show(expression)
    # Methods of strings.
    for expression in [
            "s.strip()", "s.lstrip() ~ '|'", "s.rstrip()", "'xxaxx'.strip('x')", "'abcba'.lstrip('ab')", "'abcba'.rstrip('ab')", "'héé'.rstrip('é')", "'a,b,c'.split(',')", "'a b  c '.split()", "'a,b,c'.split(',', 1)",
            "'a,b,c'.rsplit(',', 1)", "' a  b c '.split(none, 1)", "' a  b c '.rsplit(none, 1)", "'a\\nb\\r\\nc\\n'.splitlines()", "'a\\nb\\n'.splitlines(true)", "'abc'.startswith('ab')", "'abc'.startswith(('x', 'a'))", "'abc'.endswith('bc')",
            "'abc'.startswith('b', 1)", "'abc'.endswith('')", "'a-b'.replace('-', '+')", "'aaa'.replace('a', 'b', 1)", "'AbC'.upper()", "'AbC'.lower()", "'they\\'re bill\\'s'.title()", "'hELLO'.capitalize()", "'aBc'.swapcase()",
            "','.join(['a', 'b'])", "','.join('abc')", "'hello'.find('l')", "'hello'.find('z')", "'hello'.rfind('l')", "'hello'.index('e')", "'hello'.count('l')", "'héllo'.find('l')", "'hello'.find('l', 3)", "'hello'.count('l', 0, 3)",
            "'abc'.removeprefix('a')", "'abc'.removesuffix('c')", "'abc'.removeprefix('x')", "'a=b=c'.partition('=')", "'a=b=c'.rpartition('=')", "'abc'.partition('x')", "'123'.isdigit()", "'12a'.isdigit()", "''.isdigit()", "'²'.isdigit()", "'abc'.isalpha()",
            "'ab1'.isalnum()", "'ABC'.isupper()", "'abc1'.islower()", "' \\t'.isspace()", "'1½'.isnumeric()", "'5'.isdecimal()", "'é'.isascii()", "'a'.ljust(3) ~ '|'", "'a'.rjust(3, '.')", "'ab'.center(7, '*')", "'ab'.center(6, '*')", "'-5'.zfill(4)", "'5'.zfill(3)",
            "'{} {}'.format(1, 'a')", "'{0}{1}{0}'.format('a', 'b')", "'{x}'.format(x=5)", "'{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c')", "'{:.2f}'.format(3.14159)", "'{:,}'.format(1234567)", "'{:05d}'.format(42)", "'{{}}'.format()", "'{0[a]}'.format({'a': 1})", "'{!r}'.format('a')",
            "'{:x} {:#x} {:b}'.format(255, 255, 5)", "'{:%}'.format(0.25)", "'{:+d}'.format(5)", "'{:e}'.format(12345.0)", "'{}'.format(true)", "'{:*^9}'.format('mid')", "'{}'.format(none)", "'{}'.format(1.0)", "'ß'.upper()", "'ǆ'.title()",
            "'a\\tb'.split('\\t')", "'</think>x</think>y'.split('</think>')[-1]", "'<think>a</think>b'.split('</think>')[0].split('<think>')[-1]", "'\\n\\n a \\n'.strip('\\n')", "'a b'.split(' ')|last", "' x '.strip().upper().lower()"]:
        show(expression)
    show("'a'.split('')", "empty separator")
    show("'a'.index('z')", "substring not found")
    show("','.join([1])", "sequence item 0: expected str instance, int found")
    show("'a'.startswith(1)", "startswith first arg must be str or a tuple of str, not int")
    show("'a'.strip(1)", "")
    show("'{}'.format()", "index")
    for expression in [
            "d.items()|list", "d.keys()|list", "d.values()|list", "d.get('a', 0)", "d.get('q')", "d.copy()", "xs.count(3)", "xs.index(2)", "(1, 2, 1).count(1)", "('a' in d.keys())",
            "d.items()|map('first')|join", "d.values()|sum", "d.keys()|join(',')", "d.items()|length", "range(4).count(2)"]:
        show(expression)
    show("xs.index(9)", "9 is not in list")
    show("d.get([])", "unhashable type: 'list'")
    show("d.get()", "")
    out.append(("generator walks once", "{% set g = xs|map('string') %}{% for x in g %}{{ x }}{% endfor %}|{% for x in g %}{{ x }}{% endfor %}", variables))
    out.append(("generator in loop", "{% for x in xs|select('odd') %}{{ loop.index }}/{{ loop.length }}={{ x }} {% endfor %}", variables))
    out.append(("groupby loop", "{% for age, list in full|groupby('age') %}{{ age }}:{% for p in list %}{{ p.name }}{% endfor %};{% endfor %}", variables))
    out.append(("groupby attributes", "{% for g in full|groupby('age') %}{{ g.grouper }}{{ g.list|length }}{% endfor %}", variables))
    out.append(("dictsort loop", "{% for k, v in d|dictsort %}{{ k }}{{ v }}{% endfor %}", variables))
    return out
