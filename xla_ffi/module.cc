// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/module.cc: what Python sees of one backend: handlers to register, and the numbers that
// both sides must agree on.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>

#include "core/args.h"
#include "core/exchange.h"
#include "core/lineage.h"
#include "core/pair_rows.h"
#include "core/row.h"
#include "core/rule.h"
#include "core/slot.h"
#include "core/tiers/tier_ref.h"
#include "xla_ffi/backend.h"
#include "xla_ffi/handlers.h"
#include "xla_ffi/handlers/exchange.h"
#include "xla_ffi/handlers/repeat_row.h"
#include "xla_ffi/handlers/swap_beside.h"
#include "xla_ffi/hash_ids_module.h"
#include "xla_ffi/log_module.h"
#include "xla_ffi/peers_module.h"
#include "xla_ffi/schema.h"

namespace nb = nanobind;

namespace dynemb {
namespace {

nb::dict handler_capsules() {
  nb::dict capsules;
  auto const add = [&](char const* name, XLA_FFI_Handler* handler) {
    capsules[name] = nb::capsule(reinterpret_cast<void const*>(handler), "xla._CUSTOM_CALL_TARGET");
  };
  for (auto const& each : registrations()) add(each.name, each.handler);
  add("dynemb_begin_swap", begin_swap);
  add("dynemb_end_swap", end_swap);
#ifdef DYNEMB_CUDA
  add("dynemb_exchange", exchange);
  add("dynemb_place_rows", place_rows);
  add("dynemb_place_stored_rows", place_stored_rows);
#else
  add("dynemb_repeat_row", repeat_row);
  add("dynemb_run_swap", run_swap);
#endif
  return capsules;
}

template <class... Names>
nb::tuple names(Names... all) {
  return nb::make_tuple(all...);
}

// Those of the initializers that need a table's seed.
nb::list seeded(nb::tuple const& initializers) {
  nb::list result;
  for (size_t i = 0; i < initializers.size(); ++i) {
    if (is_seeded(static_cast<InitializerKind>(i))) result.append(initializers[i]);
  }
  return result;
}

// What the structs in core/optimizers/ say of themselves.
void add_optimizers(nb::dict& result) {
  nb::list all;
  nb::dict hyper, wide, ints;
  for (int32_t kind = 0; kind < static_cast<int32_t>(OptimizerKind::kNumKinds); ++kind) {
    with_optimizer(static_cast<OptimizerKind>(kind), [&](auto type) {
      using Functor = typename decltype(type)::Type;
      nb::list own;
      for (auto const* name : Functor::kHyper) own.append(name);
      all.append(Functor::kName);
      hyper[Functor::kName] = nb::tuple(own);
      wide[Functor::kName] = Functor::kWide;
      ints[Functor::kName] = Functor::kInts;
    });
  }
  result["optimizers"] = nb::tuple(all);
  result["tuned_optimizers"] = kNumTunedKinds;
  result["optimizer_hyper"] = hyper;
  result["optimizer_wide_states"] = wide;
  result["optimizer_ints"] = ints;
  result["row_hyper"] = names("clip_row_value", "clip_row_norm");
  result["any_hyper"] = kNumAnyHyper;
}

// In the order of their enumeration; of several words of one kind the first has its name alone.
nb::tuple counters() {
  nb::list result;
  for (auto const* name : {"clock",
                           "seed",
                           "step",
                           "rows",
                           "inserted",
                           "evicted",
                           "refused",
                           "lost_updates",
                           "lookups",
                           "exchange_capacity",
                           "exchange_peak",
                           "exchange_overflows",
                           "first_column",
                           "left",
                           "waiting",
                           "malformed_lengths",
                           "nonfinite",
                           "stamp",
                           "hits",
                           "misses",
                           "not_admitted",
                           "erased",
                           "removed_by_rule",
                           "pinned",
                           "evicted_young",
                           "stamp_high",
                           "segment"}) {
    result.append(name);
  }
  auto const add = [&](std::string const& name, int count) {
    result.append(name);
    for (int i = 1; i < count; ++i) result.append(name + "_" + std::to_string(i));
  };
  add("ancestors", 2 * kNumAncestors);
  result.append("moment");
  result.append("nonce");
  add("nonces", kNumNonces);
  return nb::tuple(result);
}

nb::dict constants() {
  nb::dict result;
  result["bucket_capacity"] = kBucketCapacity;
  result["bucket_words"] = kBucketBytes / 4;
  result["given_words"] = kCustomScoreBytes / 4;
  result["keys_word"] = (kEntriesOffset + offsetof(Entry, key)) / 4;
  result["scores_word"] = (kEntriesOffset + offsetof(Entry, score)) / 4;
  result["slot_words"] = sizeof(Entry) / 4;
  result["refused_slot"] = kRefusedSlot;
  result["not_admitted_slot"] = kNotAdmittedSlot;
  result["max_states"] = kMaxStates;
  result["unwritten_state"] = kUnwritten;
  result["unwritten_half_state"] = int{kUnwrittenHalf};
  result["max_tables"] = kMaxTables;
  result["max_tier_tables"] = kMaxTierTables;
  result["max_features"] = kMaxFeatures;
  result["initializer_parameters"] = kInitializerParameters;
  // Each list is in the order of its enumeration in core/ or xla_ffi/schema.h.
  result["counters"] = counters();
  result["hyper_parameters"] = names("learning_rate", "eps", "b1", "b2", "weight_decay");
  add_optimizers(result);
  result["score_policies"] = names("step", "timestamp", "lfu", "customized", "decaying_lfu");
  auto const initializers = names("constant", "uniform", "normal", "debug", "given");
  result["initializers"] = initializers;
  result["seeded_initializers"] = seeded(initializers);
  result["poolings"] = names("none", "sum", "mean", "no_rows", "unstored");
  result["value_types"] = names("float32", "bfloat16", "float16");
  result["row_codes"] = names("float8_e4m3fn", "int8", "int4");
  result["packed_fields"] = names("code", "dim", "value_type");
  result["table_fields"] =
      names("num_states", "num_buckets", "policy", "evicts", "initializer", "eval_initializer",
            "optimizer", "shares", "first_bucket", "local_buckets", "first_row", "counter_rows",
            "skips_nonfinite", "hash_seed", "rounding", "keeps_scores", "admission", "threshold",
            "sketch_words", "sketch_bits", "ring_size", "keep_for", "part", "halflife",
            "takes_given", "departed_rows");
  result["stamp_words"] = sizeof(Stamp) / 4;
  result["num_ancestors"] = kNumAncestors;
  result["num_nonces"] = kNumNonces;
  result["use"] = kUse;
  result["most_packed"] = kHighScoreLimit;
  result["table_parts"] = names("whole", "index", "rows");
  result["tier_counters"] = names("hits", "misses", "promoted", "prefetched", "bypassed",
                                  "written_back", "updated_home", "departed", "ring_full", "held");
  result["most_frames"] = kMostFrames;
  result["dirty_frame"] = kDirtyFrame;
  result["owner_mask"] = kOwnerMask;
  result["fresh_location"] = kFreshLocation;
  result["met_location"] = kMetLocation;
  result["departure_words"] = kDepartureWords;
  result["ring_words"] = names("count", "copied", "refused");
  result["most_held"] = kMostHeld;
  result["promotions"] = names("lookup", "prefetch");
  result["admission_rules"] =
      names("all", "none", "probability", "frequency", "occurrences", "lookups");
  result["feature_fields"] = names("table", "pooling", "bag_size", "has_weights", "has_uses",
                                   "array", "passed_on", "offset", "group", "stride");
  result["sums_fields"] = names("groups", "dim", "array", "passed_on", "offset", "group", "stride");
  result["rule_fields"] =
      names("unused_for", "unused_since", "high_below", "norm_below", "any_suffices");
  result["rule_words"] = int{kNumRuleWords};
  result["rule_digit_bits"] = int{kDigitBits};
  result["piece_fields"] = names("array", "begin", "row_bytes", "room", "counter");
  result["most_peers"] = kMostPeers;
  result["most_exchanged"] = kMostExchanged;
  result["most_placed_arrays"] = kMostPlacedArrays;
  result["most_placed_tables"] = kMostPlacedTables;
  result["most_spans"] = kMostSpans;
  result["most_stored_arrays"] = kMostStoredArrays;
  result["most_pieces"] = kMostPieces;
  result["placed_table_fields"] = names("array", "begin", "row_bytes", "room");
  result["stored_table_fields"] = names("array", "first_place", "first_row", "rows");
  result["span_fields"] = names("begin", "table", "result", "row");
  result["part_fields"] =
      names("size", "first", "owners", "hash_seed", "num_buckets", "local_buckets");
  static_assert(kAncestors == 27 && kNumCounters == 61 && kNumHyperParameters == 5 &&
                    kNumTableFields == 26 && kNumTierCounters == 10 && kNumFeatureFields == 10 &&
                    kNumSumsFields == 7 && kNumPartFields == 6 && kNumPackedFields == 3 &&
                    kNumPieceFields == 5 && kNumPlacedTableFields == 4 && kNumSpanFields == 4 &&
                    static_cast<int>(RowCode::kNumCodes) == 3,
                "a list above and its enumeration must have the same length");
  return result;
}

}  // namespace
}  // namespace dynemb

NB_MODULE(DYNEMB_MODULE, m) {
  m.doc() = "Handlers of jax_dynemb for one platform of XLA.";
  m.attr("platform") = dynemb::backend::kPlatform;
  m.def("registrations", &dynemb::handler_capsules);
  m.def("constants", &dynemb::constants);
  m.def("hash_factors", [](uint64_t seed) {
    auto const [first, second] = dynemb::factors_of_seed(seed);
    return std::pair(first, second);
  });
  m.def("may_be_half", [](int32_t rows, int32_t rank, int32_t columns, int64_t suffixes) {
    dynemb::PairShape shape{};
    shape.m = rows, shape.k = rank, shape.n = columns, shape.num_suffixes = suffixes;
    return dynemb::may_be_half(shape);
  });
  dynemb::add_hash_ids(m);
  dynemb::add_log(m);
  dynemb::add_peers(m);
  m.def("scratch_bytes", [](std::string const& op, std::vector<int64_t> const& buckets,
                            std::vector<int32_t> const& dims, std::vector<int64_t> const& ids) {
    return dynemb::scratch_bytes(op, {buckets, dims, ids});
  });
}
