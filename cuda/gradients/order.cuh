// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/order.cuh: the positions of a batch, sorted by the row that their gradients go to
// (cuda/gradients/keys.cuh), and the work that an update or a reduction begins with. A small batch
// takes one kernel, else there are several; the order is the same.
#pragma once

#include <cstdint>
#include <memory>

#include "cuda/gradients/bags.cuh"
#include "cuda/gradients/checked_slots.cuh"
#include "cuda/gradients/keys.cuh"
#include "cuda/gradients/large_order.cuh"
#include "cuda/gradients/small_order.cuh"
#include "cuda/grid/prologue.cuh"

namespace dynemb::cuda {

// The order of a batch that has items, by the slots of the call as they are.
template <class Size, class SortKey, class Args, class Op>
cudaError_t order_slots(Args const& args, CallView const& view, Op const& op,
                        GradientOrder<SortKey> const& order, Zeros const& zeros,
                        SortedGradients<SortKey>* sorted, cudaStream_t stream) {
  auto const small = SmallOrder<Size, SortKey, Op>(args);
  if (!small.fits()) {
    DYNEMB_CUDA_TRY(order_large<Size>(args, view, op, order, zeros, sorted, stream));
    return find_bags(args, view, order, sorted, stream);
  }
  *sorted = order.sorted(0);
  return small.launch(args, view, op, order.keys[0], order.items[0], order.layout,
                      order.keys_have.slot_bits, zeros, stream);
}

// Everything before the sums: what `op` begins with (cuda/grid/prologue.cuh), the order of the
// batch, and zeros. Without items there is no order, and nothing to clear.
template <class Size, class SortKey, class Args, class Op>
cudaError_t order_gradients(Args const& args, CallView const& view, Op const& op,
                            GradientOrder<SortKey> const& order, Zeros const& zeros,
                            SortedGradients<SortKey>* sorted, cudaStream_t stream) {
  if (order.num_items == 0) return launch_prologue<Size>(args, view, op, stream);
  if (args.joins_lookups == 0) {
    return order_slots<Size>(args, view, op, order, zeros, sorted, stream);
  }
  // The sort writes the second buffer when all keys have been made, in the first one.
  auto* const slots = reinterpret_cast<int32_t*>(order.keys[1]);
  std::unique_ptr<Args> checked;
  DYNEMB_CUDA_TRY(check_slots<Size>(args, op, slots, stream, &checked));
  return order_slots<Size>(*checked, view, op, order, zeros, sorted, stream);
}

}  // namespace dynemb::cuda
