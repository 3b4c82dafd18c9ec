// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/lookup_test.cc: training and serving lookups by the kernels of a GPU beside those of a
// CPU: every pooling, rows of many widths and types, padding and reserved ids, ids that are there,
// new, or both in one batch, tables with and without room, each rule for unseen ids; and packed
// rows of every code.
#include "cuda/lookup/lookup.cu"

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "cpu/table_ops.h"
#include "cuda/lookup/find.cu"
#include "cuda/lookup/find_packed.cu"
#include "cuda/lookup/missing.cu"
#include "cuda/lookup/selecting_lookup.cu"
#include "tests/cuda/scratch_memory.h"
#include "tests/cuda/table_content.h"

namespace {

using namespace dynemb;
using dynemb::testing::check_same_content;
using dynemb::testing::check_same_slots;
using dynemb::testing::random_at;
using dynemb::testing::ScratchMemory;
using dynemb::testing::TestTable;
using dynemb::testing::ThreadsPool;

constexpr int64_t kBuckets = 3;
constexpr uint64_t kDistinctIds = 500;  // more than there are slots

enum class Bags { kEqual, kJagged };

struct Spec {
  Pooling pooling;
  int64_t bag_size;  // of jagged bags the largest
  int64_t num_bags;
  Bags bags = Bags::kEqual;
  bool weighted = false;
};

struct Types {
  ValueType stored, row;
};

// Holds a feature and its arrays.
struct Feature {
  std::vector<Key> ids;
  std::vector<int32_t> offsets, slots;
  std::vector<float> weights, scale, rows;  // rows: bytes of any type
  std::vector<uint32_t> uses;
  FeatureRef ref{};

  // Positions after the last bag have padding if `pads`, else ids that nothing may look at.
  Feature(Spec const& spec, int32_t table, int32_t dim, ValueType row_type, uint64_t seed,
          bool pads) {
    if (spec.bags == Bags::kJagged) {
      offsets.push_back(0);
      for (int64_t b = 0; b < spec.num_bags; ++b) {
        auto const size = random_at(seed << 8 | static_cast<uint64_t>(b)) %
                          static_cast<uint64_t>(spec.bag_size + 1);
        offsets.push_back(offsets.back() + static_cast<int32_t>(size));
      }
    }
    auto const after = spec.bags == Bags::kJagged ? 50 : 0;  // positions after the last bag
    auto const count = offsets.empty() ? spec.bag_size * spec.num_bags : offsets.back() + after;
    for (int64_t i = 0; i < count; ++i) ids.push_back(id_at(seed << 32 | static_cast<uint64_t>(i)));
    if (offsets.size() > 0 && pads) std::fill(ids.end() - after, ids.end(), kEmptyKey);
    slots.assign(ids.size(), 12345);
    scale.assign(static_cast<size_t>(spec.num_bags), NAN);
    rows.assign(static_cast<size_t>(spec.num_bags * dim), NAN);
    if (spec.weighted) {
      for (auto const id : ids) weights.push_back(static_cast<float>(id % 4) * 0.5f);
    }
    ref = {ids.data(),
           IdType::k64,
           table,
           count,
           spec.num_bags,
           offsets.empty() ? spec.bag_size : 0,
           offsets.empty() ? nullptr : offsets.data(),
           weights.empty() ? nullptr : weights.data(),
           spec.pooling == Pooling::kMean ? scale.data() : nullptr,
           spec.pooling,
           row_type,
           rows.data(),
           {},
           slots.data()};
  }

  // Each id stands for 0 to 3, or for so many that the sum of two has more than 32 bits.
  void set_uses() {
    for (auto const id : ids) {
      auto const random = static_cast<uint32_t>(random_at(id));
      uses.push_back(random % 5 < 4 ? random % 5 : 0xffffffffu - random % 64);
    }
  }

  static Key id_at(uint64_t seed) {
    auto const random = random_at(seed);
    if (random % 16 == 0) return kEmptyKey;
    if (random % 61 == 0) return kFirstReservedKey + random / 61 % 3;
    return random_at(random >> 8) % kDistinctIds;
  }

