// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// benchmarks/step_kernels.cu: the kernels of a step without JAX, captured as a graph, for trying a
// change and for Nsight Compute, which does not come back from a step of 26 tables under JAX:
//
//     make cuda ARCHS=90-real && cd build/cuda
//     ./step_kernels c64 zipf find,lookup,sgd,rowwise_adagrad
//     PROFILE="--section SourceCounters --page source --csv --launch-skip 1 --launch-count 1"
//     ncu $PROFILE --kernel-name regex:pieces_kernel ./step_kernels c64 zipf sgd 2
//
// Arguments: a case of benchmarks/suite/workloads.py, zipf or uniform, some works, repeats. Prints
// the median in microseconds of each work, of four batches in turns, and the sum of the rows that
// the first table returned last, by which two builds can be compared.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "benchmarks/gpu_case.h"
#include "benchmarks/step_case.h"
#include "core/args.h"
#include "cuda/launch.h"

using namespace dynemb;
using namespace dynemb::bench;

namespace {

constexpr size_t kFlushed = size_t{128} << 20;  // more than the second-level cache

class Step {
 public:
  Step(Case const& c, bool uniform) : case_(c) {
    auto const all_ids = static_cast<size_t>(c.ids() * c.tables);
    ids_ = zeros<Key>(all_ids * kBatches);
    rows_ = zeros<float>(c.row_floats() * static_cast<size_t>(c.tables));
    gradients_ = zeros<float>(c.row_floats() * static_cast<size_t>(c.tables));
    slots_ = zeros<int32_t>(all_ids * kBatches);
    auto* const counters = zeros<uint64_t>(static_cast<size_t>(c.tables * kNumCounters));
    fill(ids_, draw_ids(c, uniform));
    lookup_.num_tables = lookup_.num_features = c.tables;
    for (int32_t t = 0; t < c.tables; ++t) {
      lookup_.tables[t] = make_table(c, counters + t * kNumCounters);
      insert_all(c, lookup_.tables[t], t);
      lookup_.features[t] = describe_feature(c, t);
      lookup_.features[t].rows = rows_ + static_cast<size_t>(t) * c.row_floats();
    }
    lookup_scratch_ = zeros<char>(cuda::lookup_scratch_bytes(lookup_));
    find_scratch_ = zeros<char>(cuda::find_scratch_bytes(lookup_));
    for (int batch = 0; batch < kBatches; ++batch) {  // an update wants the slots of its ids
      use_batch(batch);
      check(lookup(nullptr));
    }
    check(cudaDeviceSynchronize());
  }

  // With new states.
  void prepare(OptimizerKind kind) {
    auto const& c = case_;
    update_.num_tables = update_.num_features = c.tables;
    auto const hyper = hyper_parameters(c);
    for (int32_t t = 0; t < c.tables; ++t) {
      update_.optimizers[t] = kind;
      auto& table = update_.tables[t];
      table = lookup_.tables[t];
      table.num_states = num_states(kind);
      for (int s = 0; s < table.num_states; ++s) {
        table.state_width[s] = is_rowwise(kind) ? 1 : c.dim;
        table.states[s] = zeros<float>(c.slots() * static_cast<size_t>(table.state_width[s]));
      }
      update_.features[t] = lookup_.features[t];
      update_.features[t].rows = gradients_ + static_cast<size_t>(t) * c.row_floats();
    }
    auto* const on_device = zeros<float>(hyper.size());
    fill(on_device, hyper);
    update_.hyper = on_device;
    update_scratch_ = zeros<char>(cuda::update_scratch_bytes(update_));
  }

  void use_batch(int batch) {
    for (int32_t t = 0; t < case_.tables; ++t) {
      auto const first = (int64_t{batch} * case_.tables + t) * case_.ids();
      lookup_.features[t].ids = update_.features[t].ids = ids_ + first;
      lookup_.features[t].slots = update_.features[t].slots = slots_ + first;
    }
  }

