// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// benchmarks/pooled_lookups.cu: serving lookups without JAX, beside cuEmbed's forward pass on the
// rows and slots of the same tables. cuEmbed neither hashes nor probes. CUEMBED names a checkout of
// github.com/NVIDIA/cuEmbed; without it only our lookups are timed:
//
//     make cuda ARCHS=90-real CUEMBED=path/to/cuEmbed && cd build/cuda
//     ./pooled_lookups "" 128x10,32x20
//     ./pooled_lookups before=./before.so "" once
//
// Arguments: other builds of the functions in cuda/launch.h, measured in turns with this one (nvcc
// -shared, from cuda/lookup/find.cu and offsets.cu at least), and cases; with `once` each work runs
// once, for a profiler. Prints microseconds of a call, the least of several rows of calls in a
// graph, with four batches in turns: a serving lookup, the same behind the sum of the lengths, a
// training lookup, cuEmbed, and the slots alone. `floor` is the fewest bytes that such a lookup
// moves, as in benchmarks/suite/workloads.py, at 4.3 TB/s.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "benchmarks/gpu_case.h"
#include "benchmarks/step_case.h"
#include "core/args.h"
#include "cuda/launch.h"

#if __has_include("cuembed/include/embedding_lookup.cuh")
#include "cuembed/include/embedding_lookup.cuh"
#define DYNEMB_BESIDE_CUEMBED
#endif

using namespace dynemb;
using namespace dynemb::bench;
namespace kernels = dynemb::cuda;  // cuEmbed brings CUDA's own namespace of that name

