// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include "cpu/store/log.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "cpu/store/run_threads.h"

namespace dynemb::cpu::store {
namespace {

using Lock = std::unique_lock<std::shared_mutex>;
using SharedLock = std::shared_lock<std::shared_mutex>;

constexpr uint64_t kAhead = 16;        // keys whose slots of the index are fetched at once
constexpr uint64_t kGap = 4096;        // bytes that are read rather than skipped
constexpr uint64_t kRun = 256 * 1024;  // bytes read with one call
constexpr uint64_t kRowsOfThread = 256;

KeyIndex::Place place_of(uint64_t segment, uint64_t record) { return segment << 32 | record; }
uint64_t segment_of(KeyIndex::Place place) { return place >> 32; }
uint64_t record_of(KeyIndex::Place place) { return place & 0xffffffffu; }

template <class Function>
void for_each_key(KeyIndex const& index, uint64_t const* keys, uint64_t count,
                  Function const& function) {
  for (uint64_t i = 0; i < std::min(count, kAhead); ++i) index.prefetch(keys[i]);
  for (uint64_t i = 0; i < count; ++i) {
    if (i + kAhead < count) index.prefetch(keys[i + kAhead]);
    function(i);
  }
}

// Sorts rows by key and keeps the last one of each.
Rows sorted(uint64_t const* keys, unsigned char const* payload, uint64_t count) {
  Rows rows;
  rows.payload = payload;
  auto& order = rows.order;
  order.reserve(count);
  for (uint64_t i = 0; i < count; ++i) order.emplace_back(keys[i], i);
  std::sort(order.begin(), order.end());
  uint64_t kept = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (i + 1 == count || order[i].first != order[i + 1].first) order[kept++] = order[i];
  }
  order.resize(kept);
  return rows;
}

}  // namespace

Log::Log(Format format, uint64_t seed, int threads)
    : format_(std::move(format)), threads_(threads), index_(seed) {}

// ---- segments -----------------------------------------------------------------------------------

std::shared_ptr<Log::Held> Log::add(Segment segment) {
  uint64_t place = 0;
  while (place < segments_.size() && segments_[place] != nullptr) ++place;
  if (place == segments_.size()) segments_.emplace_back();
  segments_[place] = std::make_shared<Held>(std::move(segment), place);
  return segments_[place];
}

Log::Held& Log::held(uint64_t number) const {
  for (auto const& each : segments_) {
    if (each != nullptr && each->segment.number() == number) return *each;
  }
  throw std::out_of_range("the log has no segment " + std::to_string(number));
}

Log::Held& Log::current() const {
  if (current_ == nullptr) throw std::logic_error("start_segment comes first");
  return *current_;
}

void Log::open_segment(std::string path, Finished const& finished, std::vector<uint64_t> live) {
  std::lock_guard<std::mutex> const changing(changing_);
  auto segment = Segment::open(std::move(path), finished, format_);
  auto const keys = segment.keys();
  if (live.size() != (keys.size() + 63) / 64) throw std::invalid_argument("live bits do not fit");
  Lock const lock(mutex_);
  auto const held = add(std::move(segment));
  for_each_key(index_, keys.data(), keys.size(), [&](uint64_t record) {
    if ((live[record / 64] >> (record % 64) & 1) == 0) return;
    if (index_.put(keys[record], place_of(held->place, record)) != KeyIndex::kNone) {
      throw DamagedFile(held->segment.file().path(),
                        "key " + std::to_string(keys[record]) + " has two rows");
    }
    digest_ += hash_number(keys[record]);
    ++held->num_live;
  });
  held->live = std::move(live);
}

void Log::start_segment(std::string path, uint64_t number) {
  std::lock_guard<std::mutex> const changing(changing_);
  if (current_ != nullptr) throw std::logic_error("finish_segment comes first");
  auto segment = Segment::create(std::move(path), number, format_);
  Lock const lock(mutex_);
  current_ = add(std::move(segment));
}

Finished Log::finish_segment() {
  std::lock_guard<std::mutex> const changing(changing_);
  Lock const lock(mutex_);
  auto const finished = current().segment.finish();
  current_ = nullptr;
  return finished;
}

void Log::sync_segment(uint64_t number) const {
  std::shared_ptr<Held> held_segment;
  {
    SharedLock const lock(mutex_);
    held_segment = segments_[held(number).place];
  }
  held_segment->segment.file().sync();
}

void Log::drop_segment(uint64_t number) {
  std::lock_guard<std::mutex> const changing(changing_);
  Lock const lock(mutex_);
  auto const& dropped = held(number);
  if (dropped.num_live != 0) throw std::logic_error("the segment still has live rows");
  auto const place = dropped.place;
  if (current_ == segments_[place]) current_ = nullptr;
  segments_[place] = nullptr;
}

// ---- rows ---------------------------------------------------------------------------------------

void Log::bury(KeyIndex::Place place) {
  auto& held_segment = *segments_[segment_of(place)];
  auto const record = record_of(place);
  held_segment.live[record / 64] &= ~(uint64_t{1} << (record % 64));
  --held_segment.num_live;
}

void Log::put(uint64_t const* keys, unsigned char const* payload, uint64_t count) {
  std::lock_guard<std::mutex> const changing(changing_);
  auto const rows = sorted(keys, payload, count);
  auto& to = current();
  auto const first = to.segment.records();
  if (first + rows.order.size() >= (uint64_t{1} << 32)) {
    throw std::length_error("a segment has fewer than 2**32 records");
  }
  to.segment.write(rows);  // readers see none of it before the index does
  Lock const lock(mutex_);
  to.segment.add(rows);
  to.live.resize((to.segment.records() + 63) / 64);
  auto const& order = rows.order;
  for (uint64_t i = 0; i < order.size(); ++i) {
    if (i + kAhead < order.size()) index_.prefetch(order[i + kAhead].first);
    auto const record = first + i;
    auto const before = index_.put(order[i].first, place_of(to.place, record));
    if (before != KeyIndex::kNone) {
      bury(before);
    } else {
      digest_ += hash_number(order[i].first);
    }
    to.live[record / 64] |= uint64_t{1} << (record % 64);
    ++to.num_live;
  }
}

