"""The modules a template loads before it forks, so that programs find them ready."""

import abc  # noqa: F401
import ast  # noqa: F401
import bisect  # noqa: F401
import collections  # noqa: F401
import copy  # noqa: F401
import dataclasses  # noqa: F401
import datetime  # noqa: F401
import decimal  # noqa: F401
import enum  # noqa: F401
import fractions  # noqa: F401
import functools  # noqa: F401
import heapq  # noqa: F401
import importlib
import inspect  # noqa: F401
import itertools  # noqa: F401
import json  # noqa: F401
import math  # noqa: F401
import operator  # noqa: F401
import os
import random  # noqa: F401
import re  # noqa: F401
import statistics  # noqa: F401
import string  # noqa: F401
import sys
import textwrap  # noqa: F401
import threading  # noqa: F401
import time  # noqa: F401
import traceback  # noqa: F401
import typing  # noqa: F401

PACKAGES = "/opt/packages"  # inside a box: third-party packages, bound read-only


def load(options):
    """Make the bound packages importable (`path=DIR` too) and load those that are named.

    One that is not installed here, or fails as it loads, is left to the programs, which then fail
    to import it: an error would end the template, and with it every program of its kind.
    """
    if os.path.isdir(PACKAGES):
        sys.path.append(PACKAGES)
    for option in options:
        key, separator, value = option.partition("=")
        if key == "path":
            sys.path.append(value)
        elif not separator:
            try:
                importlib.import_module(option)
            except Exception:  # whatever a library raises
                pass
