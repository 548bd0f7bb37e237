// Where states of recurrent layers are saved, and how later requests use them.
#include <gtest/gtest.h>

#include "scheduler/testing/sim_world.h"

namespace sluice {
namespace {

using sim::plain_tokens;
using sim::prompt_of;
using sim::request_of;
using sim::World;

SchedulerOptions with_states(std::int64_t states, int depth = 1) {
  SchedulerOptions options = sim::options_of(64);
  options.groups.push_back({"state", Retention::kState, 0, states});
  options.chunked_prefill_tokens = 100;
  options.max_steps_in_flight = depth;
  return options;
}

// Prompts with a common beginning of `shared` tokens.
std::vector<std::int32_t> variant(int shared, int size, int salt) {
  std::vector<std::int32_t> prompt = prompt_of(shared);
  const auto own = prompt_of(size - shared, salt);
  prompt.insert(prompt.end(), own.begin(), own.end());
  return prompt;
}

// Runs a request to its end and returns how many of its tokens came from the cache.
int run(World& world, const SchedulerOptions& options, std::uint64_t id,
        const std::vector<std::int32_t>& prompt, int max_new = 5) {
  EXPECT_TRUE(world.scheduler.add(request_of(id, prompt, max_new)).ok());
  world.run();
  EXPECT_EQ(world.of(id).tokens, plain_tokens(options, prompt, {}, max_new)) << "request " << id;
  return world.of(id).cached_tokens;
}

TEST(States, AreKeptBeforeThePromptsLastPageAndAtTheEnd) {
  for (const int depth : {1, 3}) {
    const SchedulerOptions options = with_states(16, depth);
    World world(options);
    EXPECT_EQ(run(world, options, 1, prompt_of(200)), 0);
    EXPECT_EQ(run(world, options, 2, prompt_of(200)), 192);
    // If a prompt consists of whole pages, its last token must still be computed.
    EXPECT_EQ(run(world, options, 3, prompt_of(192, 7)), 0);
    EXPECT_EQ(run(world, options, 4, prompt_of(192, 7)), 128);
  }
  // A conversation continues after the generated tokens, inside a page. With several steps in
  // flight the state at the end includes a token too many.
  const SchedulerOptions options = with_states(16);
  World world(options);
  run(world, options, 1, prompt_of(200));
  std::vector<std::int32_t> next = prompt_of(200);
  next.insert(next.end(), world.of(1).tokens.begin(), world.of(1).tokens.end());
  const auto question = prompt_of(40, 9);
  next.insert(next.end(), question.begin(), question.end());
  EXPECT_EQ(run(world, options, 2, next), 204);
}

TEST(States, AreKeptWherePromptsPart) {
  for (const int depth : {1, 3}) {
    const SchedulerOptions options = with_states(16, depth);
    World world(options);
    // The first prompt has nothing to share. The second finds where the two diverge. The third
    // begins there.
    EXPECT_EQ(run(world, options, 1, variant(140, 300, 1)), 0);
    EXPECT_EQ(run(world, options, 2, variant(140, 290, 2)), 0);
    EXPECT_EQ(run(world, options, 3, variant(140, 310, 3)), 128);
    // A prompt that diverges later begins at the same length, and saves a second state.
    EXPECT_EQ(run(world, options, 4, variant(140, 310, 3)), 256);
  }
}

TEST(States, OfAModelWithoutPages) {
  SchedulerOptions options = with_states(16);
  options.groups.erase(options.groups.begin());
  World world(options);
  EXPECT_EQ(run(world, options, 1, variant(140, 300, 1)), 0);
  EXPECT_EQ(run(world, options, 2, variant(140, 290, 2)), 0);
  EXPECT_EQ(run(world, options, 3, variant(140, 310, 3)), 128);
  EXPECT_EQ(run(world, options, 4, variant(140, 310, 3)), 256);
}

TEST(States, FewOfThemMakeRequestsWaitAndForgetPrefixes) {
  for (const int states : {1, 2, 3}) {
    const SchedulerOptions options = with_states(states);
    World world(options);
    for (std::uint64_t id = 1; id <= 6; ++id) {
      QueuedRequest request = request_of(id, variant(70, 150, static_cast<int>(id)), 20);
      request.num_choices = id == 3 ? 3 : 1;
      ASSERT_TRUE(world.scheduler.add(std::move(request)).ok());
    }
    world.run();
    for (std::uint64_t id = 1; id <= 6; ++id)
      for (int choice = 0; choice < (id == 3 ? 3 : 1); ++choice)
        EXPECT_EQ(world.of(id, choice).tokens,
                  plain_tokens(options, variant(70, 150, static_cast<int>(id)), {}, 20, choice));
    EXPECT_EQ(world.scheduler.stats().groups[1].retention, Retention::kState);
    EXPECT_EQ(world.scheduler.stats().groups[1].used_pages, 0);
    EXPECT_LE(world.scheduler.stats().groups[1].cached_pages, states);
  }
}

}  // namespace
}  // namespace sluice
