// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/host/cuda_runtime.h: as much of CUDA as the kernels of tests/cuda need, on a host.
//
// The threads of a block are contexts that take turns, and blocks run one after the other, in any
// order that the test wants. A thread goes on until it has to wait for others: at a barrier of the
// block, or at an operation of some lanes of its warp. What an operation of a warp must not do
// ends the program: a lane that its own mask leaves out, a value from a lane that is not in it, a
// wait that never ends. What is not here: memory that other blocks see late, and time.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)

using cudaError_t = int;
using cudaStream_t = void*;
constexpr cudaError_t cudaSuccess = 0;
constexpr cudaError_t cudaErrorInvalidValue = 1;
constexpr int cudaDevAttrMultiProcessorCount = 0;
constexpr int cudaDevAttrMaxSharedMemoryPerBlockOptin = 1;

inline cudaError_t cudaGetDevice(int*) { return cudaSuccess; }
inline cudaError_t cudaMemsetAsync(void* to, int byte, size_t bytes, cudaStream_t /*stream*/) {
  std::memset(to, byte, bytes);
  return cudaSuccess;
}
namespace dynemb::testing {
inline int multiprocessors = 0;  // the test's choice
}
inline cudaError_t cudaDeviceGetAttribute(int* value, int attribute, int) {
  if (attribute == cudaDevAttrMultiProcessorCount) *value = dynemb::testing::multiprocessors;
  if (attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin) *value = 227 * 1024;
  return cudaSuccess;
}
constexpr int cudaFuncAttributeMaxDynamicSharedMemorySize = 0;
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel, int, int) {
  return cudaSuccess;
}
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int*, Kernel, int, size_t) {
  return cudaSuccess;
}

struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
struct uint4 {
  uint32_t x, y, z, w;
};
struct uint2 {
  uint32_t x, y;
};
struct Index {
  unsigned x;
};
inline Index threadIdx, blockIdx, blockDim, gridDim;

using std::max;
using std::min;

namespace dynemb::testing {

[[noreturn]] inline void fail(char const* what) {
  std::fprintf(stderr, "block %u, thread %u: %s\n", blockIdx.x, threadIdx.x, what);
  std::abort();
}

// Lanes of a warp meet here. Two meetings that follow each other keep their values in two places: a
// lane may still read those of the last one.
struct Meeting {
  unsigned arrived = 0;
  unsigned number = 0;
  uint64_t values[2][32];
};

class Block {
 public:
  static Block& current() {
    static Block block;
    return block;
  }

  void run(int threads, std::function<void()> const& body) {
    body_ = &body;
    of_some_.clear();
    arrived_ = turns_ = 0;
    blockDim.x = static_cast<unsigned>(threads);
    if (threads_.size() < blockDim.x) threads_.resize(blockDim.x);
    for (auto& thread : threads_) thread.done = false;
    for (auto left = threads; left > 0;) {
      for (unsigned i = 0; i < blockDim.x; ++i) {
        if (threads_[i].done) continue;
        now_ = &threads_[i];
        threadIdx.x = i;
        run_thread();
        left -= now_->done ? 1 : 0;
      }
      if (++turns_ > 1'000'000) fail("waits for ever");
    }
  }

  void wait_for_block() {
    auto const number = barriers_;
    if (++arrived_ == blockDim.x) {
      arrived_ = 0;
      ++barriers_;
    }
    while (barriers_ == number) yield();
  }

  // Returns the values of the lanes in the mask.
  uint64_t const* meet(unsigned mask, uint64_t value) {
    auto const lane = threadIdx.x % 32;
    if ((mask >> lane & 1) == 0) fail("a mask without its own lane");
    auto const warp = threadIdx.x / 32;
    auto& meeting = mask == ~0u ? of_whole_[warp] : of_some_[{warp, mask}];
    auto const number = meeting.number;
    auto* const values = meeting.values[number % 2];
    values[lane] = value;
    meeting.arrived |= 1u << lane;
    if (meeting.arrived == mask) {
      meeting.arrived = 0;
      ++meeting.number;
    }
    while (meeting.number == number) yield();
    return values;
  }

 private:
  static constexpr size_t kStackBytes = 256 * 1024;

// Jumps leave a stack that goes on later: AddressSanitizer should not take it for one that ends.
#define DYNEMB_CHANGES_STACK __attribute__((noinline, no_sanitize("address")))

  // Where a stack goes on. The compiler's own jumps, since swapcontext calls the system for signals
  // each time, and clears what AddressSanitizer knows of the stack.
  struct Place {
    void* words[5];
  };

  struct Thread {
    Place place;
    std::unique_ptr<char[]> stack;
    bool done;
  };

  // Of all blocks, one after the other, that a thread's stack serves.
  DYNEMB_CHANGES_STACK static void enter() {
    for (auto& block = current();;) {
      (*block.body_)();
      block.now_->done = true;
      block.yield();
    }
  }

