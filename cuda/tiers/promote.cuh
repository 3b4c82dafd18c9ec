// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/promote.cuh: which rows get frames, and their way there.
//
// Three kernels: every id notes its slot if that has no frame; then all slots are noted, which keep
// their frames; a warp a bucket gives frames to the slots that have none, draws new rows, and lists
// what has to come and go, in order of slot. The first kernel is all where every slot has a frame.
// swap_rows copies the records later, both ways at once. They are listed in order,
// since host memory answers three times as fast where places follow each other.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/slot.h"
#include "core/tiers/tier_args.h"
#include "cuda/grid/host.h"
#include "cuda/grid/initial_rows.cuh"
#include "cuda/tiers/records.cuh"
#include "cuda/tiers/slot_bits.cuh"
#include "cuda/tiers/table_blocks.cuh"

namespace dynemb::cuda {

constexpr int kBucketsOfWarp = 8;  // a lane each of their words
constexpr int kBucketsOfBlock = kBucketsOfWarp * kWarpsPerBlock;
constexpr int kFramesOfLane = kMostFrames / 32;
constexpr uint8_t kNotGiven = 0xff;  // a frame that keeps its owner

struct PromotedTable {
  PromoteTable args;
  RecordParts parts;
  SlotBits touched;
  int64_t mark_row;  // of the arrays: the last spill row
};

struct PromoteCall {
  TableBlocks of_ids;      // of the first two kernels
  TableBlocks of_buckets;  // of the third
  ChainedSum moves_and_copies;
  int64_t to_wanted;  // words from the set of all slots of a table to that of those without a frame
  uint32_t* any;      // 1: a table has such a slot
  PromotedTable tables[kMaxTierTables];
};

__device__ __forceinline__ SlotBits wanted_of(PromoteCall const& call, PromotedTable const& table) {
  return {table.touched.words + call.to_wanted};
}

// ---- every id notes its slot --------------------------------------------------------------------

// Calls note(slot) with each slot of the table that a block works on.
template <class Note>
__device__ __forceinline__ void for_each_slot(PromoteCall const& call, PromotedTable const& one,
                                              int32_t t, Note const& note) {
  auto const limit = num_slots(one.args.table);
  auto const step = int64_t{call.of_ids.of(t)} * kThreads;
  auto const first = int64_t{blockIdx.x - call.of_ids.first[t]} * kThreads + threadIdx.x;
  for (auto i = first; i < one.args.num_ids; i += step) {
    auto const slot = one.args.slots[i];
    if (is_live(slot, limit)) note(slot);
  }
}

// Adds up what the threads of a block count: one addition in memory for each block.
__device__ __forceinline__ void count_of_block(TierRef const& tier, uint32_t hits,
                                               uint32_t misses) {
  __shared__ uint32_t of_block[2];
  if (threadIdx.x < 2) of_block[threadIdx.x] = 0;
  __syncthreads();
  hits = sum_of_warp(hits);
  misses = sum_of_warp(misses);
  if (lane_id() == 0 && hits != 0) atomicAdd(of_block, hits);
  if (lane_id() == 0 && misses != 0) atomicAdd(of_block + 1, misses);
  __syncthreads();
  if (threadIdx.x != 0) return;
  count_in_tier(tier, kTierHits, of_block[0]);
  count_in_tier(tier, kTierMisses, of_block[1]);
}

// Returns whether a live slot has a frame. Notes that a row which an earlier promotion has seen
// is no longer new.
__device__ __forceinline__ bool meet_frame(TierRef const& tier, int32_t slot) {
  auto const location = tier.location[slot];
  if (location == kSeenLocation) tier.location[slot] = kMetLocation;
  auto const frame = location - 1;
  if (frame >= static_cast<uint32_t>(tier.frames)) return false;
  auto const row = frame_row(tier, slot / kBucketCapacity, static_cast<int>(frame));
  auto* const owner = tier.owners + row;
  auto const word = __ldcg(owner);
  if ((word & kOwnerMask) != static_cast<uint32_t>(slot % kBucketCapacity)) return false;
  if ((word & kNewFrame) != 0) atomicAnd(owner, ~kNewFrame);
  return true;
}

__global__ void __launch_bounds__(kThreads)
    note_slots_kernel(__grid_constant__ PromoteCall const call) {
  auto const t = call.of_ids.table_of(blockIdx.x);
  auto const& one = call.tables[t];
  auto const& args = one.args;
  if (blockIdx.x == call.of_ids.first[t] && threadIdx.x == 0) {
    set_marks(one.parts, one.mark_row, kNotThere);
    args.counts[0] = args.counts[1] = 0;
  }
  uint32_t hits = 0, misses = 0;
  for_each_slot(call, one, t, [&](int32_t slot) {
    auto const framed = meet_frame(args.tier, slot);
    hits += framed ? 1 : 0;
    misses += framed ? 0 : 1;
    if (!framed) wanted_of(call, one).add(slot);
  });
  if (__any_sync(kFullWarp, misses != 0) && lane_id() == 0) *call.any = 1;
  if (args.purpose == Promotion::kLookup) count_of_block(args.tier, hits, misses);
}

__global__ void __launch_bounds__(kThreads)
    note_touched_kernel(__grid_constant__ PromoteCall const call) {
  if (*call.any == 0) return;
  auto const t = call.of_ids.table_of(blockIdx.x);
  auto const& one = call.tables[t];
  for_each_slot(call, one, t, [&](int32_t slot) { one.touched.add(slot); });
}

// ---- a warp a bucket gives frames ---------------------------------------------------------------

// A block notes here which slots get frames.
struct GivenFrames {
  uint8_t to[kBucketsOfBlock][kMostFrames];     // the slot in the bucket that gets a frame
  uint8_t order[kBucketsOfBlock][kMostFrames];  // how many of the bucket get one before it
  uint64_t leaves[kBucketsOfBlock];             // frames with a row to write home
  uint64_t copies[kBucketsOfBlock];             // those of them that a new row is written to
  uint4 touched[kBucketsOfBlock];               // slots of the batch
  uint4 wanted[kBucketsOfBlock];                // those without a frame
  CountPair counts[kBucketsOfBlock];            // of moves and copies; then those before the bucket
  uint32_t bypassed, spilled, moved;
};

class FrameGiver {
 public:
  __device__ __forceinline__ FrameGiver(PromoteCall const& all, PromotedTable const& call,
                                        GivenFrames& given)
      : all_(all), call_(call), tier_(call.args.tier), table_(call.args.table), given_(given) {}