uint64_t Log::discard(uint64_t const* keys, uint64_t count) {
  std::lock_guard<std::mutex> const changing(changing_);
  Lock const lock(mutex_);
  uint64_t discarded = 0;
  for_each_key(index_, keys, count, [&](uint64_t i) {
    auto const place = index_.erase(keys[i]);
    if (place == KeyIndex::kNone) return;
    bury(place);
    digest_ -= hash_number(keys[i]);
    ++discarded;
  });
  return discarded;
}

void Log::contains(uint64_t const* keys, uint64_t count, bool* found) const {
  SharedLock const lock(mutex_);
  for_each_key(index_, keys, count,
               [&](uint64_t i) { found[i] = index_.find(keys[i]) != KeyIndex::kNone; });
}

Log::Reads Log::find_records(uint64_t const* keys, uint64_t count, bool* found) const {
  Reads reads;
  SharedLock const lock(mutex_);
  reads.segments.resize(segments_.size());
  for_each_key(index_, keys, count, [&](uint64_t i) {
    auto const place = index_.find(keys[i]);
    found[i] = place != KeyIndex::kNone;
    if (!found[i]) return;
    reads.records.push_back({place, i});
    auto& kept = reads.segments[segment_of(place)];
    if (kept == nullptr) kept = segments_[segment_of(place)];
  });
  return reads;
}

void Log::get(uint64_t const* keys, uint64_t count, bool* found, unsigned char* payload) const {
  auto reads = find_records(keys, count, found);
  for (uint64_t i = 0; i < count; ++i) {
    if (!found[i]) std::memset(payload + i * format_.payload, 0, format_.payload);
  }
  std::sort(reads.records.begin(), reads.records.end(),
            [](Wanted const& a, Wanted const& b) { return a.place < b.place; });
  auto const size = static_cast<uint64_t>(reads.records.size());
  auto const parts = std::min<uint64_t>(static_cast<uint64_t>(threads_),
                                        (size + kRowsOfThread - 1) / kRowsOfThread);
  run_threads(parts, [&](uint64_t part) {
    read_records(keys, reads, size * part / parts, size * (part + 1) / parts, payload);
  });
}

void Log::read_records(uint64_t const* keys, Reads const& reads, uint64_t begin, uint64_t end,
                       unsigned char* payload) const {
  auto const bytes = format_.record_bytes();
  auto const most = std::max<uint64_t>(1, kRun / bytes), gap = kGap / bytes;
  auto const& all = reads.records;
  std::vector<unsigned char> buffer(most * bytes);
  while (begin < end) {
    auto const first = all[begin].place;  // places of one segment follow each other
    auto last = begin;                    // of the records that one call reads
    while (last + 1 < end && all[last + 1].place - all[last].place <= gap + 1 &&
           all[last + 1].place - first < most) {
      ++last;
    }
    auto const& segment = reads.segments[segment_of(first)]->segment;
    segment.read(record_of(first), record_of(all[last].place) + 1, buffer.data());
    for (; begin <= last; ++begin) {
      auto const [place, row] = all[begin];
      auto const* const record = buffer.data() + (place - first) * bytes;
      std::memcpy(payload + row * format_.payload,
                  segment.checked(record_of(place), keys[row], record), format_.payload);
    }
  }
}

// ---- what there is ------------------------------------------------------------------------------

std::vector<Usage> Log::usage() const {
  SharedLock const lock(mutex_);
  std::vector<Usage> all;
  for (auto const& each : segments_) {
    if (each == nullptr) continue;
    auto const& segment = each->segment;
    all.push_back({segment.number(), segment.bytes(), segment.records(), each->num_live,
                   segment.is_finished()});
  }
  std::sort(all.begin(), all.end(),
            [](Usage const& a, Usage const& b) { return a.number < b.number; });
  return all;
}

uint64_t Log::current_bytes() const {
  SharedLock const lock(mutex_);
  return current_ == nullptr ? 0 : current_->segment.bytes();
}

std::vector<uint64_t> Log::live_bits(uint64_t number) const {
  SharedLock const lock(mutex_);
  return held(number).live;
}

std::vector<uint64_t> Log::live_keys(uint64_t number) const {
  SharedLock const lock(mutex_);
  auto const& segment = held(number);
  auto keys = segment.segment.keys();
  uint64_t kept = 0;
  for (uint64_t record = 0; record < keys.size(); ++record) {
    if ((segment.live[record / 64] >> (record % 64) & 1) != 0) keys[kept++] = keys[record];
  }
  keys.resize(kept);
  return keys;
}

std::vector<uint64_t> Log::keys() const {
  SharedLock const lock(mutex_);
  std::vector<uint64_t> all;
  all.reserve(index_.size());
  index_.for_each([&](uint64_t key, KeyIndex::Place) { all.push_back(key); });
  return all;
}

uint64_t Log::rows() const {
  SharedLock const lock(mutex_);
  return index_.size();
}

uint64_t Log::digest() const {
  SharedLock const lock(mutex_);
  return digest_;
}

uint64_t Log::index_bytes() const {
  SharedLock const lock(mutex_);
  return index_.bytes();
}

}  // namespace dynemb::cpu::store
