// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/store/run_threads.h: a function run by a few threads, whose errors reach the caller.
#pragma once

#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace dynemb::cpu::store {

// Calls function(part) for every part; the caller's thread takes the first one. Waits for all, then
// throws the first error. Reads wait for a disk, so there may be more threads than processors.
template <class Function>
void run_threads(uint64_t parts, Function const& function) {
  if (parts == 0) return;
  std::vector<std::exception_ptr> errors(parts);
  auto const run = [&](uint64_t part) {
    try {
      function(part);
    } catch (...) {
      errors[part] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  uint64_t started = 1;
  try {
    for (; started < parts; ++started) threads.emplace_back(run, started);
  } catch (std::system_error const&) {  // no more threads: the caller does the rest
  }
  run(0);
  for (auto part = started; part < parts; ++part) run(part);
  for (auto& thread : threads) thread.join();
  for (auto const& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

}  // namespace dynemb::cpu::store
