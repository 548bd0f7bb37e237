"""The page at `/` in Chromium: how it is served, chats with the bundled model, and what a scripted server says."""

import json
import os
import pathlib
import re
import time

import pytest
from browser_page import explain, opened, press, say, settings, texts, wait_for_answer
from sluice_server import TINY, Server

KEY = "sesame"


# How it is served: no browser needed.

def test_files_are_served_to_anybody():
    with Server(TINY, "--max-total-tokens", "8192", "--api-key", KEY) as guarded:
        index = guarded.get("/")
        assert index.status == 200 and index.headers["Content-Type"] == "text/html; charset=utf-8"
        policy = index.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "*" not in policy
        names = re.findall(rb'(?:href|src)="(page/[^"]+)"', index.body)
        assert len(names) > 5
        for name in {n.decode() for n in names}:
            assert guarded.get(f"/{name}").status == 200, name
        head = guarded.request("HEAD", "/")
        assert head.status == 200 and head.body == b"" and int(head.headers["Content-Length"]) == len(index.body)
        for route in ("/metrics", "/server_info", "/v1/models"):
            assert guarded.get(route).status == 401
        assert guarded.get("/page/none.js").status == 404 and guarded.get("/page/../metrics").status == 404


def test_caches_and_compression(server):
    import gzip
    plain, total = server.get("/page/app.js"), 0
    packed = server.get("/page/app.js", headers={"Accept-Encoding": "br, gzip"})
    assert packed.headers["Content-Encoding"] == "gzip" and gzip.decompress(packed.body) == plain.body
    assert "Content-Encoding" not in plain.headers and plain.headers["Vary"] == "Accept-Encoding"
    refused = server.get("/page/app.js", headers={"Accept-Encoding": "gzip;q=0"})
    assert refused.body == plain.body
    tag = plain.headers["ETag"]
    for value in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        again = server.get("/page/app.js", headers={"If-None-Match": value})
        assert again.status == 304 and again.body == b"" and again.headers["ETag"] == tag
    assert server.get("/page/app.js", headers={"If-None-Match": '"other"'}).status == 200
    for path in (pathlib.Path(__file__).parents[2] / "src/server/page/assets").iterdir():
        total += len(server.get(f"/page/{path.name}", headers={"Accept-Encoding": "gzip"}).body)
    assert total < 300 << 10


def test_the_switch():
    with Server(TINY, "--max-total-tokens", "8192", "--no-webui") as bare:
        answer = bare.get("/")
        assert answer.status == 404 and "--no-webui" in answer.error["message"]
        assert bare.get("/page/app.js").status == 404


# With the bundled model.

def test_a_chat(page):
    settings(page, temperature="0")
    say(page, "What is the capital of France?")
    assert "Paris" in texts(page)[0]
    stats = page.locator(".stats").inner_text()
    for name in ("queue", "first token", "tokens/s", "prompt", "cached"):
        assert name in stats
    say(page, "And of Italy?")
    assert len(texts(page)) == 2
    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert len(texts(page)) == 2 and "Paris" in texts(page)[0]
    assert page.locator("#chat-list a").inner_text().startswith("What is the capital")


def test_branches(page):
    settings(page, n="3", max_completion_tokens="12")
    say(page, "What is the capital of France?")
    assert page.locator(".branch").inner_text() == "1 of 3"
    press(page, "Next branch")
    assert page.locator(".branch").inner_text() == "2 of 3"
    settings(page, n="1")
    press(page, "Regenerate")
    page.wait_for_function("() => document.querySelector('.branch')?.textContent === '4 of 4'")
    wait_for_answer(page, 1)
    press(page, "Edit", 0)
    page.fill(".editor", "What is the capital of Italy?")
    page.get_by_role("button", name="Send as a branch").click()
    wait_for_answer(page, 1)
    assert texts(page, "user") == ["What is the capital of Italy?"]
    assert page.locator(".message.user .branch").inner_text() == "2 of 2"
    press(page, "Previous branch", 0)
    assert texts(page, "user") == ["What is the capital of France?"]
    press(page, "Edit")
    page.fill(".editor", "Lyon")
    page.get_by_role("button", name="Save as a branch").click()
    assert texts(page) == ["Lyon"]
    press(page, "New chat from here")
    page.wait_for_function("() => document.querySelectorAll('#chat-list li').length === 2")
    press(page, "Delete this branch")
    assert page.locator(".message.assistant").count() == 0


