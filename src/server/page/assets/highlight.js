// Colours for code: strings, comments, numbers and the words of the usual languages. Pure.

const WORDS = new Set((
  "abstract and as assert async await auto begin bool boolean break byte case catch char class " +
  "const constexpr continue def default defer del delete do done double elif else elsif end enum " +
  "esac except export extends extern false False fi final finally float fn for foreach from func " +
  "function global go goto if impl implements import in include inline instanceof int interface " +
  "is lambda let long loop match mod module move mut namespace new nil None nonlocal not null " +
  "nullptr of operator or override package pass private protected pub public raise ref require " +
  "return select self Self short signed sizeof static string struct super switch template then " +
  "this throw trait true True try type typedef typename typeof undefined union unless unsafe " +
  "unsigned until use using var virtual void volatile when where while with yield " +
  "SELECT FROM WHERE INSERT INTO UPDATE SET DELETE CREATE TABLE JOIN LEFT ON GROUP BY ORDER " +
  "LIMIT VALUES AND OR NOT NULL AS").split(" "));

const HASH = new Set(["python", "py", "sh", "bash", "shell", "zsh", "yaml", "yml", "toml", "ruby",
                      "rb", "perl", "r", "make", "makefile", "cmake", "dockerfile", "ini", "conf"]);
const DASHES = new Set(["sql", "lua", "haskell", "hs", "ada", "elm"]);
const PLAIN = new Set(["", "text", "txt", "plain", "plaintext", "output", "log", "markdown", "md",
                       "diff", "csv"]);
const MAX_LENGTH = 100000;

// [kind, text] pieces whose texts make the code again; kind is "" for plain text.
export function highlight(code, lang) {
  const name = lang.toLowerCase();
  if (PLAIN.has(name) || code.length > MAX_LENGTH) return [["", code]];
  const comment = HASH.has(name) ? "#[^\\n]*"
    : DASHES.has(name) ? "--[^\\n]*"
    : name === "html" || name === "xml" ? "<!--[^]*?-->" : "//[^\\n]*|/\\*[^]*?\\*/";
  const token = new RegExp(
    `(?<comment>${comment})|(?<string>"(?:[^"\\\\\\n]|\\\\.)*"|'(?:[^'\\\\\\n]|\\\\.)*'|` +
    "`(?:[^`\\\\]|\\\\.)*`)|(?<number>\\b\\d[\\w.]*)|(?<word>[A-Za-z_]\\w*)", "g");
  const out = [];
  const put = (kind, text) => {
    if (!text) return;
    if (out.length && out.at(-1)[0] === kind) out.at(-1)[1] += text;
    else out.push([kind, text]);
  };
  let at = 0;
  for (const match of code.matchAll(token)) {
    put("", code.slice(at, match.index));
    const { comment: isComment, string, number, word } = match.groups;
    const kind = isComment ? "comment" : string ? "string" : number ? "number"
      : word && WORDS.has(word) ? "word" : "";
    put(kind, match[0]);
    at = match.index + match[0].length;
  }
  put("", code.slice(at));
  return out;
}
