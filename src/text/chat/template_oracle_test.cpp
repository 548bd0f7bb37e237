// Every recorded chat template and snippet of tests/golden/chat_templates.
#include "text/chat/template_oracle.h"
#include "base/testing/source_dir.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace sluice {
namespace {

const std::string kFolder = source_dir() + "/tests/golden/chat_templates";

Json read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return parse_json_or_throw(std::string(std::istreambuf_iterator<char>(file), {}), path,
                             kRequestJson);
}

void expect_clean(const OracleReport& report) {
  EXPECT_EQ(report.failures, 0);
  for (const std::string& message : report.messages) ADD_FAILURE() << message;
}

TEST(TemplateOracle, EveryTemplateFolder) {
  int folders = 0, cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().filename().string());
    const OracleReport report = check_chat_template_oracle(
        entry.path().string(), read(entry.path().string() + "/cases.json"));
    expect_clean(report);
    ++folders;
    cases += report.cases;
  }
  EXPECT_EQ(folders, 20);
  EXPECT_EQ(cases, 660);
}

// The bundled template differs from the recorded one in system messages behind the first alone.
TEST(TemplateOracle, TheBundledTemplateGivesTheRecordedPrompts) {
  Json file = read(kFolder + "/glm5-tiny/cases.json"), kept = Json::array();
  for (const Json& item : file["cases"]) {
    bool is_kept = true, is_first = true;
    for (const Json& message : item["messages"]) {
      is_kept = is_kept && (is_first || !message.is_object() ||
                            message.value("role", std::string()) != "system");
      is_first = false;
    }
    if (is_kept) kept.push_back(item);
  }
  EXPECT_GE(kept.size() + 2, file["cases"].size());
  file["cases"] = std::move(kept);
  const OracleReport report =
      check_chat_template_oracle(source_dir() + "/models/sluice-tiny", file);
  expect_clean(report);
  EXPECT_GT(report.cases, 20);
}

TEST(TemplateOracle, Snippets) {
  const OracleReport report = check_snippets(read(kFolder + "/snippets.json"));
  expect_clean(report);
  EXPECT_EQ(report.cases, 129);
}

// Readings of the language that people get wrong, on a context with integers of any size.
TEST(TemplateOracle, Language) {
  const OracleReport report = check_snippets(read(kFolder + "/language.json"));
  expect_clean(report);
  EXPECT_GT(report.cases, 330);
}

TEST(TemplateOracle, SeesDifferences) {
  Json file = read(kFolder + "/chatml/cases.json");
  file["cases"][0]["expected"] = file["cases"][0]["expected"].get<std::string>() + " ";
  EXPECT_EQ(check_chat_template_oracle(kFolder + "/chatml", file).failures, 1);
  Json snippets = read(kFolder + "/snippets.json");
  snippets["snippets"][0]["expected"] = "8";
  snippets["snippets"][5]["error"]["type"] = "ValueError";
  EXPECT_EQ(check_snippets(snippets).failures, 2);
}

TEST(TemplateOracle, RefusesOtherFiles) {
  EXPECT_THROW(check_snippets(Json::array()), Error);
  EXPECT_THROW(check_chat_template_oracle(kFolder, Json::object()), Error);
}

}  // namespace
}  // namespace sluice