namespace {

struct Shape {
  char const* name;
  Case table;
};

Shape const kShapes[] = {
    {"128x10", {1, 10'000'000, 128, 65'536, 10, true}},
    {"32x20", {1, 10'000'000, 32, 65'536, 20, true}},
    {"64x20", {1, 10'000'000, 64, 65'536, 20, true}},
    {"256x10", {1, 10'000'000, 256, 32'768, 10, true}},
    {"48x10", {1, 4'000'000, 48, 65'536, 10, true}},
    {"300x5", {1, 4'000'000, 300, 32'768, 5, true}},
    {"8x20", {1, 4'000'000, 8, 65'536, 20, true}},
    {"w20", {1, 1'000'000, 20, 32'768, 10, true}},
    {"w48", {1, 1'000'000, 48, 32'768, 10, true}},
    {"w100", {1, 1'000'000, 100, 32'768, 10, true}},
    {"w300", {1, 1'000'000, 300, 32'768, 10, true}},
    {"128", {1, 10'000'000, 128, 1'048'576, 1, false}},
    {"32", {1, 10'000'000, 32, 1'048'576, 1, false}},
};

constexpr double kBytesPerMicrosecond = 4.3e6;

using Find = cudaError_t (*)(FindArgs const&, void*, cudaStream_t);
using Offsets = cudaError_t (*)(OffsetsArgs const&, void*, cudaStream_t);

struct Build {
  std::string name;
  Find find;
  Offsets offsets;
  Find lookup;  // null: not in the library
};

template <class Function>
Function symbol(void* library, char const* name) {
  auto* const found = dlsym(library, name);
  if (found == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(1);
  }
  return reinterpret_cast<Function>(found);
}

std::vector<Build> builds_of(std::string const& list) {
  std::vector<Build> builds{{"this", kernels::find, kernels::offsets, kernels::lookup}};
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    auto const equals = part.find('=');
    if (equals == std::string::npos) continue;
    auto* const library = dlopen(part.substr(equals + 1).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::exit(1);
    }
    // The mangled names of the two functions in cuda/launch.h.
    builds.push_back(
        {part.substr(0, equals),
         symbol<Find>(library, "_ZN6dynemb4cuda4findERKNS_10LookupArgsEPvP11CUstream_st"),
         symbol<Offsets>(library, "_ZN6dynemb4cuda7offsetsERKNS_11OffsetsArgsEPvP11CUstream_st"),
         reinterpret_cast<Find>(
             dlsym(library, "_ZN6dynemb4cuda6lookupERKNS_10LookupArgsEPvP11CUstream_st"))});
  }
  return builds;
}

// Different in every row and column, so that a wrong row changes a sum.
__global__ void fill_rows(float* rows, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x) {
    rows[i] = static_cast<float>(hash_number(static_cast<uint64_t>(i)) >> 40) * 0x1p-24f;
  }
}

// Most are short, some are empty and a few are long; all ids belong to a bag.
std::vector<int32_t> draw_lengths(Case const& c) {
  std::mt19937_64 random(7);
  std::exponential_distribution<double> share(1.0);
  std::vector<double> up_to;
  for (int64_t bag = 0; bag < c.batch; ++bag) {
    up_to.push_back((up_to.empty() ? 0.0 : up_to.back()) + share(random));
  }
  std::vector<int32_t> lengths;
  int64_t begin = 0;
  for (auto const sum : up_to) {
    auto const end = static_cast<int64_t>(sum / up_to.back() * static_cast<double>(c.ids()));
    lengths.push_back(static_cast<int32_t>(end - begin));
    begin = end;
  }
  return lengths;
}

// Ids of four batches, each drawn by a thread.
std::vector<Key> draw_side_by_side(Case const& c, bool uniform) {
  static std::map<std::pair<int64_t, bool>, Ranks> all_ranks;
  auto const key = std::make_pair(c.rows, uniform);
  auto const& ranks = all_ranks.try_emplace(key, c.rows, uniform).first->second;
  std::vector<Key> ids(static_cast<size_t>(c.ids() * kBatches));
  std::vector<std::thread> threads;
  constexpr int64_t kParts = 16;
  for (int64_t part = 0; part < kParts; ++part) {
    threads.emplace_back([&, part] {
      std::mt19937_64 random(static_cast<uint64_t>(part + 1));
      auto const count = static_cast<int64_t>(ids.size());
      for (auto i = count * part / kParts; i < count * (part + 1) / kParts; ++i) {
        ids[static_cast<size_t>(i)] = id_of(ranks.draw(random), 0);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return ids;
}

double floor_of(Case const& c, std::vector<Key> const& ids, bool jagged) {
  auto bytes = 0.0;
  for (int batch = 0; batch < kBatches; ++batch) {
    auto const first = ids.begin() + batch * c.ids();
    std::unordered_set<Key> const distinct(first, first + c.ids());
    bytes += static_cast<double>(distinct.size()) * c.dim * 4.0;
  }
  bytes = bytes / kBatches + static_cast<double>(c.ids()) * 8.0;
  bytes += static_cast<double>(c.row_floats()) * 4.0 + (jagged ? 4.0 * c.batch : 0.0);
  return bytes / kBytesPerMicrosecond;
}

struct Work {
  std::string name;
  std::function<cudaError_t(int batch, cudaStream_t)> run;
};

constexpr int kCalls = 20;  // of a graph

float once(cudaGraphExec_t graph, cudaStream_t stream) {
  static cudaEvent_t begin = nullptr, end = nullptr;
  if (begin == nullptr) {
    check(cudaEventCreate(&begin));
    check(cudaEventCreate(&end));
  }
  check(cudaEventRecord(begin, stream));
  check(cudaGraphLaunch(graph, stream));
  check(cudaEventRecord(end, stream));
  check(cudaEventSynchronize(end));
  float milliseconds = 0.0f;
  check(cudaEventElapsedTime(&milliseconds, begin, end));
  return milliseconds * 1e3f / kCalls;
}

cudaGraphExec_t captured(Work const& work, cudaStream_t stream) {
  cudaGraph_t graph;
  cudaGraphExec_t result;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kCalls; ++i) check(work.run(i % kBatches, stream));
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&result, graph, 0));
  check(cudaGraphDestroy(graph));
  return result;
}

// Works in turns: the least microseconds of each.
std::vector<float> least(std::vector<Work> const& works, cudaStream_t stream) {
  std::vector<cudaGraphExec_t> graphs;
  for (auto const& work : works) graphs.push_back(captured(work, stream));
  std::vector<float> times(works.size(), 1e9f);
  for (int repeat = 0; repeat < 8; ++repeat) {
    for (size_t i = 0; i < works.size(); ++i) {
      auto const time = once(graphs[i], stream);
      if (repeat > 0) times[i] = std::min(times[i], time);
    }
  }
  for (auto const graph : graphs) check(cudaGraphExecDestroy(graph));
  return times;
}

class Lookups {
 public:
  explicit Lookups(Case const& c) : case_(c) {
    auto* const counters = zeros<uint64_t>(kNumCounters);
    args_.num_tables = args_.num_features = 1;
    args_.tables[0] = make_table(c, counters);
    insert_all(c, args_.tables[0], 0);
    auto const floats = static_cast<int64_t>(c.slots()) * c.dim;
    fill_rows<<<4096, 256>>>(static_cast<float*>(args_.tables[0].values), floats);
    ids_ = zeros<Key>(static_cast<size_t>(c.ids() * kBatches));
    slots_ = zeros<int32_t>(static_cast<size_t>(c.ids() * kBatches));
    rows_ = zeros<float>(c.row_floats());
    auto* const lengths = zeros<int32_t>(static_cast<size_t>(c.batch));
    if (c.pooled) fill(lengths, draw_lengths(c));
    offsets_.num_features = 1;
    offsets_.features[0] = {c.batch,
                            lengths,
                            LengthType::kInt32,
                            static_cast<int32_t>(c.ids()),
                            zeros<int32_t>(static_cast<size_t>(c.batch) + 1),
                            zeros<uint32_t>(1)};
    scratch_ = zeros<char>(kernels::lookup_scratch_bytes(call(0, false)));
    check(kernels::offsets(offsets_, nullptr, nullptr));
  }

  ~Lookups() {  // what is large
    for (void* const memory :
         {static_cast<void*>(args_.tables[0].index), args_.tables[0].values,
          static_cast<void*>(ids_), static_cast<void*>(slots_), static_cast<void*>(rows_)}) {
      check(cudaFree(memory));
    }
  }

  // Prints a line; or runs each work once, for a profiler.
  void run(std::vector<Build> const& builds, bool uniform, bool jagged, bool once,
           cudaStream_t stream) {
    auto const ids = draw_side_by_side(case_, uniform);
    fill(ids_, ids);
    auto const works = all_works(builds, jagged);
    if (once) {
      for (auto const& work : works) check(work.run(0, stream));
      return check(cudaStreamSynchronize(stream));
    }
    std::string digests;
    for (auto const& work : works) {  // the first one finds slots, which cuEmbed reads
      check(cudaMemset(rows_, 0xff, case_.row_floats() * 4));
      for (int batch = 0; batch < kBatches; ++batch) check(work.run(batch, stream));
      check(cudaStreamSynchronize(stream));
      digests += " " + digest();
    }
    auto const times = least(works, stream);
    std::printf(" %s floor %.0f |", uniform ? "uniform" : "zipf", floor_of(case_, ids, jagged));
    for (size_t i = 0; i < works.size(); ++i) {
      std::printf(" %s %.1f", works[i].name.c_str(), times[i]);
    }
    std::printf(" | rows%s\n", digests.c_str());
    std::fflush(stdout);
  }

 private:
  LookupArgs call(int batch, bool jagged) const {
    auto args = args_;
    auto& feature = args.features[0];
    feature = describe_feature(case_, 0);
    feature.ids = ids_ + batch * case_.ids();
    feature.slots = slots_ + batch * case_.ids();
    feature.rows = rows_;
    if (jagged) {
      feature.bag_size = 0;
      feature.offsets = offsets_.features[0].offsets;
    }
    return args;
  }

  std::vector<Work> all_works(std::vector<Build> const& builds, bool jagged) const {
    std::vector<Work> works;
    for (auto const& build : builds) {
      works.push_back({build.name, [this, &build, jagged](int batch, cudaStream_t stream) {
                         return build.find(call(batch, jagged), nullptr, stream);
                       }});
    }
    for (auto const& build : builds) {
      if (!jagged) break;
      works.push_back({build.name + "+offsets", [this, &build](int batch, cudaStream_t stream) {
                         check(build.offsets(offsets_, nullptr, stream));
                         return build.find(call(batch, true), nullptr, stream);
                       }});
    }
    for (auto const& build : builds) {
      if (build.lookup == nullptr) continue;
      works.push_back(
          {build.name + "(train)", [this, &build, jagged](int batch, cudaStream_t stream) {
             return build.lookup(call(batch, jagged), scratch_, stream);
           }});
    }
#ifdef DYNEMB_BESIDE_CUEMBED
    works.push_back({"cuEmbed", [this, jagged](int batch, cudaStream_t stream) {
                       return cuembed_forward(batch, jagged, stream);
                     }});
#endif
    works.push_back({"slots", [this, jagged](int batch, cudaStream_t stream) {
                       auto args = call(batch, jagged);
                       args.features[0].pooling = Pooling::kNoRows;
                       return kernels::find(args, nullptr, stream);
                     }});
    return works;
  }

#ifdef DYNEMB_BESIDE_CUEMBED
  cudaError_t cuembed_forward(int batch, bool jagged, cudaStream_t stream) const {
    auto const ids_of_bag = static_cast<int>(case_.pooled ? case_.bag : 1);
    cuembed::EmbeddingForward<float, float, int32_t, int32_t>(
        static_cast<float const*>(args_.tables[0].values), case_.dim, slots_ + batch * case_.ids(),
        jagged ? offsets_.features[0].offsets : nullptr, nullptr, static_cast<int>(case_.bags()),
        jagged ? 0 : ids_of_bag, cuembed::CombineMode::kSum, rows_, stream);
    return cudaGetLastError();
  }
#endif

  // By which two works can be compared: equal if all rows are.
  std::string digest() const {
    std::vector<uint32_t> words(case_.row_floats());
    check(cudaMemcpy(words.data(), rows_, words.size() * 4, cudaMemcpyDeviceToHost));
    uint64_t sum = 0;
    for (auto const word : words) sum = hash_number(sum ^ word);
    char text[9];
    std::snprintf(text, sizeof text, "%08x", static_cast<uint32_t>(sum));
    return text;
  }

  Case case_;
  LookupArgs args_{};
  OffsetsArgs offsets_;
  Key* ids_;
  int32_t* slots_;
  float* rows_;
  char* scratch_;
};

bool is_wanted(std::string const& list, std::string const& name) {
  return list.empty() || ("," + list + ",").find("," + name + ",") != std::string::npos;
}

}  // namespace

int main(int argc, char** argv) {
  auto const builds = builds_of(argc > 1 ? argv[1] : "");
  std::string const wanted = argc > 2 ? argv[2] : "";
  auto const once = argc > 3 && std::string(argv[3]) == "once";
  cudaStream_t stream;
  check(cudaStreamCreate(&stream));
  for (auto const& shape : kShapes) {
    if (!is_wanted(wanted, shape.name)) continue;
    Lookups lookups(shape.table);
    for (auto const jagged : {false, true}) {
      if (jagged && !shape.table.pooled) continue;
      for (auto const uniform : {false, true}) {
        std::printf("%s%s", shape.name, jagged ? " jagged" : "");
        lookups.run(builds, uniform, jagged, once, stream);
      }
    }
  }
  return 0;
}
