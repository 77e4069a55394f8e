"""Memory of this process, as the kernel counts it."""

import contextlib
import resource


def peak_bytes() -> int:
    """Most memory this process had resident, since its start or since `restart_peak`.

    `ru_maxrss`, the fallback, remembers also the process that started this one.
    """
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def restart_peak() -> None:
    """Count the peak from now on, where the kernel lets a process do that."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
