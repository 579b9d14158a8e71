"""Modules that programs may import, and the names that programs may use without importing them."""

PURE = frozenset(
    """
    __future__ abc array ast base64 binascii bisect calendar cmath collections colorsys contextlib
    copy csv dataclasses datetime decimal difflib enum fractions functools graphlib hashlib heapq
    html io itertools json keyword math numbers operator pprint queue random re reprlib statistics
    string struct textwrap time traceback types typing unicodedata urllib.parse uuid warnings zlib
    """.split()
)  # the standard library's modules that touch neither files, processes nor the network
LIBRARIES = frozenset(("numpy", "math_verify"))

# Programs of the public implementation assume these names. NumPy is fetched at its first use, since
# most programs never touch it and its import costs more than a whole play.
INJECTED = """\
import collections, copy, functools, heapq, itertools, json, math, operator, random, re, string
import statistics
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from copy import deepcopy
from functools import lru_cache, reduce
from heapq import heappop, heappush
from itertools import accumulate, chain, combinations, permutations, product
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Set
from typing import Tuple, Union


class _Numpy:
    def __getattr__(self, name):
        import numpy

        return getattr(numpy, name)


np = numpy = _Numpy()
"""
