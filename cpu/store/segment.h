// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/store/segment.h: one file of a log: a header, records of one size, and a footer.
//
//   header   kHeaderBytes: magic, version, store, number, payload, checksum; then text for people
//   records  key (8 bytes), payload, CRC-32C of both (4 bytes); sorted by key within one append
//   footer   the keys in the order of the records; then a tail with count and checksums
//
// A segment without a footer is not finished. Everything is little-endian.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cpu/store/file.h"

namespace dynemb::cpu::store {

constexpr uint64_t kHeaderBytes = 4096;
constexpr uint64_t kTailBytes = 48;

// What all segments of a log have in common.
struct Format {
  uint64_t store = 0;    // a random number: segments of other logs are refused
  uint64_t payload = 0;  // bytes of a record beside key and checksum
  std::string text;      // describes the rows, for people who find the file

  uint64_t record_bytes() const { return payload + 12; }
};

// What a manifest says of a finished segment.
struct Finished {
  uint64_t number = 0, bytes = 0, records = 0;
  uint32_t tail_crc = 0;
};

// Records as an append gets them: row i is payload[order[i].second], for keys in order.
struct Rows {
  std::vector<std::pair<uint64_t, uint64_t>> order;  // key, row
  unsigned char const* payload = nullptr;
};

class Segment {
 public:
  // Begins a file, or checks one that is finished; throws DamagedFile and FailedCall.
  static Segment create(std::string path, uint64_t number, Format const& format);
  static Segment open(std::string path, Finished const& finished, Format const& format);

  uint64_t number() const { return number_; }
  uint64_t records() const { return records_; }
  bool is_finished() const { return finished_; }
  File const& file() const { return file_; }
  uint64_t bytes() const;  // with the footer that it has, or will have

  // Writes rows behind the others; they are records of the segment once they are added.
  void write(Rows const& rows) const;
  void add(Rows const& rows);
  Finished finish();  // writes the footer

  // Keys in the order of the records; those of a finished segment are read from its footer.
  std::vector<uint64_t> keys() const;

  // Reads records [first, last) into a buffer of their size. They may be damaged.
  void read(uint64_t first, uint64_t last, unsigned char* records) const;
  // The payload of a record that was read, after a look at its key and checksum.
  unsigned char const* checked(uint64_t record, uint64_t key, unsigned char const* bytes) const;

 private:
  Segment(File file, uint64_t number, uint64_t payload)
      : file_(std::move(file)), number_(number), payload_(payload) {}

  uint64_t record_bytes() const { return payload_ + 12; }
  uint64_t offset(uint64_t record) const { return kHeaderBytes + record * record_bytes(); }
  void check_header(Format const& format) const;
  void check_footer(Finished const& finished, Format const& format);
  void expect(uint64_t offset, void* data, uint64_t size) const;

  File file_;
  uint64_t number_, payload_;
  uint64_t store_ = 0, records_ = 0;
  bool finished_ = false;
  uint32_t keys_crc_ = 0;
  std::vector<uint64_t> keys_;  // while it is not finished
};

}  // namespace dynemb::cpu::store
