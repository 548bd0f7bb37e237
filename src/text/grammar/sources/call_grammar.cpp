#include "text/grammar/sources/call_grammar.h"

#include <algorithm>

#include "base/json.h"
#include "text/grammar/node.h"
#include "text/grammar/program.h"
#include "text/grammar/regex.h"
#include "text/grammar/schema/unsatisfiable.h"
#include "text/grammar/sources/call_arguments.h"
#include "text/grammar/sources/structural_tag.h"

namespace sluice::grammar {
namespace {

class Calls {
 public:
  Calls(Grammar& grammar, const CallSource& calls, const Vocabulary& vocabulary,
        const SchemaOptions& options, std::vector<Unenforced>* unenforced)
      : grammar_(grammar),
        calls_(calls),
        vocabulary_(vocabulary),
        options_(options),
        format_(find_tool_format(calls.format)),
        unenforced_(unenforced) {}

  Result<NodeId> run(std::optional<NodeId> answer) {
    std::vector<NodeId> heads;  // calls from behind call_open
    for (const CallTool& tool : calls_.tools) {
      Result<NodeId> node = call_of(tool);
      if (!node && !tool.is_strict) node = any_call_of(tool);
      if (!node) {
        Fault fault = node.fault();
        if (fault.code != "unsupported_tool_schema")
          fault.message = fmt::format("The strict tool `{}`: {}", tool.name, fault.message);
        return fault;
      }
      heads.push_back(*node);
    }
    // Arguments that no text can be would leave the tool out without a word.
    const std::vector<bool> can_be = find_satisfiable(grammar_);
    for (std::size_t i = 0; i < heads.size(); ++i) {
      if (can_be[index_of(heads[i])]) continue;
      const CallTool& tool = calls_.tools[i];
      const Result<NodeId> node = tool.is_strict ? unsatisfiable(tool, can_be) : any_call_of(tool);
      if (!node) return node.fault();
      heads[i] = *node;
    }
    const NodeId call = grammar_.any_of(heads);
    if (format_.syntax == CallSyntax::kChannels) return channels(call, answer);
    if (calls_.is_free() && !answer && format_.bare.empty()) return among_text(blocks(call, 1));
    const NodeId all = blocks(call, most());
    if (calls_.is_required) return all;
    if (answer) return grammar_.any_of({all, *answer});
    if (!format_.bare.empty())  // the first byte tells a call from text
      return grammar_.any_of({all, text_without(openings(), format_.bare)});
    return grammar_.sequence({text_without(openings(), ""), grammar_.optional(all)});
  }

 private:
  std::uint64_t most() const { return calls_.is_single ? 1 : kUnbounded; }
  NodeId mark(std::string_view text) {
    return text.empty() ? grammar_.empty() : marked_text(grammar_, text, vocabulary_);
  }
  LanguageId regex(std::string_view pattern) { return own_regex(grammar_.languages(), pattern); }

  bool is_keyed() const {
    return format_.syntax == CallSyntax::kTagged || format_.syntax == CallSyntax::kKeywords ||
           format_.syntax == CallSyntax::kBraces;
  }
  // With any object as its arguments.
  Result<NodeId> any_call_of(const CallTool& tool) {
    if (unenforced_ != nullptr) unenforced_->push_back({tool.name, ""});
    return call_of({.name = tool.name, .schema = {}});
  }
  // Why no text is a call of a strict tool.
  Fault unsatisfiable(const CallTool& tool, const std::vector<bool>& can_be) const {
    if (!is_keyed()) {
      SchemaOptions options = options_;
      options.only_objects = true;
      Fault fault = unsatisfiable_fault(tool.schema, options);
      fault.message = fmt::format("The strict tool `{}`: {}", tool.name, fault.message);
      return fault;
    }
    std::string what = "its arguments";
    for (const ArgumentValue& value : values_)
      if (value.tool == tool.name && !can_be[index_of(value.node)])
        what = fmt::format("the argument `{}`", value.pointer);
    return Fault{
        400, "unsupported_tool_schema", "",
        fmt::format("The strict tool `{}` cannot be enforced: in the calls of `{}` no text "
                    "is a value of {}. Values hold no marks of the format. Leave out "
                    "`strict`, or change the schema.",
                    tool.name, format_.name, what)};
  }

  Result<NodeId> call_of(const CallTool& tool) {
    const ArgumentContext context{grammar_, vocabulary_, options_, format_, unenforced_, &values_};
    const Result<NodeId> arguments =
        is_keyed() ? keyed_arguments(context, tool) : json_arguments(context, tool);
    if (!arguments) return arguments.fault();
    const NodeId name = grammar_.bytes(tool.name);
    switch (format_.syntax) {
      case CallSyntax::kObject:
        return object(tool.name, *arguments);
      case CallSyntax::kNamed:
        return grammar_.sequence({name_of(tool.name), id(), mark(format_.name_close), *arguments});
      case CallSyntax::kTagged:
        return grammar_.sequence(
            {name, mark(format_.name_close), grammar_.bytes(format_.after_name), *arguments});
      case CallSyntax::kKeywords:
        return grammar_.sequence({name, grammar_.bytes("("), *arguments, grammar_.bytes(")")});
      case CallSyntax::kBraces:
        return grammar_.sequence({name, grammar_.bytes("{"), *arguments, grammar_.bytes("}")});
      case CallSyntax::kChannels:
        return message_to(tool.name, *arguments);
    }
    return grammar_.none();
  }

