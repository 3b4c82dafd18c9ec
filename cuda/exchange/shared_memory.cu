// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include "cuda/exchange/problem.h"
#include "cuda/exchange/shared_memory.h"

namespace dynemb::cuda {
namespace {

// Functions of the driver. The module is not linked to it, since it is also loaded where there is
// none.
struct Driver {
  decltype(&cuMemGetAddressRange) range;
  decltype(&cuMemRetainAllocationHandle) retain;
  decltype(&cuMemRelease) release;
  decltype(&cuMemExportToShareableHandle) to_descriptor;
  decltype(&cuMemImportFromShareableHandle) of_descriptor;
  decltype(&cuMemGetAllocationGranularity) granularity;
  decltype(&cuMemCreate) create;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) unreserve;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
  bool is_whole = false;
};

template <class Function>
bool find_function(void* library, char const* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

Driver find_driver() {
  Driver all{};
  auto* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  all.is_whole = library != nullptr &&
                 find_function(library, "cuMemGetAddressRange_v2", &all.range) &&
                 find_function(library, "cuMemRetainAllocationHandle", &all.retain) &&
                 find_function(library, "cuMemRelease", &all.release) &&
                 find_function(library, "cuMemExportToShareableHandle", &all.to_descriptor) &&
                 find_function(library, "cuMemImportFromShareableHandle", &all.of_descriptor) &&
                 find_function(library, "cuMemGetAllocationGranularity", &all.granularity) &&
                 find_function(library, "cuMemCreate", &all.create) &&
                 find_function(library, "cuMemAddressReserve", &all.reserve) &&
                 find_function(library, "cuMemAddressFree", &all.unreserve) &&
                 find_function(library, "cuMemMap", &all.map) &&
                 find_function(library, "cuMemUnmap", &all.unmap) &&
                 find_function(library, "cuMemSetAccess", &all.set_access);
  return all;
}

Driver const& driver() {
  static auto const all = find_driver();
  return all;
}

using cuda::problem_of;  // beside the one for the driver's errors

std::string problem_of(CUresult result, char const* what) {
  return result == CUDA_SUCCESS
             ? ""
             : std::string(what) + ": error " + std::to_string(static_cast<int>(result));
}

// Makes a device the current one until the end of a scope.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    cudaGetDevice(&before_);
    problem_ = problem_of(cudaSetDevice(device), "device");
    if (problem_.empty()) problem_ = problem_of(cudaFree(nullptr), "device");
    if (problem_.empty() && !driver().is_whole) problem_ = "the driver cannot share memory";
  }
  OnDevice(OnDevice const&) = delete;
  OnDevice& operator=(OnDevice const&) = delete;
  ~OnDevice() { cudaSetDevice(before_); }
  std::string const& problem() const { return problem_; }

 private:
  int before_ = 0;
  std::string problem_;
};

std::string make_descriptor(CUmemGenericAllocationHandle handle, SharedMemory* memory) {
  return problem_of(
      driver().to_descriptor(&memory->fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      "a descriptor of memory");
}

// Maps an allocation where some devices read and write it.
std::string map_allocation(CUmemGenericAllocationHandle handle, std::vector<int> const& devices,
                           SharedMemory* memory) {
  std::vector<CUmemAccessDesc> access;
  for (auto const device : devices) {
    CUmemAccessDesc one{};
    one.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    one.location.id = device;
    one.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    access.push_back(one);
  }
  CUdeviceptr address = 0;
  auto problem = problem_of(driver().reserve(&address, memory->bytes, 0, 0, 0), "addresses");
  if (!problem.empty()) return problem;
  problem = problem_of(driver().map(address, memory->bytes, 0, handle, 0), "mapping memory");
  if (!problem.empty()) {
    driver().unreserve(address, memory->bytes);
    return problem;
  }
  problem = problem_of(driver().set_access(address, memory->bytes, access.data(), access.size()),
                       "access to memory");
  if (!problem.empty()) {
    driver().unmap(address, memory->bytes);
    driver().unreserve(address, memory->bytes);
    return problem;
  }
  memory->begin = address;
  return "";
}

CUmemAllocationProp properties_on(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

}  // namespace

std::string share_memory(int device, uint64_t address, SharedMemory* memory) {
  OnDevice const scope(device);
  if (!scope.problem().empty()) return scope.problem();
  CUdeviceptr begin = 0;
  size_t bytes = 0;
  auto problem = problem_of(driver().range(&begin, &bytes, address), "a range of memory");
  if (!problem.empty()) return problem;
  memory->begin = begin;
  memory->bytes = bytes;
  CUmemGenericAllocationHandle handle = 0;
  if (driver().retain(&handle, reinterpret_cast<void*>(begin)) != CUDA_SUCCESS) {
    return "XLA's memory is of a kind that processes cannot share";
  }
  problem = make_descriptor(handle, memory);
  driver().release(handle);
  return problem;
}

std::string make_shared_memory(std::vector<int> const& devices, uint64_t bytes,
                               SharedMemory* memory) {
  OnDevice const scope(devices.front());
  if (!scope.problem().empty()) return scope.problem();
  auto const properties = properties_on(devices.front());
  size_t unit = 0;
  auto problem = problem_of(
      driver().granularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM), "memory");
  if (!problem.empty()) return problem;
  memory->bytes = (bytes + unit - 1) / unit * unit;
  CUmemGenericAllocationHandle handle = 0;
  problem = problem_of(driver().create(&handle, memory->bytes, &properties, 0), "memory");
  if (!problem.empty()) return problem;
  problem = map_allocation(handle, devices, memory);
  if (problem.empty()) problem = make_descriptor(handle, memory);
  driver().release(handle);
  if (!problem.empty()) return problem;
  problem = problem_of(cudaMemset(reinterpret_cast<void*>(memory->begin), 0, memory->bytes),
                       "zeroed memory");
  return problem.empty() ? problem_of(cudaDeviceSynchronize(), "zeroed memory") : problem;
}

std::string map_memory(std::vector<int> const& devices, uint64_t offset, SharedMemory* memory,
                       uint64_t* word) {
  OnDevice const scope(devices.front());
  if (!scope.problem().empty()) return scope.problem();
  if (memory->bytes < sizeof(*word) || offset > memory->bytes - sizeof(*word)) {
    return "an offset behind the memory";
  }
  CUmemGenericAllocationHandle handle = 0;
  auto* const descriptor = reinterpret_cast<void*>(static_cast<intptr_t>(memory->fd));
  auto problem = problem_of(
      driver().of_descriptor(&handle, descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      "another process's memory");
  if (!problem.empty()) return problem;
  problem = map_allocation(handle, devices, memory);
  driver().release(handle);
  if (!problem.empty()) return problem;
  auto const* const from = reinterpret_cast<void const*>(memory->begin + offset);
  return problem_of(cudaMemcpy(word, from, sizeof(*word), cudaMemcpyDeviceToHost),
                    "another process's memory");
}

}  // namespace dynemb::cuda
