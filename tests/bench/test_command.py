# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""benchmarks/bench_suite.py, at a thousandth of its size."""

import dataclasses
import json

import pytest
from rich.console import Console

from suite import command, growth, step_report
from suite import step_suites as suites
from suite.busy import Busy
from suite.figures import Figure
from suite.job import Job
from suite.suite import Choice
from suite.workloads import CASES

TINY = ("--scale", "0.0001", "--seconds", "0.001")


@pytest.fixture
def run(tmp_path):
    def run(*arguments):
        path = tmp_path / "figures.json"
        assert command.main([*TINY, "--json", str(path), *arguments]) == 0
        return json.loads(path.read_text())["figures"]

    return run


def test_the_choice_of_a_user(run, capsys):
    figures = run(
        *("--suite", "steps", "--case", "e", "--optimizer", "adam", "--nnx"),
        *("--dtype", "bf16", "--ids", "hot,fresh", "--load", "1.0"),
    )
    done = [(f["work"], f["optimizer"], f["ids"], f["step"]) for f in figures]
    assert done == [
        ("eval", None, "hot", "jax"),
        ("eval", None, "hot", "nnx"),
        ("train", "adam", "hot", "jax"),
        ("train", "adam", "hot", "nnx"),
        ("train", "adam", "fresh", "jax"),
    ]
    assert {(f["dtype"], f["load"], f["in_place"]) for f in figures} == {
        ("bf16", 1.0, True)
    }
    output = capsys.readouterr().out
    assert "train adam bf16 load 1.00 nnx" in output
    assert "scratch B/id (limit)" in output
    # Figures of an H200 say nothing about this machine.
    assert "FBGEMM" not in output
    assert "target" not in output


@pytest.mark.gpu
def test_a_gpu_is_traced(run, capsys):
    figures = run("--suite", "steps", "--case", "e", "--ids", "zipf", "--kernels")
    assert all(f["busy_ms"] > 0 for f in figures)
    assert all(f["kernels"] >= 1 and f["in_place"] for f in figures)
    assert "GPU busy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("suite", "case", "count"),
    [("uniform", "d", 4), ("bf16", "e", 7), ("full", "a", 1), ("narrow", "d8", 6)],
)
def test_suites_of_steps(run, suite, case, count):
    figures = run("--suite", suite, "--case", case)
    assert [f["suite"] for f in figures] == [suite] * count
    assert all(f["ms"] > 0 for f in figures)


def test_skew_is_held_against_the_power_law(run, tmp_path):
    plot = tmp_path / "skew.png"
    figures = run(
        "--suite", "skew", "--case", "e", "--work", "eval", "--plot", str(plot)
    )
    zipf, hot, same = figures
    assert [f["ids"] for f in figures] == ["zipf", "hot", "same"]
    assert hot["target_ms"] == same["target_ms"] == pytest.approx(1.5 * zipf["ms"])
    assert hot["met"] == (hot["ms"] <= hot["target_ms"])
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_operations_of_the_hash_table(run, tmp_path):
    plot = tmp_path / "hash.png"
    figures = run("--suite", "hash", "--plot", str(plot))
    assert len(figures) == 9 * 3
    assert {f["load"] for f in figures} == {0.5, 0.75, 1.0}
    assert all(f["gkeys"] > 0 and f["peer_gkeys"] is None for f in figures)
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_cpu_peers_run_on_the_same_ids(run):
    eval_, train = run("--suite", "cpu", "--case", "r", "--optimizer", "adagrad")
    assert eval_["peers"]["plain JAX"] > 0
    assert eval_["target_ms"] == pytest.approx(2 * min(eval_["peers"].values()))
    assert train["target_ms"] == pytest.approx(min(train["peers"].values()))


@pytest.mark.slow
def test_cpu_peers_of_what_users_bring(run):
    arguments = ("--suite", "cpu_used", "--case", "j8,u16x10,criteo_cpu")
    figures = run(*arguments, "--optimizer", "adam")
    assert len(figures) == 8  # of two works, u16x10 in bf16 as well
    assert all(f["peers"]["plain JAX"] > 0 for f in figures)
    best = {(f["case"], f["work"]): min(f["peers"].values()) for f in figures}
    for f in figures:
        times = {"train": 1.0, "eval": 2.0 if f["case"] == "criteo_cpu" else 1.3}
        if f["dtype"] == "fp32" and f["case"] != "u16x10":
            assert f["target_ms"] == pytest.approx(
                times[f["work"]] * best[f["case"], f["work"]]
            )


