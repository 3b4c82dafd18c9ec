// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/checked_slots.cuh: the slots of several lookups whose gradients are applied
// together.
//
// A later lookup may have given the slot of an evicted row to another id. Then positions of one
// slot have two ids, and a piece that looks at the id of its first position only would add up the
// gradients of both (cuda/gradients/pieces.cuh). So a call of several lookups begins with a copy of
// its slots. A position whose slot holds another id by now is padding there, and is counted here.
// The positions of a slot then have one id again. A call of one lookup needs no copy: the clock of
// a lookup protects the rows that it has used.
#pragma once

#include <cstdint>
#include <memory>

#include "cuda/gradients/keys.cuh"
#include "cuda/grid/call.cuh"

namespace dynemb::cuda {

constexpr int64_t kCheckedOfBlock = 8 * kThreads;

template <class Size, class Op>
struct CheckedSlotsCall {
  CallArgs<Size> call;
  Op op;
  int32_t* slots;  // [items]
};

template <class Size, class Op>
__global__ void __launch_bounds__(kThreads)
    checked_slots_kernel(__grid_constant__ CheckedSlotsCall<Size, Op> const p) {
  auto const& call = p.call;
  auto const f = feature_of_block(call, blockIdx.x);
  auto const& feature = call.features[f];
  auto const& table = call.tables[feature.table];
  auto* const checked = p.slots + call.first_item[f];
  auto const limit = slot_limit(table, feature, p.op.stamp_of(feature.table));
  auto const checks = table.index != nullptr && !keeps_slots(table);  // groups have no ids
  auto const begin = int64_t{blockIdx.x - call.first_block[f]} * kCheckedOfBlock;
  auto const end = min(begin + kCheckedOfBlock, feature.num_ids);
  uint32_t lost = 0;
  for (auto position = begin + threadIdx.x; position < end; position += kThreads) {
    auto slot = feature.slots[position];
    if (checks && is_live(slot, limit) &&
        *key_at(table, slot) != load_key(feature.ids, feature.id_type, position)) {
      slot = kPaddingSlot;
      ++lost;
    }
    checked[position] = slot;
  }
  count_foreign(p.op, table, lost);
}

// ---- host ---------------------------------------------------------------------------------------

// Puts the copy on the stream, into memory that holds a slot for each item. Returns in `*checked`
// the call with these slots.
template <class Size, class Args, class Op>
cudaError_t check_slots(Args const& args, Op const& op, int32_t* slots, cudaStream_t stream,
                        std::unique_ptr<Args>* checked) {
  CheckedSlotsCall<Size, Op> p;
  auto const cut = [](FeatureRef const& feature) -> Cut {
    return {feature.num_ids, static_cast<int32_t>(kCheckedOfBlock / kWarpsPerBlock)};
  };
  auto const blocks = fill_call<Size>(args, cut, &p.call);
  p.op = op;
  p.slots = slots;
  *checked = std::make_unique<Args>(args);
  int32_t order[Size::features];
  order_by_table(args, order);
  for (int32_t f = 0; f < args.num_features; ++f) {
    (*checked)->features[order[f]].slots = slots + p.call.first_item[f];
  }
  return launch(checked_slots_kernel<Size, Op>, blocks, stream, p);
}

}  // namespace dynemb::cuda
