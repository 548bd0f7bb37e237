#include "server/core/model_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::Contains;
using testing::ElementsAre;

std::string own(const std::string& directory, const std::string& repo_id = "") {
  const ModelNames names = model_names({}, "as-given", {directory, repo_id, ""});
  EXPECT_EQ(names.names.size(), 1u);
  EXPECT_FALSE(names.any);
  EXPECT_THAT(names.aliases, Contains("as-given"));
  return names.names.at(0);
}

TEST(ModelNames, APathGivesItsLastPart) {
  EXPECT_EQ(own("models/sluice-tiny"), "sluice-tiny");
  EXPECT_EQ(own("models/sluice-tiny/"), "sluice-tiny");
  EXPECT_EQ(own("/a/b/Model.Q4_K_M.gguf"), "Model.Q4_K_M");
  EXPECT_EQ(own("/a/big-00001-of-00003.gguf"), "big");
  EXPECT_EQ(own("/a/big-00001-of-0003.gguf"), "big-00001-of-0003");
  EXPECT_EQ(own("/"), "as-given");
}

TEST(ModelNames, AModelOfTheHubHasItsRepositorysName) {
  EXPECT_EQ(own("/cache/models--org--name/snapshots/abc", "org/name"), "org/name");
  EXPECT_EQ(own("/cache/models--org--name/snapshots/abc"), "org/name");
  EXPECT_EQ(own("/cache/models--org--name/snapshots/abc/x.gguf"), "org/name");
  EXPECT_EQ(own("/cache/models--gpt2/snapshots/abc"), "gpt2");
}

TEST(ModelNames, ServedNamesWin) {
  const ModelNames names = model_names({"a", "*", "b", "a"}, "dir/m", {"dir/m", "", ""});
  EXPECT_THAT(names.names, ElementsAre("a", "b"));
  EXPECT_TRUE(names.any);
  EXPECT_THAT(names.aliases, ElementsAre("dir/m", "default", "dummy", "tgi"));
  const ModelNames any = model_names({"*"}, "dir/m", {"dir/m", "", ""});
  EXPECT_THAT(any.names, ElementsAre("m"));
  EXPECT_TRUE(any.any);
}

}  // namespace
}  // namespace sluice