  // {"name": NAME, "arguments": {...}}
  NodeId object(const std::string& tool, NodeId arguments) {
    const NodeId space = grammar_.white_space(options_.max_space);
    const auto key = [&](std::string_view text) {
      return grammar_.sequence(
          {grammar_.bytes(fmt::format("\"{}\"", text)), space, grammar_.bytes(":"), space});
    };
    const NodeId comma = grammar_.sequence({space, grammar_.bytes(","), space});
    const auto string = [&](std::string_view pattern) {
      return grammar_.sequence(
          {grammar_.bytes("\""), grammar_.text(regex(pattern)), grammar_.bytes("\"")});
    };
    NodeId begin = grammar_.empty(), end = grammar_.empty();
    if (!format_.id_key.empty())
      begin =
          grammar_.optional(grammar_.sequence({key(format_.id_key), string("[0-9]{1,4}"), comma}));
    if (format_.ids == CallIds::kNineLetters)
      end = grammar_.optional(grammar_.sequence({comma, key("id"), string("[a-zA-Z0-9]{9}")}));
    return grammar_.sequence({grammar_.bytes("{"), space, begin, key(format_.name_key),
                              grammar_.bytes(dump_json(Json(tool))), comma,
                              key(format_.arguments_key), arguments, end, space,
                              grammar_.bytes("}")});
  }

  NodeId name_of(const std::string& tool) {
    if (format_.ids != CallIds::kName) return grammar_.bytes(tool);
    return grammar_.sequence(
        {grammar_.bytes("functions." + tool + ":"), grammar_.text(regex("0|[1-9][0-9]{0,3}"))});
  }
  NodeId id() {
    if (format_.id_open.empty()) return grammar_.empty();
    return grammar_.optional(
        grammar_.sequence({mark(format_.id_open), grammar_.text(regex("[a-zA-Z0-9]{9}"))}));
  }

  // Text, with calls anywhere. Behind the only call nothing comes: who wants another would write it
  // as text.
  NodeId among_text(NodeId block) {
    const NodeId text = text_without(openings(), "");
    if (calls_.is_single) return grammar_.sequence({text, grammar_.optional(block)});
    const NodeId more = grammar_.sequence({block, text});
    return grammar_.sequence({text, grammar_.repeat(more, 0, kUnbounded)});
  }

  NodeId blocks(NodeId head, std::uint64_t max_blocks) {
    const NodeId call = grammar_.sequence({mark(format_.call_open), mark(format_.type), head,
                                           mark(format_.arguments_close), mark(format_.call_close),
                                           mark(format_.call_tail)});
    const NodeId before = grammar_.bytes(format_.before_call);
    const NodeId after = grammar_.bytes(format_.after_call);
    NodeId inside = call;
    if (!format_.one_per_block) {
      const std::string between =
          (format_.is_list() ? "," : "") + std::string(format_.between_calls);
      inside = grammar_.separated(call, grammar_.bytes(between), 1, most());
    }
    const NodeId list = grammar_.sequence({grammar_.bytes(format_.list_open), before, inside, after,
                                           grammar_.bytes(format_.list_close)});
    NodeId block = grammar_.sequence({mark(format_.open), list, mark(format_.close)});
    // Templates with a bare spelling have no closing mark there.
    if (!format_.bare.empty())
      block = format_.open.empty() ? list : grammar_.any_of({list, block});
    else if (format_.is_open_optional)
      block = grammar_.any_of({block, grammar_.sequence({inside, after, mark(format_.close)})});
    if (!format_.one_per_block) return block;
    return grammar_.separated(block, grammar_.bytes(format_.between_blocks), 1, max_blocks);
  }

  // What tells that a block begins.
  std::vector<std::string> openings() const {
    std::vector<std::string> out;
    const bool is_strict = std::ranges::any_of(calls_.tools, &CallTool::is_strict);
    const auto add = [&](std::string_view text) {
      if (text.empty()) return;
      std::string opening(text);
      // A word such as functools is a mark only in front of a list.
      const bool is_word = (opening.back() | 0x20) >= 'a' && (opening.back() | 0x20) <= 'z';
      if (is_word && !is_strict) opening += format_.list_open;
      out.push_back(std::move(opening));
    };
    add(format_.open);
    for (const std::string_view other : format_.other_opens) add(other);
    if (format_.is_open_optional) add(format_.call_open);
    return out;
  }

  NodeId text_without(const std::vector<std::string>& excluded, std::string_view bare) {
    return grammar::text_without(grammar_, vocabulary_, excluded, bare);
  }

