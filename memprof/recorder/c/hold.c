#include "hold.h"
#include "procfs.h"
#include "recording.h"
#include <signal.h>

#define STOP_WITHIN_NS 2000000000 /* the first process of a PID namespace cannot stop itself */

/* stopped: the process itself, or the debugger that holds it; 0 while it still runs. */
struct held { int pid, stopped; const char *why; i64 since_ns; };

static struct { struct held *items; size_t count, room; } hold;

static struct held *of(int pid) {
    size_t at = 0;
    while (at < hold.count && hold.items[at].pid != pid) ++at;
    return at < hold.count ? &hold.items[at] : NULL;
}

static void forget(struct held *held) { *held = hold.items[--hold.count]; }

static void let_go(struct held *held) {
    kill(held->stopped ? held->stopped : held->pid, SIGCONT);
    if (held->stopped) line("continued %l %d\n", now_ns(), held->pid);
    forget(held);
}

void hold_expect(int pid, const char *why) {
    struct held held = {pid, 0, why, now_ns()};
    if (of(pid) == NULL) ADD(&hold, held);
}

void hold_stop(int pid, const char *why) {
    if (kill(pid, SIGSTOP) == 0) hold_expect(pid, why);
}

void hold_let_go(int pid) {
    struct held *held = of(pid);
    if (held != NULL && held->stopped) let_go(held);
}

int hold_is_active(void) { return hold.count > 0; }

/* The process that was stopped, 0 if none was. A debugger stops a process for moments too. */
static int stopped_for(int pid, char state) {
    struct stat_reading tracer;
    int number = state == 't' ? (int)figure_of(pid, "status", "\nTracerPid:") : 0;
    if (state == 'T') return pid;
    return number > 0 && stat_read(number, &tracer) && tracer.state == 'T' ? number : 0;
}

static void step(struct held *held, i64 now, i64 limit_ns) {
    struct stat_reading stat;
    int over = now - held->since_ns > (held->stopped ? limit_ns : STOP_WITHIN_NS) && (!held->stopped || limit_ns);
    if (!stat_read(held->pid, &stat) || stat.state == 'Z' || stat.state == 'X') {
        forget(held); /* it was ended meanwhile */
    } else if (!held->stopped && (held->stopped = stopped_for(held->pid, stat.state)) != 0) {
        held->since_ns = now;
        line("stopped %l %d %s\n", now, held->pid, held->why);
        recording_flush();
    } else if (over) {
        line("fault %l %s %d\n", now, held->stopped ? "held" : "free", held->pid);
        let_go(held);
    }
}

void hold_step(i64 now, i64 limit_ns) {
    size_t at;
    for (at = hold.count; at-- > 0;) step(&hold.items[at], now, limit_ns); /* the last one takes the place of one that is let go */
}
