// The behaviour of `transformers` around a chat template (utils/chat_template_utils.py,
// render_jinja_template): the variables, the names of reasoning, and the cut of
// continue_final_message. Sluice adds no adaptation here.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/jinja/template.h"

namespace sluice {

struct ChatRenderInput {
  Json messages = Json::array();
  Json tools;      // null: none
  Json documents;  // null: none
  bool add_generation_prompt = false;
  bool continue_final_message = false;
  Json variables = Json::object();  // special tokens and the request's own
  jinja::Clock now;
  jinja::Limits limits;
};

// Raises jinja::TemplateError; its kind is kArguments where transformers itself refuses.
jinja::Rendered render_chat_template(const jinja::Template& chat_template, ChatRenderInput input);

}  // namespace sluice
