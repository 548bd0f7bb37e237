// The page's pure modules. Run by test_modules.py: node --test modules.mjs
import assert from "node:assert/strict";
import test from "node:test";

const assets = new URL("../../src/server/page/assets/", import.meta.url);
const { parseInline, parseLines } = await import(new URL("markdown.js", assets));
const { highlight } = await import(new URL("highlight.js", assets));
const metrics = await import(new URL("metrics.js", assets));
const tree = await import(new URL("tree.js", assets));
const { requestFields } = await import(new URL("settings.js", assets));

const kinds = (text) => parseLines(text.split("\n")).map((b) => b.type);

test("blocks", () => {
  assert.deepEqual(kinds("# a\ntext\n- x\n- y\n\n> q\n---\n```js\nlet a\n```\n|a|b|\n|-|-|\n|1|2|"),
                   ["heading", "paragraph", "list", "quote", "rule", "code", "table"]);
  const [code] = parseLines(["```py", "# no heading", "", "- no list"]);
  assert.deepEqual([code.lang, code.text, code.closed], ["py", "# no heading\n\n- no list", false]);
  const [list] = parseLines("1. a\n   - b\n     c\n2. [x] d".split("\n"));
  assert.equal(list.items.length, 2);
  assert.equal(list.items[0].blocks[1].items[0].blocks[0].text, "b\nc");
  assert.equal(list.items[1].checked, true);
  const [table] = parseLines("a|b\n:-:|-:\n`x|y`|\\|".split("\n"));
  assert.deepEqual(table.align, ["center", "right"]);
  assert.deepEqual(table.rows, [["`x|y`", "|"]]);
});

test("words", () => {
  const shown = (text) => JSON.stringify(parseInline(text));
  assert.equal(shown("<b>x</b>"), '["<b>x</b>"]');
  assert.equal(shown("snake_case_name and 2*3*4"), shown("snake_case_name and 2*3*4"));
  assert.deepEqual(parseInline("snake_case_name"), ["snake_case_name"]);
  assert.deepEqual(parseInline("**a *b* c**"),
                   [{ tag: "strong", children: ["a ", { tag: "em", children: ["b"] }, " c"] }]);
  assert.deepEqual(parseInline("``a`b``"), [{ tag: "code", text: "a`b" }]);
  assert.equal(parseInline("[x](javascript:alert(1))")[0].href, "");
  assert.equal(parseInline("[x](https://e.org/a_(b))")[0].href, "https://e.org/a_(b)");
  assert.equal(parseInline("see https://e.org/a.")[1].href, "https://e.org/a");
  assert.deepEqual(parseInline("**open"), ["**open"]);
});

test("a text in pieces has the blocks of the whole", () => {
  const text = "# t\n\npara **b**\nmore\n\n- a\n- b\n\n  c\n\nend\n\n```\nx\n\ny\n```\n\n|a|\n|-|\n|1|\n";
  // As MarkdownView does: only from the open block on.
  let open = 0, closed = [];
  let last = [];
  for (let end = 1; end <= text.length; end++) {
    const lines = text.slice(open, end).split("\n"), blocks = parseLines(lines);
    last = blocks;
    if (!blocks.length) continue;
    const from = blocks.at(-1).from;
    closed.push(...blocks.slice(0, -1));
    last = blocks.slice(-1);
    for (let i = 0; i < from; i++) open += lines[i].length + 1;
  }
  const strip = (b) => JSON.stringify(b.map(({ from: _, ...rest }) => rest));
  assert.equal(strip([...closed, ...last]), strip(parseLines(text.split("\n"))));
});

test("hostile text takes linear time", () => {
  const start = Date.now();
  for (const text of ["*".repeat(200000), "[".repeat(100000), "`a".repeat(50000), "_a ".repeat(50000),
                      "](".repeat(50000), "[a](".repeat(25000), "**a ".repeat(50000)])
    parseInline(text);
  for (const line of ["> ", "- a", "        - x", "|a|b|", "```", "# #", "1. "])
    parseLines(Array(20000).fill(line));
  parseLines(Array.from({ length: 3000 }, (_, i) => " ".repeat(i) + "- x"));
  parseLines(["> ".repeat(20000)]);
  assert.ok(Date.now() - start < 20000, `${Date.now() - start} ms`);
});

test("code keeps its text", () => {
  const code = "def f(x): # c\n  return \"s\" + 'it' # \"no\"\nif 0x1f: pass";
  const pieces = highlight(code, "python");
  assert.equal(pieces.map(([, text]) => text).join(""), code);
  assert.ok(pieces.some(([kind, text]) => kind === "word" && text === "return"));
  assert.ok(pieces.some(([kind, text]) => kind === "string" && text === '"s"'));
  assert.deepEqual(highlight("x = 1", ""), [["", "x = 1"]]);
});

