// Sluice as a library: load a model, ask one question, print the answer.
//
//   build/release/bin/generate_example models/sluice-tiny "What is the capital of France?"
#include <cstdio>
#include <future>

#include "engine/engine.h"
#include "text/tokenizer/tokenizer.h"

int main(int argc, char** argv) {
  sluice::Options options;
  options.model = argc > 1 ? argv[1] : "models/sluice-tiny";
  auto engine = sluice::Engine::create(options);
  auto tokenizer = sluice::Tokenizer::load(engine->model_directory());

  sluice::Request request;
  const std::string question = argc > 2 ? argv[2] : "What is the capital of France?";
  request.prompt_ids =
      tokenizer->encode("[gMASK]<sop><|user|>\n" + question + "<|assistant|>\n", {});
  request.params.temperature = 0;
  request.max_new_tokens = 64;

  std::vector<std::int32_t> answer;
  std::promise<void> done;
  auto id = engine->submit(std::move(request), [&](sluice::Event&& event) {
    answer.insert(answer.end(), event.tokens.begin(), event.tokens.end());
    if (event.finish != sluice::FinishReason::kNone) done.set_value();
  });
  if (!id.ok()) return std::fprintf(stderr, "error: %s\n", id.fault().message.c_str()), 1;
  done.get_future().wait();
  std::printf("%s\n", tokenizer->decode(answer, true).c_str());
}