  // Finds what the buckets of a warp want. They begin at `first`, which is number `at` of the
  // block.
  __device__ __forceinline__ void look(int64_t first, int at) const {
    auto const lane = lane_id();
    auto const buckets = min(table_.local_buckets - first, int64_t{kBucketsOfWarp});
    auto const exists = lane < buckets * kBitWords;
    auto const word = first * kBitWords + lane;
    auto const wanted = exists ? wanted_of(all_, call_).words[word] : 0;
    auto const any = __any_sync(kFullWarp, wanted != 0);
    auto const touched = exists && any ? call_.touched.words[word] : 0;
    if (lane < kBucketsOfWarp * kBitWords) {
      word_of(given_.wanted, at, lane) = wanted;
      word_of(given_.touched, at, lane) = touched;
    }
    __syncwarp();
    if (any) prefetch(first, at);
  }

  // What one of them gives.
  __device__ __forceinline__ void decide(int64_t bucket, int at) const {
    CountPair counts{0, 0};
    if (wants(at)) counts = give(bucket, at);
    if (lane_id() == 0) given_.counts[at] = counts;
  }

  // Carries it out. `before`: moves and copies of the buckets before this one.
  __device__ __forceinline__ void hand_out(int64_t bucket, int at, CountPair before) const {
    for (int j = 0; j < kFramesOfLane; ++j) {
      auto const frame = lane_id() + 32 * j;
      auto const to = frame < tier_.frames ? given_.to[at][frame] : kNotGiven;
      auto const gives = to != kNotGiven;
      auto const giving = __ballot_sync(kFullWarp, gives);
      if (giving == 0) continue;
      auto const copy_lanes = static_cast<uint32_t>(given_.copies[at] >> (32 * j));
      auto const copied = before.b + static_cast<uint32_t>(__popc(copy_lanes & lanes_below()));
      auto const number = before.a + (gives ? given_.order[at][frame] : 0u);
      auto const copies = (copy_lanes >> lane_id() & 1) != 0;
      auto const allowed =
          gives && (!copies || copied < static_cast<uint32_t>(tier_.spill_rows - 1));
      auto const leaves = allowed && (given_.leaves[at] >> frame & 1) != 0;
      auto const owner = allowed ? owner_of(tier_, bucket, frame) : -1;
      auto const slot = static_cast<int32_t>(bucket * kBucketCapacity + (gives ? to : 0));
      auto const fresh = allowed && is_fresh(tier_, slot);
      __syncwarp();  // all places are read
      if (gives && !allowed) see(slot);
      if (allowed) {
        if (owner >= 0) tier_.location[owner] = kHomeLocation;
        tier_.location[slot] = static_cast<uint32_t>(frame) + 1;
        tier_.owners[bucket * tier_.frames + frame] = to | (fresh ? kDirtyFrame | kNewFrame : 0);
      }
      if (gives && number < call_.args.num_ids) {
        auto const row = static_cast<int32_t>(frame_row(tier_, bucket, frame));
        auto const spill = static_cast<int32_t>(first_spill_row(tier_, table_) + copied);
        call_.args.arriving[number] = allowed && !fresh ? slot : -1;
        call_.args.into[number] = row;
        call_.args.spilled[number] = leaves ? owner : -1;
        call_.args.rows[number] = copies ? spill : row;
      }
      move_rows(frame_row(tier_, bucket, 32 * j), __ballot_sync(kFullWarp, allowed),
                {allowed && copies ? static_cast<int32_t>(copied) : -1, fresh ? slot : -1});
      count(gives && !allowed, &given_.bypassed);
      count(allowed, &given_.moved);
      count(leaves, &given_.spilled);
      before.b += static_cast<uint32_t>(__popc(copy_lanes));
    }
  }

