// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include "cpu/store/segment.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "cpu/store/crc32c.h"

namespace dynemb::cpu::store {
namespace {

constexpr uint64_t kHeaderMagic = 0x31474553454a4401ull;  // "\1DJESEG1"
constexpr uint64_t kTailMagic = 0x314c4154454a4401ull;    // "\1DJETAL1"
constexpr uint32_t kVersion = 1;
constexpr uint64_t kPiece = 1 << 20;  // bytes written with one call

struct Header {
  uint64_t magic, store, number, payload;
  uint32_t version, crc;  // of the whole header, with zeros here
};

struct Tail {
  uint64_t magic, store, number, records;
  uint32_t version, keys_crc, payload, crc;  // of the tail before it
};
static_assert(sizeof(Tail) == kTailBytes);

using HeaderBytes = std::array<unsigned char, kHeaderBytes>;

uint32_t crc_of(HeaderBytes bytes) {
  std::memset(bytes.data() + offsetof(Header, crc), 0, sizeof(uint32_t));
  return crc32c(0, bytes.data(), bytes.size());
}

uint32_t crc_of(Tail const& tail) { return crc32c(0, &tail, offsetof(Tail, crc)); }

std::string range(uint64_t offset, uint64_t size) {
  return "bytes " + std::to_string(offset) + " to " + std::to_string(offset + size - 1);
}

}  // namespace

Segment Segment::create(std::string path, uint64_t number, Format const& format) {
  Segment segment(File::create(std::move(path)), number, format.payload);
  segment.store_ = format.store;
  HeaderBytes bytes{};
  Header header{kHeaderMagic, format.store, number, format.payload, kVersion, 0};
  std::memcpy(bytes.data(), &header, sizeof header);
  auto const room = bytes.size() - sizeof header - 1;
  std::memcpy(bytes.data() + sizeof header, format.text.data(), std::min(format.text.size(), room));
  header.crc = crc_of(bytes);
  std::memcpy(bytes.data(), &header, sizeof header);
  segment.file_.write_at(0, bytes.data(), bytes.size());
  return segment;
}

Segment Segment::open(std::string path, Finished const& finished, Format const& format) {
  Segment segment(File::open(std::move(path)), finished.number, format.payload);
  segment.store_ = format.store;
  segment.records_ = finished.records;
  segment.finished_ = true;
  segment.check_header(format);
  segment.check_footer(finished, format);
  return segment;
}

void Segment::check_header(Format const& format) const {
  HeaderBytes bytes{};
  expect(0, bytes.data(), bytes.size());
  Header header{};
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kHeaderMagic) throw DamagedFile(file_.path(), "it is no segment of a log");
  if (header.version != kVersion) {
    throw DamagedFile(file_.path(), "it has version " + std::to_string(header.version) +
                                        " of the format, and version 1 is known");
  }
  if (header.crc != crc_of(bytes)) {
    throw DamagedFile(file_.path(),
                      "the checksum of its header, " + range(0, kHeaderBytes) + ", does not fit");
  }
  if (header.store != format.store || header.number != number_ || header.payload != payload_) {
    throw DamagedFile(file_.path(), "it is a segment of another log, or another one of this log");
  }
}

void Segment::check_footer(Finished const& finished, Format const& format) {
  auto const most = ~uint64_t{0} / 2;
  if (finished.records >= (uint64_t{1} << 32) || payload_ > (uint64_t{1} << 30) ||
      finished.records > most / (record_bytes() + 8) || finished.bytes != bytes()) {
    throw DamagedFile(file_.path(), "its manifest gives it " + std::to_string(finished.records) +
                                        " records in " + std::to_string(finished.bytes) +
                                        " bytes, which does not fit");
  }
  if (auto const size = file_.size(); size != finished.bytes) {
    throw DamagedFile(file_.path(), "it has " + std::to_string(size) + " bytes, not " +
                                        std::to_string(finished.bytes));
  }
  auto const at = finished.bytes - kTailBytes;
  Tail tail{};
  expect(at, &tail, sizeof tail);
  auto const fits = tail.magic == kTailMagic && tail.version == kVersion &&
                    tail.store == format.store && tail.number == number_ &&
                    tail.records == records_ && tail.payload == payload_ &&
                    tail.crc == crc_of(tail) && tail.crc == finished.tail_crc;
  if (!fits) {
    throw DamagedFile(file_.path(), "its tail, " + range(at, kTailBytes) + ", does not fit");
  }
  keys_crc_ = tail.keys_crc;
}

