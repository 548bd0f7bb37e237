// The options that most users need, for `sluice VERB -h`.
#pragma once

#include <string_view>

namespace sluice {

inline constexpr std::string_view kCommonOptions[] = {"model-path",
                                                      "context-length",
                                                      "dtype",
                                                      "quantization",
                                                      "device",
                                                      "tp-size",
                                                      "max-total-tokens",
                                                      "max-running-requests",
                                                      "host",
                                                      "port",
                                                      "api-key",
                                                      "served-model-name",
                                                      "chat-template",
                                                      "log-level"};

}  // namespace sluice