  DYNEMB_CHANGES_STACK void run_thread() {
    if (__builtin_setjmp(scheduler_.words) != 0) return;
    if (now_->stack) jump_to(now_->place);
    now_->stack = std::make_unique_for_overwrite<char[]>(kStackBytes);  // most is never touched
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = now_->stack.get();
    context.uc_stack.ss_size = kStackBytes;
    context.uc_link = nullptr;
    makecontext(&context, &Block::enter, 0);
    setcontext(&context);
  }

  DYNEMB_CHANGES_STACK void yield() {
    if (__builtin_setjmp(now_->place.words) == 0) jump_to(scheduler_);
  }

  DYNEMB_CHANGES_STACK static void jump_to(Place& place) { __builtin_longjmp(place.words, 1); }

  std::function<void()> const* body_ = nullptr;
  // Of all lanes of a warp, under way nowhere where a block ends; and of some, by their mask.
  Meeting of_whole_[32];
  std::map<std::pair<unsigned, unsigned>, Meeting> of_some_;
  unsigned arrived_ = 0, barriers_ = 0;
  int64_t turns_ = 0;
  std::vector<Thread> threads_;
  Thread* now_ = nullptr;
  Place scheduler_;
};

template <class T>
uint64_t to_word(T value) {
  static_assert(sizeof(T) <= 8);
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(T));
  return word;
}
template <class T>
T from_word(uint64_t word) {
  T value;
  std::memcpy(&value, &word, sizeof(T));
  return value;
}

template <class T>
T value_of_lane(unsigned mask, T value, unsigned lane) {
  auto const* const values = Block::current().meet(mask, to_word(value));
  if ((mask >> lane & 1) == 0) fail("a value from a lane that is not in the mask");
  return from_word<T>(values[lane]);
}

// The test chooses the order in which blocks run.
inline std::function<void(std::vector<unsigned>&)> shuffle_blocks = [](auto&) {};

}  // namespace dynemb::testing

// The shared memory of a launch lies here.
inline std::vector<uint4> dynamic_memory;
inline uint4* memory_of_block() { return dynamic_memory.data(); }

template <class Call>
cudaError_t run_blocks(void (*kernel)(Call), int64_t blocks, int threads, size_t shared_bytes,
                       cudaStream_t /*stream*/, Call const& call) {
  gridDim.x = static_cast<unsigned>(blocks);
  dynamic_memory.resize((shared_bytes + sizeof(uint4) - 1) / sizeof(uint4));
  std::vector<unsigned> order;
  for (unsigned b = 0; b < gridDim.x; ++b) order.push_back(b);
  dynemb::testing::shuffle_blocks(order);
  for (auto const b : order) {
    blockIdx.x = b;
    dynemb::testing::Block::current().run(threads, [&] { kernel(call); });
  }
  return cudaSuccess;
}

inline void __syncthreads() { dynemb::testing::Block::current().wait_for_block(); }
inline void __syncwarp(unsigned mask = ~0u) { dynemb::testing::Block::current().meet(mask, 0); }
inline void __threadfence() {}
inline void __nanosleep(unsigned) {}

inline unsigned __ballot_sync(unsigned mask, bool predicate) {
  auto const* const values = dynemb::testing::Block::current().meet(mask, predicate);
  unsigned result = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) != 0 && values[lane] != 0) result |= 1u << lane;
  }
  return result;
}
inline bool __any_sync(unsigned mask, bool predicate) {
  return __ballot_sync(mask, predicate) != 0;
}

inline bool __all_sync(unsigned mask, bool predicate) {
  return __ballot_sync(mask, predicate) == mask;
}

inline unsigned __match_any_sync(unsigned mask, uint64_t value) {
  auto const* const values = dynemb::testing::Block::current().meet(mask, value);
  unsigned result = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) != 0 && values[lane] == value) result |= 1u << lane;
  }
  return result;
}

inline uint32_t __reduce_min_sync(unsigned mask, uint32_t value) {
  auto const* const values = dynemb::testing::Block::current().meet(mask, value);
  auto result = value;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) != 0) result = min(result, static_cast<uint32_t>(values[lane]));
  }
  return result;
}
inline uint32_t __reduce_or_sync(unsigned mask, uint32_t value) {
  auto const* const values = dynemb::testing::Block::current().meet(mask, value);
  uint32_t result = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) != 0) result |= static_cast<uint32_t>(values[lane]);
  }
  return result;
}
inline int __reduce_max_sync(unsigned mask, int value) {
  auto const* const values =
      dynemb::testing::Block::current().meet(mask, dynemb::testing::to_word(value));
  auto result = value;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    result = max(result, dynemb::testing::from_word<int>(values[lane]));
  }
  return result;
}

template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  auto const part = static_cast<unsigned>(width) - 1;
  auto const lane = (threadIdx.x % 32 & ~part) | (static_cast<unsigned>(from) & part);
  return dynemb::testing::value_of_lane(mask, value, lane);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int distance, int /*width*/ = 32) {
  auto const lane = threadIdx.x % 32 ^ static_cast<unsigned>(distance);
  return dynemb::testing::value_of_lane(mask, value, lane);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance) {
  auto const lane = threadIdx.x % 32;
  return dynemb::testing::value_of_lane(mask, value, lane < distance ? lane : lane - distance);
}

