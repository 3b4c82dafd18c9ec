// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/lookup.cu: training lookup: a kernel for probes, claims of empty slots and rows, and
// one for the ids without a slot (cuda/lookup/missing.cu). Where clocks are nanoseconds, one more
// reads the time first.
#include "cuda/lookup/lookup_ids.cuh"

namespace dynemb::cuda {
namespace {

// Does a table keep scores as they are or have given ones, or does an id stand for several?
bool selects(LookupArgs const& args) {
  auto const of_table = [](Admission const& admission) { return admission.keeps_scores != 0; };
  auto const of_feature = [](uint32_t const* uses) { return uses != nullptr; };
  return has_policy(args, ScorePolicy::kCustomized) ||
         std::any_of(args.admissions, args.admissions + args.num_tables, of_table) ||
         std::any_of(args.uses, args.uses + args.num_features, of_feature);
}

}  // namespace

size_t lookup_scratch_bytes(LookupArgs const& args) {
  Scratch scratch(nullptr);
  LookupScratch(args, scratch);
  return scratch.used();
}

cudaError_t lookup(LookupArgs const& args, void* memory, cudaStream_t stream) {
  if (!is_countable(args)) return cudaErrorInvalidValue;
  Scratch pieces(memory);
  LookupScratch scratch(args, pieces);
  if (args.num_tables == 0) return cudaSuccess;
  scratch.missing.counts = missing_counts(args.tables[0]);
  if (selects(args)) return launch_selecting_lookup(args, scratch, stream);
  return with_call_size(args.num_tables, args.num_features, [&](auto size) {
    return launch_lookup<false, decltype(size)>(args, scratch, stream);
  });
}

}  // namespace dynemb::cuda
