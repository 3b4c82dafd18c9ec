# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Admission rules: which unseen ids of a training lookup get a row.

Give one as ``TableConfig(admission=...)``. An id that is not admitted reads the initial
row that it would get, has no gradient and is not stored. What the rules mean is in
core/admission.h.
"""

from jax_dynemb._src.admission import Admission as Admission
from jax_dynemb._src.admission import Exact as Exact
from jax_dynemb._src.admission import Frequency as Frequency
from jax_dynemb._src.admission import Probability as Probability
from jax_dynemb._src.admission import Sketch as Sketch
