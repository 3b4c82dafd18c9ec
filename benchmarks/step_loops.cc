// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// benchmarks/step_loops.cc: the loops of a step on a CPU without JAX, as a shared object: one build
// of them for compare_loops.
#include "benchmarks/step_loops.h"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "benchmarks/step_case.h"
#include "cpu/table_ops.h"

namespace dynemb::bench {
namespace {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

// Zeros, aligned as XLA's arrays are.
template <class T>
class Array {
 public:
  Array() = default;
  explicit Array(size_t count) {
    auto const bytes = (count * sizeof(T) + 63) / 64 * 64;
    memory_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
    std::memset(memory_.get(), 0, bytes);
  }
  T* data() const { return memory_.get(); }

 private:
  std::unique_ptr<T, Free> memory_;
};

// The caller and helpers that stay, as XLA's pool has them.
class Pool {
 public:
  explicit Pool(int num_threads) {
    pool.num_threads = num_threads;
    pool.schedule = [this](std::function<void()> task) { add(std::move(task)); };
    for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Pool() {
    for (size_t i = 0; i < threads_.size(); ++i) add(nullptr);
    for (auto& thread : threads_) thread.join();
  }

  cpu::ThreadPool pool;

 private:
  void add(std::function<void()> task) {
    std::lock_guard<std::mutex> const lock(mutex_);
    tasks_.push_back(std::move(task));
    some_.notify_one();
  }
  void work() {
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      some_.wait(lock, [&] { return !tasks_.empty(); });
      auto const task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      if (!task) return;
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable some_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
};

class Loops final : public StepLoops {
 public:
  Loops(Case const& c, bool uniform, int num_threads) : case_(c), pool_(num_threads) {
    auto const all_ids = static_cast<size_t>(c.ids() * c.tables) * kBatches;
    auto const ids = draw_ids(c, uniform);
    ids_ = Array<Key>(all_ids);
    std::memcpy(ids_.data(), ids.data(), all_ids * sizeof(Key));
    slots_ = Array<int32_t>(all_ids);
    rows_ = Array<float>(c.row_floats() * size_t(c.tables));
    gradients_ = Array<float>(c.row_floats() * size_t(c.tables));
    lookup_ = std::make_unique<LookupArgs>();
    lookup_->num_tables = lookup_->num_features = c.tables;
    for (int32_t t = 0; t < c.tables; ++t) {
      lookup_->tables[t] = make_table();
      insert_all(lookup_->tables[t], t);
      lookup_->features[t] = describe_feature(c, t);
      lookup_->features[t].rows = rows_.data() + size_t(t) * c.row_floats();
    }
    for (int batch = 0; batch < kBatches; ++batch) run("lookup", batch);  // slots, for an update
  }

  void run(std::string const& work, int batch) override {
    for (int32_t t = 0; t < case_.tables; ++t) {
      auto const first = (int64_t{batch} * case_.tables + t) * case_.ids();
      lookup_->features[t].ids = ids_.data() + first;
      lookup_->features[t].slots = slots_.data() + first;
    }
    if (work == "find") return cpu::find(*lookup_, pool_.pool);
    if (work == "lookup") return cpu::lookup(*lookup_, pool_.pool);
    auto& update = update_of(work);
    for (int32_t t = 0; t < case_.tables; ++t) {
      update.features[t].ids = lookup_->features[t].ids;
      update.features[t].slots = lookup_->features[t].slots;
    }
    cpu::update(update, pool_.pool);
  }

  double sum_of_rows() const override {
    auto sum = 0.0;
    for (size_t i = 0; i < case_.row_floats(); ++i) sum += rows_.data()[i];
    return sum;
  }

 private:
  // Of an optimizer, made when it first runs.
  UpdateArgs& update_of(std::string const& name) {
    auto& update = updates_[name];
    if (update != nullptr) return *update;
    update = std::make_unique<UpdateArgs>();
    auto const kind = kOptimizers.at(name);
    update->num_tables = update->num_features = case_.tables;
    for (int32_t t = 0; t < case_.tables; ++t) {
      update->optimizers[t] = kind;
      auto& table = update->tables[t];
      table = lookup_->tables[t];
      table.num_states = num_states(kind);
      for (int s = 0; s < table.num_states; ++s) {
        table.state_width[s] = is_rowwise(kind) ? 1 : case_.dim;
        table.states[s] = array_of(case_.slots() * size_t(table.state_width[s]));
      }
      update->features[t] = lookup_->features[t];
      update->features[t].rows = gradients_.data() + size_t(t) * case_.row_floats();
    }
    auto const values = hyper_parameters(case_);
    auto* const hyper = array_of(values.size());
    std::copy(values.begin(), values.end(), hyper);
    update->hyper = hyper;
    return *update;
  }

  float* array_of(size_t floats) { return arrays_.emplace_back(floats).data(); }

  TableRef make_table() {
    auto table = describe_table(case_);
    table.index = reinterpret_cast<uint8_t*>(array_of(case_.index_bytes() / sizeof(float)));
    for (int64_t b = 0; b < case_.buckets(); ++b) {
      for (int i = 0; i < kBucketCapacity; ++i) bucket_at(table, b).entries[i].key = kEmptyKey;
    }
    table.values = array_of(case_.slots() * size_t(case_.dim));
    table.counters = reinterpret_cast<uint64_t*>(array_of(kNumCounters * 2));
    return table;
  }

  void insert_all(TableRef const& table, int32_t number) {
    auto const ids = all_ids(case_, number);
    std::vector<int32_t> slots(ids.size());
    LookupArgs args{};
    args.num_tables = args.num_features = 1;
    args.tables[0] = table;
    args.features[0] = describe_filling(case_);
    args.features[0].ids = ids.data();
    args.features[0].slots = slots.data();
    cpu::lookup(args, pool_.pool);
  }

  Case const case_;
  Pool pool_;
  std::vector<Array<float>> arrays_;  // of the tables
  Array<Key> ids_;                    // [batches, tables, ids]
  Array<int32_t> slots_;              // [batches, tables, ids]
  Array<float> rows_;                 // [tables, row_floats]
  Array<float> gradients_;            // [tables, row_floats]
  std::unique_ptr<LookupArgs> lookup_;
  std::map<std::string, std::unique_ptr<UpdateArgs>> updates_;
};

}  // namespace
}  // namespace dynemb::bench

extern "C" __attribute__((visibility("default"))) dynemb::bench::StepLoops* make_step_loops(
    char const* name, bool uniform, int num_threads) {
  return new dynemb::bench::Loops(dynemb::bench::kCases.at(name), uniform, num_threads);
}
