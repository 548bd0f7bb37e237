"""What counts as a fault, for Schemathesis: an internal error, or an error that is no JSON object with a message."""

import schemathesis


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
    for leak in ("0x", "/tmp/", "std::", ".cpp:"):
        assert leak not in text.replace(str(case.body), ""), text
