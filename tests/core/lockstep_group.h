// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/core/lockstep_group.h: a group played by threads, so that the cooperative paths of
// core/ run, and are checked by sanitizers, on a machine without a GPU.
#pragma once

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <thread>
#include <vector>

namespace dynemb::testing {

// The lanes of one group share this.
class Lanes {
 public:
  explicit Lanes(int size) : barrier_(size), words_(size_t(size)) {}
  int size() const { return static_cast<int>(words_.size()); }

  // Every lane gives a value and gets the values of all.
  std::vector<uint64_t> words(int rank, uint64_t value) {
    words_[size_t(rank)] = value;
    barrier_.arrive_and_wait();
    auto const all = words_;
    barrier_.arrive_and_wait();
    return all;
  }

 private:
  std::barrier<> barrier_;
  std::vector<uint64_t> words_;
};

class LockstepGroup {
 public:
  static constexpr int kLeastSize = 1;

  LockstepGroup(Lanes* lanes, int rank) : lanes_(lanes), rank_(rank) {}
  int size() const { return lanes_->size(); }
  int rank() const { return rank_; }
  uint64_t ballot(bool value) const {
    auto const all = lanes_->words(rank_, value ? 1 : 0);
    uint64_t lanes = 0;
    for (size_t rank = 0; rank < all.size(); ++rank) lanes |= all[rank] << rank;
    return lanes;
  }
  uint64_t min(uint64_t value) const {
    auto const all = lanes_->words(rank_, value);
    return *std::min_element(all.begin(), all.end());
  }
  uint64_t broadcast(uint64_t value, int rank) const {
    return lanes_->words(rank_, value)[size_t(rank)];
  }

 private:
  Lanes* lanes_;
  int rank_;
};

// Runs function(group) on every lane of a new group of `size` threads.
template <class Function>
void run_lockstep(int size, Function const& function) {
  Lanes lanes(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] { function(LockstepGroup(&lanes, rank)); });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace dynemb::testing
