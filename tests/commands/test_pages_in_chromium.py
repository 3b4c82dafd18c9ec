# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Pages of inspect and bench in headless Chromium: bars are as long as they say."""

import re
import shutil
import subprocess

import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb.__main__ import main

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
COLORS = {"own": (74, 127, 181), "floor": (138, 153, 168), "peer": (199, 125, 58)}
WIDTH, HEIGHT = 1000, 2400

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason=f"none of {NAMES} is installed"),
]


def seen(page, folder, width=WIDTH):
    """Takes a picture of a page; returns uint8[HEIGHT, width, 3]."""
    image = pytest.importorskip("matplotlib.image")
    picture = folder / "page.png"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    options += [f"--user-data-dir={folder / 'profile'}", f"--screenshot={picture}"]
    options += [f"--window-size={width},{HEIGHT}", page.as_uri()]
    subprocess.run([CHROMIUM, *options], check=True, capture_output=True, timeout=120)
    return (image.imread(picture)[..., :3] * 255).round().astype(int)


def bars(picture, color):
    """Returns the lengths of horizontal bars of a color, from top to bottom."""
    is_bar = (np.abs(picture - color) <= 2).all(axis=-1)
    lengths = is_bar.sum(axis=1)
    begins = np.flatnonzero((lengths > 0) & (np.r_[0, lengths[:-1]] == 0))
    ends = np.flatnonzero((lengths > 0) & (np.r_[lengths[1:], 0] == 0)) + 1
    return [int(lengths[b:e].max()) for b, e in zip(begins, ends, strict=True)]


def test_bars_of_a_run_are_as_long_as_they_say(tmp_path, capsys):
    path = tmp_path / "run.html"
    command = ["bench", "--scale", "0.001", "--seconds", "0.001", "--html", str(path)]
    assert main(command) == 0
    picture = seen(path, tmp_path)
    for kind, color in COLORS.items():
        pattern = rf'<rect class="{kind}"[^>]* width="([\d.]+)"'
        widths = [float(x) for x in re.findall(pattern, path.read_text())]
        found = bars(picture, color)
        assert len(found) == len(widths) == 9
        scale = np.polyfit(widths, found, 1)[0]  # pixels a unit, alike for all
        np.testing.assert_allclose(found, np.multiply(widths, scale), atol=4)
    assert (picture[:, -8:] == picture[0, 0]).all()  # nothing reaches over the edge


def test_histograms_of_a_table_are_drawn(tmp_path, capsys):
    table = jde.TableConfig("word", 16, 2_000, initializer=jde.initializers.normal(1.0))
    coll = jde.Tables([table])
    state = coll.lookup(coll.init(0), {"word": jde.ids(np.arange(1_500))})[2]
    jde.export.safetensors(tmp_path / "export", coll, state, quiet=True)
    path = tmp_path / "page.html"
    assert main(["inspect", str(tmp_path / "export"), "--html", str(path)]) == 0
    page = path.read_text()
    picture = seen(path, tmp_path)
    is_bar = (np.abs(picture - COLORS["own"]) <= 2).all(axis=-1)
    # The area of all bars, in units of the pictures, against the pixels of their color.
    rects = re.findall(r'<rect[^>]* width="([\d.]+)" height="([\d.]+)"', page)
    area = sum(float(width) * float(height) for width, height in rects)
    scale = is_bar.sum() / area
    assert len(rects) > 20
    assert scale == pytest.approx((24 * 16 * 15 / 16 / 360) ** 2, rel=0.15)
    assert (picture[:, -8:] == picture[0, 0]).all()
