#include "text/jinja/scoping.h"

#include <initializer_list>
#include <map>
#include <set>

namespace sluice::jinja {
namespace {

enum class Source { kContext, kOuter, kUnset, kParameter };

// The names of one block; `base`: a branch of an if adds to the names of the block around it.
class Names {
 public:
  explicit Names(const Names* outer, const Names* base = nullptr) : outer_(outer), base_(base) {}

  Names branch() const { return Names(outer_, this); }

  void load(int symbol) {
    if (!known(symbol)) sources_[symbol] = Source::kContext;
  }

  void store(int symbol) {
    stores_.insert(symbol);
    if (!own(symbol)) sources_[symbol] = outer_known(symbol) ? Source::kOuter : Source::kUnset;
  }

  void parameter(int symbol) {
    stores_.insert(symbol);
    sources_[symbol] = Source::kParameter;
  }

  // A name that not every branch sets keeps its value from outside.
  void merge(std::initializer_list<const Names*> branches) {
    std::map<int, std::size_t> counts;
    for (const Names* branch : branches)
      for (const int symbol : branch->stores_)
        if (!stored(symbol)) ++counts[symbol];
    for (const Names* branch : branches) {
      for (const auto& [symbol, source] : branch->sources_) sources_[symbol] = source;
      stores_.insert(branch->stores_.begin(), branch->stores_.end());
    }
    for (const auto& [symbol, count] : counts)
      if (count < branches.size())
        sources_[symbol] = outer_known(symbol) ? Source::kOuter : Source::kContext;
  }

  std::vector<int> unset() const {
    std::vector<int> out;
    for (const auto& [symbol, source] : sources_)
      if (source == Source::kUnset) out.push_back(symbol);
    return out;
  }

 private:
  bool own(int symbol) const {
    for (const Names* at = this; at; at = at->base_)
      if (at->sources_.count(symbol) != 0) return true;
    return false;
  }
  bool stored(int symbol) const {
    for (const Names* at = this; at; at = at->base_)
      if (at->stores_.count(symbol) != 0) return true;
    return false;
  }
  bool known(int symbol) const { return own(symbol) || outer_known(symbol); }
  bool outer_known(int symbol) const { return outer_ && outer_->known(symbol); }

