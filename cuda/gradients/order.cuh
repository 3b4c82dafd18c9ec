// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/order.cuh: the positions of a batch, sorted by the row that their gradients go to
// (cuda/gradients/keys.cuh), and the work that an update or a reduction begins with. A small batch
// takes one kernel, else there are several; the order is the same.
#pragma once

#include <cstdint>

#include "cuda/gradients/keys.cuh"
#include "cuda/gradients/large_order.cuh"
#include "cuda/gradients/small_order.cuh"
#include "cuda/grid/prologue.cuh"

namespace dynemb::cuda {

// Everything before the sums: what `op` begins with (cuda/grid/prologue.cuh), the order of the
// batch, and zeros. Without items there is no order, and nothing to clear.
template <class Size, class SortKey, class Args, class Op>
cudaError_t order_gradients(Args const& args, CallView const& view, Op const& op,
                            GradientOrder<SortKey> const& order, Zeros const& zeros,
                            SortedGradients<SortKey>* sorted, cudaStream_t stream) {
  if (order.num_items == 0) return launch_prologue<Size>(args, view, op, stream);
  auto const small = SmallOrder<Size, SortKey, Op>(args);
  if (!small.fits()) return order_large<Size>(args, view, op, order, zeros, sorted, stream);
  *sorted = order.sorted(0);
  return small.launch(args, view, op, order.keys[0], order.items[0], order.layout,
                      order.keys_have.slot_bits, zeros, stream);
}

}  // namespace dynemb::cuda
