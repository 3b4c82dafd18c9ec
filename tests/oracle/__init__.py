# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Every operation in NumPy and dicts: slow, obvious, the oracle of the tests.

Nothing here calls the compiled modules. A row is found under its key in a
dict, there are no slots, and no two lines are traded for speed.
"""

from ._collection import ReferenceResidual as ReferenceResidual
from ._collection import ReferenceTables as ReferenceTables
from ._hash import bucket_of as bucket_of
from ._hash import fmix64 as fmix64
from ._hash import fnv1a64 as fnv1a64
from ._hash import hash_of as hash_of
from ._hash import hash_rank as hash_rank
from ._hash import table_seed as table_seed
from ._initializers import initial_rows as initial_rows
from ._philox import philox4x32 as philox4x32
from ._rounding import round_stochastically as round_stochastically
from ._rounding import rounding_bits as rounding_bits
from ._rules import keys_to_remove as keys_to_remove
from ._table import ReferenceTable as ReferenceTable
from ._table import Row as Row
from ._tensor_train import tt_core_gradients as tt_core_gradients
from ._tensor_train import tt_lookup as tt_lookup
from ._tensor_train import tt_row_numbers as tt_row_numbers
from ._tensor_train import tt_table as tt_table
