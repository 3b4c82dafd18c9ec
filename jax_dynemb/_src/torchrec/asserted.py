# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Errors of jagged and keyed tensors, in the classes that TorchRec's programs catch."""

from __future__ import annotations


class AssertedError(ValueError, AssertionError):
    """A mistake that TorchRec asserts against; a ValueError, as all mistakes here."""


class MisfitError(ValueError):
    """Numbers that contradict each other, of which TorchRec makes a tensor."""


class NeitherError(MisfitError, AssertedError):
    """Neither lengths nor offsets."""