def test_stop_and_continue(page):
    settings(page, extra='{"ignore_eos": true}', max_completion_tokens="4000")
    page.fill("#composer", "Tell me a story.")
    page.press("#composer", "Enter")
    page.wait_for_function("() => (document.querySelector('.message.assistant .body')?.textContent.length ?? 0) > 40")
    page.fill("#composer", "typed meanwhile")
    assert page.locator("#send").inner_text() == "Stop"
    page.press("#composer", "Escape")
    wait_for_answer(page, 1)
    assert "Stopped." in page.locator(".message.assistant footer").inner_text()
    assert page.input_value("#composer") == "typed meanwhile"
    before = page.locator(".message.assistant .body").text_content()
    settings(page, max_completion_tokens="20")
    press(page, "Continue this answer")
    page.wait_for_selector(".message.assistant .stats")
    after = page.locator(".message.assistant .body").text_content()
    assert len(after) > len(before) and after.startswith(before[:30])


def test_settings_reach_the_server(browser, server):
    sent = []

    def script(route):
        sent.append(json.loads(route.request.post_data))
        route.continue_()

    with opened(browser, server.url, script) as page:
        page.wait_for_selector("#model option", state="attached")
        settings(page, system="Be short.", temperature="0", top_k="5", stop="END\nSTOP", thinking="off")
        page.set_input_files("#attach-input", {"name": "notes.txt", "mimeType": "text/plain", "buffer": "été".encode()})
        page.wait_for_selector("#files li")
        say(page, "Read this.")
        page.set_input_files("#attach-input", {"name": "x.bin", "mimeType": "text/plain", "buffer": b"\xff\x00"})
        assert "no text" in page.locator(".notice.bad").inner_text()
    (request,) = sent
    assert request["messages"] == [{"role": "system", "content": "Be short."},
                                   {"role": "user", "content": "notes.txt:\n```\nété\n```\n\nRead this."}]
    assert (request["temperature"], request["top_k"], request["stop"]) == (0, 5, ["END", "STOP"])
    assert request["chat_template_kwargs"] == {"enable_thinking": False} and request["model"] == "sluice-tiny"


def test_tools(page):
    tool = {"type": "function", "function": {"name": "set_timer", "description": "Start a timer", "parameters": {
        "type": "object", "required": ["minutes"],
        "properties": {"minutes": {"type": "integer"}, "label": {"type": "string"}}}}}
    settings(page, temperature="0", tools=json.dumps([tool]))
    say(page, "Set a timer of 12 minutes for the napkin.")
    fold = page.locator("details.fold", has_text="Calls set_timer")
    assert fold.get_attribute("open") is None
    fold.locator("summary").click()
    assert '"minutes": 12' in fold.inner_text()
    page.get_by_label("Result of set_timer").fill("started")
    page.get_by_role("button", name="Send the result").click()
    wait_for_answer(page, 2)
    assert texts(page, "tool") == ["started"] and texts(page)[1]


def test_a_key_is_asked_for(browser):
    with Server(TINY, "--max-total-tokens", "8192", "--api-key", KEY) as guarded, \
            opened(browser, guarded.url) as page:
        page.wait_for_selector("#key-dialog[open]")
        page.fill("#key", KEY)
        page.check("#key-keep")
        page.get_by_role("button", name="Use the key").click()
        page.wait_for_selector("#model option", state="attached")
        settings(page, max_completion_tokens="5")
        say(page, "Hello")
        page.reload()
        page.wait_for_selector("#model option", state="attached")
        page.click("nav a[href='#monitor']")
        page.wait_for_function("() => document.querySelector('#card-running .figure').textContent === '0'")


