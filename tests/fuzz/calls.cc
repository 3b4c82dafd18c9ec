// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/fuzz/calls.h"

#include <map>

namespace dynemb::fuzz {
namespace {

using Maker = Call (*)(World&, Random&);

std::map<std::string, Maker> const& makers() {
  static std::map<std::string, Maker> const all = {
      {"lookup",
       [](World& w, Random& r) {
         return r.one_in(4) ? make_departing_lookup(w, r) : make_lookup(w, r, Looks::kTrains);
       }},
      {"find", [](World& w, Random& r) { return make_lookup(w, r, Looks::kReads); }},
      {"find_packed", [](World& w, Random& r) { return make_lookup(w, r, Looks::kReadsPacked); }},
      {"update", make_update},
      {"update_any", make_update_any},
      {"reduce", make_reduce},
      {"sum_rows", make_sum_rows},
      {"gather", make_gather},
      {"scatter", make_scatter},
      {"erase", make_erase},
      {"count_rule", [](World& w, Random& r) { return make_rule(w, r, false); }},
      {"erase_rule", [](World& w, Random& r) { return make_rule(w, r, true); }},
      {"decay", make_decay},
      {"export_batch", make_export},
      {"route", make_route},
      {"ordered_route", make_ordered_route},
      {"offsets", make_offsets},
      {"offsets_of_features", make_offsets_of_features},
      {"add_to_counters", make_add_to_counters},
      {"distinct", make_distinct},
      {"pair_rows", make_pair_rows},
      {"pair_gradients", make_pair_gradients},
      {"promote", make_promote},
      {"fetch", make_fetch},
      {"write_back", make_write_back},
      {"swap_rows", make_swap_rows},
      {"begin_swap", make_begin_swap},
      {"run_swap", make_run_swap},
      {"end_swap", make_end_swap},
      {"settle", make_settle},
      {"tier_rows", make_tier_rows},
      {"tier_gather", make_tier_gather},
      {"depart", make_depart},
  };
  return all;
}

}  // namespace

std::vector<std::string> all_targets() {
  std::vector<std::string> names{"begin_swap", "run_swap", "end_swap"};
  for (auto const& each : registrations()) {
    names.push_back(std::string(each.name).substr(7));
  }
  return names;
}

Call make_call(std::string const& op, World& world, Random& random) {
  auto call = makers().at(op)(world, random);
  call.op = op;
  call.num_threads = random.one_in(3) ? 3 : 1;
  return call;
}

}  // namespace dynemb::fuzz