 private:
  static constexpr uint64_t kNever = ~uint64_t{0};

  // Notes of a slot without a frame that a promotion has seen its row, if that is new.
  __device__ __forceinline__ void see(int32_t slot) const {
    if (tier_.location[slot] == kFreshLocation) tier_.location[slot] = kSeenLocation;
  }

  // Prefetches what decide() reads of the owners of frames, for all buckets of a warp at once.
  // Bucket by bucket, each would wait for memory three times.
  __device__ __forceinline__ void prefetch(int64_t first, int at) const {
    uint32_t owners[kBucketsOfWarp] = {};
    auto const frame = min(lane_id(), tier_.frames - 1);
#pragma unroll
    for (int i = 0; i < kBucketsOfWarp; ++i) {
      if (wants(at + i)) owners[i] = tier_.owners[(first + i) * tier_.frames + frame];
    }
#pragma unroll
    for (int i = 0; i < kBucketsOfWarp; ++i) {
      if (!wants(at + i)) continue;
      auto const slot = (first + i) * kBucketCapacity + (owners[i] & kOwnerMask);
      prefetch_line(tier_.location + slot);
      prefetch_line(score_at(table_, slot));
    }
  }

  __device__ __forceinline__ bool wants(int at) const {
    auto const wanted = given_.wanted[at];
    return (wanted.x | wanted.y | wanted.z | wanted.w) != 0;
  }

  // What reassigning a frame costs within device memory.
  struct Move {
    int32_t spill;  // the spill row that its row goes to, counted from 0; or -1
    int32_t fresh;  // the slot that comes in, if it has no record yet; or -1
  };

  // Of the frames of the lanes in `lanes`; that of lane 0 is row `first`. Out of line: inlined, it
  // takes registers from the choice.
  __device__ __noinline__ void move_rows(int64_t first, unsigned lanes, Move const& own) const {
    auto const tile = RowTile(32);
    auto rest = lanes & __ballot_sync(kFullWarp, own.spill >= 0 || own.fresh >= 0);
    for (; rest != 0; rest &= rest - 1) {
      auto const lane = __ffs(static_cast<int>(rest)) - 1;
      auto const row = first + lane;
      auto const spill = __shfl_sync(kFullWarp, own.spill, lane);
      auto const fresh = __shfl_sync(kFullWarp, own.fresh, lane);
      if (spill >= 0) copy_row(call_.parts, tile, row, first_spill_row(tier_, table_) + spill);
      if (fresh >= 0) draw_row(tile, fresh, static_cast<int32_t>(row));
    }
  }

  __device__ __forceinline__ void draw_row(RowTile const& tile, int32_t slot, int32_t row) const {
    __syncwarp();  // the old row is read
    auto const filler = SlotFiller(table_);
    if (writes_rows(table_.initializer.kind)) filler.fill_row(tile, *key_at(table_, slot), row);
    filler.fill_states(tile, row);
  }

  __device__ __forceinline__ void count(bool value, uint32_t* counter) const {
    auto const lanes = __ballot_sync(kFullWarp, value);
    if (lanes != 0 && lane_id() == 0) atomicAdd(counter, static_cast<uint32_t>(__popc(lanes)));
  }

  // In what order frames are reassigned, the lowest first, as goes_before has it: an empty frame,
  // then the one of the lowest score.
  static __device__ __forceinline__ uint64_t rank_of_score(uint64_t score) {
    return min(score, kNever - 2) + 1;
  }

