#include "reaper.h"
#include "recording.h"
#include "tree.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define ORPHANS_NS 200000000
#define KILL_NS 2000000000 /* a killed process ends within this, unless it may not be killed */

static struct { int status, sweeps; } reaper = {-1, 0};

static void tell_of(const char *kind, int pid) {
    char name[NAME_ROOM];
    name_of(pid, name);
    line("%s %l %d %e\n", kind, now_ns(), pid, name);
}

static i64 time_ns(struct timeval time) { return (i64)time.tv_sec * 1000000000 + (i64)time.tv_usec * 1000; }

int reaper_reap(int root) {
    for (;;) {
        struct rusage used;
        siginfo_t ended;
        int status, pid;
        memset(&ended, 0, sizeof ended);
        if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) < 0) return 0;
        pid = ended.si_pid;
        if (!pid) return 1;
        tree_end(pid);
        if (reaper.sweeps && pid != root) tell_of("left", pid);
        if (wait4(pid, &status, 0, &used) < 0) return 0;
        line("ended %l %d %d %l %l ", now_ns(), pid, status, (i64)used.ru_minflt, (i64)used.ru_majflt);
        line("%l %l\n", time_ns(used.ru_utime) + time_ns(used.ru_stime), (i64)used.ru_maxrss);
        recording_flush();
        if (pid == root) reaper.status = status;
    }
}

int reaper_status(void) { return reaper.status; }

/* 0 where that may not be, because it has become another user's. */
static int put_to_end(int pid) { return kill(pid, SIGKILL) == 0 || errno != EPERM; }

/* Put all children to their end; whether there are any, and all refuse: they are in the list then. */
static int all_refuse(struct pids *pids) {
    size_t at, refused = 0;
    children_of(pids, getpid());
    for (at = 0; at < pids->count; ++at) refused += !put_to_end(pids->items[at]);
    return refused && refused == pids->count;
}

void reaper_kill(int root) {
    struct pids pids = {0};
    i64 end_ns = now_ns() + KILL_NS;
    kill(-root, SIGKILL);
    all_refuse(&pids);
    free(pids.items);
    while (reaper_reap(root) && reaper.status < 0 && (now_ns() <= end_ns || put_to_end(root))) usleep(1000); /* else the sweep reports it */
}

void reaper_sweep(int root, int patient) {
    struct pids pids = {0};
    i64 end_ns = now_ns() + ORPHANS_NS;
    int refuse = 0;
    size_t at;
    while (patient && now_ns() < end_ns && reaper_reap(root)) usleep(2000);
    reaper.sweeps = 1;
    kill(-root, SIGKILL);
    while (!refuse && reaper_reap(root)) {
        refuse = all_refuse(&pids);
        usleep(1000);
    }
    for (at = 0; refuse && at < pids.count; ++at) tell_of("refused", pids.items[at]);
    free(pids.items);
}
