"""What counts as a fault, for Schemathesis: an internal error, or an error that is no JSON object with a message."""

import ast
import threading
import urllib.parse

import schemathesis

# Python 3.11 counts the depth of its parser for all threads together, so `ast.parse` fails where two are in it.
# Hypothesis calls it from each worker.
PARSING, parse = threading.Lock(), ast.parse


def parse_alone(*args, **options):
    with PARSING:
        return parse(*args, **options)


ast.parse = parse_alone


@schemathesis.check
def no_internal_error(ctx, response, case):
    assert response.status_code != 500, f"500: {response.text[:300]}"


@schemathesis.check
def errors_say_what(ctx, response, case):
    if response.status_code < 400 or case.method.upper() in ("HEAD", "TRACE"):
        return
    error = response.json().get("error")
    text = error if isinstance(error, str) else (error or {}).get("message")
    assert text, f"{response.status_code} without a message: {response.text[:300]}"
    sent = urllib.parse.unquote(response.request.url) + str(case.body)
    for leak in ("0x", "/tmp/", "std::", ".cpp:"):
        assert leak in sent or leak not in text, text