  __device__ __forceinline__ uint64_t rank_of(int64_t bucket, int frame, uint4 const& touched,
                                              bool* leaves) const {
    if (frame >= tier_.frames) return kNever;
    auto const owner = owner_of(tier_, bucket, frame);
    if (owner < 0) return 0;
    if (SlotBits::has(touched, static_cast<uint32_t>(owner % kBucketCapacity))) return kNever;
    auto const score = *score_at(table_, owner);
    auto const word = tier_.owners[bucket * tier_.frames + frame];
    *leaves = score != kEmptyScore && (word & kDirtyFrame) != 0;
    return rank_of_score(score);
  }

  static __device__ __forceinline__ uint32_t& word_of(uint4* buckets, int at, int word) {
    return reinterpret_cast<uint32_t*>(buckets + at)[word];
  }

  __device__ __forceinline__ CountPair give(int64_t bucket, int at) const {
    auto const touched = given_.touched[at];
    auto const first_slot = static_cast<int32_t>(bucket * kBucketCapacity);
    uint64_t rank[kFramesOfLane], leaves = 0;
#pragma unroll
    for (int j = 0; j < kFramesOfLane; ++j) {
      auto leaving = false;
      rank[j] = rank_of(bucket, lane_id() + 32 * j, touched, &leaving);
      leaves |= uint64_t{__ballot_sync(kFullWarp, leaving)} << (32 * j);
      given_.to[at][lane_id() + 32 * j] = kNotGiven;
    }
    __syncwarp();
    uint64_t given = 0;
    uint32_t frames = 0, bypassed = 0;
    for (int w = 0; w < kBitWords; ++w) {
      for (auto rest = word_of(given_.wanted, at, w); rest != 0; rest &= rest - 1) {
        auto const in_bucket = w * 32 + __ffs(static_cast<int>(rest)) - 1;
        auto const frame = choose(rank, first_slot + in_bucket);
        if (frame < 0) {
          if (lane_id() == 0) see(first_slot + in_bucket);
          ++bypassed;
          continue;
        }
        given |= uint64_t{1} << frame;
        if (lane_id() == 0) {
          given_.to[at][frame] = static_cast<uint8_t>(in_bucket);
          given_.order[at][frame] = static_cast<uint8_t>(frames);
        }
        ++frames;
      }
    }
    leaves &= given;
    auto const copies = leaves & fresh_of(first_slot, at, leaves);
    if (lane_id() == 0) {
      given_.leaves[at] = leaves;
      given_.copies[at] = copies;
      if (bypassed != 0) atomicAdd(&given_.bypassed, bypassed);
    }
    return {frames, static_cast<uint32_t>(count_bits(copies))};
  }

  // Which of some frames were given to new rows.
  __device__ __forceinline__ uint64_t fresh_of(int32_t first_slot, int at, uint64_t frames) const {
    __syncwarp();  // all frames are given
    uint64_t result = 0;
#pragma unroll
    for (int j = 0; j < kFramesOfLane; ++j) {
      auto const frame = lane_id() + 32 * j;
      auto const is_one =
          (frames >> frame & 1) != 0 && is_fresh(tier_, first_slot + given_.to[at][frame]);
      result |= uint64_t{__ballot_sync(kFullWarp, is_one)} << (32 * j);
    }
    return result;
  }

  static __device__ __forceinline__ int count_bits(uint64_t bits) {
    return __popc(static_cast<uint32_t>(bits)) + __popc(static_cast<uint32_t>(bits >> 32));
  }

  // The frame that a slot gets, or -1; it is not given again.
  __device__ __forceinline__ int choose(uint64_t (&rank)[kFramesOfLane], int32_t slot) const {
    WarpGroup const group;
    auto own = rank[0];
#pragma unroll
    for (int j = 1; j < kFramesOfLane; ++j) own = min(own, rank[j]);
    auto const least = group.min(own);
    if (least == kNever) return -1;
    if (is_packed(table_.policy) && rank_of_score(*score_at(table_, slot)) < least) return -1;
#pragma unroll
    for (int j = 0; j < kFramesOfLane; ++j) {
      auto const lanes = group.ballot(rank[j] == least);
      if (lanes == 0) continue;
      auto const lane = __ffs(static_cast<int>(lanes)) - 1;
      if (lane_id() == lane) rank[j] = kNever;
      return lane + 32 * j;
    }
    return -1;
  }

