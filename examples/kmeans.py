"""k-means on handwritten digits, drawn in the plane of their first two principal components.

python examples/kmeans.py --picture kmeans.png
"""

import argparse

import numpy as np

from ridgeline.data.digits import load_raw
from ridgeline.learn import PCA, KMeans
from ridgeline.train import save_png, scatter


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=10)
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--picture", default="kmeans.png")
    arguments = parser.parse_args()

    images, labels = load_raw()
    pixels = images.reshape(len(images), -1).astype(np.float32)
    model = KMeans(arguments.clusters, n_init=arguments.starts).fit(pixels)
    found = model.labels_.numpy()
    print(f"{len(pixels)} images, inertia {model.inertia_:.0f} after {model.n_iter_} iterations")

    common = [np.bincount(labels[found == n]).max() for n in range(arguments.clusters)]
    print(f"{sum(common) / len(labels):.1%} of the images are the commonest digit of their cluster")
    plane = PCA(2).fit(pixels)
    share = float(plane.explained_variance_ratio_.sum())
    save_png(arguments.picture, scatter(plane.transform(pixels), found))
    print(f"picture: {arguments.picture} ({share:.0%} of the variance)")


if __name__ == "__main__":
    main()
