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
#include "cuda/exchange/problem.h"

namespace dynemb::cuda {
namespace {

constexpr auto kPatienceVariable = "JAX_DYNEMB_PEER_TIMEOUT";  // seconds
constexpr double kPatience = 120;

struct PeerGroup {
  std::vector<Peer> members;  // by rank
  PeersRef peers;
};

double patience() {
  auto const* const text = std::getenv(kPatienceVariable);
  auto const seconds = text == nullptr ? 0.0 : std::atof(text);
  return seconds > 0 ? seconds : kPatience;
}

void print_reason(PeerGroup const& group, GivenUp const& record) {
  auto const& members = group.members;
  auto const* const waiting = members[record.waiting % members.size()].name.c_str();
  auto const* const missing = members[record.missing % members.size()].name.c_str();
  if (record.reason == kOtherProgram) {
    std::fprintf(stderr,
                 "jax_dynemb: %s and %s of one mesh ran different exchanges at the same "
                 "time. Call the tables in the same order on every device.\n",
                 waiting, missing);
  } else if (record.reason == kOtherRank) {
    std::fprintf(stderr,
                 "jax_dynemb: %s is device %u of a shard_map, but another one of the tables' "
                 "mesh. Give both the same mesh.\n",
                 waiting, record.missing);
  } else {
    std::fprintf(stderr,
                 "jax_dynemb: %s waited %g s for %s, which did not arrive in exchange %u. "
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

// Lets the current device read and write the memory of the others of this process.
std::string reach(std::vector<Peer> const& members, int device) {
  for (auto const& other : members) {
    if (other.device == device || !other.is_local()) continue;
    int can = 0;
    auto problem = problem_of(cudaDeviceCanAccessPeer(&can, device, other.device), "peer access");
    if (problem.empty() && can == 0) {
      problem = "GPU " + std::to_string(device) + " cannot read the memory of " + other.name;
    }
    if (!problem.empty()) return problem;
    auto const error = cudaDeviceEnablePeerAccess(other.device, 0);
    cudaGetLastError();  // XLA may have enabled it before
    if (error != cudaSuccess && error != cudaErrorPeerAccessAlreadyEnabled) {
      return problem_of(error, "peer access");
    }
  }
  return "";
}

// Makes the mailbox of a GPU of this process, unless it is one that other processes reach.
std::string make_mailbox(std::vector<Peer> const& members, Peer const& owner, Mailbox** box) {
  auto problem = problem_of(cudaSetDevice(owner.device), "device");
  if (problem.empty()) problem = reach(members, owner.device);
  if (!problem.empty() || *box != nullptr) return problem;
  problem = problem_of(cudaMalloc(box, sizeof(Mailbox)), "a mailbox");
  if (problem.empty()) problem = problem_of(cudaMemset(*box, 0, sizeof(Mailbox)), "a mailbox");
  if (problem.empty()) problem = problem_of(cudaDeviceSynchronize(), "a mailbox");
  return problem;
}

std::string make_mailboxes(PeerGroup* group) {
  auto& peers = group->peers;
  peers.shards = static_cast<int32_t>(group->members.size());
  peers.patience = static_cast<uint64_t>(patience() * 1e9);
  for (size_t rank = 0; rank < group->members.size(); ++rank) {
    auto const& member = group->members[rank];
    auto& box = peers.boxes[rank];
    box = reinterpret_cast<Mailbox*>(member.mailbox);
    peers.shifts[rank] = member.shift;
    if (!member.is_local()) continue;
    auto const problem = make_mailbox(group->members, member, &box);
    if (!problem.empty()) return problem;
  }
  auto problem = problem_of(
      cudaHostAlloc(&peers.given_up, sizeof(GivenUp), cudaHostAllocMapped | cudaHostAllocPortable),
      "a record in memory of the host");
  if (problem.empty()) *peers.given_up = {};
  return problem;
}

std::vector<int> ids_of(std::vector<Peer> const& members) {
  std::vector<int> ids;
  for (auto const& member : members) ids.push_back(member.id);
  return ids;
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

uint64_t mailbox_bytes() { return sizeof(Mailbox); }

std::string prepare_peers(std::vector<Peer> const& members) {
  if (members.empty() || members.size() > static_cast<size_t>(kMostPeers)) {
    return "a group has up to " + std::to_string(kMostPeers) + " GPUs";
  }
  auto const ids = ids_of(members);
  auto& all = groups();
  std::lock_guard<std::mutex> const lock(all.mutex);
  if (all.made.count(ids) > 0) return "";
  if (all.refused.count(ids) > 0) return all.refused[ids];
  int before = 0;
  auto problem = problem_of(cudaGetDevice(&before), "device");
  auto const group = std::make_shared<PeerGroup>(PeerGroup{members, {}});
  if (problem.empty()) problem = make_mailboxes(group.get());
  cudaSetDevice(before);
  if (!problem.empty()) {
    all.refused[ids] = problem;
    return problem;
  }
  watch(group);
  all.made[ids] = group;
  return "";
}

bool find_peers(int64_t const* ids, int64_t num_ids, int64_t shards, PeersRef* peers) {
  int device = 0;
  if (shards <= 0 || cudaGetDevice(&device) != cudaSuccess) return false;
  auto& all = groups();
  std::lock_guard<std::mutex> const lock(all.mutex);
  for (int64_t first = 0; first + shards <= num_ids; first += shards) {
    auto const found = all.made.find(std::vector<int>(ids + first, ids + first + shards));
    if (found == all.made.end()) continue;  // of other processes alone
    auto const& members = found->second->members;
    for (size_t rank = 0; rank < members.size(); ++rank) {
      if (members[rank].device != device) continue;
      *peers = found->second->peers;
      peers->me = static_cast<int32_t>(rank);
      peers->shared_begin = members[rank].shared_begin;
      peers->shared_bytes = members[rank].shared_bytes;
      return true;
    }
  }
  return false;
}

}  // namespace dynemb::cuda