  const Names* outer_;
  const Names* base_;
  std::map<int, Source> sources_;
  std::set<int> stores_;
};

void read(Names& names, const ExprPtr& expr);

void read(Names& names, const CallArgs& args) {
  for (const ExprPtr& arg : args.positional) read(names, arg);
  for (const auto& arg : args.named) read(names, arg.second);
  read(names, args.star);
  read(names, args.star_star);
}

void read(Names& names, const ExprPtr& expr) {
  if (!expr) return;
  if (expr->kind == ExprKind::kName) names.load(expr->symbol);
  for (const ExprPtr& child : expr->children) read(names, child);
  read(names, expr->args);
}

void set_target(Names& names, const Expr& target, bool parameter) {
  if (target.kind == ExprKind::kTargetAttribute) {
    names.load(target.symbol);
  } else if (target.kind == ExprKind::kName) {
    parameter ? names.parameter(target.symbol) : names.store(target.symbol);
  }
  for (const ExprPtr& child : target.children) set_target(names, *child, parameter);
}

void collect(Names& names, const Body& body);

void collect_if(Names& names, const Stmt& stmt) {
  read(names, stmt.exprs[0]);
  Names first = names.branch(), rest = names.branch(), last = names.branch();
  collect(first, stmt.bodies[0]);
  for (std::size_t i = 1; i < stmt.exprs.size(); ++i) {  // elif: an if without an else
    read(rest, stmt.exprs[i]);
    Names taken = rest.branch();
    const Names skipped = rest.branch(), otherwise = rest.branch();
    collect(taken, stmt.bodies[i]);
    rest.merge({&taken, &skipped, &otherwise});
  }
  if (stmt.bodies.size() > stmt.exprs.size()) collect(last, stmt.bodies.back());
  names.merge({&first, &rest, &last});
}

// What the statement does to the names of the block that it stands in.
void collect(Names& names, const Stmt& stmt) {
  switch (stmt.kind) {
    case StmtKind::kIf:
      collect_if(names, stmt);
      break;
    case StmtKind::kSet:
      read(names, stmt.expr);
      set_target(names, *stmt.target, false);
      break;
    case StmtKind::kSetBlock:
      set_target(names, *stmt.target, false);
      break;
    case StmtKind::kMacro:
      names.store(stmt.symbol);
      break;
    case StmtKind::kWith:
      for (const ExprPtr& value : stmt.exprs) read(names, value);
      break;
    case StmtKind::kPrint:
    case StmtKind::kFor:
    case StmtKind::kCallBlock:
    case StmtKind::kFilterBlock:
    case StmtKind::kNoLoader:
      read(names, stmt.expr);
      break;
    default:  // blocks of their own, and statements without names
      break;
  }
}

void collect(Names& names, const Body& body) {
  for (const auto& stmt : body) collect(names, *stmt);
}

void resolve(Body& body, const Names& names);

// A block inside the one of `outer`.
template <class Prepare>
std::vector<int> resolve_inner(Body& body, const Names* outer, Prepare&& prepare) {
  Names names(outer);
  prepare(names);
  collect(names, body);
  resolve(body, names);
  return names.unset();
}

void resolve_macro(MacroSpec& macro, const Names& outer) {
  macro.unset = resolve_inner(macro.body, &outer, [&](Names& names) {
    for (const int symbol : macro.symbols) names.parameter(symbol);
    if (macro.uses_caller) names.parameter(kSymbolCaller);
    if (macro.uses_varargs) names.parameter(kSymbolVarargs);
    if (macro.uses_kwargs) names.parameter(kSymbolKwargs);
    for (const ExprPtr& value : macro.defaults) read(names, value);
  });
}

void resolve(Stmt& stmt, const Names& outer) {
  const auto nothing = [](Names&) {};
  switch (stmt.kind) {
    case StmtKind::kIf:
      for (Body& body : stmt.bodies) resolve(body, outer);
      break;
    case StmtKind::kFor:
      for (std::size_t i = 0; i < stmt.bodies.size(); ++i)
        stmt.unset.push_back(resolve_inner(stmt.bodies[i], &outer, [&](Names& names) {
          if (i > 0) return;
          names.parameter(kSymbolLoop);
          set_target(names, *stmt.target, true);
        }));
      break;
    case StmtKind::kMacro:
    case StmtKind::kCallBlock:
      resolve_macro(stmt.macro, outer);
      break;
    case StmtKind::kWith:
      stmt.unset.push_back(resolve_inner(stmt.bodies[0], &outer, [&](Names& names) {
        for (const ExprPtr& target : stmt.targets) set_target(names, *target, true);
      }));
      break;
    case StmtKind::kAutoescape:
      stmt.unset.push_back(
          resolve_inner(stmt.bodies[0], &outer, [&](Names& names) { read(names, stmt.expr); }));
      break;
    case StmtKind::kSetBlock:
    case StmtKind::kFilterBlock:
    case StmtKind::kGeneration:
      stmt.unset.push_back(resolve_inner(stmt.bodies[0], &outer, nothing));
      break;
    case StmtKind::kBlock:
      stmt.unset.push_back(resolve_inner(stmt.bodies[0], nullptr, nothing));
      break;
    default:
      break;
  }
}

void resolve(Body& body, const Names& names) {
  for (const auto& stmt : body) resolve(*stmt, names);
}

}  // namespace

void find_unset_names(Program& program) {
  program.unset = resolve_inner(program.body, nullptr, [](Names&) {});
}

}  // namespace sluice::jinja
