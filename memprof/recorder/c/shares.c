#include "shares.h"
#include "recording.h"
#include "tree.h"

#define SLICE_NS 2000000      /* the longest that a poll is held up; a process is always read whole */
#define LEAST 262144          /* bytes by which resident sets have changed since the last round */
#define REFRESH_NS 500000000  /* shares are read again after this in any case, */
#define SOON_NS 50000000      /* and after this where processes have come or gone */
#define QUIET_NS 2000000      /* without a change, before a round begins */
#define PATIENCE_NS 100000000 /* the longest wait for such quiet */

static struct {
    struct budget budget;
    struct motion seen;      /* as of the last step */
    i64 moved, moving;       /* the motion of the last round's begin, and of this one's */
    i64 last_ns, changed_ns; /* when the last round ended, and a process came or went since then; 0 for not */
    i64 moved_ns, wanted_ns;
    int running;
} shares = {.budget = {0.018, 100000000, 0, 0}};

/* A round is dropped if a process came or went in it. */
static void look_for_changes(i64 now) {
    const struct motion *motion = tree_motion();
    if (!shares.last_ns) shares.last_ns = now;
    if (motion->moved != shares.seen.moved) shares.moved_ns = now;
    if (motion->changes != shares.seen.changes) {
        shares.changed_ns = now;
        if (shares.running) shares.wanted_ns = 0; /* the next one waits for quiet again */
        shares.running = 0;
    }
    shares.seen = *motion;
}

static int is_time_to_begin(i64 now) {
    int worth = (shares.seen.moved - shares.moved) * sysconf(_SC_PAGESIZE) >= LEAST || now - shares.last_ns >= REFRESH_NS
             || (shares.changed_ns && now - shares.changed_ns >= SOON_NS);
    if (!worth || !shares.wanted_ns) shares.wanted_ns = worth ? now : 0;
    if (!worth || (now - shares.moved_ns < QUIET_NS && now - shares.wanted_ns < PATIENCE_NS)) return 0;
    return budget_is_left(&shares.budget, now) && !tree_has_leaving();
}

static void tell_round(const char *what) {
    size_t at;
    for (at = 0; at < tree_count(); ++at) {
        tree_at(at)->waits = !tree_at(at)->twin;
        if (tree_at(at)->waits) process_tell_stat(tree_at(at));
    }
    line("round %l %s\n", now_ns(), what);
}

static void end_round(i64 now) {
    tell_round("end");
    shares.running = 0;
    shares.last_ns = now;
    shares.moved = shares.moving;
    shares.wanted_ns = shares.changed_ns = 0;
}

/* Read the shares of one that waits for it, the last first; 0 where none does. */
static int read_one(void) {
    char fields[FIELDS_ROOM];
    size_t at = tree_count();
    struct process *process;
    i64 now = now_ns();
    int known;
    while (at && !tree_at(at - 1)->waits) --at;
    if (!at) return 0;
    process = tree_at(at - 1);
    process->waits = 0;
    known = rollup_read(process->statm.task, fields);
    line("shares %l %l %d %s\n", now, now_ns() - now, process->pid, known ? fields : NOTHING);
    return 1;
}

void shares_step(i64 now) {
    i64 before_ns;
    look_for_changes(now);
    if (tree_count_members() < 2 || (!shares.running && !is_time_to_begin(now))) return;
    before_ns = cpu_ns();
    if (!shares.running) {
        tell_round("begin");
        shares.running = 1;
        shares.moving = shares.seen.moved;
    }
    if (!read_one()) end_round(now); /* a poll after the last one was read, when the changes meanwhile are known */
    else while (cpu_ns() - before_ns <= SLICE_NS && read_one()) {}
    budget_spend(&shares.budget, before_ns);
}