def test_growth_draws_every_axis(tmp_path):
    jobs = list(growth.jobs(Choice()))
    figures = [Figure("growth", job, 1.0, 0.9, 0.5) for job in jobs]
    growth.plot(figures, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
    batches = {j.case.batch for j in jobs if j.name.startswith("batch")}
    assert (min(batches), max(batches)) == (2**10, 2**23)
    rows = {j.case.rows for j in jobs if j.name.startswith("rows")}
    assert (min(rows), max(rows)) == (2**16, 2**27)
    assert {j.case.tables for j in jobs} >= {1, 128}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--case", "z"], "'z' is none of a, b, c"),
        (["--load", "2"], "2 is not between"),
        (["--suite", "skew", "--ids", "zipf"], "--ids does nothing in suite 'skew'"),
        (["--suite", "cpu", "--nnx"], "use --suite steps"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, sentence, capsys):
    with pytest.raises(SystemExit) as exit_:
        command.main([*TINY, *arguments])
    assert sentence in f"{capsys.readouterr().err} {exit_.value}"


def test_suites_without_a_job(capsys):
    assert command.main([*TINY, "--suite", "full", "--case", "r"]) == 2
    assert "suite full has nothing to measure" in capsys.readouterr().out


def test_a_gpu_leaves_out_what_compares_on_a_cpu():
    options = command.parser().parse_args(["--suite", "hash,cpu"])
    assert command._names(options, "gpu") == ["hash"]
    assert command._names(options, "cpu") == ["hash", "cpu"]
    options.suite = ("cpu",)
    with pytest.raises(SystemExit, match="JAX_PLATFORMS=cpu"):
        command._names(options, "gpu")


def aimed(job, aim, others=()):
    """Returns the target of a figure that took one millisecond, as on an H200."""
    known = {other.job: other for other in others}
    return aim(Figure("test", job, 1.0, 1.0, 0.5), known.get, True)


def test_targets():
    e = Job("e", CASES["e"], optimizer="adam")
    assert aimed(e, suites.steps_aim) == (0.82, "H200")
    fresh = dataclasses.replace(e, ids="fresh")
    assert aimed(fresh, suites.steps_aim) == (1.6, "H200")
    full = dataclasses.replace(fresh, load=1.0)
    assert aimed(full, suites.steps_aim) is None
    assert aimed(full, suites.full_aim)[0] == pytest.approx(2.4)
    uniform = dataclasses.replace(e, ids="uniform")
    assert aimed(uniform, suites.uniform_aim)[0] == pytest.approx(1.35 * 0.5)
    fp32 = Figure("test", Job("e", CASES["e"]), 2.8, 2.8, 0.5)
    bf16 = dataclasses.replace(fp32.job, dtype="bf16")
    assert aimed(bf16, suites.bf16_aim, [fp32])[0] == pytest.approx(2.0)
    assert aimed(dataclasses.replace(e, dtype="bf16"), suites.bf16_aim) is None


def test_the_table_of_an_h200(tmp_path):
    job = Job("e", CASES["e"], optimizer="adam")
    figure = Figure(
        suite="steps",
        job=job,
        ms=0.9,
        least_ms=0.9,
        floor_ms=0.546,
        scratch_bytes=200 * job.case.num_ids,
        in_place=False,
        busy=Busy(0.8, 17.0, {"pieces": 479.0}),
        target_ms=0.82,
        peers={"FBGEMM": 1.36},
    )
    console = Console(width=200, record=True)
    console.print(step_report.table([figure]))
    text = console.export_text()
    for cell in (
        "0.900",
        "0.800",
        "17",
        "missed",
        "200 (96)",
        "COPIED",
        "1.360 (1.5x)",
    ):
        assert cell in text
    assert step_report.kernel_line(figure) == "e zipf train adam, us: pieces 479.0"
    step_report.plot([figure], tmp_path / "steps.png")
    assert (tmp_path / "steps.png").read_bytes().startswith(b"\x89PNG")


def test_what_does_not_fit_is_left_out_with_a_line(run, capsys, monkeypatch):
    real = command._context

    def small(*arguments):
        return dataclasses.replace(real(*arguments), memory=400_000)

    monkeypatch.setattr(command, "_context", small)
    figures = run("--suite", "steps", "--case", "d8,d", "--work", "eval")
    assert [f["case"] for f in figures] == ["d8"]
    assert "d zipf eval: left out, it needs" in capsys.readouterr().out
