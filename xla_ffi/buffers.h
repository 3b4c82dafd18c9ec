// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/buffers.h: XLA's buffers and attributes become the structs of core/args.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/args.h"
#include "xla/ffi/api/ffi.h"
#include "xla_ffi/rules.h"
#include "xla_ffi/schema.h"

namespace dynemb {

using IntAttr = ffi::Span<int64_t const>;
using FloatAttr = ffi::Span<float const>;

// Reads the operands and results of one call in order, and compares each with its rule
// (xla_ffi/rules.h). The first mistake is kept, so that a handler checks once, at the end; until
// then it touches no memory of a buffer.
class BufferReader {
 public:
  BufferReader(char const* op, ffi::RemainingArgs const& args, ffi::RemainingRets const& rets)
      : op_(op), args_(args), rets_(rets) {}

  ffi::AnyBuffer next_arg(BufferRule rule);
  ffi::AnyBuffer next_ret(BufferRule rule);
  // An operand that is also the next result; both must be one buffer.
  ffi::AnyBuffer next_aliased(BufferRule rule);

  // What the next buffers are those of, for messages.
  void at(char const* what, int32_t number) { what_ = what, number_ = number; }
  Sizes& sizes() { return sizes_; }

  // False after a mistake, of this number or before.
  bool records(RecordRule rule, IntAttr numbers) { return keep(check_records(rule, numbers)); }
  bool expect(bool condition, char const* message) { return keep(condition ? "" : message); }
  bool failed() const { return !message_.empty(); }
  // Success, or the first mistake; also checks that every buffer was read.
  ffi::Error finish();

 private:
  ffi::AnyBuffer checked(char const* kind, BufferRule rule, ffi::AnyBuffer const& buffer);
  ffi::AnyBuffer missing(char const* kind, BufferRule rule);
  bool keep(std::string const& mistake);

  char const* op_;
  ffi::RemainingArgs const& args_;
  ffi::RemainingRets const& rets_;
  size_t next_arg_ = 0;
  size_t next_ret_ = 0;
  char const* what_ = nullptr;
  int32_t number_ = 0;
  Sizes sizes_;
  std::string message_;
};

// The arrays that rows lie in: one of their own, or one that several features share.
class RowArrays {
 public:
  explicit RowArrays(BufferReader& reader) : reader_(reader) {}

  ffi::AnyBuffer operand(int64_t const* fields);  // gradients
  ffi::AnyBuffer result(int64_t const* fields);   // rows

 private:
  template <class Next>
  ffi::AnyBuffer shared(int64_t number, Next const& next);

  BufferReader& reader_;
  std::vector<ffi::AnyBuffer> shared_;
};

// What of a table a call takes.
struct TableParts {
  bool values, states, counters;
};

struct TableAttrs {
  IntAttr tables;
  FloatAttr initializers;
  FloatAttr state_initial;
};

// The attributes of a call about tables: as long as `count` tables need, each number in its range.
bool check_tables(BufferReader& reader, TableAttrs const& attrs);

// Reads the buffers of the tables of a call. With `aliased`, each is a result too.
void read_tables(BufferReader& reader, TableAttrs const& attrs, TableParts parts, bool aliased,
                 int32_t count, TableRef* tables);

// Sets what the attributes say of feature `f`, not its buffers.
FeatureRef describe_feature(IntAttr features, int32_t f);

inline int64_t const* rows_fields(IntAttr features, int32_t f) {
  return features.begin() + f * kNumFeatureFields + kFeatureRows;
}

// Of the next feature. `rule`: of its ids.
void set_ids(BufferReader& reader, BufferRule rule, FeatureRef& feature);
// Where bags have one size: how many there are.
void count_bags(BufferReader& reader, FeatureRef& feature);
// Offsets and weights, where the feature has them.
void set_bags(BufferReader& reader, IntAttr features, int32_t f, FeatureRef& feature);

// Rows, or gradients, in an array of their own or a shared one.
struct RowsView {
  void* data;
  ValueType type;
  RowPlaces places;
};

RowsView view_rows(BufferReader& reader, ffi::AnyBuffer const& array, int64_t const* fields,
                   int64_t num_rows, int32_t dim);
void set_rows(BufferReader& reader, ffi::AnyBuffer const& array, int64_t const* fields, int32_t dim,
              FeatureRef& feature);

ValueType value_type_of(ffi::AnyBuffer const& buffer);

inline int32_t count_rows(IntAttr attr, int32_t fields) {
  return static_cast<int32_t>(attr.size()) / fields;
}

}  // namespace dynemb
