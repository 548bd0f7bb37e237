#include "hub/expand_path.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "hub/hub_environment.h"

namespace sluice {
namespace {

// The right column is what os.path.expandvars(os.path.expanduser(path)) gives.
TEST(ExpandPath, AsPythonDoes) {
  ::setenv("SLUICE_TEST_A", "one", 1);
  ::setenv("SLUICE_TEST_B", "$SLUICE_TEST_A/~", 1);
  ::setenv("SLUICE_TEST_EMPTY", "", 1);
  ::unsetenv("SLUICE_TEST_NONE");
  const std::pair<const char*, const char*> rows[] = {
      {"~", "/home/u"},
      {"~/x", "/home/u/x"},
      {"x/~", "x/~"},
      {"~no-such-account/x", "~no-such-account/x"},
      {"/d/$SLUICE_TEST_A/x", "/d/one/x"},
      {"/d/${SLUICE_TEST_A}x", "/d/onex"},
      {"/d/$SLUICE_TEST_Ax", "/d/$SLUICE_TEST_Ax"},
      {"$SLUICE_TEST_A$SLUICE_TEST_A", "oneone"},
      {"$SLUICE_TEST_B", "$SLUICE_TEST_A/~"},
      {"a$SLUICE_TEST_EMPTY/b", "a/b"},
      {"$SLUICE_TEST_NONE/x", "$SLUICE_TEST_NONE/x"},
      {"${SLUICE_TEST_NONE}/$SLUICE_TEST_A", "${SLUICE_TEST_NONE}/one"},
      {"${SLUICE_TEST_A", "${SLUICE_TEST_A"},
      {"${$SLUICE_TEST_A}", "${$SLUICE_TEST_A}"},
      {"a$", "a$"},
      {"a$$SLUICE_TEST_A", "a$one"},
      {"${}/x", "${}/x"},
      {"a$-b", "a$-b"},
      {"", ""},
  };
  for (const auto& [path, expanded] : rows)
    EXPECT_EQ(expand_path(path, "/home/u"), expanded) << path;
  EXPECT_EQ(expand_path("~/x", "/home/u/"), "/home/u/x");
  EXPECT_EQ(expand_path("~", "/"), "/");
}

TEST(ExpandPath, EveryDirectoryOfTheHubIsExpanded) {
  ::setenv("SLUICE_TEST_A", "one", 1);
  HubEnvironment e;
  e.home = "/home/u";
  e.xdg_cache_home = "~/$SLUICE_TEST_A/";
  EXPECT_EQ(e.cache_directory(), "/home/u/one/huggingface/hub");
  e.hf_home = "/d/${SLUICE_TEST_A}";
  EXPECT_EQ(e.cache_directory(), "/d/one/hub");
  e.huggingface_hub_cache = "$SLUICE_TEST_A/hub";
  EXPECT_EQ(e.cache_directory(), "one/hub");
  e.hf_hub_cache = "~/hub-$SLUICE_TEST_A";
  EXPECT_EQ(e.cache_directory(), "/home/u/hub-one");
}

}  // namespace
}  // namespace sluice
