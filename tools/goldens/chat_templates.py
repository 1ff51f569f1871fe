"""Makes tests/data/chat_templates/*.json: what Jinja2 renders, set up as transformers sets it up for chat templates.

    python tools/goldens/chat_templates.py [--gguf SmolLM2-135M-Instruct.Q4_1.gguf]

The oracle is PyPI jinja2 (version written into each file). The environment is transformers' own
(utils/chat_template_utils.py): ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loop controls, the
`generation` block, raise_exception, tojson by json.dumps, strftime_now (here with a frozen clock, UTC).
Cases stand in tools/goldens/chat_cases/*.py. With --gguf the template of that file (SmolLM2, Apache-2.0) is read and
used too; without it the stored cases of that file are kept.
"""
import argparse
import datetime
import importlib.util
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/data/chat_templates"
PROBLEMS = []  # cases whose author was wrong about Jinja2
NOW = datetime.datetime.fromtimestamp(1_753_000_000, tz=datetime.timezone.utc)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: NOW.strftime(format)
    return env


def run(case):
    name, template, variables, *rest = case
    wanted_error = rest[0] if rest else None
    try:
        text = environment().from_string(template).render(**json.loads(json.dumps(variables)))
    except Exception as error:  # the oracle's refusal is the golden value
        message = str(error)
        if wanted_error is None:
            PROBLEMS.append(f"{name}: unexpected {type(error).__name__}: {message}")
        elif wanted_error not in message:
            PROBLEMS.append(f"{name}: Jinja2 says {message!r}, not {wanted_error!r}")
        return {"name": name, "template": template, "variables": variables, "error": wanted_error}
    if wanted_error is not None:
        PROBLEMS.append(f"{name}: rendered {text!r}, but an error was expected")
    return {"name": name, "template": template, "variables": variables, "expected": text}


def write(stem, cases):
    names = [case[0] for case in cases]
    assert len(set(names)) == len(names), f"{stem}: a name twice: {[n for n in names if names.count(n) > 1]}"
    document = {
        "provenance": f"rendered by PyPI jinja2 {jinja2.__version__} in transformers' settings; "
                      "made by tools/goldens/chat_templates.py",
        "cases": [run(case) for case in cases],
    }
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{stem}.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return len(cases)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--gguf")
    options = arguments.parse_args()
    count = 0
    for path in sorted((ROOT / "tools/goldens/chat_cases").glob("*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        count += write(path.stem, module.cases())
    if options.gguf:
        from gguf import GGUFReader
        field = GGUFReader(options.gguf).fields["tokenizer.chat_template"]
        template = bytes(field.parts[-1]).decode()
        talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"},
                {"role": "user", "content": "  Why? \n"}]
        system = [{"role": "system", "content": "Be brief."}]
        count += write("smollm2_gguf", [
            ("smollm2: default system", template, {"messages": talk, "add_generation_prompt": True}),
            ("smollm2: own system", template, {"messages": system + talk, "add_generation_prompt": True}),
            ("smollm2: no prompt", template, {"messages": talk, "add_generation_prompt": False}),
            ("smollm2: nothing said", template, {"messages": [], "add_generation_prompt": True}),
            ("smollm2: no messages", template, {}),
            ("smollm2: no content", template, {"messages": [{"role": "user"}]}, "'dict object' has no attribute 'content'"),
            ("smollm2: content is null", template, {"messages": [{"role": "user", "content": None}]},
             "can only concatenate str"),
        ])
    print(f"{count} cases", *PROBLEMS, sep="\n")
    raise SystemExit(1 if PROBLEMS else 0)


if __name__ == "__main__":
    main()
