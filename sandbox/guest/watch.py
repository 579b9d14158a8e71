"""The watch over memory and processors: sums of all processes of a program, seen from outside it.

Under gVisor a process is charged for every moment in which it could run, also for those in which it
waits for a busy processor. So what is charged tells looping from sleeping, not looping from
starving; the host sets it against what the whole box really got (`usage.py`).
"""

import os
import resource
import time

BUSY_SECONDS = 0.1  # between looks at programs with an order in hand
IDLE_SECONDS = 2.0  # between looks at the others
IDLE_CPU_SECONDS = 0.2  # what a session may burn between two looks while nothing is asked of it
IDLE_STRIKES = 3  # looks in a row at which it burned more; starting up or tidying takes fewer
PAGE = resource.getpagesize()
TICKS = os.sysconf("SC_CLK_TCK")


class Watch:
    """Finds programs over their memory or processor limit, and idle ones that work."""

    def __init__(self, tier):
        self.by_user = tier != "subprocess"
        self.next_busy = self.next_idle = 0.0
        self.box_seconds = 0.0  # CPU seconds charged to all programs so far

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
            resident, own, child.others = found.get(child.number, (0, 0, child.others))
            child.peak = max(child.peak, resident)
            self.charge(child)
            if own > child.limits["memory_bytes"]:
                guilty.append((child, "memory"))
            elif child.deadline and self.over_budget(child):
                guilty.append((child, "cpu"))
            elif idle_due and self.works_while_idle(child):
                guilty.append((child, "idle_cpu"))
        return guilty

    def charge(self, child, told=0.0):
        """Bring the CPU seconds of a program up to date; `told` is what its end reported."""
        spent = max(child.spent, told, first_process_seconds(child.pid) + child.others)
        self.box_seconds += spent - child.spent
        child.spent = spent

    def over_budget(self, child):
        """Tell whether a job, or one batch of a session, used more processor than it may."""
        return child.spent - child.spent_before > child.limits["cpu_seconds"]

    def works_while_idle(self, child):
        """Tell whether a session kept using the processor since its last batch, look after look.

        Before the first answer only our own code has run, which is charged while it waits for its
        turn to start. One look is no proof either: tidying up is work, and so is waiting for a busy
        processor on the way to sleep.
        """
        if child.deadline or child.mode != "session" or not child.batches:
            return False
        burned = 0.0 if child.idle_cpu is None else child.spent - child.idle_cpu
        child.idle_cpu = child.spent
        child.idle_strikes = child.idle_strikes + 1 if burned > IDLE_CPU_SECONDS else 0
        return child.idle_strikes >= IDLE_STRIKES

    def measure(self, children):
        """Sum over the processes of each program, by its number.

        Returns:
          resident bytes, those beyond the template's, and CPU seconds of all but the first process,
          with those that ended and were waited for.
        """
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
                resident, own, others = sums.get(child.number, (0, 0, 0.0))
                counted = fields[13:15] if int(name) == child.pid else fields[11:15]
                others += sum(map(int, counted)) / TICKS
                own += max(0, size - child.base_bytes)
                sums[child.number] = (resident + size, own, others)
        return sums


def first_process_seconds(pid):
    """CPU seconds of one process, by the clock that the kernel keeps for it; 0 where it is gone."""
    if pid is None:
        return 0.0
    try:
        return time.clock_gettime((~pid << 3) | 2)  # clock_getcpuclockid(3)
    except OSError:
        return 0.0
