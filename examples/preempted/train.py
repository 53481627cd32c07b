"""A training that can be interrupted at any moment, and ends as if nobody had.

It learns to read the handwritten digits that come with scikit-learn. After its notice it saves
what the next epoch depends on, and asks to be started again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
import time

from transload.runtime import (
    exit_interrupted,
    interrupted,
    latest_checkpoint,
    progress,
    report,
    save_checkpoint,
)

interrupted()  # from now on the notice does not end the program
os.environ.setdefault("OMP_NUM_THREADS", "1")  # sums then have one order only

from sklearn.datasets import load_digits  # noqa: E402
from sklearn.neural_network import MLPClassifier  # noqa: E402


def main() -> None:
    """Train from the latest checkpoint on, or from the beginning."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--hidden", type=int, default=2000, help="width of the hidden layer")
    options = parser.parse_args()
    images, labels = load_digits(return_X_y=True)
    epoch = 0
    model = MLPClassifier(hidden_layer_sizes=(options.hidden,), random_state=0)
    found = latest_checkpoint()
    if found is None:
        print(f"begins: {options.epochs} epochs", flush=True)
    else:
        epoch, model = pickle.loads((found / "state.pickle").read_bytes())
        print(f"goes on after epoch {epoch}", flush=True)

    def save() -> None:
        state = pickle.dumps((epoch, model))
        save_checkpoint(lambda folder: (folder / "state.pickle").write_bytes(state))

    saved = time.monotonic()
    while epoch < options.epochs:
        model.partial_fit(images / 16, labels, classes=range(10))
        epoch += 1
        progress(step=epoch, total=options.epochs)
        if interrupted() and epoch < options.epochs:
            save()
            print(f"had its notice, and saved epoch {epoch}", flush=True)
            exit_interrupted()
        if time.monotonic() > saved + 10:
            save()
            saved = time.monotonic()
    weights = b"".join(each.tobytes() for each in [*model.coefs_, *model.intercepts_])
    accuracy = model.score(images / 16, labels)
    digest = hashlib.sha256(weights).hexdigest()[:16]
    report(accuracy=accuracy, weights=digest)
    print(f"accuracy {accuracy:.4f}, weights {digest}")


if __name__ == "__main__":
    main()