void Segment::expect(uint64_t offset, void* data, uint64_t size) const {
  auto const got = file_.read_at(offset, data, size);
  if (got < size) {
    throw DamagedFile(file_.path(), "it ends at byte " + std::to_string(offset + got) +
                                        ", within " + range(offset, size));
  }
}

uint64_t Segment::bytes() const { return offset(records_) + 8 * records_ + kTailBytes; }

void Segment::write(Rows const& rows) const {
  auto const count = rows.order.size();
  auto const at_once = std::max<uint64_t>(1, kPiece / record_bytes());
  std::vector<unsigned char> buffer(std::min(at_once, count) * record_bytes());
  try {
    for (uint64_t begin = 0; begin < count; begin += at_once) {
      auto const end = std::min(count, begin + at_once);
      auto* record = buffer.data();
      for (auto i = begin; i < end; ++i, record += record_bytes()) {
        auto const& [key, row] = rows.order[i];
        std::memcpy(record, &key, 8);
        std::memcpy(record + 8, rows.payload + row * payload_, payload_);
        auto const crc = crc32c(0, record, payload_ + 8);
        std::memcpy(record + payload_ + 8, &crc, 4);
      }
      file_.write_at(offset(records_ + begin), buffer.data(), (end - begin) * record_bytes());
    }
  } catch (FailedCall const&) {
    file_.truncate(
        offset(records_));  // gives the space back; the next rows are written here anyway
    throw;
  }
}

void Segment::add(Rows const& rows) {
  for (auto const& each : rows.order) keys_.push_back(each.first);
  records_ += rows.order.size();
}

Finished Segment::finish() {
  auto const at = offset(records_);
  auto const keys_bytes = 8 * records_;
  Tail tail{kTailMagic,
            store_,
            number_,
            records_,
            kVersion,
            crc32c(0, keys_.data(), keys_bytes),
            static_cast<uint32_t>(payload_),
            0};
  tail.crc = crc_of(tail);
  file_.write_at(at, keys_.data(), keys_bytes);
  file_.write_at(at + keys_bytes, &tail, sizeof tail);
  file_.truncate(bytes());  // rows that could not be written may have left bytes behind
  keys_crc_ = tail.keys_crc;
  finished_ = true;
  keys_ = {};
  return {number_, bytes(), records_, tail.crc};
}

std::vector<uint64_t> Segment::keys() const {
  if (!finished_) return keys_;
  std::vector<uint64_t> keys(records_);
  expect(offset(records_), keys.data(), 8 * records_);
  if (crc32c(0, keys.data(), 8 * records_) != keys_crc_) {
    throw DamagedFile(file_.path(), "the checksum of its keys, " +
                                        range(offset(records_), 8 * records_) + ", does not fit");
  }
  return keys;
}

void Segment::read(uint64_t first, uint64_t last, unsigned char* records) const {
  expect(offset(first), records, (last - first) * record_bytes());
}

unsigned char const* Segment::checked(uint64_t record, uint64_t key,
                                      unsigned char const* bytes) const {
  uint64_t found = 0;
  uint32_t crc = 0;
  std::memcpy(&found, bytes, 8);
  std::memcpy(&crc, bytes + payload_ + 8, 4);
  if (found != key || crc != crc32c(0, bytes, payload_ + 8)) {
    throw DamagedFile(file_.path(), "the checksum of a record, " +
                                        range(offset(record), record_bytes()) + ", does not fit");
  }
  return bytes + 8;
}

}  // namespace dynemb::cpu::store