  std::vector<float> values(int32_t dim) const {
    if (ref.row_type == ValueType::kFloat32) return rows;
    auto const* const halves = reinterpret_cast<BFloat16 const*>(rows.data());
    std::vector<float> result;
    for (int64_t i = 0; i < ref.num_bags * dim; ++i) result.push_back(to_float(halves[i]));
    return result;
  }
};

// How a lookup treats ids, and rows that it finds.
struct Selected {
  AdmissionRule rule = AdmissionRule::kAll;
  uint32_t threshold = 0;
  uint8_t counter_bits = 8;
  uint8_t keeps_scores = 0;
  bool with_uses = false;
};

// The tables and features of a call; two of them with the same arguments are alike.
struct Call {
  std::vector<std::unique_ptr<TestTable>> tables;
  std::vector<std::unique_ptr<Feature>> features;

  std::vector<std::vector<uint32_t>> sketches;
  std::vector<Admission> admissions;
  bool with_uses;

  Call(std::vector<int32_t> const& dims, ValueType stored, bool evicts,
       Selected const& selection = {})
      : sketches(dims.size()), with_uses(selection.with_uses) {
    for (auto const dim : dims) {
      tables.push_back(std::make_unique<TestTable>(kBuckets, dim, ScorePolicy::kStep, evicts));
      tables.back()->ref.value_type = stored;
      // Each table of a call has a hash of its own, the first the public one.
      tables.back()->ref.hash = factors_of_seed(tables.size() - 1);
      select(selection, &sketches[tables.size() - 1]);
    }
  }

  void select(Selected const& selection, std::vector<uint32_t>* sketch) {
    auto const counts = counts_keys(selection.rule);
    auto const words = counts ? kWordsOfBucket : 16;  // so few that keys share counters
    sketch->resize(size_t(kBuckets * words));
    admissions.push_back({selection.rule, selection.keeps_scores, selection.counter_bits,
                          static_cast<uint16_t>(words), selection.threshold, sketch->data()});
    if (!counts) return;
    for (int64_t b = 0; b < kBuckets; ++b) {
      auto* const base = reinterpret_cast<uint8_t*>(sketch->data()) + b * kBucketBytes;
      auto* const entries = reinterpret_cast<Entry*>(base + kEntriesOffset);
      for (int i = 0; i < kBucketCapacity; ++i) entries[i].key = kEmptyKey;
    }
  }

  // The counts of a table: of each key, or as they are.
  std::map<uint64_t, uint64_t> counts(size_t t) const {
    std::map<uint64_t, uint64_t> result;
    auto const& words = sketches[t];
    if (!counts_keys(admissions[t].rule)) {
      for (size_t i = 0; i < words.size(); ++i) result[i] = words[i];
      return result;
    }
    for (int64_t b = 0; b < kBuckets; ++b) {
      auto const* const base = reinterpret_cast<uint8_t const*>(words.data()) + b * kBucketBytes;
      auto const* const entries = reinterpret_cast<Entry const*>(base + kEntriesOffset);
      for (int i = 0; i < kBucketCapacity; ++i) {
        CHECK((base[i] == 0) == (entries[i].key == kEmptyKey));
        if (base[i] == 0) continue;
        CHECK(result.insert({entries[i].key, entries[i].score}).second);  // no key twice
      }
    }
    return result;
  }

  void draw(std::vector<Spec> const& specs, ValueType row_type, uint64_t seed, bool pads = true) {
    features.clear();
    for (auto const& spec : specs) {
      auto const f = features.size();
      auto const t = f % tables.size();
      features.push_back(std::make_unique<Feature>(
          spec, static_cast<int32_t>(t), tables[t]->ref.dim, row_type, seed * 8 + f, pads));
      if (with_uses) features.back()->set_uses();
    }
  }

