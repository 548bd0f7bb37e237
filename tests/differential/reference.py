"""The reference of the comparisons of this folder: transformers' chat-template environment, and the program that renders
the same cases with our interpreter (render_templates.cpp)."""
import contextlib
import datetime
import functools
import json
import os
import resource
import signal
import subprocess
import sys

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import jinja2  # noqa: E402
import transformers  # noqa: E402
from transformers.utils import chat_template_utils as ctu  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NOW = datetime.datetime(2026, 2, 3, 14, 5, 6)
SECONDS = 3  # for one case of the reference


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


ctu.datetime = Clock


class Generator:
    """A generator whose text has no address."""

    def __init__(self, made):
        self.made = made

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.made)

    def __repr__(self):
        return "<generator object>"


Generator.__name__ = "generator"


def _without_address(made_by):
    @functools.wraps(made_by)
    def wrapper(*args, **kwargs):
        return Generator(made_by(*args, **kwargs))
    return wrapper


for _name in ("batch", "items", "map", "reject", "rejectattr", "select", "selectattr", "slice", "unique"):
    jinja2.filters.FILTERS[_name] = _without_address(jinja2.filters.FILTERS[_name])


jinja2.utils.Joiner.__repr__ = lambda self: "<function joiner()>"
jinja2.utils.Cycler.__repr__ = lambda self: "<function cycler()>"


class TooLong(Exception):
    pass


def _alarm(signum, frame):
    raise TooLong()


def guard():
    """Bounds the memory and the time of the reference."""
    signal.signal(signal.SIGALRM, _alarm)
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))


def outcome(render):
    """What a render of the reference gives, in the form of render_templates' results."""
    signal.alarm(SECONDS)
    try:
        return render()
    except TooLong:
        return {"skipped": "the reference takes too long"}
    except MemoryError:
        return {"skipped": "the reference takes too much memory"}
    except Exception as error:  # every class is a result
        raised = type(error) is jinja2.exceptions.TemplateError
        return {"error": {"type": type(error).__name__, "raised": raised, "message": str(error)}}
    finally:
        signal.alarm(0)


def render_snippet(template, variables):
    def render():
        compiled = ctu._cached_compile_jinja_template(template)
        return {"text": compiled.render(**json.loads(variables))}
    return outcome(render)


@contextlib.contextmanager
def without_folding():
    """jinja2 evaluates constant expressions when it compiles, with results that evaluation does not always give."""
    kept = {}
    literal = (jinja2.nodes.Const, jinja2.nodes.TemplateData)
    for kind in vars(jinja2.nodes).values():
        if isinstance(kind, type) and issubclass(kind, jinja2.nodes.Expr) and kind not in literal and "as_const" in vars(kind):
            kept[kind] = kind.as_const
            kind.as_const = lambda self, eval_ctx=None: _impossible()
    try:
        yield
    finally:
        for kind, as_const in kept.items():
            kind.as_const = as_const


def _impossible():
    raise jinja2.nodes.Impossible()


def render_chat(template, request):
    def render():
        kw = json.loads(request)
        messages = kw.pop("messages")
        mask = "{% generation %}" in template or "{%- generation" in template
        out, spans = ctu.render_jinja_template(
            [messages], tools=kw.pop("tools", None), documents=kw.pop("documents", None), chat_template=template,
            return_assistant_tokens_mask=mask, continue_final_message=kw.pop("continue_final_message", False),
            add_generation_prompt=kw.pop("add_generation_prompt", False), **kw)
        result = {"text": out[0]}
        if mask and spans[0]:
            result["spans"] = [list(span) for span in spans[0]]
        return result
    return outcome(render)


def versions():
    return {"transformers": transformers.__version__, "jinja2": jinja2.__version__}


def program(path=None):
    found = path or os.environ.get("RENDER_TEMPLATES") or os.path.join(ROOT, "build/release/bin/render_templates")
    if not os.path.exists(found):
        sys.exit(f"{found} is missing: cmake --build --preset release --target render_templates")
    return found


def run_program(path, cases):
    """Results of the program, one a case."""
    text = "".join(json.dumps(case, ensure_ascii=True) + "\n" for case in cases)
    done = subprocess.run([path], input=text.encode(), stdout=subprocess.PIPE, check=False)
    lines = done.stdout.decode("utf-8", "replace").split("\n")[:-1]
    if done.returncode != 0 or len(lines) != len(cases):
        sys.exit(f"{path} ended with {done.returncode} after {len(lines)} of {len(cases)} cases")
    return [json.loads(line) for line in lines]


def difference(ours, reference):
    """A sentence about two results that differ; None if they are equal."""
    if "text" in reference:
        if "text" not in ours:
            return f"fails with {ours['error']['type']}: {ours['error']['message'][:160]}"
        if ours["text"] != reference["text"]:
            return "another text"
        return None if "spans" not in reference or ours.get("spans") == reference["spans"] else "other generation spans"
    if "text" in ours:
        return f"renders, where the reference raises {reference['error']['type']}"
    if ours["error"]["type"] != reference["error"]["type"]:
        return f"raises {ours['error']['type']} ({ours['error']['message'][:120]})"
    if reference["error"]["raised"] and ours["error"]["message"] != reference["error"]["message"]:
        return "raises another message"
    return None