def test_chats_on_the_server(browser, tmp_path):
    """--page-store FILE: another browser with the same key sees the chat, one with another key does not."""
    def give(page, key):
        page.wait_for_selector("#key-dialog[open]")
        page.fill("#key", key)
        page.get_by_role("button", name="Use the key").click()
        page.wait_for_selector("#model option", state="attached")

    def chats(page, count):
        page.wait_for_function("n => document.querySelectorAll('#chat-list li').length === n", arg=count)

    with Server(TINY, "--max-total-tokens", "8192", "--page-store", tmp_path / "chats.db", "--api-key", "one",
                "--api-key", "two") as guarded:
        with opened(browser, guarded.url) as page:
            give(page, "one")
            settings(page, max_completion_tokens="5")
            say(page, "Hello")
            answer = texts(page)
            page.reload()
            page.wait_for_selector(".message.assistant")
            assert texts(page) == answer
        with opened(browser, guarded.url) as page:
            give(page, "two")
            chats(page, 0)
        with opened(browser, guarded.url) as page:
            give(page, "one")
            page.click("#chat-list a")
            page.wait_for_selector(".message.assistant")
            assert texts(page) == answer
            page.click("#chat-list button")
            chats(page, 0)
        assert guarded.get("/page/chats", headers={"Authorization": "Bearer one"}).json()["data"] == []


# With a scripted server.

def stream(*deltas, usage=None, finish="stop"):
    """A handler that answers with these deltas."""
    def event(value):
        return f"data: {json.dumps(value)}\n\n"

    body = "".join(event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}) for delta in deltas)
    body += event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    body += event({"choices": [], "usage": usage or {"prompt_tokens": 9, "completion_tokens": 7}}) + "data: [DONE]\n\n"
    return lambda route: route.fulfill(status=200, content_type="text/event-stream", body=body)


HOSTILE = """# Title
<img src=x onerror="document.title='broken'"><script>document.title='broken'</script>

- one
- **two** [bad](javascript:document.title='broken') [good](https://example.org/)

```python
print("<b>")  # note
```

| a | b |
|---|---|
| 1 | `2` |
![picture](https://example.org/x.png)"""


def test_markdown_is_text(browser, server):
    usage = {"prompt_tokens": 30, "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": 16}, "queue_time": 0.5,
             "completion_tokens_details": {"accepted_prediction_tokens": 4, "rejected_prediction_tokens": 2,
                                           "reasoning_tokens": 3}}
    script = stream({"reasoning_content": "Hm, <b>"}, *[{"content": HOSTILE[i:i + 7]} for i in range(0, len(HOSTILE), 7)],
                    usage=usage)
    with opened(browser, server.url, script) as page:
        say(page, "go")
        body = page.locator(".message.assistant .body")
        assert body.locator("img, script, b").count() == 0 and page.title() == "Chat – Sluice"
        assert "<img src=x" in body.inner_text() and body.locator("h3").inner_text() == "Title"
        assert [a.get_attribute("href") for a in body.locator("a").all()] == [
            "https://example.org/", "https://example.org/x.png"]
        assert body.locator("li").count() == 2 and body.locator("td").count() == 2
        assert body.locator(".hl-string").inner_text() == '"<b>"' and body.locator(".hl-comment").count() == 1
        thought = page.locator(".message.assistant details", has_text="Thinking")
        assert thought.get_attribute("open") is None and "<b>" in thought.text_content()
        stats = page.locator(".stats").inner_text().replace("\n", " ")
        assert "500 ms" in stats and "30 (16 cached)" in stats and "4 of 6" in stats and "3 of thought" in stats
        press(page, "Show the text as it came")
        assert page.locator(".message.assistant .body").inner_text() == HOSTILE


