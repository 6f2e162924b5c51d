"""How the C library keeps the memory of bodies and pictures: mapped once and used again, given back now and then.

Glibc maps large buffers anew each time, and every fresh page costs a fault: a third of the CPU of a 1 MB body, a tenth
of a decoded photograph (measured). Kept for ever, freed buffers would be 150 MB after a load of photographs; giving the
free ones back every ten seconds costs 15 ms of a thread.
"""

import ctypes

_libc = ctypes.CDLL(None)
_trim = getattr(_libc, "malloc_trim", None)  # both are glibc's own
_set_option = getattr(_libc, "mallopt", None)

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_MOST_KEPT_BYTES = 64 << 20
_LARGEST_KEPT_BYTES = 32 << 20  # the most that glibc allows


def keep_freed_memory() -> None:
    """For the next buffer: up to 64 MiB at the end of a heap, in buffers of up to 32 MiB. Holds for the process."""
    if _set_option is not None:
        _set_option(_TRIM_THRESHOLD, _MOST_KEPT_BYTES)
        _set_option(_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES)


def give_back_free_memory() -> None:
    """To the operating system, where the C library can."""
    if _trim is not None:
        _trim(0)
