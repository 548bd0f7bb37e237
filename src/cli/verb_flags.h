// The flags that belong to one verb: the rows of `sluice VERB --help` above those of the program's
// options.
#pragma once

#include "cli/arguments.h"

namespace sluice::verb_flags {

inline constexpr std::string_view kAnyText = "any text";
inline constexpr std::string_view kFile = "a file";

// Sampling, as generate and run take it; the ranges are those of a request.
inline constexpr VerbFlag kTemperature = {
    "temperature", true, "T", "0 takes the most likely token.", "the model's, else 1", "0 to 100"};
inline constexpr VerbFlag kTopK = {
    "top-k",           true, "N", "The N most likely tokens only; -1: all.", "the model's, else -1",
    "-1 to 2147483647"};
inline constexpr VerbFlag kTopP = {"top-p",
                                   true,
                                   "P",
                                   "The most likely tokens that together have P.",
                                   "the model's, else 1",
                                   "above 0, to 1"};
inline constexpr VerbFlag kMinP = {"min-p",
                                   true,
                                   "P",
                                   "Tokens with at least P times the largest probability.",
                                   "the model's, else 0",
                                   "0 to 1"};
inline constexpr VerbFlag kFrequencyPenalty = {
    "frequency-penalty",
    true,
    "X",
    "Subtracted from a token's logit for each time it came.",
    "0",
    "-2 to 2"};
inline constexpr VerbFlag kPresencePenalty = {
    "presence-penalty", true, "X", "Subtracted once from the logit of a token that came.", "0",
    "-2 to 2"};
inline constexpr VerbFlag kRepetitionPenalty = {
    "repetition-penalty",  true,           "X", "Divides the logits of tokens that came.",
    "the model's, else 1", "above 0, to 2"};
inline constexpr VerbFlag kDownloadDir = {"download-dir",
                                          true,
                                          "DIR",
                                          "The cache of the hub's models.",
                                          "as HF_HUB_CACHE or HF_HOME says",
                                          "a directory"};
inline constexpr VerbFlag kJson = {"json", false, "", "Prints JSON.", "", ""};

inline constexpr VerbFlag kConfig = {"config", true,
                                     "FILE",   "Options by name; the command line wins.",
                                     "none",   "a YAML or JSON file"};

inline constexpr VerbFlag kJsonSchema = {
    "json-schema",     true, "SCHEMA", "The output is JSON that this JSON Schema allows.", "none",
    "a schema as JSON"};
inline constexpr VerbFlag kJsonSchemaFile = {
    "json-schema-file", true, "FILE", "The same, with the schema in a file.", "none", kFile};
inline constexpr VerbFlag kGrammar = {"grammar", true,
                                      "GBNF",    "The output is a text of this grammar.",
                                      "none",    "rules in GBNF, one of them `root`"};
inline constexpr VerbFlag kGrammarFile = {
    "grammar-file", true, "FILE", "The same, with the grammar in a file.", "none", kFile};
inline constexpr VerbFlag kRegex = {"regex",   true,
                                    "PATTERN", "The whole output matches this pattern.",
                                    "none",    "a regular expression"};

inline constexpr VerbFlag kServe[] = {kConfig};

inline constexpr VerbFlag kGenerate[] = {
    kConfig,
    {"prompt", true, "TEXT", "The prompt; - reads it from standard input.", "none", kAnyText},
    {"chat", false, "",
     "The prompt is a user's message: the model's chat template is put around it.", "", ""},
    {"system", true, "TEXT", "With --chat: a system message before it.", "none", kAnyText},
    {"input-ids", true, "1,2,3", "The prompt as token ids.", "none",
     "ids below the vocabulary's size"},
    kTemperature,
    kTopK,
    kTopP,
    kMinP,
    kFrequencyPenalty,
    kPresencePenalty,
    kRepetitionPenalty,
    {"max-new-tokens", true, "N", "At most N tokens.", "128", "1 to 2147483647"},
    {"min-new-tokens", true, "N", "At least N tokens.", "0", "0 to 2147483647"},
    {"stop", true, "TEXT", "Ends the output; may be given several times.", "none",
     "text that is not empty"},
    {"ignore-eos", false, "", "The model's end tokens do not end the output.", "", ""},
    kJsonSchema,
    kJsonSchemaFile,
    kGrammar,
    kGrammarFile,
    kRegex,
    kJson,
};

inline constexpr VerbFlag kRun[] = {
    kConfig,
    {"system", true, "TEXT", "A system message before the conversation.", "none", kAnyText},
    kTemperature,
    kTopK,
    kTopP,
    kMinP,
    kRepetitionPenalty,
    {"max-new-tokens", true, "N", "At most N tokens in an answer.", "what the context holds",
     "1 to 2147483647"},
    kJsonSchema,
    kJsonSchemaFile,
    kGrammar,
    kGrammarFile,
    kRegex,
    {"think", true, "on|off", "Whether a model that can think aloud does.", "the template's",
     "on, off"},
    {"hide-thinking", false, "", "Thinking is not shown.", "", ""},
    {"verbose", false, "", "Prints tokens and times after each answer.", "", ""},
    {"no-history", false, "", "What is typed is not kept in ~/.local/state/sluice/history.", "",
     ""},
};

inline constexpr VerbFlag kPlan[] = {
    kConfig,
    {"memory", true, "BYTES", "Supposes so much memory; 24G and 24g are accepted.",
     "what this machine has free", "1 to 1125899906842624"},
    {"gpus", true, "NxKIND", "Predicts speed and memory of every mix of parallelism on N GPUs.",
     "none", "1 to 8 of H100 or H200: 8xH200"},
    {"concurrency", true, "N", "With --gpus: sequences at once.", "64", "1 to 65536"},
    kJson,
};

inline constexpr VerbFlag kShow[] = {kJson};

inline constexpr VerbFlag kPull[] = {
    {"revision", true, "R", "Which revision.", "main", "a branch, tag or commit"},
    {"load-format", true, "FORMAT",
     "Which weights: auto takes safetensors, else PyTorch's .bin, else GGUF; dummy none.", "auto",
     "auto, safetensors, pt, gguf, dummy"},
    {"include", true, "GLOB",
     "Fetches the files that match, instead of those that a model needs; may be given several "
     "times.",
     "none", "a pattern such as *.json"},
    {"exclude", true, "GLOB", "Leaves out files that match; may be given several times.", "none",
     "a pattern such as *.py"},
    kDownloadDir,
};

inline constexpr VerbFlag kList[] = {kJson, kDownloadDir};

inline constexpr VerbFlag kRm[] = {
    {"revision", true, "R",
     "Only this revision, and of its files those that no other revision has.", "all",
     "a branch, tag or commit"},
    {"yes", false, "", "Does not ask.", "", ""},
    kDownloadDir,
};

inline constexpr VerbFlag kVerify[] = {
    {"golden", true, "FILE",
     "Reference outputs: a golden.json, or the chat records of sluice-tiny.", "none", kFile},
    {"modes", true, "LIST", "How the prompts are run.", "whole,decode",
     "of whole, passes, chunk:N, cached, cached:N, mixed, decode"},
    {"thread-counts", true, "LIST", "Runs every mode with each number of threads.", "--threads",
     "numbers from 1 to 1024"},
    {"tolerance", true, "X", "Differences of log-probabilities up to X are accepted in float32.",
     "that of the reference", "1e-6 to 0.1"},
    {"lengths", true, "LIST", "Only prompts of these lengths.", "all", "numbers of tokens"},
    {"dump", true, "FILE", "Writes ids, log-probabilities and logits hashes of every position.",
     "none", kFile},
    {"tokenizer", true, "DIR",
     "Compares the tokenizer in DIR with --oracle FILE, or is the one of --grammar.", "none",
     "a directory"},
    {"grammar", true, "FILE",
     "Compiles schemas, regular expressions and EBNF and walks their texts token by token.", "none",
     "a file of cases, also with gzip"},
    {"json", true, "FILE", "With --grammar: the line of each case goes there.", "none", kFile},
    {"any-order", false, "", "With --grammar: members of objects may come in any order.", "", ""},
    {"chat-template", true, "DIR", "Compares the chat template in DIR with --oracle FILE.", "none",
     "a directory"},
    {"oracle", true, "FILE", "Reference outputs of a tokenizer or template.", "none", kFile},
    {"snippets", true, "FILE",
     "Compares the template interpreter with recorded one-line templates.", "none", kFile},
    {"parsers", true, "LIST",
     "Runs outputs of models through the parsers of calls and reasoning, and checks the answers.",
     "none", "files of cases, or folders of *.jsonl"},
    {"splits", true, "N", "With --parsers: each output is also cut in N random ways.", "20",
     "0 to 1000000"},
};

inline constexpr VerbFlag kTokenize[] = {
    {"prompt", true, "TEXT", "The text; - reads it from standard input.", "none", kAnyText},
    {"chat", false, "", "The text is a user's message: prints what the chat template makes of it.",
     "", ""},
    {"system", true, "TEXT", "With --chat: a system message before it.", "none", kAnyText},
    {"no-special", false, "", "Without the tokens that the tokenizer puts around a text.", "", ""},
    kJson,
};

inline constexpr VerbFlag kRooflineMib = {
    "roofline-mib",
    true,
    "N",
    "Memory that read bandwidth is measured over, in MiB; 0 measures no ceilings.",
    "2048; 0 on a GPU",
    "0 to 1048576"};

inline constexpr VerbFlag kBenchLatency[] = {
    kConfig,
    {"batch-size", true, "LIST", "Requests at once; each number is a case.", "1",
     "numbers from 1 to 4096"},
    {"input-len", true, "LIST", "Prompt tokens of each request; each number is a case.", "1024",
     "numbers from 1 to 16777216"},
    {"output-len", true, "N", "Generated tokens of each request.", "16", "1 to 16777216"},
    {"tries", true, "N", "How often a case is measured while the machine's speed changes.", "3",
     "1 to 100"},
    {"speculative-synthetic-acceptance", true, "LIST",
     "With --speculative-algorithm: the chance that the first, second, ... draft counts as right, "
     "whatever the model says. One number holds for all.",
     "none: what the model says", "numbers from 0 to 1"},
    {"replay-prompt", true, "FILE",
     "With --replay-answer: the prompt's text, instead of random tokens.", "none", kFile},
    {"replay-answer", true, "FILE",
     "With --replay-prompt: the answer's text. Its tokens are taken, whatever the model says.",
     "none", kFile},
    kRooflineMib,
    kJson,
};

inline constexpr VerbFlag kBenchThroughput[] = {
    kConfig,
    {"num-prompts", true, "N", "Requests in all.", "64", "1 to 1000000"},
    {"random-input-len", true, "N", "Most prompt tokens of a request.", "256", "1 to 16777216"},
    {"random-output-len", true, "N", "Most generated tokens of a request.", "64", "1 to 16777216"},
    {"random-range-ratio", true, "R", "Least length of a request, as a share of the most.", "1",
     "0 to 1"},
    kJson,
};

inline constexpr VerbFlag kBenchRoofline[] = {
    {"threads", true, "N", "Threads that measure; 0: all usable.", "0", "0 to 1024"},
    {"roofline-mib", true, "N", "Memory that read bandwidth is measured over, in MiB.", "2048",
     "1 to 1048576"},
    kJson,
};

inline constexpr VerbFlag kBenchKernel[] = {
    {"rows", true, "LIST", "Rows that products multiply; each number is a case.", "1,8,32",
     "numbers from 1 to 256"},
    {"rotate-mib", true, "N",
     "Memory of the copies that calls read in turn, in MiB: several times the last cache.", "1024",
     "1 to 1048576"},
    {"roofline-mib", true, "N",
     "Memory that read bandwidth is measured over, in MiB, before and after each kernel.", "512",
     "1 to 1048576"},
    kJson,
};

inline constexpr VerbFlag kDoctor[] = {kJson};

inline constexpr VerbFlag kBenchServe[] = {
    {"backend", true, "NAME",
     "Protocol: the -oai ones use /v1/completions, the -chat ones /v1/chat/completions, the others "
     "/generate.",
     "sluice",
     "sluice, sluice-oai, sluice-oai-chat, sglang, sglang-native, sglang-oai, sglang-oai-chat, "
     "vllm, vllm-chat, lmdeploy, lmdeploy-chat"},
    {"base-url", true, "URL", "Instead of --host and --port.", "none", "http://HOST[:PORT][/PATH]"},
    {"host", true, "H", "The server's address.", "127.0.0.1", "a name or address"},
    {"port", true, "P", "The server's port.", "the backend's: 30000, 8000 or 23333", "1 to 65535"},
    {"model", true, "NAME", "The model in requests.", "the first of /v1/models", "a name"},
    {"tokenizer", true, "DIR", "Tokenizer that makes and counts prompts.",
     "--model, else the server's model_path, where these are directories here",
     "a directory or a repo id"},
    {"dataset-name", true, "NAME",
     "random and random-ids: random tokens; sharegpt: conversations of --dataset-path; "
     "generated-shared-prefix: groups with one system prompt.",
     "random", "random, random-ids, sharegpt, generated-shared-prefix"},
    {"dataset-path", true, "FILE", "ShareGPT's JSON.", "none", kFile},
    {"num-prompts", true, "N", "Requests in all.", "1000", "1 to 10000000"},
    {"random-input-len", true, "N", "Most prompt tokens of a request.", "1024", "1 to 16777216"},
    {"random-output-len", true, "N", "Most generated tokens of a request.", "1024",
     "1 to 16777216"},
    {"random-range-ratio", true, "R", "Least length of a request, as a share of the most.", "0",
     "0 to 1"},
    {"sharegpt-output-len", true, "N",
     "Generated tokens of a request, instead of the recorded answer's length.", "none",
     "4 to 16777216"},
    {"sharegpt-context-len", true, "N", "Longer conversations are left out.", "none",
     "1 to 16777216"},
    {"gsp-num-groups", true, "N", "System prompts.", "64", "1 to 1000000"},
    {"gsp-prompts-per-group", true, "N", "Questions to each system prompt.", "16", "1 to 1000000"},
    {"gsp-system-prompt-len", true, "N", "Tokens of a system prompt.", "2048", "1 to 16777216"},
    {"gsp-question-len", true, "N", "Tokens of a question.", "128", "1 to 16777216"},
    {"gsp-output-len", true, "N", "Generated tokens of a request.", "256", "1 to 16777216"},
    {"tokenize-prompt", false, "", "Prompts go out as token ids (not over chat).", "", ""},
    {"request-rate", true, "R", "Requests a second; inf sends all at once.", "inf",
     "0.000001 to 1000000000, or inf"},
    {"burstiness", true, "B",
     "Shape of the gaps between requests: 1 is Poisson, larger is more even.", "1", "0.01 to 1000"},
    {"max-concurrency", true, "N", "Requests in flight; more wait.", "no limit", "1 to 100000"},
    {"seed", true, "N", "Of lengths, tokens and gaps.", "1", "0 to 9223372036854775807"},
    {"warmup-requests", true, "N", "Requests before the measurement.", "1", "0 to 100000"},
    {"flush-cache", false, "", "Empties the server's prefix cache after the warm-up.", "", ""},
    {"disable-stream", false, "", "Asks for whole answers: no times of tokens.", "", ""},
    {"disable-ignore-eos", false, "", "The model's end tokens end an answer.", "", ""},
    {"disable-tqdm", false, "", "No progress.", "", ""},
    {"extra-request-body", true, "JSON", "Laid over every request.", "none", "a JSON object"},
    {"header", true, "K=V",
     "An HTTP header; may be given several times. OPENAI_API_KEY gives Authorization.", "none",
     "NAME=VALUE"},
    {"goodput", true, "LIST",
     "Counts requests within limits, as ttft:500,tpot:50,e2el:2000; may be given several times.",
     "none", "milliseconds of ttft, tpot, e2el"},
    {"timeout", true, "S", "Seconds that a request may take.", "21600", "1 to 604800"},
    {"output-file", true, "FILE", "Appends one line of JSON.", "none", kFile},
    {"output-details", false, "", "With --output-file: each request's times and text, too.", "",
     ""},
    {"vs", true, "FILE", "Compares with the last line of an earlier --output-file.", "none", kFile},
    kJson,
};

inline constexpr VerbFlag kVersion[] = {kJson};

}  // namespace sluice::verb_flags
