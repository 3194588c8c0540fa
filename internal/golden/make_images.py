#!/usr/bin/env python3
"""Makes testdata/images: small drawn pictures in every format that Decode reads, with SHA-256 of what PIL decodes, of
what PIL resizes, and of the pixel values of transformers' Idefics3ImageProcessor (the one over PIL).

    python internal/golden/make_images.py [OUT]

Made with Pillow 13.0.0 (libjpeg-turbo 3.2.0, libwebp 1.6.0), transformers 5.17.0; needs neither network nor GPU.
"""
import hashlib
import io
import json
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
from PIL import Image, ImageDraw, ImageOps


def draw(width, height, mode="RGB"):
    """A picture with edges, gradients and colours."""
    y, x = np.mgrid[0:height, 0:width]
    a = np.stack([255 * x / width, 255 * y / height, 127 + 127 * np.sin(x / 3 + y / 5)], -1).astype(np.uint8)
    m = Image.fromarray(a)
    d = ImageDraw.Draw(m)
    d.rectangle([width // 6, height // 6, width // 2, height // 2], fill=(220, 30, 40))
    d.ellipse([width // 2, height // 3, width - 3, height - 2], fill=(20, 200, 60), outline=(0, 0, 0))
    d.line([0, height - 1, width - 1, 0], fill=(250, 250, 0))
    return m.convert(mode)


def formula(width, height):
    """A picture that a test makes again."""
    y, x = np.mgrid[0:height, 0:width]
    return Image.fromarray(np.stack([(7 * x + 3 * y) % 256, (x * y) % 256, (11 * x) % 256 ^ (5 * y) % 256], -1).astype(np.uint8))


def digest(a):
    return hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()


def files():
    m, odd, small = draw(38, 26), draw(37, 25), draw(21, 15)
    alpha = m.convert("RGBA")
    alpha.putalpha(Image.fromarray((np.mgrid[0:26, 0:38][1] * 6).astype(np.uint8)))
    exif = Image.Exif()

    def turned(k):
        exif[0x0112] = k
        return exif.tobytes()
    yield "rgb.png", m, {}
    yield "rgba.png", alpha, dict(exif=turned(5))
    yield "palette.png", m.quantize(16), dict(transparency=3)
    yield "grey.png", m.convert("L"), {}
    yield "grey_alpha.png", alpha.convert("LA"), {}
    yield "bits.png", m.convert("1"), {}
    yield "grey16.png", Image.fromarray((np.arange(38 * 26, dtype=np.uint16) * 3).reshape(26, 38)), {}
    for name, sampling in (("444", 0), ("422", 1), ("420", 2)):
        yield f"odd_{name}.jpg", small, dict(quality=90, subsampling=sampling)
    yield "progressive.jpg", draw(22, 16), dict(quality=80, progressive=True, exif=turned(6))
    yield "grey.jpg", small.convert("L"), dict(exif=turned(3))
    yield "cmyk.jpg", small.convert("CMYK"), {}
    yield "lossy.webp", m, dict(quality=85)
    yield "odd.webp", odd, dict(quality=60, exif=turned(8))
    yield "alpha.webp", alpha, dict(quality=70)
    yield "lossless.webp", odd, dict(lossless=True)
    yield "plain.gif", m.quantize(16), {}
    yield "transparent.gif", m.quantize(8), dict(transparency=2)


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "testdata" / "images")
    out.mkdir(parents=True, exist_ok=True)
    report = {"decoded": {}, "resized": [], "processed": []}
    for name, m, options in files():
        m.save(out / name, **options)
    # a frame that covers a part of the screen: 8 x 6 at (3, 2) of 16 x 12
    frame = io.BytesIO()
    draw(8, 6).quantize(4).save(frame, "GIF")
    b = bytearray(frame.getvalue())
    b[6:10] = bytes([16, 0, 12, 0])
    at = b.index(b"\x2c", 13 + 3 * (2 << (b[10] & 7)))
    b[at + 1:at + 5] = bytes([3, 0, 2, 0])
    (out / "part.gif").write_bytes(b)
    for path in sorted(out.iterdir()):
        if path.suffix in (".json", ".jinja", ".safetensors"):
            continue
        m = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
        report["decoded"][path.name] = dict(width=m.width, height=m.height, sha256=digest(np.array(m)))
        if path.suffix == ".jpg":  # decoders of JPEG may differ by rounding
            report["decoded"][path.name]["pixels"] = np.array(m).tobytes().hex()
    m = formula(38, 26)
    for filter in (1, 2, 3):
        for size in ((13, 9), (76, 52), (38, 11), (50, 26), (200, 3), (1, 1)):
            report["resized"].append(dict(filter=filter, width=size[0], height=size[1],
                                          sha256=digest(np.array(m.resize(size, filter)))))
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
    for options in (dict(size={"longest_edge": 64}, max_image_size={"longest_edge": 16}),
                    dict(size={"longest_edge": 50}, max_image_size={"longest_edge": 20}, resample=3,
                         image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225]),
                    dict(size={"longest_edge": 48}, max_image_size={"longest_edge": 24}, do_image_splitting=False),
                    dict(size={"longest_edge": 24}, max_image_size={"longest_edge": 24}, resample=2)):
        p = Idefics3ImageProcessorPil(**options)
        for size in ((38, 26), (26, 38), (90, 11), (7, 60), (20, 20), (3, 2)):
            r = p(formula(*size), return_row_col_info=True)
            report["processed"].append(dict(
                config={**p.to_dict(), "image_processor_type": "Idefics3ImageProcessor"}, width=size[0], height=size[1],
                rows=r["rows"][0][0], cols=r["cols"][0][0], tiles=len(r["pixel_values"][0]),
                sha256=digest(np.array(r["pixel_values"][0], dtype=np.float32))))
    (out / "images.json").write_text(json.dumps(report, indent=0, sort_keys=True) + "\n")
    print(sum(p.stat().st_size for p in out.iterdir()), "bytes")


if __name__ == "__main__":
    main()
