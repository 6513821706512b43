#!/usr/bin/env python3
"""Golden values of image decoding and scaling by Pillow, and of torchvision's evaluation transform.

    golden_images.py [--check]

Writes golden-images.h5 beside this script: /decode/NAME/bytes (a file) and /decode/NAME/pixels (C x H x W, as
Pillow decodes it to RGB, or to L if the attribute channels is 1; upright if orient is 1); /scale/NAME/pixels,
/box (top, left, height, width) and /out (cropped and scaled); /filter/NAME/pixels and /out, scaled whole by the
filter of the attribute filter (1 bicubic, 2 Lanczos); /evaluate/pixels and /evaluate/out (f32,
torchvision's Resize(20), CenterCrop(16), ToTensor, Normalize with ImageNet's constants). From version 13
Pillow scales columns first where that is cheaper, which may round differently; in the cases here every
version scales rows first. Images with 16 bits per channel are scaled with numpy, because Pillow truncates
them. --check compares: exit status 3 on a difference, 77 without the packages Pillow, torchvision and h5py.
"""
import io
import os
import struct
import sys
import zlib

try:
    import h5py
    import numpy as np
    import torchvision.transforms as T
    from PIL import Image, ImageOps
except ImportError:
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))


def picture(height, width, channels, seed=0):
    """Returns a smooth image with noise, sensitive to the transform and to its treatment of edges."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 90 * np.sin(x / (3.0 + c) + c) * np.cos(y / (4.0 + c)) for c in range(channels)]
    noisy = np.stack(planes, -1) + rng.integers(-20, 20, (height, width, channels))
    return np.clip(noisy, 0, 255).astype(np.uint8)


def saved(image, kind, **how):
    out = io.BytesIO()
    image.save(out, kind, **how)
    return out.getvalue()


def png16(values):
    """Returns a PNG with 16 bits per channel, height x width x 1 or 3."""
    height, width, channels = values.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 16, 0 if channels == 1 else 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def planes(array):
    return np.ascontiguousarray(array[None] if array.ndim == 2 else array.transpose(2, 0, 1))


def files():
    rgb = Image.fromarray(picture(19, 23, 3))
    grey = Image.fromarray(picture(17, 13, 1)[:, :, 0])
    cmyk = Image.fromarray(picture(12, 11, 4), "CMYK")
    yield "jpeg", saved(rgb, "JPEG", quality=90), 3, 0
    yield "jpeg-444-progressive", saved(rgb, "JPEG", quality=80, subsampling=0, progressive=True), 3, 0
    yield "jpeg-as-grey", saved(rgb, "JPEG", quality=90), 1, 0
    yield "jpeg-grey", saved(grey, "JPEG", quality=85), 1, 0
    yield "jpeg-grey-as-colour", saved(grey, "JPEG", quality=85), 3, 0
    yield "jpeg-cmyk", saved(cmyk, "JPEG", quality=95), 3, 0
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        yield f"jpeg-exif-{orientation}", saved(rgb, "JPEG", quality=90, exif=exif), 3, 1
    yield "png", saved(rgb, "PNG"), 3, 0
    yield "png-grey", saved(grey, "PNG"), 1, 0
    yield "png-palette", saved(rgb.quantize(16), "PNG"), 3, 0
    yield "png-alpha", saved(Image.fromarray(picture(9, 8, 4), "RGBA"), "PNG"), 3, 0
    yield "png-bits", saved(grey.convert("1"), "PNG"), 1, 0
    yield "ppm", saved(rgb, "PPM"), 3, 0
    yield "pgm", saved(grey, "PPM"), 1, 0


def decode():
    made = {}
    for name, data, channels, orient in files():
        image = Image.open(io.BytesIO(data))
        image = ImageOps.exif_transpose(image) if orient else image
        pixels = planes(np.asarray(image.convert("RGB" if channels == 3 else "L")))
        made[name] = (data, pixels, channels, orient)
    rng = np.random.default_rng(5)
    for name, channels in (("png-16", 3), ("png-16-grey", 1)):
        values = rng.integers(0, 65536, (7, 6, channels))
        pixels = planes(np.floor(values * 255 / 65535 + 0.5).astype(np.uint8))
        made[name] = (png16(values), pixels, channels, 0)
    return made


def scale():
    cases = {"down": (40, 31, 3, (3, 2, 33, 27), (9, 7)), "up": (11, 9, 3, (0, 0, 11, 9), (29, 32)),
             "mixed": (12, 30, 1, (0, 1, 12, 28), (25, 13)), "one": (16, 16, 3, (5, 6, 1, 1), (4, 3)),
             "same": (12, 10, 3, (2, 1, 8, 7), (8, 7)), "far": (200, 150, 1, (0, 0, 200, 150), (3, 5))}
    made = {}
    for name, (h, w, c, (top, left, bh, bw), (oh, ow)) in cases.items():
        source = picture(h, w, c, seed=len(name))
        image = Image.fromarray(source if c == 3 else source[:, :, 0])
        out = image.crop((left, top, left + bw, top + bh)).resize((ow, oh), Image.BILINEAR)
        made[name] = (planes(source), np.array([top, left, bh, bw], np.int32), planes(np.asarray(out)))
    return made


def filtered():
    cases = {"down": (50, 61, 3, (20, 24)), "up": (9, 11, 3, (31, 32)), "far": (40, 300, 1, (3, 20)),
             "wide": (70, 33, 1, (64, 30)), "same": (12, 30, 3, (12, 41))}
    made = {}
    for name, (h, w, c, (oh, ow)) in cases.items():
        source = picture(h, w, c, seed=20 + len(name))
        image = Image.fromarray(source if c == 3 else source[:, :, 0])
        for number, kind in ((1, Image.BICUBIC), (2, Image.LANCZOS)):
            made[f"{name}-{number}"] = (planes(source), planes(np.asarray(image.resize((ow, oh), kind))), number)
    return made


def evaluate():
    source = picture(37, 29, 3, seed=9)
    steps = T.Compose([T.Resize(20), T.CenterCrop(16), T.ToTensor(),
                       T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    return planes(source), steps(Image.fromarray(source)).numpy()


def main():
    path = os.path.join(HERE, "golden-images.h5")
    sets, attributes = {}, {}
    for name, (data, pixels, channels, orient) in decode().items():
        sets[f"decode/{name}/bytes"] = np.frombuffer(data, np.uint8)
        sets[f"decode/{name}/pixels"] = pixels
        attributes[f"decode/{name}"] = {"channels": channels, "orient": orient}
    for name, (source, box, out) in scale().items():
        sets[f"scale/{name}/pixels"], sets[f"scale/{name}/box"], sets[f"scale/{name}/out"] = source, box, out
    for name, (source, out, number) in filtered().items():
        sets[f"filter/{name}/pixels"], sets[f"filter/{name}/out"] = source, out
        attributes[f"filter/{name}"] = {"filter": number}
    sets["evaluate/pixels"], sets["evaluate/out"] = evaluate()
    if "--check" in sys.argv:
        with h5py.File(path, "r") as f:
            for key, want in sets.items():
                if not key.endswith("/bytes") and not np.allclose(f[key][()], want, rtol=0, atol=1e-6):
                    print(f"golden-images.h5: /{key} differs", file=sys.stderr)
                    return 3
        return 0
    with h5py.File(path, "w", libver=("earliest", "v108")) as f:
        for key, want in sets.items():
            f.create_dataset(key, data=want)
        for group, values in attributes.items():
            for key, value in values.items():
                f[group].attrs[key] = value
    return 0


sys.exit(main())
# SPDX-License-Identifier: Apache-2.0