  // harmony
  NodeId message_to(const std::string& tool, NodeId arguments) {
    const NodeId to = grammar_.bytes(" to=functions." + tool);
    const NodeId type = grammar_.optional(grammar_.sequence(
        {grammar_.bytes(" "), grammar_.optional(mark("<|constrain|>")), grammar_.bytes("json")}));
    const NodeId channel = mark("<|channel|>");
    const NodeId commentary = grammar_.sequence({channel, grammar_.bytes("commentary")});
    return grammar_.sequence({grammar_.any_of({grammar_.sequence({to, commentary}),
                                               grammar_.sequence({commentary, to})}),
                              type, mark("<|message|>"), arguments});
  }
  NodeId channels(NodeId call, std::optional<NodeId> answer) {
    const NodeId text = grammar_.text(grammar_.languages().any_text());
    const NodeId next = mark("<|end|><|start|>assistant");
    const auto message = [&](std::string_view channel) {
      return grammar_.sequence(
          {mark(fmt::format("<|channel|>{}<|message|>", channel)), text, next});
    };
    // Thoughts, and words in front of a call.
    const NodeId before = grammar_.repeat(
        grammar_.any_of({message("analysis"), message("commentary")}), 0, kUnbounded);
    const NodeId last =
        calls_.is_required
            ? call
            : grammar_.any_of({call, final_message(grammar_, answer.value_or(text), vocabulary_)});
    return grammar_.sequence({before, last});
  }

 public:
  static NodeId final_message(Grammar& grammar, NodeId answer, const Vocabulary& vocabulary) {
    const auto mark = [&](std::string_view text) { return marked_text(grammar, text, vocabulary); };
    const NodeId type = grammar.optional(
        grammar.sequence({grammar.bytes(" "), mark("<|constrain|>"), grammar.bytes("json")}));
    return grammar.sequence(
        {mark("<|channel|>"), grammar.bytes("final"), type, mark("<|message|>"), answer});
  }

 private:
  Grammar& grammar_;
  const CallSource& calls_;
  const Vocabulary& vocabulary_;
  const SchemaOptions& options_;
  const ToolFormat& format_;
  std::vector<Unenforced>* unenforced_;
  std::vector<ArgumentValue> values_;
};

}  // namespace

std::string CallSource::key() const {
  std::string key =
      fmt::format("{} {} {} {}\n", format, is_required ? 1 : 0, is_single ? 1 : 0, tools.size());
  for (const CallTool& tool : tools)
    key += fmt::format("{} {} {}:{}\n", tool.name, tool.is_strict ? 1 : 0, tool.schema.size(),
                       tool.schema);
  return key;
}

bool CallSource::is_free() const {
  return !is_required && std::ranges::none_of(tools, &CallTool::is_strict);
}

NodeId text_without(Grammar& grammar, const Vocabulary& vocabulary,
                    const std::vector<std::string>& excluded, std::string_view bare) {
  Languages& languages = grammar.languages();
  LanguageId text = languages.any_text();
  if (!excluded.empty())
    text = languages.complement(languages.concat(
        {languages.any_text(), languages.literals(excluded), languages.any_text()}));
  LanguageId first = text;
  if (!bare.empty()) {
    std::string set;
    for (const char c : bare) set += std::string("\\") + c;
    const LanguageId barred = own_regex(languages, fmt::format(R"(\s*[{}](.|\n)*)", set));
    first = languages.intersect({text, languages.complement(barred)});
  }
  std::vector<std::string> tokens;
  for (const std::string& token : vocabulary.special_tokens()) {
    const auto is_part = [&](const std::string& mark) {
      return mark.find(token) != std::string::npos;
    };
    if (std::ranges::none_of(excluded, is_part)) tokens.push_back(token);
  }
  if (tokens.empty()) return grammar.text(first);
  const NodeId token =
      grammar.sequence({grammar.bytes("\xFF"), grammar.text(languages.literals(tokens))});
  return grammar.sequence(
      {grammar.text(first),
       grammar.repeat(grammar.sequence({token, grammar.text(text)}), 0, kUnbounded)});
}

bool constrains(const CallSource& calls) {
  return calls.is_required || find_tool_format(calls.format).bare.empty() ||
         std::ranges::any_of(calls.tools, &CallTool::is_strict);
}

Result<NodeId> add_calls(Grammar& grammar, const CallSource& calls, std::optional<NodeId> answer,
                         const Vocabulary& vocabulary, const SchemaOptions& options,
                         std::vector<Unenforced>* unenforced) {
  return Calls(grammar, calls, vocabulary, options, unenforced).run(answer);
}

NodeId in_channels(Grammar& grammar, NodeId answer, const Vocabulary& vocabulary) {
  const NodeId thought =
      grammar.sequence({marked_text(grammar, "<|channel|>analysis<|message|>", vocabulary),
                        grammar.text(grammar.languages().any_text()),
                        marked_text(grammar, "<|end|><|start|>assistant", vocabulary)});
  return grammar.sequence(
      {grammar.repeat(thought, 0, kUnbounded), Calls::final_message(grammar, answer, vocabulary)});
}

}  // namespace sluice::grammar
