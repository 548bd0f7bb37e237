#include "cli/download_bars.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

namespace sluice {
namespace {

using testing::HasSubstr;

std::string text_of(std::FILE* file) {
  std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

DownloadProgress progress_of(std::uint64_t done, bool finished) {
  DownloadProgress progress;
  progress.repo_id = "org/m";
  progress.files = {{"there.json", 10, 10, true, true, true},
                    {"w.bin", 4 << 20, done, true, finished, false}};
  progress.size = (4 << 20) + 10;
  progress.done = done + 10;
  progress.present = 10;
  return progress;
}

TEST(DownloadBars, Lines) {
  EXPECT_EQ(download_line("w.bin", 1 << 20, 4 << 20, ", 1.0 MiB/s", 80),
            "w.bin                      [###...........]  25 %  1.0 MiB of 4.0 MiB, 1.0 MiB/s");
  EXPECT_EQ(download_line("w.bin", 2 << 20, 4 << 20, "", 100),
            "w.bin                             [###############...............]  50 %  2.0 MiB of "
            "4.0 MiB");
  EXPECT_THAT(download_line("a-very-long-name-of-a-model-00001-of-00009.safetensors", 0, 1, "", 90),
              HasSubstr("..."));
  EXPECT_THAT(download_line("a-very-long-name-of-a-model-00001-of-00009.safetensors", 0, 1, "", 90),
              HasSubstr("-00009.safetensors"));
  EXPECT_LE(download_line(std::string(100, 'x'), 5, 3, "", 40).size(),
            40u);  // more than all is all
  EXPECT_THAT(download_line("empty", 0, 0, "", 100), HasSubstr("100 %"));
}

TEST(DownloadBars, PlainLinesWithoutATerminal) {
  std::FILE* const file = std::tmpfile();
  {
    DownloadBars bars(file, false, 80);
    const DownloadObserver observer = bars.observer();
    observer.on_progress(progress_of(0, false));
    observer.on_note("a note");
    observer.on_progress(progress_of(4 << 20, true));
    observer.on_progress(progress_of(4 << 20, true));
  }
  EXPECT_EQ(text_of(file), "a note\nw.bin: 4.0 MiB (2 of 2 files)\n");
}

TEST(DownloadBars, BarsOnATerminal) {
  std::FILE* const file = std::tmpfile();
  {
    DownloadBars bars(file, true, 100);
    const DownloadObserver observer = bars.observer();
    observer.on_progress(progress_of(1 << 20, false));
    observer.on_progress(progress_of(4 << 20, true));
  }
  const std::string text = text_of(file);
  EXPECT_THAT(text, HasSubstr("w.bin"));
  EXPECT_THAT(text, HasSubstr("1 of 2 files"));
  EXPECT_THAT(text, HasSubstr("\x1b[2A\r\x1b[J"));  // both lines are taken back
  EXPECT_THAT(text, testing::EndsWith("w.bin: 4.0 MiB (2 of 2 files)\n"));
}

}  // namespace
}  // namespace sluice
