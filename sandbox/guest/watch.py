"""The watch over memory and idle work: sums of all processes of a program, seen from outside it."""

import os
import resource

BUSY_SECONDS = 0.1  # between looks at programs with an order in hand
IDLE_SECONDS = 2.0  # between looks at the others
IDLE_CPU_SECONDS = 0.2  # what a session may burn between two looks while nothing is asked of it
IDLE_STRIKES = 3  # looks in a row at which it burned more; starting up or tidying takes fewer
PAGE = resource.getpagesize()
TICKS = os.sysconf("SC_CLK_TCK")


class Watch:
    """Finds programs over their memory, and idle ones that use the processor."""

    def __init__(self, tier):
        self.by_user = tier == "gvisor"
        self.next_busy = self.next_idle = 0.0

    def offenders(self, children, now):
        """Look if a look is due; give (child, reason) pairs to be killed."""
        busy = [c for c in children.values() if c.deadline and now - c.started > BUSY_SECONDS / 2]
        idle_due = now >= self.next_idle
        if not children or not (idle_due or (busy and now >= self.next_busy)):
            return []
        self.next_busy = now + BUSY_SECONDS
        if idle_due:
            self.next_idle = now + IDLE_SECONDS
        watched = list(children.values()) if idle_due else busy
        found = self.measure(watched)
        guilty = []
        for child in watched:
            resident, own, cpu = found.get(child.number, (0, 0, 0.0))
            child.peak = max(child.peak, resident)
            if own > child.limits["memory_bytes"]:
                guilty.append((child, "memory"))
            elif idle_due and self.works_while_idle(child, cpu):
                guilty.append((child, "idle_cpu"))
        return guilty

    def works_while_idle(self, child, cpu):
        """Tell whether a session kept using the processor since its last batch, look after look.

        One look is no proof: gVisor charges a process that waits for a busy processor, and starting
        up or freeing memory is work too.
        """
        if child.deadline or child.mode != "session" or child.started is None:
            return False
        burned = 0.0 if child.idle_cpu is None else cpu - child.idle_cpu
        child.idle_cpu = cpu
        child.idle_strikes = child.idle_strikes + 1 if burned > IDLE_CPU_SECONDS else 0
        return child.idle_strikes >= IDLE_STRIKES

    def measure(self, children):
        """Sum resident bytes, those beyond the template's, and CPU seconds of each program."""
        owners = {(c.uid if self.by_user else c.pid): c for c in children}
        sums = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                owner = os.stat(f"/proc/{name}").st_uid if self.by_user else None
                if self.by_user and owner not in owners:
                    continue
                with open(f"/proc/{name}/stat", "rb") as stat:
                    fields = stat.read().rpartition(b")")[2].split()
            except OSError:
                continue
            owner = owner if self.by_user else int(fields[3])
            if owner in owners:
                child, size = owners[owner], int(fields[21]) * PAGE
                resident, own, cpu = sums.get(child.number, (0, 0, 0.0))
                cpu += (int(fields[11]) + int(fields[12])) / TICKS
                own += max(0, size - child.base_bytes)
                sums[child.number] = (resident + size, own, cpu)
        return sums
