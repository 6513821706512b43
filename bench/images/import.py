#!/usr/bin/env python3
"""Times dt-dataset images against Pillow and torchvision (if installed), which decode, scale and crop the same files.

    import.py BUILD/tools/dt-dataset [TURNS [FOLDER]]

FOLDER holds folders of images, one a class; by default the script writes 1600 JPEG files of 500 x 375 pixels. Images are
scaled to a shorter side of 256 and cropped to 224. All use as many threads as OMP_NUM_THREADS says (default 2) and run in
turns. dt also writes the data set; the others keep nothing. Prints images per second, medians, and ratios to dt's."""
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
    asked = sys.argv[1:2] in (["-h"], ["--help"])
    print(__doc__, file=sys.stdout if asked else sys.stderr)
    sys.exit(0 if asked else 2)

try:
    import numpy as np
    from PIL import Image
except ImportError as e:
    print(f"import.py: {e}", file=sys.stderr)
    sys.exit(77)
try:
    import torch
    import torchvision.transforms.v2.functional as TF
    from torchvision.io import decode_image, read_file
except ImportError:
    torch = None

threads = os.environ.setdefault("OMP_NUM_THREADS", "2")


def make(folder):
    rng = np.random.default_rng(0)
    for i in range(1600):
        at = os.path.join(folder, f"class-{i % 4}")
        os.makedirs(at, exist_ok=True)
        smooth = Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)).resize((500, 375), Image.BICUBIC)
        noisy = np.asarray(smooth).astype(np.int16) + rng.integers(-12, 13, (375, 500, 3))
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(os.path.join(at, f"{i}.jpg"), quality=90)


def by_pillow(path):
    im = Image.open(path).convert("RGB")
    w, h = im.size
    im = im.resize((256 * w // min(w, h), 256 * h // min(w, h)), Image.BILINEAR)
    left, top = round((im.width - 224) / 2), round((im.height - 224) / 2)
    return np.asarray(im.crop((left, top, left + 224, top + 224)))


def by_torchvision(path):
    return TF.center_crop(TF.resize(decode_image(read_file(path)), 256, antialias=True), 224)


def main(tool, turns=5, folder=None):
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(int(threads)) as pool:
        if folder is None:
            folder = os.path.join(work, "images")
            make(folder)
        files = [os.path.join(d, f) for d, _, names in os.walk(folder) for f in names]
        command = [tool, "images", "--out", os.path.join(work, "out.h5"), "--resize", "256", "--crop", "224", folder]
        ways = {"dt": lambda: subprocess.run(command, check=True, capture_output=True),
                "Pillow": lambda: list(pool.map(by_pillow, files))}
        if torch:
            torch.set_num_threads(1)
            ways["torchvision"] = lambda: list(pool.map(by_torchvision, files))
        times = {name: [] for name in ways}
        for _ in range(int(turns)):
            for name, way in ways.items():
                start = time.perf_counter()
                way()
                times[name].append(time.perf_counter() - start)
        ours = statistics.median(times["dt"])
        for name, t in times.items():
            print(f"{name:12} {len(files) / statistics.median(t):7.0f} images/s, {statistics.median(t) / ours:.2f} of dt's time")


main(*sys.argv[1:])
# SPDX-License-Identifier: Apache-2.0
