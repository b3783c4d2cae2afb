/* The sum of some processes' resident sets as an interval: memprof/probe/sums.py says how and why. */
#include "probe.h"

#define WIDE 0.005
#define TOLD 3
#define PENDING 2000

struct sum *sum_new(void) {
    struct sum *sum = take_memory(sizeof *sum);
    return memset(sum, 0, sizeof *sum);
}

static i64 low_of(const struct row *row, const struct sum *sum) { return max64(0, row->low - (sum->copied - row->known)); }

static void bounds(const struct row *row, const struct sum *sum, i64 *low, i64 *high) {
    i64 most = min64(row->anon + row->file, row->total - row->most);
    i64 missed = row->total > row->most ? max64(row->missed, sum->missed) : 0;
    *low = row->total - most;
    *high = row->total - min64(most, low_of(row, sum)) + missed;
}

static int wide(const struct row *row, const struct sum *sum) {
    i64 low, high;
    bounds(row, sum, &low, &high);
    return row->told < TOLD && (double)(high - low) > WIDE * (double)low;
}

static void raise_low(struct row *row, const struct sum *sum, i64 low) {
    row->low = max64(low_of(row, sum), low - (sum->gained - row->gained));
    row->known = sum->copied;
}

static void narrow(struct row *row, const struct sum *sum, i64 low, i64 anon, i64 file) {
    i64 back = sum->lost - row->lost + sum->copied - row->copied, file_before = row->file;
    raise_low(row, sum, low);
    ++row->told;
    row->anon = min64(row->anon, min64(anon + back, anon + file + back));
    row->file = min64(file_before, file + back);
    if (row->total > row->most) row->missed = max64(row->missed, sum->missed);
}

static void settled(struct sum *sum, i64 t_ns, i64 low, i64 high, i64 file, i64 vms) {
    if (high != low && sum->possible.t == NULL) timeline_narrow(&sum->possible, &sum->timeline);
    timeline_add(&sum->timeline, t_ns, low, file, vms);
    if (sum->possible.t != NULL) timeline_add(&sum->possible, t_ns, high, 0, 0);
    sum->settled_ns = t_ns;
    sum->most = max64(sum->most, high);
}

static void settle(struct sum *sum, size_t count) {
    size_t at;
    for (at = 0; at < count; ++at) {
        const struct row *row = &sum->pending[at];
        i64 low, high;
        bounds(row, sum, &low, &high);
        settled(sum, row->t_ns, low, high, min64(row->total, max64(row->most_file, row->files - row->file)), row->vms);
    }
    if (count) sum->repeated = 0;
    sum->waiting -= count;
    if (count && sum->waiting) memmove(sum->pending, sum->pending + count, sum->waiting * sizeof *sum->pending);
}

i64 sum_width(const struct sum *sum) { return sum->several ? sum->anon + sum->file - sum->low : 0; }
i64 sum_moved(const struct sum *sum) { return sum->gained + sum->lost + sum->copied; }

void sum_gain(struct sum *sum, i64 certain, i64 anon, i64 file) {
    sum->low += certain;
    sum->anon += anon;
    sum->file += file;
    sum->gained += anon + file;
}

void sum_lose(struct sum *sum, i64 size, i64 known) {
    sum->low = max64(0, sum->low - known);
    sum->lost += size;
}

void sum_copy(struct sum *sum, i64 size) {
    sum->low = max64(0, sum->low - size);
    sum->copied += size;
}

void sum_flush(struct sum *sum) { settle(sum, sum->waiting); }

void sum_sample(struct sum *sum, i64 now, const struct nodes *members) {
    struct row row = {0};
    size_t at;
    for (at = 0; at < members->count; ++at) {
        const struct node *node = members->items[at];
        row.total += node->rss;
        row.files += node->file;
        row.vms += node->vms;
        row.most = max64(row.most, node->rss);
        row.most_file = max64(row.most_file, node->file);
    }
    sum->several = members->count > 1;
    sum->file = min64(sum->file, row.files - row.most_file);
    sum->anon = min64(sum->anon, row.total - row.most);
    sum->repeated = 0;
    row.t_ns = now;
    row.low = sum->low, row.anon = sum->anon, row.file = sum->file;
    row.gained = sum->gained, row.lost = sum->lost, row.copied = row.known = sum->copied;
    sum->pending = grown(sum->pending, sum->waiting, &sum->room, sizeof row);
    sum->pending[sum->waiting++] = row;
    if (!sum->several) sum_confirm(sum, 0, 0, 0), sum_flush(sum); /* no later reading can tell more of them */
    else if (sum->waiting > PENDING) settle(sum, PENDING / 2);
    sum->last_rss = sum->several ? max64(row.most, row.total - sum->anon - sum->file) : row.total;
    sum->last_file = sum->several ? max64(row.most_file, row.files - sum->file) : row.files;
    sum->last_vms = row.vms;
    sum->sampled = 1;
}

void sum_again(struct sum *sum, i64 now) {
    if (!sum->several) {
        settled(sum, now, sum->last_rss, sum->last_rss, sum->last_file, sum->last_vms);
    } else if (sum->waiting) {
        if (!sum->repeated) {
            sum->pending = grown(sum->pending, sum->waiting, &sum->room, sizeof *sum->pending);
            sum->pending[sum->waiting] = sum->pending[sum->waiting - 1];
            ++sum->waiting;
        }
        sum->pending[sum->waiting - 1].t_ns = now;
        sum->repeated = 1;
    }
}

void sum_confirm(struct sum *sum, i64 low, i64 anon, i64 file) {
    size_t at;
    for (at = 0; at < sum->waiting; ++at) narrow(&sum->pending[at], sum, low, anon, file);
    if (low <= sum->anon + sum->file && anon + file >= sum->low) { /* else what was known so far has missed something */
        low = max64(low, sum->low);
        anon = min64(anon, sum->anon);
        file = min64(file, sum->file);
    }
    sum->low = min64(low, anon + file);
    sum->anon = anon;
    sum->file = file;
    for (at = 0; at < sum->waiting && !wide(&sum->pending[at], sum); ++at) {}
    settle(sum, at);
    sum->missed = 0;
}

void sum_at_least(struct sum *sum, i64 low) {
    size_t at;
    low = min64(low, sum->anon + sum->file);
    for (at = 0; at < sum->waiting; ++at) raise_low(&sum->pending[at], sum, low);
    sum->low = max64(sum->low, low);
}

void sum_highest(const struct sum *sum, i64 begin_ns, i64 end_ns, i64 *low, i64 *high) {
    *low = timeline_highest(&sum->timeline, begin_ns, end_ns);
    *high = sum->possible.t != NULL ? timeline_highest(&sum->possible, begin_ns, end_ns) : *low;
}