def test_errors_are_shown(browser, server):
    def script(route):
        route.fulfill(status=503, content_type="application/json",
                      body='{"error": {"message": "The queue is full."}}')

    with opened(browser, server.url, script) as page:
        say(page, "go")
        assert page.locator(".message footer .bad").inner_text() == "The queue is full."
        page.unroute("**/v1/chat/completions")
        page.route("**/v1/chat/completions", stream({"content": "fine"}))
        press(page, "Regenerate")
        page.wait_for_selector(".message.assistant .stats")
        assert texts(page) == ["fine"]


def long_chat(count):
    nodes, parent = {}, "root"
    for i in range(count):
        role = "assistant" if i % 2 else "user"
        text = f"## Message {i}\n\nSome **words** and `code` here.\n\n```python\nx = {i}\n```\n- a\n- b" if i % 2 else f"q {i}"
        nodes[f"n{i}"] = {"role": role, "content": text, "parent": parent, "children": []}
        parent = f"n{i}"
    return {"format": "sluice-chats", "version": 1, "chats": [
        {"title": "long", "nodes": nodes, "leaf": parent}, {"title": "short", "nodes": {}}]}


OPEN_LONG = """async () => {
  const list = document.querySelector('#message-list');
  const link = [...document.querySelectorAll('#chat-list a')].find((a) => a.textContent === 'long');
  const begin = performance.now();
  link.click();
  while (!list.querySelector('[data-id=n1999] .code')) await new Promise((go) => setTimeout(go, 0));
  await new Promise((go) => requestAnimationFrame(() => setTimeout(go, 0)));  // painted
  return performance.now() - begin;
}"""


def test_a_long_chat_opens_at_once_and_types(page, tmp_path):
    file = tmp_path / "chats.json"
    file.write_text(json.dumps(long_chat(2000)))
    page.set_input_files("#import-input", file)
    page.wait_for_function("() => document.querySelectorAll('#chat-list a').length === 2")
    times = []
    for _ in range(3):
        times.append(page.evaluate(OPEN_LONG))
        page.reload()  # the next time it is read again
        page.wait_for_selector("body[data-ready]")
        page.get_by_role("link", name="short").click()
        page.wait_for_function("() => document.querySelectorAll('.message').length === 0")
    print("2,000 messages open in", [round(t) for t in times], "ms")
    assert min(times) < 200
    page.evaluate(OPEN_LONG)
    page.wait_for_function("() => document.querySelectorAll('.message').length === 2000")
    scroller = page.locator("#messages")
    page.wait_for_function("() => { const e = document.querySelector('#messages');"
                           "return e.scrollHeight - e.scrollTop - e.clientHeight < 60 }")
    # The middle is words until it is near.
    assert page.evaluate("document.querySelector('[data-id=n101] .body').textContent").startswith("## Message 101")
    scroller.hover()
    page.mouse.wheel(0, -200)
    scroller.evaluate("e => e.querySelector('[data-id=n101]').scrollIntoView()")
    page.wait_for_selector("[data-id=n101] .code")
    page.evaluate("""() => { window.slow = [];
      new PerformanceObserver((list) => slow.push(...list.getEntries().map((e) => e.duration))).observe({type: 'longtask'}) }""")
    page.locator("#composer").press_sequentially("the quick brown fox jumps over the lazy dog", delay=8)
    time.sleep(0.2)
    assert page.evaluate("slow.filter((d) => d > 100)") == []


def test_export_gives_the_tree(page):
    settings(page, n="2", max_completion_tokens="6")
    say(page, "What is the capital of France?")
    with page.expect_download() as waiting:
        page.click("#export")
    value = json.loads(pathlib.Path(waiting.value.path()).read_text())
    (chat,) = value["chats"]
    assert value["format"] == "sluice-chats" and len(chat["nodes"]) == 4 and chat["settings"]["n"] == "2"