  std::unique_ptr<LookupArgs> args() const {
    auto result = std::make_unique<LookupArgs>();
    result->num_tables = static_cast<int32_t>(tables.size());
    result->num_features = static_cast<int32_t>(features.size());
    for (size_t t = 0; t < tables.size(); ++t) {
      result->tables[t] = tables[t]->ref;
      result->admissions[t] = admissions[t];
    }
    for (size_t f = 0; f < features.size(); ++f) {
      result->features[f] = features[f]->ref;
      result->uses[f] = with_uses ? features[f]->uses.data() : nullptr;
    }
    return result;
  }
};

void lookup_by_kernels(LookupArgs const& args) {
  ScratchMemory const memory(cuda::lookup_scratch_bytes(args));
  CHECK(cuda::lookup(args, memory.first(), nullptr) == cudaSuccess);
}

// A mean is a sum times a rounded factor, and weighted sums are rounded in the order of the
// additions; all others are sums of integers.
void check_close(std::vector<float> const& ours, std::vector<float> const& truth, ValueType type) {
  auto const tolerance = type == ValueType::kFloat32 ? 1e-6f : 1e-2f;
  CHECK(ours.size() == truth.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    CHECK(std::abs(ours[i] - truth[i]) <= tolerance * std::abs(truth[i]));
  }
}

// Where ids have no slot, the rows are those of a call that writes all; padding has any.
void check_unstored(Feature const& own, Feature const& wanted, int32_t dim) {
  auto const ours = own.values(dim), truth = wanted.values(dim);
  for (size_t i = 0; i < own.slots.size(); ++i) {
    if (own.slots[i] >= 0 || own.slots[i] == kPaddingSlot) continue;
    auto const begin = static_cast<int64_t>(i) * dim, end = begin + dim;
    auto const part = [&](std::vector<float> const& rows) {
      return std::vector<float>(rows.begin() + begin, rows.begin() + end);
    };
    check_close(part(ours), part(truth), own.ref.row_type);
  }
}

void check_same(Call const& ours, Call const& truth) {
  for (size_t t = 0; t < ours.tables.size(); ++t) {
    CHECK(ours.counts(t) == truth.counts(t));
    check_same_content(ours.tables[t]->ref, truth.tables[t]->ref);
  }
  for (size_t f = 0; f < ours.features.size(); ++f) {
    auto const &own = *ours.features[f], &wanted = *truth.features[f];
    auto const& table = ours.tables[static_cast<size_t>(own.ref.table)]->ref;
    check_same_slots(table, own.ids.data(), own.slots.data(), wanted.slots.data(), own.ids.size());
    if (own.ref.pooling == Pooling::kNoRows) continue;
    if (own.ref.pooling == Pooling::kUnstored) {
      check_unstored(own, wanted, table.dim);
      continue;
    }
    check_close(own.values(table.dim), wanted.values(table.dim), own.ref.row_type);
    if (own.ref.pooling == Pooling::kMean)
      check_close(own.scale, wanted.scale, ValueType::kFloat32);
  }
}

void run(std::vector<int32_t> const& dims, std::vector<Spec> const& specs, Types types, bool evicts,
         Selected const& selection = {}) {
  ThreadsPool threads(1);
  Call ours(dims, types.stored, evicts, selection), truth(dims, types.stored, evicts, selection);
  for (uint64_t seed = 0; seed < 3; ++seed) {
    // The second time all ids of most warps have rows.
    for (auto const trains : {true, true, false}) {
      ours.draw(specs, types.row, seed * 2 + trains, seed == 1);
      truth.draw(specs, types.row, seed * 2 + trains, seed == 2);
      auto const args = ours.args(), wanted = truth.args();
      if (trains) {
        lookup_by_kernels(*args);
        cpu::lookup(*wanted, threads.pool);
      } else {
        CHECK(cuda::find(*args, nullptr, nullptr) == cudaSuccess);
        cpu::find(*wanted, threads.pool);
      }
      check_same(ours, truth);
    }
  }
}

// Rows of any codes whose sums are exact in float32, with one scale in three for a row.
std::vector<uint8_t> packed_rows(TableRef const& table, RowCode code, uint64_t seed) {
  auto const bytes = static_cast<size_t>(packed_row_bytes(code, table.dim));
  std::vector<uint8_t> rows(num_slots(table) * bytes);
  for (size_t i = 0; i < rows.size(); ++i) {
    auto const random = random_at(seed << 32 | i);
    auto const float8 = 0x30 + random % 24 + (random >> 32 & 0x80);
    rows[i] = static_cast<uint8_t>(code == RowCode::kFloat8 ? float8 : random);
  }
  for (size_t slot = 0; slot < num_slots(table); ++slot) {
    auto const scale = 0.25f * static_cast<float>(1 + slot % 3);
    memcpy(rows.data() + slot * bytes, &scale, sizeof(scale));
  }
  return rows;
}

// The kernels and the CPU read the same tables.
void run_packed(std::vector<int32_t> const& dims, std::vector<Spec> const& specs, RowCode code,
                ValueType row_type) {
  ThreadsPool threads(1);
  Call ours(dims, ValueType::kFloat32, true), truth(dims, ValueType::kFloat32, true);
  ours.draw({{Pooling::kNoRows, 1, 300}, {Pooling::kNoRows, 1, 300}}, row_type, 7);
  cpu::lookup(*ours.args(), threads.pool);
  ours.draw(specs, row_type, 8, false);
  truth.draw(specs, row_type, 8);
  std::vector<std::vector<uint8_t>> rows;
  auto const packed_args = [&](Call const& call) {
    auto args = std::make_unique<FindPackedArgs>();
    static_cast<LookupArgs&>(*args) = *call.args();
    args->code = code;
    for (size_t t = 0; t < dims.size(); ++t) {
      args->tables[t] = ours.tables[t]->ref;
      args->tables[t].values = rows[t].data();
    }
    return args;
  };
  for (size_t t = 0; t < dims.size(); ++t) {
    rows.push_back(packed_rows(ours.tables[t]->ref, code, t));
  }
  CHECK(cuda::find_packed(*packed_args(ours), nullptr, nullptr) == cudaSuccess);
  cpu::find_packed(*packed_args(truth), threads.pool);
  for (size_t f = 0; f < specs.size(); ++f) {
    auto const &own = *ours.features[f], &wanted = *truth.features[f];
    CHECK(own.slots == wanted.slots);
    if (own.ref.pooling == Pooling::kNoRows) continue;
    auto const dim = dims[static_cast<size_t>(own.ref.table)];
    if (own.ref.pooling == Pooling::kUnstored) {
      check_unstored(own, wanted, dim);
      continue;
    }
    check_close(own.values(dim), wanted.values(dim), row_type);
  }
}

}  // namespace

