/* Readings of the shares (PSS) of a tree's processes: memprof/probe/rounds.py says when one is worth its cost. */
#include "probe.h"

#define SHARE 0.018
#define ALLOWANCE_NS 100000000
#define SLICE_NS 2000000
#define WANTED 0.004
#define LEAST (256 * KIB)
#define REFRESH_NS 500000000
#define SOON_NS 50000000
#define QUIET_NS 2000000
#define PATIENCE_NS 100000000
#define PAUSE_NS 2000000
#define PAUSE_MOST_NS 64000000

void rounds_begin(struct rounds *rounds, i64 now) {
    memset(rounds, 0, sizeof *rounds);
    rounds->begin_ns = rounds->last_ns = now;
    rounds->pause_ns = PAUSE_NS;
}

static void drop(struct rounds *rounds, i64 now) {
    if (!rounds->running) return;
    rounds->running = 0;
    rounds->waiting.count = rounds->read = 0;
    rounds->pause_ns = min64(2 * rounds->pause_ns, PAUSE_MOST_NS);
    rounds->pause_until_ns = now + rounds->pause_ns;
}

void rounds_changed(struct rounds *rounds, i64 now) {
    rounds->others = now;
    drop(rounds, now);
}

void rounds_left(struct rounds *rounds, int pid, i64 now) {
    pids_add(&rounds->leaving, pid);
    rounds_changed(rounds, now);
}

i64 rounds_spread(const struct rounds *rounds, const struct sum *whole) { return sum_moved(whole) - rounds->moved; }

static int time_to_begin(struct rounds *rounds, i64 now, const struct sum *whole) {
    i64 refresh_ns = rounds->others ? SOON_NS : REFRESH_NS;
    size_t at, left = 0;
    if (sum_moved(whole) != rounds->moved_seen) {
        rounds->moved_seen = sum_moved(whole);
        rounds->moved_ns = now;
    }
    if (now - max64(rounds->last_ns, rounds->others) < refresh_ns
        && (double)sum_width(whole) < (WANTED * (double)whole->last_rss > LEAST ? WANTED * (double)whole->last_rss : LEAST)) {
        rounds->wanted_ns = 0;
        return 0;
    }
    if (!rounds->wanted_ns) rounds->wanted_ns = now;
    if (now < rounds->pause_until_ns || (now - rounds->moved_ns < QUIET_NS && now - rounds->wanted_ns < PATIENCE_NS)) return 0;
    if ((double)rounds->spent_ns > (double)(now - rounds->begin_ns) * SHARE + ALLOWANCE_NS) return 0;
    for (at = 0; at < rounds->leaving.count; ++at) {
        struct stat_of found;
        if (stat_of(rounds->leaving.items[at], &found) && !found.ended) rounds->leaving.items[left++] = rounds->leaving.items[at];
    }
    rounds->leaving.count = left;
    return left == 0;
}

int rounds_step(struct rounds *rounds, i64 now, const struct nodes *members, struct sum *whole) {
    size_t at;
    i64 begin_ns;
    int complete;
    if (!rounds->running && !time_to_begin(rounds, now, whole)) return 0;
    begin_ns = cpu_ns();
    if (!rounds->running) {
        for (at = 0; at < members->count; ++at) tree_tell_faults(members->items[at]);
        rounds->running = 1;
        rounds->waiting.count = rounds->read = 0;
        for (at = 0; at < members->count; ++at) {
            rounds->waiting.items = grown(rounds->waiting.items, rounds->waiting.count, &rounds->waiting.room, sizeof *rounds->waiting.items);
            rounds->waiting.items[rounds->waiting.count++] = members->items[at];
        }
        rounds->moved = sum_moved(whole);
        rounds->limit = max64(LEAST, max64((i64)(WANTED * (double)whole->last_rss), sum_width(whole) / 8));
    }
    complete = rounds->waiting.count == 0;
    while (rounds->waiting.count) {
        struct reading reading;
        reading.node = rounds->waiting.items[--rounds->waiting.count];
        reading.known = shares_of(reading.node->statm.task, &reading.shares);
        rounds->readings = grown(rounds->readings, rounds->read, &rounds->room, sizeof reading);
        rounds->readings[rounds->read++] = reading;
        if (cpu_ns() - begin_ns > SLICE_NS) break;
    }
    if (complete)
        for (at = 0; at < members->count; ++at) tree_tell_faults(members->items[at]);
    rounds->spent_ns += cpu_ns() - begin_ns;
    if (rounds_spread(rounds, whole) > rounds->limit) {
        drop(rounds, now);
    } else if (complete) {
        rounds->running = 0;
        rounds->last_ns = now;
        rounds->wanted_ns = rounds->others = rounds->refused = 0;
        rounds->pause_ns = PAUSE_NS;
        ++rounds->count;
        for (at = 0; at < rounds->read; ++at) rounds->refused += !rounds->readings[at].known;
        return 1;
    }
    return 0;
}
