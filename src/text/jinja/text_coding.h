// Methods of str and bytes that turn one into the other, or map characters.
#pragma once

#include "text/jinja/values/callable.h"

namespace sluice::jinja {

Value encode_text(Interpreter& in, Callable& method, const Arguments& a);
Value decode_bytes(Interpreter& in, Callable& method, const Arguments& a);
Value translate(Interpreter& in, Callable& method, const Arguments& a);
Value make_translation(Interpreter& in, Callable& method, const Arguments& a);

}  // namespace sluice::jinja