def test_a_phone(browser, server):
    with opened(browser, server.url, stream({"content": "word " * 200}), viewport={"width": 390, "height": 780},
                has_touch=True, is_mobile=True) as page:
        page.fill("#composer", "go")
        page.tap("#send")
        wait_for_answer(page, 1)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert not page.locator("#sidebar").is_visible()
        page.tap("#menu")
        page.locator("#chat-list a").tap()
        assert not page.locator("#sidebar").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(browser, server, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright",
                              reason="no `axe-playwright-python` here (tests/page/requirements.txt)").Axe()

    def all_faults(page):
        return [(v["id"], v["impact"], [n["html"][:120] for n in v["nodes"]]) for v in axe.run(page).response["violations"]]

    # The headings of an answer are the model's, in any order.
    def serious(page):
        return [fault for fault in all_faults(page) if fault[1] in ("serious", "critical")]

    script = stream({"reasoning_content": "Hm"}, {"content": HOSTILE})
    # axe measures with styles of its own, which the page's policy forbids.
    with opened(browser, server.url, script, color_scheme=scheme, bypass_csp=True) as page:
        say(page, "go")
        page.locator(".message.assistant").hover()
        assert serious(page) == []
        page.click("#settings-button")
        assert serious(page) == []
        page.keyboard.press("Escape")
        page.click("#key-button")
        assert serious(page) == []
        page.keyboard.press("Escape")
        page.click("#new-chat")
        assert all_faults(page) == []
        page.click("nav a[href='#monitor']")
        page.wait_for_function("() => document.querySelector('#card-running .figure').textContent !== '–'")
        assert all_faults(page) == []
        server.post("/v1/completions", {"prompt": "One and two and three", "max_tokens": 1})
        server.wait_until_idle()
        explain(page, "One and two and four")
        assert page.locator("#explain-result .prompt .cached").count() and all_faults(page) == []
        page.set_viewport_size({"width": 400, "height": 800})
        assert all_faults(page) == []
        page.click("nav a[href='#chat']")
        assert all_faults(page) == []
        page.click("#menu")
        assert all_faults(page) == []


def test_the_keyboard_is_enough(browser, server):
    with opened(browser, server.url, stream({"content": "one"})) as page:
        page.keyboard.press("/")
        page.keyboard.type("go")
        page.keyboard.press("Enter")
        wait_for_answer(page, 1)
        page.keyboard.press("Alt+n")
        assert page.locator(".message").count() == 0
        assert page.evaluate("document.activeElement.id") == "composer"
        page.keyboard.press("Shift+Tab")
        seen = set()
        for _ in range(40):
            page.keyboard.press("Tab")
            seen.add(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
        assert {"new-chat", "filter", "export", "settings-button", "composer", "send"} <= seen
        assert "is complete" in page.locator("#status").text_content()


if os.environ.get("SLUICE_PAGE_PICTURES"):
    # SLUICE_PAGE_PICTURES=docs/assets takes the pictures of the docs.
    def test_pictures(page):
        folder = pathlib.Path(os.environ["SLUICE_PAGE_PICTURES"])
        page.set_viewport_size({"width": 1100, "height": 700})
        settings(page, temperature="0")
        say(page, "What is the capital of France?")
        say(page, "Who are you?")
        page.locator(".message.assistant").last.hover()
        page.screenshot(path=folder / "page_chat.png")
        page.click("nav a[href='#monitor']")
        page.wait_for_timeout(4000)
        page.screenshot(path=folder / "page_monitor.png")
        page.set_viewport_size({"width": 1100, "height": 1200})
        explain(page, "What is the capital of Norway?", "message")
        page.locator(".panel.wide").screenshot(path=folder / "page_cache.png")
