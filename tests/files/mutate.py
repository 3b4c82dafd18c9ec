# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Damages files and reads them with every reader: refused, the same, or a failure.

    python tests/files/mutate.py --count 6500 --seed 0

Cases run in processes of their own, so that one that ends its process is a case that
failed, not the end of the run. ``--torch`` is a Python with PyTorch, for the readers of
jax_dynemb_torch; without it they are left out. ``--unchecked`` takes the checksums out
of the files first, as those of other programs and of earlier versions have none. Other
numbers can not be noticed there, but everything else must hold.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TORCH = "JAX_DYNEMB_TORCH_PYTHON"
PATIENCE = 300  # seconds of silence, the first compilations included
MOST_BYTES = 256 << 20  # that one case may add to the memory of its process
GOOD = ("equal", "refused")
ALWAYS_CHECKED = ("checkpoint", "program")
UNNOTICED = "SILENT DIFFERENCE"


def main() -> int:
    """Runs all cases; returns 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=6500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--torch", default=os.environ.get(TORCH), help="a Python")
    parser.add_argument("--unchecked", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options.worker[0], Path(options.worker[1]), options)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        results = run(
            Path(folder), options.count, options.seed, options.torch, options.unchecked
        )
    print(table(results))
    good = (*GOOD, UNNOTICED) if options.unchecked else GOOD
    bad = [each for each in results if each["outcome"] not in good]
    for each in bad if not options.verbose else results:
        print(each)
    minutes = (time.monotonic() - began) / 60
    print(f"{len(results)} cases, {len(bad)} failures, {minutes:.1f} minutes")
    return 1 if bad or len(results) < options.count else 0


def run(
    folder: Path, count: int, seed: int, torch: str | None, unchecked: bool = False
) -> list[dict[str, Any]]:
    """All cases, shared by the readers of both packages."""
    function = "write_unchecked" if unchecked else "write"
    code = f"import corpus, pathlib, sys; corpus.{function}(pathlib.Path(sys.argv[1]))"
    subprocess.run(
        [sys.executable, "-c", code, str(folder / "sound")],
        check=True,
        env=_environment("jax"),
        cwd=HERE,
    )
    packages = {"jax": sys.executable} | ({"torch": torch} if torch else {})
    own = {"jax": count - count // 4, "torch": count // 4} if torch else {"jax": count}
    results = []
    for package, python in packages.items():
        more = ["--unchecked"] if unchecked else []
        results += _cases(package, python, folder, own[package], seed, more)
    return results


def _cases(
    package: str, python: str, folder: Path, count: int, seed: int, more: list[str]
) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    while len(results) < count:
        first = len(results)
        todo = f"{first}:{count}"
        log = folder / f"log_{package}_{first}"
        command = ["--seed", str(seed), "--worker", package, str(folder), todo, *more]
        with log.open("w") as output:
            process = subprocess.Popen(
                [python, str(HERE / "mutate.py"), *command],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(package),
                cwd=HERE,
            )
            silent = _wait(process, log)
        said = log.read_text(errors="replace").splitlines()
        lines = [line for line in said if line.startswith('{"case"')]
        done = [each for each in map(json.loads, lines) if "outcome" in each]
        results += done
        if process.returncode or silent:
            begun = json.loads(lines[-1]) if lines else {"case": "before the first"}
            if "outcome" in begun:
                begun = {"case": "after the last"}
            what = "hang" if silent else f"abort ({process.returncode})"
            results.append(begun | {"outcome": what, "said": said[-30:]})
            if not lines:
                break
    return results


def _wait(process: subprocess.Popen, log: Path) -> bool:
    """Waits for the end; True if the process had to be ended."""
    while True:
        size = log.stat().st_size
        deadline = time.monotonic() + PATIENCE
        while log.stat().st_size == size:
            if process.poll() is not None:
                return False
            if time.monotonic() > deadline:
                process.kill()
                process.wait()
                return True
            time.sleep(0.05)


def work(package: str, folder: Path, options: argparse.Namespace) -> int:
    """The cases of one process; prints a line before and after each."""
    import numpy as np
    from mutations import mutate

    if package == "jax":
        import corpus

    else:
        import torch_corpus as corpus

    sound = {}
    first, last = map(int, options.worker[2].split(":"))
    names = [
        name
        for name, reader in corpus.READERS.items()
        if not options.unchecked or reader.corpus not in ALWAYS_CHECKED
    ]
    for case in range(first, last):
        name = names[case % len(names)]
        reader = corpus.READERS[name]
        place = folder / "work" / reader.corpus
        if name not in sound:
            _fresh(folder, place, reader.corpus)
            sound[name] = corpus.digest(reader.read(place))
        _fresh(folder, place, reader.corpus)
        rng = np.random.default_rng([options.seed, case, package == "jax"])
        newest = place / "4"  # of several steps, the one that is read
        target = newest if newest.is_dir() and rng.integers(5) else place
        begun = {"case": case, "reader": name, "mutation": mutate(rng, target)}
        print(json.dumps(begun), flush=True)
        start = time.monotonic()
        outcome = outcome_of(reader, place, sound[name], corpus)
        seconds = round(time.monotonic() - start, 3)
        print(json.dumps(begun | {"outcome": outcome, "s": seconds}), flush=True)
    return 0


def outcome_of(reader: Any, place: Path, truth: str, corpus: Any) -> str:
    """Returns what a reader makes of damaged files.

    Args:
      reader: of ``corpus.READERS``.
      place: of the files.
      truth: the digest of what it makes of the sound ones.
      corpus: the module.
    """
    before = _memory()
    try:
        equal = corpus.digest(reader.read(place)) == truth
        outcome = "equal" if equal else UNNOTICED
    except corpus.DamagedFileError as error:
        named = error.path.startswith(str(place)) and error.path in str(error)
        outcome = "refused" if named else f"names no file of it: {error}"
    except FileNotFoundError as error:
        named = str(place) in str(error)
        outcome = "refused" if named else f"names no file of it: {error}"
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"
    more = _memory() - before
    return outcome if more <= MOST_BYTES else f"took {more >> 20} MiB, {outcome}"


def table(results: list[dict[str, Any]]) -> str:
    """Counts by reader."""
    counts: dict[str, collections.Counter] = collections.defaultdict(
        collections.Counter
    )
    for each in results:
        known = (*GOOD, UNNOTICED)
        outcome = each["outcome"] if each["outcome"] in known else "FAILED"
        counts[each.get("reader", "none")][outcome] += 1
    head = f"{'reader':<22}{'cases':>7}{'refused':>9}{'equal':>7}"
    lines = [f"{head}{'differs':>9}{'FAILED':>8}"]
    total: collections.Counter = collections.Counter()
    for name, each in [*counts.items(), ("all", total)]:
        lines.append(
            f"{name:<22}{each.total():>7}{each['refused']:>9}{each['equal']:>7}"
            f"{each[UNNOTICED]:>9}{each['FAILED']:>8}"
        )
        if name != "all":
            total.update(each)
    return "\n".join(lines)


def _fresh(folder: Path, place: Path, corpus: str) -> None:
    for old in (place, place.with_name(f"{place.name}_converted")):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(folder / "sound" / corpus, place)


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _environment(package: str) -> dict[str, str]:
    """Lets a case import the package that this process would, installed or not."""
    if package == "torch":
        places = [ROOT / "jax_dynemb_torch" / "src"]
    else:
        spec = importlib.util.find_spec("jax_dynemb")
        assert spec is not None and spec.origin is not None
        places = [Path(spec.origin).parents[1], HERE.parent]
    path = os.pathsep.join(map(str, places))
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    sys.exit(main())