test("branches", () => {
  const chat = tree.newChat({ temperature: "0" });
  const ask = tree.addNode(chat, "root", { role: "user", content: "a question\nmore" });
  const one = tree.addNode(chat, ask.id, { role: "assistant", content: "one" });
  const two = tree.addNode(chat, ask.id, { role: "assistant", content: "two" });
  const next = tree.addNode(chat, two.id, { role: "user", content: "and?" });
  assert.equal(chat.title, "a question");
  assert.deepEqual(tree.pathTo(chat).map((n) => n.content), ["a question\nmore", "two", "and?"]);
  tree.choose(chat, one.id);
  assert.equal(chat.leaf, one.id);
  tree.choose(chat, two.id);  // where it was left
  assert.equal(chat.leaf, next.id);
  const copy = tree.fork(chat, two.id);
  assert.deepEqual(tree.pathTo(copy).map((n) => n.content), ["a question\nmore", "two"]);
  tree.removeBranch(chat, two.id);
  assert.equal(chat.leaf, one.id);
  assert.deepEqual(Object.keys(chat.nodes).sort(), ["root", ask.id, one.id].sort());
});

test("messages of a request", () => {
  const chat = tree.newChat();
  const files = [{ name: "a.md", text: "```\nx\n```" }];
  const ask = tree.addNode(chat, "root", { role: "user", content: "read", files });
  const call = { id: "c1", name: "f", arguments: "{}" };
  const answer = tree.addNode(chat, ask.id, { role: "assistant", content: "", calls: [call], reasoning: "hm" });
  tree.addNode(chat, answer.id, { role: "tool", content: "42", call: "c1" });
  assert.deepEqual(tree.toMessages(tree.pathTo(chat), "be short"), [
    { role: "system", content: "be short" },
    { role: "user", content: "a.md:\n````\n```\nx\n```\n````\n\nread" },
    { role: "assistant", content: "", reasoning_content: "hm",
      tool_calls: [{ id: "c1", type: "function", function: { name: "f", arguments: "{}" } }] },
    { role: "tool", content: "42", tool_call_id: "c1" }]);
});

test("export and import give the same tree", () => {
  const chat = tree.newChat({ system: "s" });
  const ask = tree.addNode(chat, "root", { role: "user", content: "q", files: [{ name: "n", text: "t" }] });
  tree.addNode(chat, ask.id, { role: "assistant", content: "1", stats: { tokens: 3 }, finish: "stop" });
  tree.addNode(chat, ask.id, { role: "assistant", content: "2", reasoning: "r" });
  tree.choose(chat, chat.nodes[ask.id].children[0]);
  const [back] = tree.importChats(tree.exportText([chat]));
  assert.deepEqual(back.nodes[ask.id].children, chat.nodes[ask.id].children);
  assert.deepEqual(tree.pathTo(back).map((n) => n.content), ["q", "1"]);
  assert.deepEqual(back.nodes[back.leaf].stats, { tokens: 3 });
  assert.equal(back.settings.system, "s");
});

test("a file that is no export is refused", () => {
  const node = (parent) => ({ role: "user", content: "x", parent });
  const file = (nodes) => JSON.stringify({ format: "sluice-chats", chats: [{ nodes }] });
  for (const text of ["", "{", "[]", "{}", file({ a: node("b"), b: node("a") }), file({ a: node("zebra") }),
                      file({ a: { role: "system", content: "x", parent: "root" } }),
                      file({ a: { role: "user", content: 5, parent: "root" } })])
    assert.throws(() => tree.importChats(text), /no export of chats/);
  assert.equal(tree.importChats(file({ a: node("root") })).length, 1);
});

test("metrics", () => {
  const bucket = (le, n) => `h_bucket{model="a\\"b",le="${le}"} ${n}`;
  const now = metrics.parseMetrics(["# HELP h x", bucket("0.1", 2), bucket("0.2", 6), bucket("+Inf", 8),
                                    "h_count 8", 'c{s="2xx"} 3', 'c{s="4xx"} 4'].join("\n"));
  assert.equal(metrics.sum(now, "c"), 7);
  assert.equal(metrics.sum(now, "c", { s: "4xx" }), 4);
  assert.equal(metrics.sum(now, "none"), null);
  const rows = metrics.buckets(now, "h");
  assert.deepEqual(rows.map((r) => r.count), [2, 4, 2]);
  assert.ok(Math.abs(metrics.quantile(0.5, rows) - 0.15) < 1e-9);
  assert.equal(metrics.quantile(0.99, rows), 0.2);
  assert.deepEqual(metrics.buckets(now, "h", now).map((r) => r.count), [0, 0, 0]);
  assert.equal(metrics.quantile(0.5, metrics.buckets(now, "h", now)), null);
});

test("settings", () => {
  assert.deepEqual(requestFields({ temperature: "0", stop: "a\nb", thinking: "off", system: "s" }),
                   { temperature: 0, stop: ["a", "b"], chat_template_kwargs: { enable_thinking: false } });
  assert.deepEqual(requestFields({ extra: '{"ignore_eos": true}' }), { ignore_eos: true });
  assert.throws(() => requestFields({ tools: "{}" }), /Tools/);
  assert.throws(() => requestFields({ extra: "[1" }), /More fields/);
});
