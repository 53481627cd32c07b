# /// script
# requires-python = ">=3.9"
# dependencies = ["numpy>=1.26"]
#
# [tool.transload]
# name = "fit"
# cpu = 1
# time-limit = "10m"
# ///
"""Fits a polynomial to noisy points: one file that says itself what it needs, and how it runs."""

from __future__ import annotations

import argparse
import os
import sys

import numpy

parser = argparse.ArgumentParser()
parser.add_argument("--degree", type=int, default=3)
parser.add_argument("--points", type=int, default=200)
given = parser.parse_args()

noise = numpy.random.default_rng(seed=1).normal(scale=0.1, size=given.points)
x = numpy.linspace(-1, 1, given.points)
y = numpy.sin(3 * x) + noise
found = numpy.polynomial.Polynomial.fit(x, y, given.degree)
error = float(numpy.sqrt(numpy.mean((found(x) - y) ** 2)))

print(f"Python {sys.version.split()[0]}, numpy {numpy.__version__}, from {sys.prefix}")
print(f"degree {given.degree}: error {error:.4f}")
folder = os.environ.get("TRANSLOAD_OUTPUT_DIR")
if folder:
    os.makedirs(folder, exist_ok=True)
    numpy.save(os.path.join(folder, "coefficients.npy"), found.convert().coef)