int main() {
  constexpr auto kFloat = ValueType::kFloat32, kHalf = ValueType::kBFloat16;
  std::vector<std::vector<Spec>> const calls = {
      {{Pooling::kNone, 1, 100}, {Pooling::kNone, 1, 33}},
      {{Pooling::kNoRows, 1, 70}, {Pooling::kSum, 1, 40}},
      {{Pooling::kUnstored, 1, 300}, {Pooling::kUnstored, 1, 33}},
      {{Pooling::kSum, 10, 20}, {Pooling::kNone, 1, 40}, {Pooling::kMean, 3, 30}},
      {{Pooling::kSum, 70, 3}, {Pooling::kMean, 150, 2}},  // 150: more than a warp remembers
      {{Pooling::kSum, 20, 15, Bags::kJagged}, {Pooling::kMean, 9, 20, Bags::kJagged}},
      {{Pooling::kSum, 5, 20, Bags::kEqual, true}, {Pooling::kMean, 9, 20, Bags::kJagged, true}},
      {{Pooling::kSum, 90, 7, Bags::kJagged}, {Pooling::kMean, 2, 70, Bags::kJagged}},
      {{Pooling::kMean, 400, 9, Bags::kJagged}, {Pooling::kSum, 400, 5, Bags::kJagged}},
  };
  for (auto const& specs : calls) {
    for (auto const types : {Types{kFloat, kFloat}, {kHalf, kHalf}, {kHalf, kFloat}}) {
      for (auto const dim : {4, 12, 24, 64, 128, 136}) {
        run({dim, 2 * dim}, specs, types, dim % 8 != 0);
      }
    }
  }
  for (auto const& specs : calls) {
    for (auto const code : {RowCode::kFloat8, RowCode::kInt8, RowCode::kInt4}) {
      for (auto const row_type : {kFloat, kHalf}) {
        for (auto const dim : {1, 3, 4, 12, 65, 128}) {
          run_packed({dim, 2 * dim}, specs, code, row_type);
        }
      }
    }
  }
  std::vector<Selected> const selections = {
      {AdmissionRule::kNone},
      {AdmissionRule::kNone, 0, 8, 1},
      {AdmissionRule::kAll, 0, 8, 0, true},
      {AdmissionRule::kProbability, 1u << 31},
      {AdmissionRule::kProbability, 1u << 31, 8, 0, true},
      {AdmissionRule::kFrequency, 5},
      {AdmissionRule::kFrequency, 9, 16, 0, true},
      {AdmissionRule::kFrequency, 1, 16},  // all: full buckets
      {AdmissionRule::kOccurrences, 4},
      {AdmissionRule::kOccurrences, 1},
      {AdmissionRule::kOccurrences, 40, 0, 0, true},  // so many that keys are forgotten
      {AdmissionRule::kLookups, 2},
      {AdmissionRule::kLookups, 9, 0, 0, true},
  };
  for (auto const& selection : selections) {
    for (auto const& specs : calls) {
      for (auto const evicts : {true, false}) {
        if (selection.keeps_scores && evicts) continue;
        run({12, 64}, specs, {kFloat, kFloat}, evicts, selection);
      }
    }
  }
  std::puts("lookup: ok");
  return 0;
}
