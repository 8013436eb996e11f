"""Implements on numpy the part of torch that the official renderers use: concatenating, slicing and dividing arrays.

The weights are only 0 and 1, and torch for this platform comes with gigabytes of CUDA. The goldens were compared once
with those of torch itself: they are identical.
"""

import numpy as np

bfloat16 = object()
float32 = np.float32
__version__ = "2.15.0"


class Tensor(np.ndarray):
    def contiguous(self):
        return self

    def numpy(self):
        return np.asarray(self)

    def __truediv__(self, other):
        return _of(np.asarray(self) / other)


def _of(array):
    kind = np.asarray(array)
    return kind.astype(np.int64 if kind.dtype.kind == "i" else np.float32).view(Tensor)


def tensor(data, dtype=None):
    return _of(np.asarray(data, dtype=None if len(data) else np.float32))


def zeros(length):
    return _of(np.zeros(length, dtype=np.float32))


def cat(tensors):
    return _of(np.concatenate([np.asarray(one) for one in tensors]))
