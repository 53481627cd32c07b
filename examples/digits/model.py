"""The digits, and a small neural network for them: NumPy only, one flat vector of parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
PIXELS, CLASSES, TEST_SHARE = 64, 10, 0.2


@dataclass(frozen=True)
class Split:
    """One replica's part of the data.

    Attributes:
        train_x: Its training pictures, ``(n, 64)``, each pixel between 0 and 1.
        train_y: Their digits, ``(n,)``.
        test_x: Its part of the pictures held out from everybody's training, ``(m, 64)``.
        test_y: Their digits, ``(m,)``.
    """

    train_x: Array
    train_y: Labels
    test_x: Array
    test_y: Labels


def load_shard(rank: int, world: int, seed: int) -> Split:
    """Return every ``world``-th picture from ``rank`` on, after a shuffle and split that only
    ``seed`` decides.
    """
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    order = np.random.default_rng([seed, 0]).permutation(len(digits))
    x, y = pixels[order].astype(np.float64) / 16.0, digits[order].astype(np.int64)
    held_out = int(len(y) * TEST_SHARE)
    train, test = slice(held_out + rank, None, world), slice(rank, held_out, world)
    return Split(x[train], y[train], x[test], y[test])


class Network:
    """One hidden layer (tanh) and a softmax, its parameters in one flat vector so that averaging is
    one sum.
    """

    def __init__(self, hidden: int, seed: int) -> None:
        shapes = [(PIXELS, hidden), (hidden,), (hidden, CLASSES), (CLASSES,)]
        sizes = [int(np.prod(shape)) for shape in shapes]
        self.parameters: Array = np.zeros(sum(sizes))
        self._w1, self._b1, self._w2, self._b2 = _views(self.parameters, shapes)
        draw = np.random.default_rng([seed, 1])
        self._w1[:] = draw.normal(0.0, PIXELS**-0.5, self._w1.shape)
        self._w2[:] = draw.normal(0.0, hidden**-0.5, self._w2.shape)
        self._shapes = shapes

    def gradient(self, x: Array, y: Labels) -> Array:
        """Return the gradient of the cross-entropy *summed* over these pictures, flat like
        ``parameters``.
        """
        flat = np.zeros_like(self.parameters)
        w1, b1, w2, b2 = _views(flat, self._shapes)
        inner = np.tanh(x @ self._w1 + self._b1)
        slope = _softmax(inner @ self._w2 + self._b2)
        slope[np.arange(len(y)), y] -= 1.0
        w2[:], b2[:] = inner.T @ slope, slope.sum(axis=0)
        back = (slope @ self._w2.T) * (1.0 - inner**2)
        w1[:], b1[:] = x.T @ back, back.sum(axis=0)
        return flat

    def score(self, x: Array, y: Labels) -> tuple[float, int]:
        """Return the cross-entropy summed over these pictures (nats), and how many were
        recognised.
        """
        odds = _softmax(np.tanh(x @ self._w1 + self._b1) @ self._w2 + self._b2)
        loss = -np.log(np.maximum(odds[np.arange(len(y)), y], 1e-300)).sum()
        return float(loss), int((odds.argmax(axis=1) == y).sum())


def _views(flat: Array, shapes: list[tuple[int, ...]]) -> list[Array]:
    """Cut a flat vector into arrays of these shapes that share its memory."""
    parts, start = [], 0
    for shape in shapes:
        size = int(np.prod(shape))
        parts.append(flat[start : start + size].reshape(shape))
        start += size
    return parts


def _softmax(logits: Array) -> Array:
    """Return each row's probabilities."""
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    odds: Array = raised / raised.sum(axis=1, keepdims=True)
    return odds
