// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/store/log.h: rows by key in append-only segments, with an index in memory.
//
// One thread at a time changes a log; any number may read meanwhile. A record is never overwritten.
// A row that is put again, or discarded, leaves a dead record behind: one bit of memory says so.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "cpu/store/key_index.h"
#include "cpu/store/segment.h"

namespace dynemb::cpu::store {

// How full a segment is.
struct Usage {
  uint64_t number, bytes, records, live;
  bool finished;
};

class Log {
 public:
  // seed: of the hash of the index, so that chosen keys collide no more than others.
  Log(Format format, uint64_t seed, int threads);

  // Adds a finished segment; bit r of live says whether record r is the row of its key.
  void open_segment(std::string path, Finished const& finished, std::vector<uint64_t> live);
  void start_segment(std::string path, uint64_t number);
  Finished finish_segment();
  void sync_segment(uint64_t number) const;
  void drop_segment(uint64_t number);  // none of its rows may be live

  // Writes rows into the segment that was started. Of a key that comes twice the last row counts.
  void put(uint64_t const* keys, unsigned char const* payload, uint64_t count);
  // Reads rows with several threads; zeros where a key has none.
  void get(uint64_t const* keys, uint64_t count, bool* found, unsigned char* payload) const;
  void contains(uint64_t const* keys, uint64_t count, bool* found) const;
  uint64_t discard(uint64_t const* keys, uint64_t count);

  std::vector<Usage> usage() const;  // in order of number
  uint64_t current_bytes() const;    // of the segment that was started, with its footer; or 0
  std::vector<uint64_t> live_bits(uint64_t number) const;
  std::vector<uint64_t> live_keys(uint64_t number) const;
  std::vector<uint64_t> keys() const;
  uint64_t rows() const;
  uint64_t digest() const;  // of the set of keys: the sum of their hashes
  uint64_t index_bytes() const;

 private:
  struct Held {  // a segment, and which of its records are live
    Held(Segment given, uint64_t at) : segment(std::move(given)), place(at) {}
    Segment segment;
    uint64_t place;  // in segments_
    std::vector<uint64_t> live;
    uint64_t num_live = 0;
  };
  struct Wanted {  // a record to be read, and the row that it becomes
    KeyIndex::Place place;
    uint64_t row;
  };
  struct Reads {
    std::vector<Wanted> records;
    std::vector<std::shared_ptr<Held const>> segments;  // by place; keeps files open
  };

  std::shared_ptr<Held> add(Segment segment);
  Held& held(uint64_t number) const;
  Held& current() const;
  void bury(KeyIndex::Place place);
  Reads find_records(uint64_t const* keys, uint64_t count, bool* found) const;
  void read_records(uint64_t const* keys, Reads const& reads, uint64_t begin, uint64_t end,
                    unsigned char* payload) const;

  Format const format_;
  int const threads_;
  mutable std::mutex changing_;
  mutable std::shared_mutex mutex_;  // of everything below
  KeyIndex index_;
  uint64_t digest_ = 0;
  std::vector<std::shared_ptr<Held>> segments_;  // by place; some are empty
  std::shared_ptr<Held> current_;
};

}  // namespace dynemb::cpu::store
