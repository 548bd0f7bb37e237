// A parsed template. Immutable after parsing, so that threads can share it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/values/value.h"

namespace sluice::jinja {

struct FilterRow;
struct TestRow;
struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, star_star;  // *sequence, **map
};

enum class ExprKind {
  kConst,
  kName,
  kList,
  kTuple,
  kDict,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kNegate,
  kPlus,
  kNot,
  kBinary,
  kAnd,
  kOr,
  kConcat,
  kCompare,
  kConditional,
  kTargetAttribute  // `namespace.field` on the left of a set
};

enum class BinaryOp { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class CompareOp { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

struct Expr {
  ExprKind kind;
  int line;
  int depth = 1;    // depth of the tree below, bounded by the parser
  int symbol = -1;  // kName, kTargetAttribute: index into Program::symbols
  BinaryOp binary{};
  std::vector<CompareOp> compare;
  Value constant;
  std::string name;  // name of the attribute, filter or test
  // an entry may be null if the part is optional (slices, the input of a filter block)
  std::vector<ExprPtr> children;
  CallArgs args;
  const FilterRow* filter = nullptr;  // null: raises an error when reached
  const TestRow* test = nullptr;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct MacroSpec {
  std::string name;
  std::vector<std::string> params;
  std::vector<int> symbols;
  std::vector<ExprPtr> defaults;        // defaults of the last parameters
  std::optional<bool> escapes = false;  // known autoescape of its definition
  bool needs_caller = false;            // a parameter without a default has that name
  std::vector<int> unset;  // names of the body without a value at its start (scoping.h)
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
  Body body;
};

enum class StmtKind {
  kText,
  kPrint,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kAutoescape,
  kGeneration,
  kBlock,
  kBreak,
  kContinue,
  kNoLoader
};

struct Stmt {
  StmtKind kind;
  int line;
  std::string text;  // kText
  int symbol = -1;   // kMacro
  ExprPtr target;    // kFor, kSet, kSetBlock
  ExprPtr expr;  // kPrint, kFor, kSet, kCallBlock; a filter chain for kSetBlock and kFilterBlock
  ExprPtr condition;             // kFor
  bool recursive = false;        // kFor
  bool scoped = false;           // kBlock: sees the variables around it
  std::vector<ExprPtr> exprs;    // kIf: conditions; kWith: values
  std::vector<ExprPtr> targets;  // kWith
  // kIf: one per condition, then else; kFor: body, else; other kinds: body
  std::vector<Body> bodies;
  std::vector<std::vector<int>> unset;  // one per body with names of its own (scoping.h)
  MacroSpec macro;                      // kMacro, kCallBlock
};

// Symbols of every program, at fixed indices.
enum : int { kSymbolLoop, kSymbolCaller, kSymbolVarargs, kSymbolKwargs, kNumFixedSymbols };

struct Program {
  Body body;
  std::vector<int> unset;
  std::map<std::string, const Stmt*, std::less<>> blocks;
  std::vector<std::string> symbols;
};

}  // namespace sluice::jinja
