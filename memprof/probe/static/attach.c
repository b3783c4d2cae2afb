/* Polls a process that already runs: see memprof/probe/attach.py. */
#include "probe.h"

int attach(void) {
    struct memory before = exact_memory_of(m.pid), after;
    struct mark record;
    i64 rss, file, vms, end_ns, peak, low, high, started, expected;
    int alone, rose;
    m.begin_ns = now_ns();
    m.usable = usable_cpus(m.pid);
    tree_begin(m.pid, m.begin_ns, 0);
    started = started_of(m.pid);
    if (started && json_count(json_get(m.start, "attach_started"), &expected) && started != expected) {
        start_fails("RUN", formatted("process %d has ended, and its number is another process's now", m.pid));
        return 1;
    }
    if (before.rss < 0 || !tree_poll(m.begin_ns, &rss, &file, &vms)) {
        start_fails("RUN", formatted("process %d has ended, or is one of the kernel's own", m.pid));
        return 1;
    }
    m.phase = interned("RUN");
    if (!loop()) return 0;
    command_settle_all();
    end_ns = now_ns();
    after = exact_memory_of(m.pid);
    if (started_of(m.pid) != started && started_of(m.pid)) after = memory_of(0); /* of another process, which has its number since it ended */
    alone = tree.most == 1;
    rose = alone && after.hwm > before.hwm;
    peak = max64(command_highest(m.begin_ns, end_ns), max64(rose ? after.hwm : 0, alone ? max64(before.rss, after.rss) : 0));
    record = mark_seen(m.phase, m.begin_ns, end_ns, peak);
    record.exact = rose;
    record.samples = m.polls;
    record.interval_ns = interval_of("");
    record.figures[RSS_BEGIN] = before.rss;
    mark_memory_end(&record, &after);
    if (tree.most > 1) {
        sum_highest(tree.own, m.begin_ns, end_ns, &low, &high);
        record.peak = max64(peak, low);
        record.high = max64(record.peak, high);
    }
    if (after.hwm > 0) {
        record.figures[HWM] = after.hwm;
        record.figures[VMS_PEAK] = after.vms_peak;
    } else {
        warn("the process ended while it was polled");
    }
    swapped_tell(&record);
    marks_insert(0, record);
    command_words();
    return 1;
}
