/* Reads the order, starts or attaches, records: see base.h. */
#include "group.h"
#include "kills.h"
#include "loop.h"
#include "output.h"
#include "pagecache.h"
#include "procfs.h"
#include "reaper.h"
#include "recording.h"
#include "tree.h"
#include "watch.h"
#include <signal.h>
#include <sys/prctl.h>

/* Start the program and follow it; 0 where memprof ended it. */
static int follow(const struct order *order, const char *early, size_t early_length) {
    struct child child;
    int recorded = 1;
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); /* orphans of the tree fall to this process */
    pagecache_prepare(&order->file, order->cache, (int)order->drop);
    kills_begin();
    if (launch(order, &child)) {
        recording_flush();
        tree_begin(child.pid, 1, (int)order->tree);
        recorded = loop_run(order, &child, early, early_length);
        if (recorded && (reaper_status() == SIGKILL || reaper_status() == (128 + SIGKILL) << 8)) kills_tell(); /* the second by a shell */
        reaper_sweep(child.pid, recorded && !loop_was_limited());
        group_tell(0);
        loop_tell_rest();
    }
    group_remove();
    return recorded;
}

static int refuse(const char *step, int reason, const char *what) {
    line("error %l %s %d - %e\n", now_ns(), step, reason, what);
    return 1;
}

/* Look at a process that already runs, and its descendants, without touching them: no signal, no reset of a high-water mark, no child. */
static int attach(const struct order *order, const char *early, size_t early_length) {
    struct child child = {(int)order->pid, -1, -1, -1, 0};
    struct stat_reading stat;
    char number[24];
    int reason;
    add_int(number, order->pid);
    child.begin_ns = begin_tell(cpus_of(child.pid));
    watch_begin(&order->watch);
    tree_begin(child.pid, 0, (int)order->tree); /* what is open from here on is this process's, or an earlier one's */
    if (order->started && stat_read(child.pid, &stat) && stat.started != order->started) return refuse("reused", ESRCH, number);
    if (tree_of(child.pid) == NULL) return refuse("gone", ESRCH, number);
    reason = order->log != NULL ? log_open(order->log) : 0;
    if (reason) return refuse("log", reason, order->log);
    line("start %l %d\n", now_ns(), child.pid);
    recording_flush();
    if (!loop_run(order, &child, early, early_length)) return 0;
    watch_tell();
    loop_tell_rest();
    return 1;
}

int main(void) {
    const struct order *order;
    const char *reason, *early;
    size_t early_length;
    int recorded, filled = 0; /* a number below 3 that is free would be that of what is opened first */
    while (filled >= 0 && filled < 3) filled = open("/dev/null", O_RDONLY | O_CLOEXEC);
    order = order_read(&reason, &early, &early_length);
    if (order == NULL) {
        if (write(2, "not understood: ", 16) < 0 || write(2, reason, strlen(reason)) < 0 || write(2, "\n", 1) < 0) { /* nobody listens */ }
        return 2;
    }
    loop_begin();
    line("recording 1 %l %l c\n", (i64)sysconf(_SC_PAGESIZE), (i64)sysconf(_SC_CLK_TCK));
    recorded = (order->pid ? attach : follow)(order, early, early_length);
    if (recorded) line("end %l\n", now_ns());
    recording_flush();
    return recorded && loop_finish(order->silence) ? 0 : 3;
}
