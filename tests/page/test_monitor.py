"""The monitor of the page in Chromium, and its explainer of the prefix cache."""

from browser_page import explain, say, settings


def test_the_monitor(page, server):
    server.post("/v1/completions", {"model": "dummy", "prompt": "The capital", "max_tokens": 20, "ignore_eos": True})
    page.click("nav a[href='#monitor']")
    page.wait_for_function("() => document.querySelector('#card-generated .figure').textContent !== '–'")
    assert "free pages" in page.locator("#pages").inner_text()
    assert page.locator("#gaps rect").count() > 10
    assert "ms" in page.locator("#gaps-text").inner_text()
    assert "load" in page.locator("#ledger").inner_text() and "KV cache" in page.locator("#plan").inner_text()
    assert "sluice-tiny" in page.locator("#about").inner_text()


def test_the_cache_explainer(page, server):
    shared = "A story about " + " ".join(f"town{i}" for i in range(40))
    said = server.post("/v1/completions", {"prompt": f"{shared} and a river", "max_tokens": 2}, headers={"X-Request-Id": "river"})
    assert said.status == 200
    server.wait_until_idle()
    page.click("nav a[href='#monitor']")
    shown = explain(page, f"{shared} and a mountain")
    assert "leaves the cache behind token" in shown and "/v1/completions, request river" in shown
    parts = {state: page.locator(f"#explain-result .prompt .{state}").all_inner_texts() for state in ("cached", "new")}
    assert "".join(parts["cached"]).startswith("A story about town0") and "".join(parts["new"]).endswith("mountain")
    differs = page.locator("#explain-result .differs dd").all_inner_texts()
    assert "mountain" in differs[0] and "river" in differs[1]
    assert "Its last token is computed" in explain(page, f"{shared} and a river")
    assert "mountain" not in page.locator("#explain-result").inner_text()
    # What the server refuses is told.
    assert "no tokens" in explain(page, "")


def test_the_explainer_knows_the_open_chat(page):
    settings(page, system="You are a lighthouse keeper who counts ships and speaks of nothing but ships.", temperature="0")
    say(page, "Hello there")
    page.click("nav a[href='#monitor']")
    shown = explain(page, "And now?", "chat")
    assert "request" in shown and "lighthouse keeper" in "".join(page.locator("#explain-result .prompt .cached").all_inner_texts())
    assert "And now?" in page.locator("#explain-result .prompt").inner_text()
    alone = explain(page, "And now?", "message")
    assert "lighthouse" not in page.locator("#explain-result .prompt").inner_text(), alone
