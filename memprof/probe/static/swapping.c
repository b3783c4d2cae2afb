/* What was swapped out, phase by phase, and how many threads there were: see memprof/probe/swapping.py. */
#include "probe.h"

#define EVERY_NS 10000000

/* Its rss is the sum of resident and swapped pages of one moment, its file the swapped ones. */
static struct timeline readings;
static i64 next_ns;
static int wanted = -1;

int swapped_threads = 1;

void swapped_look(int pid, i64 now) {
    struct memory memory;
    int threads;
    if (wanted < 0) wanted = has_swap() || late_by_thread();
    if (!wanted || now < next_ns) return;
    next_ns = now + EVERY_NS;
    memory = memory_and_threads(pid, &threads);
    if (memory.rss >= 0 && !is_late(now)) swapped_take(now, memory.rss, max64(memory.swap, 0), threads);
}

void swapped_take(i64 now, i64 rss, i64 swap, int threads) {
    if (threads > swapped_threads) swapped_threads = threads;
    if (swap || readings.count) timeline_add(&readings, now, rss + swap, swap, 0);
}

i64 swapped_newest(void) { return readings.count ? readings.last_file : 0; }

void swapped_forget(void) {
    timeline_free(&readings);
    swapped_threads = 1;
}

void swapped_tell(struct mark *mark) {
    i64 end = max64(mark->figures[SWAP_END], 0), most = max64(end, timeline_highest_file(&readings, mark->begin_ns, mark->end_ns));
    if (!most) return;
    mark->swap_peak = most;
    mark->both_peak = max64(mark->peak, max64(max64(mark->figures[RSS_END], 0) + end,
                                              timeline_highest(&readings, mark->begin_ns, mark->end_ns)));
}

void swapped_merge(struct mark *record, const struct mark *before) {
    if (!record->swap_peak && !before->swap_peak) return;
    record->both_peak = max64(record->swap_peak ? record->both_peak : record->peak, before->swap_peak ? before->both_peak : before->peak);
    record->swap_peak = max64(record->swap_peak, before->swap_peak);
}

void out_swapped(void) {
    if (readings.count) out_swap(&readings);
}
