# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
# pyright: reportMissingImports=false
"""Runs ``train.py`` in the workers of Ray Train's JaxTrainer.

    python train_jaxtrainer.py FOLDER --workers 2 --gpu

The trainer connects the workers, so ``jde.distributed.ensure_initialized`` finds that
done. It starts all of them again when one is lost, and they go on from the latest
checkpoint. With JAX_PLATFORMS=cpu and without --gpu it runs on CPUs.
"""

import argparse
from pathlib import Path
from typing import Any

from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.jax import JaxConfig, JaxTrainer

HERE = str(Path(__file__).parent)


def worker(config: dict[str, Any]) -> None:
    """Runs one process of the job; an error asks Ray for another try."""
    import sys  # noqa: PLC0415 (this function is sent to the workers)

    sys.path.insert(0, config["here"])
    import jax  # noqa: PLC0415
    import train  # noqa: PLC0415 (... where JAX is connected by now)

    if jax.process_count() != config["workers"]:
        raise RuntimeError("the workers are not connected: set JAX_PLATFORMS to cpu")
    status = train.main(config["arguments"])
    if status:
        raise RuntimeError(f"train.py ended with status {status}: start it again")


def main() -> None:
    """Starts the job and waits until it is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="of checkpoints, for all workers")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gpu", action="store_true", help="one for each worker")
    parser.add_argument("--restarts", type=int, default=100)
    options, rest = parser.parse_known_args()
    folder = str(Path(options.folder).resolve())
    JaxTrainer(
        worker,
        train_loop_config={
            "here": HERE,
            "workers": options.workers,
            "arguments": [folder, *rest],
        },
        # Else the workers are not connected; JAX_PLATFORMS=cpu connects CPUs.
        jax_config=JaxConfig(use_gpu=True),
        scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=options.gpu),
        run_config=RunConfig(
            name="clicks",
            storage_path=folder + "-ray",  # Ray's own notes, beside the checkpoints
            failure_config=FailureConfig(max_failures=options.restarts),
        ),
    ).fit()


if __name__ == "__main__":
    main()
