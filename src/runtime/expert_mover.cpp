#include "runtime/expert_mover.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "runtime/agreement.h"

namespace sluice {
namespace {

std::uint64_t hash_layers(const std::vector<ExpertLayer>& layers) {
  std::uint64_t hash = layers.size();
  for (const ExpertLayer& layer : layers) {
    hash = hash_span(std::span<const std::int32_t>(layer.map), hash);
    for (const std::int64_t number : {std::int64_t{layer.groups}, layer.first_rank_bytes,
                                      layer.other_rank_bytes, layer.stacks.front().at(0).bytes()})
      hash = hash_combine(hash, static_cast<std::uint64_t>(number));
    hash = hash_combine(hash, static_cast<std::uint64_t>(layer.stacks.front().dtype));
  }
  return hash;
}

}  // namespace

ExpertMover::ExpertMover(std::vector<ExpertLayer>& layers, Communicator& communicator)
    : layers_(layers), communicator_(communicator) {
  for (const ExpertLayer& layer : layers_)
    check(communicator.size() % layer.groups == 0, "{} groups of {} ranks", layer.groups,
          communicator.size());
  require_agreement(communicator, "places and form of experts", hash_layers(layers_));
}

void ExpertMover::run(std::span<const ExpertMove> moves) {
  seconds_ = 0;
  if (moves.empty()) return;
  // Ranks begin a step at different times. Waiting for the last one is no work of a move: without
  // moves the first sum of the step would wait.
  communicator_.barrier();
  const auto start = std::chrono::steady_clock::now();
  for (const ExpertMove& one : moves) {
    check(one.layer >= 0 && static_cast<std::size_t>(one.layer) < layers_.size(),
          "experts of layer {} of {} move", one.layer, layers_.size());
    move(layers_[static_cast<std::size_t>(one.layer)], one);
  }
  seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void ExpertMover::move(ExpertLayer& layer, const ExpertMove& move) {
  const auto places = static_cast<std::int32_t>(layer.map.size());
  check(move.from >= 0 && move.from < places && move.to >= 0 && move.to < places &&
            move.from != move.to && layer.map[static_cast<std::size_t>(move.from)] == move.expert,
        "expert {} moves from place {} to place {} of {}", move.expert, move.from, move.to, places);
  check(move.begin >= 0 && move.begin < move.end && move.end <= layer.first_rank_bytes,
        "bytes {} to {} of an expert of {}", move.begin, move.end, layer.first_rank_bytes);
  const auto to = static_cast<std::size_t>(move.to);
  if (move.begin == 0) {
    ExpertMap map = layer.map;
    map[to] = kNoExpert;
    layer.set_map(std::move(map));
  }
  check(layer.map[to] == kNoExpert, "place {} gets an expert while it serves another", move.to);
  const int group_ranks = communicator_.size() / layer.groups;
  const int from_group = move.from / layer.group_places(),
            to_group = move.to / layer.group_places();
  for (int column = 0; column < group_ranks; ++column) {
    const std::int64_t end =
        std::min(move.end, column == 0 ? layer.first_rank_bytes : layer.other_rank_bytes);
    if (move.begin < end)
      copy(layer, move, end, from_group * group_ranks + column, to_group * group_ranks + column);
  }
  if (move.end < layer.first_rank_bytes) return;
  ExpertMap map = layer.map;
  map[to] = move.expert;
  layer.set_map(std::move(map));
}

void ExpertMover::copy(const ExpertLayer& layer, const ExpertMove& move, std::int64_t end, int from,
                       int to) {
  const int own = communicator_.rank();
  if (from == to && own != from) return;
  std::int64_t first = 0;  // of a stack's part among the bytes of an expert
  for (std::size_t i = 0; first < end; ++i) {
    // A rank that has no such stack is neither sender nor receiver: it passes what is left.
    const bool has = i < layer.stacks.size();
    const std::int64_t bytes = has ? layer.stacks[i].at(0).bytes() : end - first;
    const std::int64_t begin = std::max(move.begin, first), stop = std::min(end, first + bytes);
    const auto part_at = [&](std::int32_t place) {
      return static_cast<std::byte*>(layer.stacks[i].at(place % layer.group_places()).data) +
             begin - first;
    };
    if (begin < stop) {
      const std::int64_t count = stop - begin;
      if (from == to) {
        std::memcpy(part_at(move.to), part_at(move.from), static_cast<std::size_t>(count));
      } else {
        if (own != from && own != to)
          passing_.resize(std::max(passing_.size(), static_cast<std::size_t>(count)));
        std::byte* const part = own == from ? part_at(move.from)
                                : own == to ? part_at(move.to)
                                            : passing_.data();
        communicator_.broadcast(Tensor::dense(part, DType::kU8, {count}), from);
      }
    }
    first += bytes;
  }
}

}  // namespace sluice