inline float __uint_as_float(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline uint32_t __float_as_uint(float value) { return __builtin_bit_cast(uint32_t, value); }

// mma.m16n8k8 of 32-bit numbers: each lane gives 4 of the left tile and 2 of the right one. It
// takes what its own sums need of the others: two rows of the left tile, two columns of the right.
inline void add_product_on_host(float (&sums)[4], uint32_t const (&left)[4],
                                uint32_t const (&right)[2]) {
  using dynemb::testing::Block;
  auto const lane = threadIdx.x % 32;
  float a[2][8], b[8][2];
  for (unsigned pair = 0; pair < 3; ++pair) {
    auto const* const two = pair < 2 ? left + 2 * pair : right;
    auto const* const words = Block::current().meet(~0u, two[0] | uint64_t{two[1]} << 32);
    for (unsigned i = 0; i < 8; ++i) {
      auto const half = i % 2, inner = i / 2;
      if (pair < 2) {
        auto const from = lane / 4 * 4 + inner;
        a[half][inner + 4 * pair] =
            __uint_as_float(static_cast<uint32_t>(words[from] >> 32 * half));
      } else {
        auto const word = words[(lane % 4 * 2 + half) * 4 + inner];
        b[inner][half] = __uint_as_float(static_cast<uint32_t>(word));
        b[inner + 4][half] = __uint_as_float(static_cast<uint32_t>(word >> 32));
      }
    }
  }
  for (unsigned i = 0; i < 4; ++i) {
    for (unsigned k = 0; k < 8; ++k) sums[i] += a[i / 2][k] * b[k][i % 2];
  }
}

// mma.m16n8k16 of bfloat16: each lane gives 4 words of the left tile and 2 of the right one.
inline void add_half_product_on_host(float (&sums)[4], uint32_t const (&left)[4],
                                     uint32_t const (&right)[2]) {
  using dynemb::testing::Block;
  auto const lane = threadIdx.x % 32;
  auto const quarter = [](uint64_t word, unsigned i) {
    return __uint_as_float(static_cast<uint32_t>(word >> 16 * i) << 16);
  };
  float a[2][16], b[16][2];
  for (unsigned pair = 0; pair < 3; ++pair) {
    auto const* const two = pair < 2 ? left + 2 * pair : right;
    auto const* const words = Block::current().meet(~0u, two[0] | uint64_t{two[1]} << 32);
    for (unsigned i = 0; i < 16; ++i) {
      auto const part = i % 4, from = i / 4;
      auto const inner = from * 2 + part % 2;
      if (pair < 2) {
        a[part / 2][inner + 8 * pair] = quarter(words[lane / 4 * 4 + from], part);
      } else {
        for (unsigned column = 0; column < 2; ++column) {
          auto const word = words[(lane % 4 * 2 + column) * 4 + from];
          b[inner + 8 * (part / 2)][column] = quarter(word, part);
        }
      }
    }
  }
  for (unsigned i = 0; i < 4; ++i) {
    for (unsigned k = 0; k < 16; ++k) sums[i] += a[i / 2][k] * b[k][i % 2];
  }
}

// ldmatrix.trans: lane 8 * i + r gives row r of tile i.
inline void load_transposed_on_host(uint32_t* words, int tiles, void const* row) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) dynemb::testing::fail("a row is not aligned");
  auto const* const rows =
      dynemb::testing::Block::current().meet(~0u, reinterpret_cast<uintptr_t>(row));
  auto const lane = threadIdx.x % 32;
  for (int i = 0; i < tiles; ++i) {
    words[i] = 0;
    for (unsigned half = 0; half < 2; ++half) {
      auto const from = rows[8 * static_cast<unsigned>(i) + lane % 4 * 2 + half];
      auto const number = reinterpret_cast<uint16_t const*>(from)[lane / 4];
      words[i] |= uint32_t{number} << (16 * half);
    }
  }
}

inline uint32_t atomicAdd(uint32_t* to, uint32_t value) { return std::exchange(*to, *to + value); }
inline uint32_t atomicOr(uint32_t* to, uint32_t value) { return std::exchange(*to, *to | value); }
inline uint32_t atomicAnd(uint32_t* to, uint32_t value) { return std::exchange(*to, *to & value); }
inline int atomicExch(int* to, int value) { return std::exchange(*to, value); }
inline uint32_t atomicMin(uint32_t* to, uint32_t value) {
  return std::exchange(*to, min(*to, value));
}
inline unsigned long long atomicAdd(unsigned long long* to, unsigned long long value) {
  return std::exchange(*to, *to + value);
}
inline int atomicMax(int* to, int value) { return std::exchange(*to, max(*to, value)); }
template <class T>
T __ldcg(T const* from) {
  return *from;
}
template <class T>
T __ldg(T const* from) {
  return *from;
}
template <class T>
void __stcs(T* to, T const& value) {
  *to = value;
}
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __ffsll(long long bits) { return __builtin_ffsll(bits); }
inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned>(bits)); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
