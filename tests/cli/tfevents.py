"""tfevents.py FILE: prints each event of a TensorBoard event file as a JSON object; fails on a wrong
checksum."""
import json
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(data):
    """Yields field number and value of a protocol buffer message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        elif kind == 1:
            (value,) = struct.unpack_from("<d", data, at)
            at += 8
        elif kind == 5:
            (value,) = struct.unpack_from("<f", data, at)
            at += 4
        else:
            assert kind == 2, kind
            n = varint()
            value = data[at : at + n]
            assert len(value) == n
            at += n
        yield key >> 3, value


data = open(sys.argv[1], "rb").read()
at = 0
while at < len(data):
    (n,) = struct.unpack_from("<Q", data, at)
    assert masked(data[at : at + 8]) == struct.unpack_from("<I", data, at + 8)[0], "length's checksum"
    body = data[at + 12 : at + 12 + n]
    assert masked(body) == struct.unpack_from("<I", data, at + 12 + n)[0], "checksum"
    at += 16 + n
    event = dict(fields(body))
    out = {"time": event[1], "step": event.get(2, 0)}
    if 3 in event:
        out["version"] = event[3].decode()
    if 7 in event:
        out["restart"] = dict(fields(event[7]))[1] == 1
    if 5 in event:
        value = dict(fields(dict(fields(event[5]))[1]))
        out["tag"] = value[1].decode()
        if 2 in value:
            out["scalar"] = value[2]
        if 5 in value:
            h = dict(fields(value[5]))
            limits, counts = (struct.unpack(f"<{len(h[k]) // 8}d", h[k]) for k in (6, 7))
            assert list(limits) == sorted(set(limits)) and len(limits) == len(counts)
            # the values lie within the occupied buckets
            held = [limit for limit, c in zip(limits, counts) if c]
            assert h[1] <= held[0] and h[2] <= held[-1] and (len(held) < 2 or h[2] > held[-2]), (h[1], h[2], held)
            out["histogram"] = {"min": h[1], "max": h[2], "num": h[3], "sum": h[4], "squares": h[5], "counts": sum(counts)}
        if 8 in value:
            out["text"] = dict(fields(value[8]))[8].decode()
    print(json.dumps(out))
assert at == len(data)
# SPDX-License-Identifier: Apache-2.0