  PromoteCall const& all_;
  PromotedTable const& call_;
  TierRef const& tier_;
  TableRef const& table_;
  GivenFrames& given_;
};

// Turns the counts of a block's buckets into those before each one, and returns those up to the end
// of the block. One warp calls this. `chain` is of the table's blocks, of which this is number
// `block`.
__device__ __forceinline__ CountPair add_up_buckets(ChainedSum const& chain, GivenFrames& given,
                                                    uint32_t block) {
  static_assert(kBucketsOfBlock % 32 == 0);
  CountPair total{0, 0};
  CountPair own[kBucketsOfBlock / 32];
  for (int r = 0; r < kBucketsOfBlock / 32; ++r) {
    auto const counts = given.counts[r * 32 + lane_id()];
    auto const a = sum_up_to_lane(counts.a), b = sum_up_to_lane(counts.b);
    own[r] = {total.a + a - counts.a, total.b + b - counts.b};
    total.a += __shfl_sync(kFullWarp, a, 31);
    total.b += __shfl_sync(kFullWarp, b, 31);
  }
  auto const before = chain.before(block, total);
  for (int r = 0; r < kBucketsOfBlock / 32; ++r) {
    given.counts[r * 32 + lane_id()] = {before.a + own[r].a, before.b + own[r].b};
  }
  return {before.a + total.a, before.b + total.b};
}

// How long the lists of a table are.
__device__ __forceinline__ void note_counts(PromoteTable const& args, CountPair const& total) {
  args.counts[0] = args.counts[1] = static_cast<int32_t>(min(int64_t{total.a}, args.num_ids));
}

__global__ void __launch_bounds__(kThreads, 4)
    give_frames_kernel(__grid_constant__ PromoteCall const call) {
  if (*call.any == 0) return;
  __shared__ GivenFrames given;
  if (threadIdx.x == 0) given.bypassed = given.spilled = given.moved = 0;
  auto const number = call.moves_and_copies.number_of_block();
  auto const t = call.of_buckets.table_of(number);
  auto const block = number - call.of_buckets.first[t];
  auto const& one = call.tables[t];
  auto const giver = FrameGiver(call, one, given);
  auto const first_at = static_cast<int>(threadIdx.x / 32) * kBucketsOfWarp;
  auto const first = int64_t{block} * kBucketsOfBlock;
  giver.look(first + first_at, first_at);
  for (auto at = first_at; at < first_at + kBucketsOfWarp; ++at) giver.decide(first + at, at);
  // Which buckets give something: noted before counts are added up.
  uint32_t gives = 0;
  __syncwarp();
  for (int i = 0; i < kBucketsOfWarp; ++i)
    gives |= (given.counts[first_at + i].a != 0 ? 1u : 0) << i;
  __syncthreads();
  if (threadIdx.x < 32) {
    auto const chain = call.moves_and_copies.from(call.of_buckets.first[t]);
    auto const total = add_up_buckets(chain, given, block);
    if (threadIdx.x == 0 && block + 1 == call.of_buckets.of(t)) note_counts(one.args, total);
  }
  __syncthreads();
  for (; gives != 0; gives &= gives - 1) {
    auto const at = first_at + __ffs(static_cast<int>(gives)) - 1;
    giver.hand_out(first + at, at, given.counts[at]);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  auto const& args = one.args;
  auto const looks_up = args.purpose == Promotion::kLookup;
  count_in_tier(args.tier, looks_up ? kTierPromoted : kTierPrefetched, given.moved);
  count_in_tier(args.tier, kTierBypassed, given.bypassed);
  count_in_tier(args.tier, kTierWrittenBack, given.spilled);
}

// ---- host ---------------------------------------------------------------------------------------

struct PromoteScratch {
  PromoteCall call;
  SlotNumbers numbers;

  PromoteScratch(PromoteArgs const& args, Scratch& scratch)
      : call{}, numbers(args, count_blocks(args), 2, scratch) {
    call.moves_and_copies = numbers.sums;
    call.to_wanted = numbers.words;
    call.any = numbers.any;
    for (int32_t t = 0; t < args.num_tables; ++t) {
      auto const& one = args.tables[t];
      call.tables[t] = {one, record_parts(one.table), numbers.slots[t],
                        first_spill_row(one.tier, one.table) + one.tier.spill_rows - 1};
    }
  }

 private:
  int64_t count_blocks(PromoteArgs const& args) {
    for (int32_t t = 0; t < args.num_tables; ++t) {
      auto const& one = args.tables[t];
      call.of_ids.add(blocks_of_ids(one));
      auto const blocks = ceil_div(one.table.local_buckets, kBucketsOfBlock);
      call.of_buckets.add(one.num_ids == 0 ? 0 : blocks);
    }
    return call.of_buckets.total();
  }
};

}  // namespace dynemb::cuda
