# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A click stream with a planted signal, on which new ids keep arriving.

Think of a news site. Articles are published all the time, are read while they are
young, and fade; readers sign up all the time, and a few of them read most. So the ids
of a later hour are not those of an earlier one: a table that must hold everything keeps
growing, and a table of fixed size has to let old rows leave.

A click depends on hidden properties of the ids: the quality of the article, the mood of
the reader, the name of the publisher, and how well the article's topics suit the
reader's segment. The last of these is a product of two ids: embeddings can learn it.
"""

from __future__ import annotations

import dataclasses

import numpy as np

import jax_dynemb as jde

from .clicks import PADDING, Clicks, Source

TOPICS, SEGMENTS, PUBLISHERS = 24, 8, 200
MOST_TOPICS = 3

DEFAULTS = {"epochs": 6, "capacity": 16_384}


@dataclasses.dataclass(frozen=True)
class Stream:
    """How many rows, and how fast ids arrive.

    Attributes:
      rows: views of articles in the whole stream.
      views_per_article: a new article is published every so many views.
      views_per_reader: a new reader signs up every so many views.
      exponent: of the power law of popularity, above 1.
      pieces: the stream is cut into so many epochs of equal length.
    """

    rows: int = 840_000
    views_per_article: int = 12
    views_per_reader: int = 12
    exponent: float = 1.1
    pieces: int = 6


def load(stream: Stream | None = None, seed: int = 0) -> Source:
    """Draws a stream; each epoch is one piece, tested on the views that follow it."""
    stream = stream or Stream()
    clicks = _draw(stream, np.random.default_rng(seed))
    size = stream.rows // (stream.pieces + 1)
    pieces = [
        clicks.take(slice(i * size, (i + 1) * size)) for i in range(stream.pieces + 1)
    ]
    tests = [piece.take(slice(0, max(1, size // 4))) for piece in pieces[1:]]
    parts = tuple(zip(pieces[:-1], tests, strict=True))
    title = f"synthetic click stream, {stream.rows:,} views, new ids all the time"
    return Source(title, parts, shuffle=False, defaults=DEFAULTS, haste=5.0)


def _draw(stream: Stream, rng: np.random.Generator) -> Clicks:
    time = np.arange(stream.rows)
    articles = 100 + time // stream.views_per_article  # published so far
    readers = 100 + time // stream.views_per_reader  # signed up so far
    article = (
        articles - 1 - _power_law(articles, stream.exponent, rng)
    )  # young ones first
    reader = _power_law(readers, stream.exponent, rng)  # the same few all the time
    hidden = _Hidden.draw(articles[-1], readers[-1], rng)
    hour = rng.random(stream.rows) * 2 * np.pi
    chance = 1 / (1 + np.exp(-hidden.logit(article, reader) - 0.3 * np.sin(hour)))
    ids = {
        "article": _hash("article", article),
        "reader": _hash("reader", reader),
        "publisher": _hash("publisher", hidden.publisher[article]),
        "segment": _hash("segment", hidden.segment[reader]),
        "topics": _hash("topics", hidden.topics[article]),
    }
    dense = np.stack([np.sin(hour), np.cos(hour)], axis=1)
    return Clicks.make(ids, rng.random(stream.rows) < chance, dense)


@dataclasses.dataclass(frozen=True)
class _Hidden:
    """What articles and readers are like; the model sees ids only."""

    quality: np.ndarray  # [articles]
    publisher: np.ndarray  # [articles]
    topics: np.ndarray  # [articles, MOST_TOPICS], -1 = fewer topics
    mood: np.ndarray  # [readers]
    segment: np.ndarray  # [readers]
    name: np.ndarray  # [PUBLISHERS]
    taste: np.ndarray  # [SEGMENTS, TOPICS]

    @classmethod
    def draw(cls, articles: int, readers: int, rng: np.random.Generator) -> _Hidden:
        topics = rng.integers(TOPICS, size=(articles, MOST_TOPICS))
        fewer = np.arange(MOST_TOPICS) > rng.integers(MOST_TOPICS, size=(articles, 1))
        return cls(
            quality=rng.normal(0, 0.8, articles),
            publisher=rng.integers(PUBLISHERS, size=articles),
            topics=np.where(fewer, PADDING, topics),
            mood=rng.normal(0, 0.5, readers),
            segment=rng.integers(SEGMENTS, size=readers),
            name=rng.normal(0, 0.5, PUBLISHERS),
            taste=rng.normal(0, 1.5, (SEGMENTS, TOPICS)),
        )

    def logit(self, article: np.ndarray, reader: np.ndarray) -> np.ndarray:
        topics = self.topics[article]
        present = topics != PADDING
        liked = self.taste[self.segment[reader][:, None], topics]
        taste = (liked * present).sum(axis=1) / present.sum(axis=1)
        article_part = self.quality[article] + self.name[self.publisher[article]]
        return taste + article_part + self.mood[reader] - 0.5


def _power_law(
    count: np.ndarray, exponent: float, rng: np.random.Generator
) -> np.ndarray:
    """Draws a rank below each `count`, with chance falling as rank**-exponent."""
    power = 1.0 - exponent
    u = rng.random(len(count))
    rank = (1.0 + u * ((count + 1.0) ** power - 1.0)) ** (1.0 / power)
    return np.minimum(rank.astype(np.int64) - 1, count - 1)


def _hash(feature: str, numbers: np.ndarray) -> np.ndarray:
    distinct, place = np.unique(numbers, return_inverse=True)
    ids = np.where(distinct == PADDING, PADDING, jde.hash_ids(distinct, salt=feature))
    return ids[place].reshape(numbers.shape)
