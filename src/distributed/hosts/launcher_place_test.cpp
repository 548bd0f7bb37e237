#include "distributed/hosts/launcher_place.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace sluice {
namespace {

std::optional<LauncherPlace> place_in(const std::map<std::string, std::string>& environment) {
  return launcher_place([&](const char* name) -> const char* {
    const auto at = environment.find(name);
    return at == environment.end() ? nullptr : at->second.c_str();
  });
}

std::string refusal_in(const std::map<std::string, std::string>& environment) {
  try {
    place_in(environment);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.message();
  }
  return "";
}

TEST(LauncherPlace, MpirunSaysNodesAndNoAddress) {
  const auto place = place_in({{"OMPI_COMM_WORLD_RANK", "1"},
                               {"OMPI_COMM_WORLD_SIZE", "3"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                               {"SLURM_PROCID", "0"},
                               {"SLURM_NTASKS", "1"}});
  ASSERT_TRUE(place);
  EXPECT_EQ(place->launcher, "mpirun");
  EXPECT_EQ(place->node, 1);
  EXPECT_EQ(place->num_nodes, 3);
  EXPECT_EQ(place->num_here, 2);
  EXPECT_EQ(place->address, "");
  EXPECT_EQ(place->node_variable, "OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(place->nodes_variable, "OMPI_COMM_WORLD_SIZE");
}

TEST(LauncherPlace, SlurmNamesTheFirstHost) {
  const auto place = place_in({{"SLURM_PROCID", "2"},
                               {"SLURM_NTASKS", "4"},
                               {"SLURM_NNODES", "4"},
                               {"SLURM_JOB_NODELIST", "rack[1-2]-n[07,09-12],login"}});
  ASSERT_TRUE(place);
  EXPECT_EQ(place->node, 2);
  EXPECT_EQ(place->address, "rack1-n07:20000");
  EXPECT_EQ(place->address_variable, "SLURM_JOB_NODELIST");
  // A step on some nodes of a job.
  EXPECT_EQ(place_in({{"SLURM_NODEID", "0"},
                      {"SLURM_NNODES", "2"},
                      {"SLURM_STEP_NODELIST", "b3,b5"},
                      {"SLURM_JOB_NODELIST", "b[1-9]"}})
                ->address,
            "b3:20000");
  EXPECT_FALSE(place_in({{"SLURM_NNODES", "4"}, {"SLURM_NTASKS", "4"}})) << "a shell of salloc";
  EXPECT_EQ(place_in({{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}, {"SLURM_NNODES", "2"}})
                ->nodes_variable,
            "SLURM_NNODES");
}

TEST(LauncherPlace, FirstHostOfAList) {
  EXPECT_EQ(first_host("one"), "one");
  EXPECT_EQ(first_host("one,two"), "one");
  EXPECT_EQ(first_host("n[001-128]"), "n001");
  EXPECT_EQ(first_host("n[3,5].cluster"), "n3.cluster");
  EXPECT_EQ(first_host("n[3"), "");
  EXPECT_EQ(first_host(""), "");
}

TEST(LauncherPlace, LeaderWorkerSetNamesItsLeader) {
  const auto place = place_in({{"LWS_WORKER_INDEX", "0"},
                               {"LWS_GROUP_SIZE", "2"},
                               {"LWS_LEADER_ADDRESS", "chat-0.chat.default"}});
  ASSERT_TRUE(place);
  EXPECT_EQ(place->address, "chat-0.chat.default:20000");
  EXPECT_EQ(
      place_in(
          {{"LWS_WORKER_INDEX", "0"}, {"LWS_GROUP_SIZE", "2"}, {"LWS_LEADER_ADDRESS", "fd00::7"}})
          ->address,
      "[fd00::7]:20000");
}

TEST(LauncherPlace, WhatIsMissingOrNoNumberIsNamed) {
  EXPECT_FALSE(place_in({}));
  const auto says = [](const std::string& text, const char* name) {
    return text.find(name) != std::string::npos;
  };
  EXPECT_TRUE(says(refusal_in({{"OMPI_COMM_WORLD_RANK", "0"}}), "not OMPI_COMM_WORLD_SIZE"));
  EXPECT_TRUE(says(refusal_in({{"OMPI_COMM_WORLD_SIZE", "2"}}), "not OMPI_COMM_WORLD_RANK"));
  EXPECT_TRUE(says(refusal_in({{"LWS_LEADER_ADDRESS", "a"}}), "not LWS_WORKER_INDEX"));
  EXPECT_TRUE(says(refusal_in({{"SLURM_PROCID", "0"}}), "not SLURM_NTASKS"));
  EXPECT_TRUE(says(refusal_in({{"PMI_RANK", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}),
                   "not PMI_SIZE"));
  EXPECT_TRUE(says(refusal_in({{"SLURM_PROCID", "x"}, {"SLURM_NTASKS", "2"}}), "SLURM_PROCID"));
  EXPECT_TRUE(says(refusal_in({{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "2"}}), "0 to 1"));
  EXPECT_TRUE(says(
      refusal_in({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_NODELIST", "n[1"}}),
      "names no host"));
}

}  // namespace
}  // namespace sluice
