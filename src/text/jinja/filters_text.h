// Filters of text and numbers; see filters_text.cpp.
#pragma once

#include "text/jinja/filters.h"

namespace sluice::jinja::filters {

Value abs(Interpreter&, const Value&, const Arguments&);
Value capitalize(Interpreter&, const Value&, const Arguments&);
Value center(Interpreter&, const Value&, const Arguments&);
Value escape(Interpreter&, const Value&, const Arguments&);
Value filesizeformat(Interpreter&, const Value&, const Arguments&);
Value force_escape(Interpreter&, const Value&, const Arguments&);
Value format(Interpreter&, const Value&, const Arguments&);
Value indent(Interpreter&, const Value&, const Arguments&);
Value lower(Interpreter&, const Value&, const Arguments&);
Value pprint(Interpreter&, const Value&, const Arguments&);
Value replace(Interpreter&, const Value&, const Arguments&);
Value round(Interpreter&, const Value&, const Arguments&);
Value safe(Interpreter&, const Value&, const Arguments&);
Value string(Interpreter&, const Value&, const Arguments&);
Value striptags(Interpreter&, const Value&, const Arguments&);
Value title(Interpreter&, const Value&, const Arguments&);
Value to_float(Interpreter&, const Value&, const Arguments&);
Value to_int(Interpreter&, const Value&, const Arguments&);
Value tojson(Interpreter&, const Value&, const Arguments&);
Value trim(Interpreter&, const Value&, const Arguments&);
Value truncate(Interpreter&, const Value&, const Arguments&);
Value upper(Interpreter&, const Value&, const Arguments&);
Value urlencode(Interpreter&, const Value&, const Arguments&);
Value urlize(Interpreter&, const Value&, const Arguments&);
Value wordcount(Interpreter&, const Value&, const Arguments&);
Value wordwrap(Interpreter&, const Value&, const Arguments&);
Value xmlattr(Interpreter&, const Value&, const Arguments&);

}  // namespace sluice::jinja::filters
