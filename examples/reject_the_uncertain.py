"""Train, choose a threshold, and let a person look at what the model is not sure of.

UncertaintyClassifier trains and predicts in the style of scikit-learn, here on the embedded digits. Run it with
`python examples/reject_the_uncertain.py`; it takes some seconds on a CPU.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from dsui import UncertaintyClassifier

digits = load_digits()
images, new_images, labels, new_labels = train_test_split(
    digits.images / 16, digits.target, train_size=600, stratify=digits.target, random_state=0
)

# A third of the training images is set aside: a threshold needs images that the model has not learned.
classifier = UncertaintyClassifier("small", method="dsui", recipe="demo", calibration=1 / 3)
classifier.fit(images, labels, epochs=25)

noise = np.random.default_rng(0).random((500, 8, 8))
print("coverage asked for   digits accepted   wrong among them   noise rejected")
for coverage in (0.8, 0.9, 0.95):
    threshold = classifier.threshold(coverage=coverage)
    prediction = classifier.predict(new_images)
    kept = prediction.uncertainty <= threshold.value  # the others are `abnormal`
    wrong = np.mean(prediction.label[kept] != new_labels[kept])
    rejected = np.mean(classifier.predict(noise).uncertainty > threshold.value)
    print(f"{coverage:18.0%} {kept.mean():17.1%} {wrong:18.1%} {rejected:16.1%}")
everything = classifier.score(new_images, new_labels)
print(f"{'no threshold':>18} {1:17.1%} {1 - everything:18.1%} {0:16.1%}")

print("\nWhat a person should look at first (coverage 95 %):")
prediction = classifier.predict(new_images)
for place in np.argsort(-prediction.uncertainty)[:5]:
    says, sure = prediction.label[place], prediction.max_probability[place]
    print(f"  image {place:4d}: model says {says} ({sure:.0%} sure), it is {new_labels[place]}")

with TemporaryDirectory() as folder:
    classifier.save(Path(folder) / "digits")  # `dsui predict` can read it, too
    again = UncertaintyClassifier.load(Path(folder) / "digits")
    same = np.array_equal(again.predict(new_images).uncertainty, prediction.uncertainty)
print(f"\nSaved and loaded: predictions are {'the same' if same else 'different'}.")
