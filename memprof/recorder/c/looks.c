#include "looks.h"
#include "devices.h"
#include "recording.h"
#include "tree.h"

#define LOOK_EVERY_NS 2000000
#define SWAP_EVERY_NS 10000000

static struct {
    struct budget looks, faults, rollups;
    size_t turn, faults_turn;
} looks = {.looks = {0.007, 20000000, 0, 0}, .faults = {0.005, 5000000, 0, 0}, .rollups = {0.018, 100000000, 0, 0}};

static void look_at(struct process *process) {
    if (process_tell_stat(process) != ALIVE) return;
    if (!process->twin) process_tell_status(process);
    process_tell_command(process);
    process_list_threads(process);
}

static void look_in_turn(i64 now) {
    size_t left = tree_count();
    for (; left && budget_is_left(&looks.looks, now); --left) {
        struct process *process = tree_at(looks.turn % tree_count());
        i64 before_ns;
        if (now - process->look_ns < LOOK_EVERY_NS) return;
        before_ns = cpu_ns();
        process->look_ns = now;
        ++looks.turn;
        look_at(process);
        budget_spend(&looks.looks, before_ns);
    }
}

/* Only faults tell of pages that were copied on write, in processes that may have some in common. */
static void ask_for_faults(i64 now) {
    size_t left = tree_count();
    for (; left > 0 && budget_is_left(&looks.faults, now); --left) {
        struct process *process = tree_at(looks.faults_turn++ % tree_count());
        i64 before_ns = cpu_ns();
        if (process_has_kin(process)) process_tell_stat(process);
        budget_spend(&looks.faults, before_ns);
    }
}

void looks_turn(i64 now, int in_turn, int swap) {
    size_t at;
    if (in_turn) look_in_turn(now);
    for (at = 0; swap && at < tree_count(); ++at)
        if (!tree_at(at)->twin && now - tree_at(at)->status_ns >= SWAP_EVERY_NS) process_tell_status(tree_at(at));
    if (tree_count() > 1) ask_for_faults(now);
}

void look_closer(const char *text, size_t length, int reset, int exact) {
    const struct process *process = tree_of(tree_program());
    char status[FIELDS_ROOM], rollup[FIELDS_ROOM];
    struct stat_reading stat;
    i64 before_ns = cpu_ns(), now, took_ns, read_bytes = -1;
    int must = exact, has_status = 0, has_rollup = 0, has_stat = 0, is_reset = 0;
    tree_tell_poll();
    now = now_ns();
    if (process != NULL) {
        has_stat = stat_read(process->pid, &stat);
        has_status = status_read(process->statm.task, status);
        read_bytes = figure_of(process->pid, "io", "\nread_bytes:");
        exact |= kernel_counts_late() && budget_is_left(&looks.rollups, now);
        has_rollup = exact && rollup_read(process->statm.task, rollup);
        budget_spend(&looks.rollups, before_ns);
        is_reset = reset && reset_high_water(process->pid);
    }
    took_ns = now_ns() - now;
    devices_look(must);
    line("look %l %l %d %d ", now, took_ns, tree_program(), is_reset);
    line("%s %s ", has_status ? status : NOTHING, has_rollup ? rollup : NOTHING);
    line("%s %k %t\n", has_stat ? stat.fields : NOTHING, read_bytes, text, length);
    recording_flush();
}
