// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/tiers/swap_beside.cc: a thread copies records while others do something else.
//
// XLA knows run_swap as a call that has not ended, and so orders all else around it: begin_swap and
// end_swap have nothing to do here.
#include <functional>
#include <memory>
#include <system_error>
#include <thread>

#include "cpu/table_ops.h"

namespace dynemb::cpu {
namespace {

SettleArgs arriving_of(WriteBackArgs const& args) {
  SettleArgs result;
  result.num_tables = args.num_tables;
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto const& one = args.tables[t];
    auto& settled = result.tables[t];
    settled = {one.table, {}, one.num_rows, one.counts, one.num_arriving, one.arriving, one.into};
    settled.tier.homes = one.homes;
    settled.tier.record_bytes = one.record_bytes;
  }
  return result;
}

// Rows go home before records come, because a record may come to a row that goes.
void swap(WriteBackArgs const& args, ThreadPool const& pool) {
  write_back(args, pool);
  settle(arriving_of(args), pool);
}

}  // namespace

void begin_swap(WriteBackArgs const& /*args*/, ThreadPool const& /*pool*/) {}

// A thread of its own: those of the pool may all wait for other devices, which wait for these rows.
void run_swap(WriteBackArgs const& args, ThreadPool const& pool, std::function<void()> ended) {
  auto const own = std::make_shared<WriteBackArgs const>(args);  // `args` are the caller's
  try {
    std::thread([own, ended] {
      swap(*own, ThreadPool{});
      ended();
    }).detach();
  } catch (std::system_error const&) {  // the system has no thread left
    swap(*own, pool);
    ended();
  }
}

void end_swap(WriteBackArgs const& /*args*/, ThreadPool const& /*pool*/) {}

}  // namespace dynemb::cpu