  cudaError_t find(cudaStream_t stream) const { return cuda::find(lookup_, find_scratch_, stream); }
  cudaError_t lookup(cudaStream_t stream) const {
    return cuda::lookup(lookup_, lookup_scratch_, stream);
  }
  cudaError_t update(cudaStream_t stream) const {
    return cuda::update(update_, update_scratch_, stream);
  }

  double sum_of_rows() const {
    std::vector<float> rows(case_.row_floats());
    check(cudaMemcpy(rows.data(), rows_, rows.size() * 4, cudaMemcpyDeviceToHost));
    auto sum = 0.0;
    for (auto const value : rows) sum += value;
    return sum;
  }

 private:
  Case case_;
  Key* ids_;          // [batches, tables, ids]
  int32_t* slots_;    // [batches, tables, ids]
  float* rows_;       // [tables, row_floats]
  float* gradients_;  // [tables, row_floats]
  LookupArgs lookup_{};
  UpdateArgs update_{};
  char* find_scratch_;
  char* lookup_scratch_;
  char* update_scratch_ = nullptr;
};

using Work = std::function<cudaError_t(cudaStream_t)>;

cudaGraphExec_t captured(Work const& work, cudaStream_t stream) {
  cudaGraph_t graph;
  cudaGraphExec_t result;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  check(work(stream));
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&result, graph, 0));
  check(cudaGraphDestroy(graph));
  return result;
}

// Microseconds; the first run is not counted.
float median(Step& step, Work const& work, int repeats, cudaStream_t stream) {
  static auto* const flushed = zeros<char>(kFlushed);
  cudaGraphExec_t graphs[kBatches];
  for (int batch = 0; batch < kBatches; ++batch) {
    step.use_batch(batch);
    graphs[batch] = captured(work, stream);
  }
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < repeats; ++i) {
    check(cudaMemsetAsync(flushed, i, kFlushed, stream));
    check(cudaEventRecord(begin, stream));
    check(cudaGraphLaunch(graphs[i % kBatches], stream));
    check(cudaEventRecord(end, stream));
    check(cudaEventSynchronize(end));
    float milliseconds = 0.0f;
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i > 0) times.push_back(milliseconds * 1e3f);
  }
  for (auto const graph : graphs) check(cudaGraphExecDestroy(graph));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

Work work_of(std::string const& name, Step& step) {
  if (name == "find") return [&](cudaStream_t stream) { return step.find(stream); };
  if (name == "lookup") return [&](cudaStream_t stream) { return step.lookup(stream); };
  step.prepare(kOptimizers.at(name));
  return [&](cudaStream_t stream) { return step.update(stream); };
}

}  // namespace

int main(int argc, char** argv) {
  auto const uniform = argc >= 4 && std::string(argv[2]) == "uniform";
  auto const is_known =
      argc >= 4 && kCases.count(argv[1]) == 1 && (uniform || std::string(argv[2]) == "zipf");
  if (!is_known) {
    std::fprintf(stderr, "usage: %s a|b|c|c64|d|e zipf|uniform WORK,WORK,... [REPEATS >= 2]\n",
                 argv[0]);
    return 2;
  }
  auto const repeats = argc > 4 ? std::max(2, std::atoi(argv[4])) : 12;
  Step step(kCases.at(argv[1]), uniform);
  cudaStream_t stream;
  check(cudaStreamCreate(&stream));
  std::printf("%s %s:", argv[1], argv[2]);
  std::istringstream works(argv[3]);
  for (std::string name; std::getline(works, name, ',');) {
    if (!is_work(name)) {
      std::fprintf(stderr, "unknown work '%s': find, lookup, or an optimizer\n", name.c_str());
      return 2;
    }
    std::printf(" %s %.1f", name.c_str(), median(step, work_of(name, step), repeats, stream));
    std::fflush(stdout);
  }
  std::printf(" us, rows sum up to %.6g\n", step.sum_of_rows());
  return 0;
}
