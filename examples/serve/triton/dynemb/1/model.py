# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
# pyright: reportMissingImports=false
"""Serves in Triton's Python backend, and follows a training meanwhile.

    PYTHONPATH=examples tritonserver --model-repository examples/serve/triton

``config.pbtxt`` names the folder of ``serve.publish``, and the framework.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # Triton has it, and nothing else

from serve.answer import open_backend


class TritonPythonModel:
    """Answers requests of int64[features, batch] with a logit for each column."""

    def initialize(self, args: dict[str, str]) -> None:
        """Loads the newest snapshot; the thread that follows begins."""
        given = json.loads(args["model_config"])["parameters"]
        folder, framework = (
            given[key]["string_value"] for key in ("folder", "framework")
        )
        self._backend = open_backend(framework, folder)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answers each request, whatever becomes of the others."""
        return [self._response(request) for request in requests]

    def _response(self, request: Any) -> Any:
        ids = pb_utils.get_input_tensor_by_name(request, "IDS").as_numpy()
        try:
            answer = self._backend(ids)
        except ValueError as error:
            code = pb_utils.TritonError.INVALID_ARG
            return pb_utils.InferenceResponse(
                error=pb_utils.TritonError(str(error), code)
            )
        step = np.array([answer.step], np.int64)
        logits = pb_utils.Tensor("LOGITS", answer.logits.astype(np.float32))
        return pb_utils.InferenceResponse(
            output_tensors=[logits, pb_utils.Tensor("STEP", step)]
        )

    def finalize(self) -> None:
        """Ends the thread."""
        self._backend.close()
