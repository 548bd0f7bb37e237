// Filters of lists and maps; see filters_list.cpp.
#pragma once

#include "text/jinja/filters.h"

namespace sluice::jinja::filters {

Value attr(Interpreter&, const Value&, const Arguments&);
Value batch(Interpreter&, const Value&, const Arguments&);
Value choose(Interpreter&, const Value&, const Arguments&);
Value default_value(Interpreter&, const Value&, const Arguments&);
Value dictsort(Interpreter&, const Value&, const Arguments&);
Value extreme(Interpreter&, const Value&, const Arguments&);
Value first(Interpreter&, const Value&, const Arguments&);
Value groupby(Interpreter&, const Value&, const Arguments&);
Value items(Interpreter&, const Value&, const Arguments&);
Value join(Interpreter&, const Value&, const Arguments&);
Value last(Interpreter&, const Value&, const Arguments&);
Value length(Interpreter&, const Value&, const Arguments&);
Value list(Interpreter&, const Value&, const Arguments&);
Value map(Interpreter&, const Value&, const Arguments&);
Value max(Interpreter&, const Value&, const Arguments&);
Value min(Interpreter&, const Value&, const Arguments&);
Value random(Interpreter&, const Value&, const Arguments&);
Value reject(Interpreter&, const Value&, const Arguments&);
Value rejectattr(Interpreter&, const Value&, const Arguments&);
Value reverse(Interpreter&, const Value&, const Arguments&);
Value select(Interpreter&, const Value&, const Arguments&);
Value selectattr(Interpreter&, const Value&, const Arguments&);
Value slice(Interpreter&, const Value&, const Arguments&);
Value sort(Interpreter&, const Value&, const Arguments&);
Value sum(Interpreter&, const Value&, const Arguments&);
Value unique(Interpreter&, const Value&, const Arguments&);

}  // namespace sluice::jinja::filters
