#!/usr/bin/env python3
"""Writes src/text/testdata/jinja_cases.jsonl: what Jinja makes of templates, for chat_template_test.cc.

A line is {"name", "template", "variables", "expected"} or, where rendering fails, "error" instead of "expected" (the kind:
"raised" with the "message" of raise_exception, "runtime" or "syntax"). Jinja runs as apply_chat_template runs it: immutable
sandbox, trim_blocks and lstrip_blocks, loop controls, generation blocks, json.dumps as tojson. Needs jinja2 >= 3.1.6.
"""

import json
import sys
from pathlib import Path

import jinja2
import jinja2.ext
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from jinja_expressions import EXPRESSIONS, STATEMENTS, WHITESPACE
from jinja_templates import CONVERSATIONS, TEMPLATES


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Raised(jinja2.exceptions.TemplateError):
    pass


def raise_exception(message):
    raise Raised(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        attributes = dict(*args[1:], **kwargs)
        for name in attributes:
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(args[0], attributes)

    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["namespace"] = Namespace
    return env


def render(env, name, template, variables):
    case = {"name": name, "template": template, "variables": variables}
    shown = {"tools": None, "documents": None, "add_generation_prompt": False, **variables}
    try:
        case["expected"] = env.from_string(template).render(**json.loads(json.dumps(shown)))
    except Raised as e:
        case.update(error="raised", message=str(e))
    except (jinja2.exceptions.TemplateSyntaxError, SyntaxError):
        case["error"] = "syntax"
    except Exception:  # whatever Python raises while the template runs
        case["error"] = "runtime"
    return case


def main():
    env = environment()
    cases = []
    shared = json.loads((Path(__file__).parent / "jinja_variables.json").read_text())
    for group, sources in (("expression", EXPRESSIONS), ("statement", STATEMENTS), ("whitespace", WHITESPACE)):
        for i, source in enumerate(sources):
            variables = {key: value for key, value in shared.items() if key in source}
            cases.append(render(env, f"{group} {i}", source, variables))
    for name, template in TEMPLATES.items():
        for i, conversation in enumerate(CONVERSATIONS):
            cases.append(render(env, f"{name} {i}", template, {"bos_token": "<s>", "eos_token": "</s>", **conversation}))
    out = Path(__file__).parents[2] / "src/text/testdata/jinja_cases.jsonl"
    out.write_text("".join(json.dumps(case) + "\n" for case in cases))
    errors = sum("error" in case for case in cases)
    print(f"{out}: {len(cases)} cases, {errors} of them errors", file=sys.stderr)


if __name__ == "__main__":
    main()
