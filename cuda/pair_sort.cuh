// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/pair_sort.cuh: cub's radix sort of (key, item) pairs, with smaller tiles for small batches.
//
// cub's tile has 8,832 pairs: a batch of 65,536 then keeps eight multiprocessors busy, and a pass
// over it takes as long as one over a million.
#pragma once

#include <cstdint>
#include <cub/device/device_radix_sort.cuh>

namespace dynemb::cuda {

template <class Key>
struct PairBuffers {
  cub::DoubleBuffer<Key> keys;
  cub::DoubleBuffer<uint32_t> items;
};

#if CUB_VERSION >= 300000
template <class Key, int kThreadsOfTile, int kPairsOfThread>
struct SmallTiles : cub::detail::radix::policy_hub<Key, uint32_t, uint32_t> {
  using Hub = cub::detail::radix::policy_hub<Key, uint32_t, uint32_t>;
  using Tuning = cub::detail::radix::sm90_small_key_tuning<sizeof(Key), sizeof(uint32_t), 4>;

  struct Policy : cub::ChainedPolicy<800, Policy, Policy>,
                  Hub::template OnesweepSmallKeyTunedPolicy<Tuning> {
    using OnesweepPolicy =
        cub::AgentRadixSortOnesweepPolicy<kThreadsOfTile, kPairsOfThread, typename Hub::DominantT,
                                          1, cub::RADIX_RANK_MATCH_EARLY_COUNTS_ANY,
                                          cub::BLOCK_SCAN_RAKING_MEMOIZE,
                                          cub::RADIX_SORT_STORE_DIRECT, 8>;
  };

  using MaxPolicy = Policy;
};

template <class Hub, class Key>
cudaError_t sort_with(void* temporary, size_t& bytes, PairBuffers<Key>& pairs, uint32_t count,
                      int bits, cudaStream_t stream) {
  using Sort = cub::DispatchRadixSort<cub::SortOrder::Ascending, Key, uint32_t, uint32_t,
                                      cub::detail::identity_decomposer_t, Hub>;
  return Sort::Dispatch(temporary, bytes, pairs.keys, pairs.items, count, 0, bits, true, stream);
}
#endif

// By the lowest `bits` of the keys, stably. Without `temporary` it only says how many bytes that
// needs.
template <class Key>
cudaError_t sort_pairs(void* temporary, size_t& bytes, PairBuffers<Key>& pairs, uint32_t count,
                       int bits, cudaStream_t stream) {
#if CUB_VERSION >= 300000
  if constexpr (sizeof(Key) == 4) {
    if (count <= 1u << 18) {
      return sort_with<SmallTiles<Key, 256, 4>>(temporary, bytes, pairs, count, bits, stream);
    }
  }
#endif
  return cub::DeviceRadixSort::SortPairs(temporary, bytes, pairs.keys, pairs.items, count, 0, bits,
                                         stream);
}

}  // namespace dynemb::cuda
