// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda/exchange/launch.h"
#include "cuda/exchange/mailbox.cuh"
#include "cuda/exchange/peer_group.h"

namespace dynemb::cuda {
namespace {

constexpr auto kPatienceVariable = "JAX_DYNEMB_PEER_TIMEOUT";  // seconds
constexpr double kPatience = 120;

struct PeerGroup {
  std::vector<int> devices;
  PeersRef peers;
};

double patience() {
  auto const* const text = std::getenv(kPatienceVariable);
  auto const seconds = text == nullptr ? 0.0 : std::atof(text);
  return seconds > 0 ? seconds : kPatience;
}

void print_reason(PeerGroup const& group, GivenUp const& record) {
  auto const waiting = group.devices[record.waiting % group.devices.size()];
  auto const missing = group.devices[record.missing % group.devices.size()];
  if (record.reason == kOtherProgram) {
    std::fprintf(stderr,
                 "jax_dynemb: GPU %d and GPU %d of one mesh ran different exchanges at the same "
                 "time. Call the tables in the same order on every device.\n",
                 waiting, missing);
  } else if (record.reason == kOtherRank) {
    std::fprintf(stderr,
                 "jax_dynemb: GPU %d is device %u of a shard_map, but another one of the tables' "
                 "mesh. Give both the same mesh.\n",
                 waiting, record.missing);
  } else {
    std::fprintf(stderr,
                 "jax_dynemb: GPU %d waited %g s for GPU %d, which did not arrive in exchange %u. "
                 "If it is only late, set %s to more seconds; exchange_transport='collectives' of "
                 "jde.Tables does not wait in this way.\n",
                 waiting, patience(), missing, record.round, kPatienceVariable);
  }
  std::fflush(stderr);
}

void watch(std::shared_ptr<PeerGroup> const& group) {
  std::thread([group] {
    volatile GivenUp const* const record = group->peers.given_up;
    while (record->reason == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    print_reason(*group, {record->reason, record->waiting, record->missing, record->round});
  }).detach();
}

std::string problem_of(cudaError_t error, char const* what) {
  return error == cudaSuccess ? "" : std::string(what) + ": " + cudaGetErrorString(error);
}

// Lets the current device read and write the memory of the others.
std::string reach(std::vector<int> const& devices, int device) {
  for (auto const other : devices) {
    if (other == device) continue;
    int can = 0;
    auto problem = problem_of(cudaDeviceCanAccessPeer(&can, device, other), "peer access");
    if (problem.empty() && can == 0) {
      problem = "GPU " + std::to_string(device) + " cannot read the memory of GPU " +
                std::to_string(other);
    }
    if (!problem.empty()) return problem;
    auto const error = cudaDeviceEnablePeerAccess(other, 0);
    cudaGetLastError();  // XLA may have enabled it before
    if (error != cudaSuccess && error != cudaErrorPeerAccessAlreadyEnabled) {
      return problem_of(error, "peer access");
    }
  }
  return "";
}

std::string make_mailboxes(PeerGroup* group) {
  auto& peers = group->peers;
  peers.shards = static_cast<int32_t>(group->devices.size());
  peers.patience = static_cast<uint64_t>(patience() * 1e9);
  for (size_t rank = 0; rank < group->devices.size(); ++rank) {
    auto problem = problem_of(cudaSetDevice(group->devices[rank]), "device");
    if (problem.empty()) problem = reach(group->devices, group->devices[rank]);
    if (!problem.empty()) return problem;
    auto& box = peers.boxes[rank];
    problem = problem_of(cudaMalloc(&box, sizeof(Mailbox)), "a mailbox");
    if (problem.empty()) problem = problem_of(cudaMemset(box, 0, sizeof(Mailbox)), "a mailbox");
    if (problem.empty()) problem = problem_of(cudaDeviceSynchronize(), "a mailbox");
    if (!problem.empty()) return problem;
  }
  auto problem = problem_of(
      cudaHostAlloc(&peers.given_up, sizeof(GivenUp), cudaHostAllocMapped | cudaHostAllocPortable),
      "a record in memory of the host");
  if (problem.empty()) *peers.given_up = {};
  return problem;
}

struct Groups {
  std::mutex mutex;
  std::map<std::vector<int>, std::shared_ptr<PeerGroup>> made;
  std::map<std::vector<int>, std::string> refused;
};

Groups& groups() {
  static auto* const all = new Groups;  // never destroyed: threads watch them
  return *all;
}

}  // namespace

std::string prepare_peers(std::vector<int> const& devices) {
  if (devices.empty() || devices.size() > static_cast<size_t>(kMostPeers)) {
    return "a group has up to " + std::to_string(kMostPeers) + " GPUs";
  }
  auto& all = groups();
  std::lock_guard<std::mutex> const lock(all.mutex);
  if (all.made.count(devices) > 0) return "";
  if (all.refused.count(devices) > 0) return all.refused[devices];
  int before = 0;
  auto problem = problem_of(cudaGetDevice(&before), "device");
  auto const group = std::make_shared<PeerGroup>(PeerGroup{devices, {}});
  if (problem.empty()) problem = make_mailboxes(group.get());
  cudaSetDevice(before);
  if (!problem.empty()) {
    all.refused[devices] = problem;
    return problem;
  }
  watch(group);
  all.made[devices] = group;
  return "";
}

bool find_peers(int64_t const* devices, int64_t num_devices, int64_t shards, PeersRef* peers) {
  int device = 0;
  if (shards <= 0 || cudaGetDevice(&device) != cudaSuccess) return false;
  for (int64_t i = 0; i < num_devices; ++i) {
    if (devices[i] != device) continue;
    auto const* const begin = devices + i / shards * shards;
    auto& all = groups();
    std::lock_guard<std::mutex> const lock(all.mutex);
    auto const found = all.made.find(std::vector<int>(begin, begin + shards));
    if (found == all.made.end()) return false;
    *peers = found->second->peers;
    peers->me = static_cast<int32_t>(i % shards);
    return true;
  }
  return false;
}

}  // namespace dynemb::cuda
