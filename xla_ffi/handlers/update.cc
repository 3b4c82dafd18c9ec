// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/update.cc: one optimizer step for the rows of a batch: by the loops of the first
// four optimizers, or by the one for all.
#include "xla_ffi/handlers/feature_operation.h"
#include "xla_ffi/handlers/registrations.h"

namespace dynemb {
namespace {

// Has the table the states that its optimizer reads and writes, each as wide as that takes them?
void check_optimizer(BufferReader& reader, OptimizerKind kind, TableRef const& table) {
  auto const [wide, numbers, ints] = state_shape(kind);
  (void)ints;
  auto fits = wide + numbers == table.num_states;
  for (int s = 0; s < table.num_states; ++s) {
    fits = fits && table.state_width[s] == (s < wide ? table.dim : 1);
  }
  reader.expect(fits, "the optimizer does not have the table's states");
}

struct TunedUpdate {
  static constexpr auto kTarget = "dynemb_update";
  static constexpr auto kRun = &backend::update;
  static constexpr auto kHyper = BufferRule::kHyper;
  static constexpr auto kKinds = kNumTunedKinds;
  static constexpr auto kHalfStates = false;

  static size_t scratch_bytes(CallShape const& shape) {
    return feature_scratch_bytes<UpdateArgs, backend::update_scratch_bytes>(shape);
  }
};

struct AnyUpdate {
  static constexpr auto kTarget = "dynemb_update_any";
  static constexpr auto kRun = &backend::update_any;
  static constexpr auto kHyper = BufferRule::kAnyHyper;
  static constexpr auto kKinds = static_cast<int>(OptimizerKind::kNumKinds);
  static constexpr auto kHalfStates = true;

  static size_t scratch_bytes(CallShape const& shape) {
    return feature_scratch_bytes<UpdateArgs, backend::update_any_scratch_bytes>(shape);
  }
};

template <class Loop>
struct Update : Loop {
  static auto bind() { return bind_features().Attr<int64_t>("stamped").Attr<int64_t>("joined"); }

  UpdateArgs args;

  void read(BufferReader& reader, TableAttrs const& attrs, IntAttr features, int64_t stamped,
            int64_t joined) {
    if (!set_counts(reader, args, attrs, features)) return;
    args.hyper = data<float>(reader.next_arg(Loop::kHyper));
    args.joins_lookups = joined != 0 ? 1 : 0;
    args.stamps = stamps_of_lookup(reader, stamped);
    read_tables(reader, attrs, {true, true, true, nullptr, false, true}, true, args.num_tables,
                args.tables);
    for (int32_t t = 0; t < args.num_tables; ++t) {
      auto const kind = attrs.tables[size_t(t * kNumTableFields + kTableOptimizer)];
      args.optimizers[t] = static_cast<OptimizerKind>(kind);
      check_optimizer(reader, args.optimizers[t], args.tables[t]);
      reader.expect(kind < Loop::kKinds, "update_any has the optimizer");
      reader.expect(Loop::kHalfStates || args.tables[t].half_states == 0,
                    "update_any has states of 16 bits");
    }
    read_gradients(reader, features_of(features, args), true);
  }
};

}  // namespace

Registration update_registration() { return registration_of<Update<TunedUpdate>>(); }
Registration update_any_registration() { return registration_of<Update<AnyUpdate>>(); }

}  // namespace dynemb
