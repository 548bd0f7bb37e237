"""What the tests do with the page in Chromium."""

import contextlib


@contextlib.contextmanager
def opened(browser, url, script=None, **options):
    """A page of its own context. Nothing may fail in it, and it may ask nobody but the server."""
    context = browser.new_context(**options)
    page = context.new_page()
    faults, foreign = [], []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda line: faults.append(line.text)
            if line.type == "error" and "Failed to load resource" not in line.text else None)
    page.on("request", lambda asked: foreign.append(asked.url)
            if not asked.url.startswith((url, "data:", "blob:")) else None)
    page.on("dialog", lambda dialog: dialog.accept())
    if script:
        page.route("**/v1/chat/completions", script)
    page.goto(url + "/")
    page.wait_for_selector("body[data-ready]")
    yield page
    assert not faults and not foreign, (faults, foreign)
    context.close()


def say(page, text, answers=1):
    before = page.locator(".message.assistant").count()
    page.fill("#composer", text)
    page.press("#composer", "Enter")
    wait_for_answer(page, before + 1)


def wait_for_answer(page, count):
    page.wait_for_function(
        "n => { const all = document.querySelectorAll('.message.assistant');"
        "return all.length === n && all[n - 1].querySelector('.actions') }", arg=count)


def texts(page, role="assistant"):
    return [body.inner_text().strip() for body in page.locator(f".message.{role} .body").all()]


def press(page, name, nth=-1):
    message = page.locator(".message").nth(nth)
    message.hover()
    message.get_by_role("button", name=name, exact=True).click()


def settings(page, **values):
    page.click("#settings-button")
    for name, value in values.items():
        field = page.locator(f"#set-{name}")
        field.select_option(value) if name == "thinking" else field.fill(value)
    page.get_by_role("button", name="Done", exact=True).click()


def explain(page, text, kind="text"):
    page.fill("#explain-prompt", text)
    page.select_option("#explain-kind", kind)
    page.evaluate("() => document.getElementById('explain-result').replaceChildren()")
    page.click("#explain")
    page.wait_for_selector("#explain-result > *")
    return page.locator("#explain-result").inner_text()
