/* A process and all that it starts, polled together: see memprof/probe/tree.py. */
#include "probe.h"
#include <fcntl.h>

#define LOOK_SHARE 0.007
#define FAULTS_SHARE 0.005
#define LOOK_ALLOWANCE_NS 20000000
#define FAULTS_ALLOWANCE_NS 5000000
#define READ_NS 200000
#define READ_EACH_NS 30000
#define READS 3
#define FEW (256 * KIB)
#define KEPT 1000
#define MOST_PIDS 4194304 /* PID_MAX_LIMIT in include/linux/threads.h */

struct tree tree;

static void add(int pid, struct node *above, i64 now);

/* -- sets and lists */

static int seen(int pid) { return tree.seen[pid / 8] >> pid % 8 & 1; }
static void see(int pid) { tree.seen[pid / 8] |= (unsigned char)(1 << pid % 8); }
static void unsee(int pid) { tree.seen[pid / 8] &= (unsigned char)~(1 << pid % 8); }

static void append(struct nodes *nodes, struct node *node) {
    nodes->items = grown(nodes->items, nodes->count, &nodes->room, sizeof *nodes->items);
    nodes->items[nodes->count++] = node;
}

static struct node *of(int pid) {
    size_t at;
    for (at = 0; at < tree.nodes.count; ++at)
        if (tree.nodes.items[at]->pid == pid) return tree.nodes.items[at];
    return NULL;
}

/* A node is there for the list that it stands in, and for those whose parent it is. */
static void release(struct node *node) {
    while (node != NULL && --node->references == 0) {
        struct node *above = node->above;
        free(node->children);
        free(node->kids.items);
        free(node);
        node = above;
    }
}

static int open_children(int pid) {
    char path[64];
    put(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* The sums that a process belongs to. */
static int sums_of(const struct node *node, struct sum *sums[2]) {
    sums[0] = tree.whole;
    sums[1] = tree.own;
    return node->inside && tree.own != tree.whole ? 2 : 1;
}

/* -- who there is */

static void tell_faults(struct node *node);

static void begin_to_share(struct node *node, i64 size) {
    struct stat_of found;
    if (node->shared) {
        tell_faults(node);
    } else { /* all its faults so far were its own affair */
        if (stat_of(node->pid, &found)) node->faults = found.faults;
        node->grown = 0;
    }
    node->shared = size;
}

/* A process has memory of its own from now on: by a fork, or by an exec after a vfork. */
static void begin_memory(struct node *node, struct node *parent) {
    struct stat_of stat, above;
    struct sum *sums[2];
    i64 anon, before = 0, after = 0, inherited, between, made, sure;
    size_t at, others = 0;
    int known, gone, inside = 0, index, count;
    if (!statm_read(&node->statm)) return;
    node->rss = node->statm.rss;
    node->file = node->statm.file;
    node->vms = node->statm.vms;
    node->rss_peak = max64(node->rss_peak, node->rss);
    anon = node->rss - node->file;
    known = stat_of(node->statm.task, &stat);
    if (known) {
        node->faults = stat.faults;
        node->stack = stat.stack;
    }
    if (parent != NULL) {
        int there = stat_of(parent->statm.task, &above);
        node->waited = there ? above.child_faults : 0;
        if (there) parent->stack = above.stack;
    }
    gone = parent == NULL || !statm_read(&parent->statm);
    for (at = 0; at < tree.nodes.count; ++at) {
        struct node *other = tree.nodes.items[at];
        i64 rss = 0, file = 0, most;
        if (other->twin || other == node) continue;
        ++others;
        if (!gone && other != parent) continue;
        if (known && stat.stack && other->stack != 0 && other->stack != stat.stack) continue; /* after an exec nothing of its parent is left */
        if (statm_read(&other->statm)) { /* now: it may have grown since the last poll, and then forked */
            rss = other->statm.rss;
            file = other->statm.file;
        }
        other->own = 0;
        most = max64(other->rss - other->file, rss - file);
        before = max64(before, most);
        after = max64(after, rss - file);
        begin_to_share(other, most);
        inside |= other->inside;
    }
    inherited = min64(anon, before);
    between = parent != NULL && gone ? parent->faults : 0;
    made = (node->faults + between) * page + max64(0, anon - before);
    sure = known && stat.stack ? max64(0, min64(anon, after) - made) : 0;
    node->shared = inherited;
    node->own = node->rss - sure;
    if (!others) return;
    count = sums_of(node, sums);
    for (index = 0; index < count; ++index) sum_gain(sums[index], inside || sums[index] == tree.whole ? sure : 0, inherited, node->file);
}

static void add(int pid, struct node *above, i64 now) {
    struct node *node;
    struct statm statm;
    if (pid <= 0 || pid >= MOST_PIDS) return;
    see(pid);
    if (!statm_open(&statm, pid)) {
        if (errno == EMFILE || errno == ENFILE) ++tree.unfollowed;
        else if (pid != tree.root) ++tree.unseen; /* it was listed, and has ended since */
        return;
    }
    node = take_memory(sizeof *node);
    memset(node, 0, sizeof *node);
    node->references = 1;
    node->pid = pid;
    node->statm = statm;
    node->above = above;
    if (above != NULL) {
        node->parent = above->pid;
        ++above->references;
    }
    node->begin_ns = node->end_ns = now;
    node->pss_peak = node->child_faults = -1;
    name_of(pid, node->name);
    node->inside = pid == tree.centre || (above != NULL && above->inside);
    node->descriptor = open_children(pid);
    if (above != NULL && same_memory(node->statm.task, above->statm.task)) node->twin = above->pid;
    else begin_memory(node, above);
    append(&tree.nodes, node);
    tree.members_known = 0;
    tree.changed = 1;
    rounds_changed(&tree.rounds, now);
    mappings_drop();
}

static int has(const struct pids *pids, int pid) {
    size_t at;
    for (at = 0; at < pids->count; ++at)
        if (pids->items[at] == pid) return 1;
    return 0;
}

/* `others`: children of other threads than the first. */
static void children_changed(struct node *node, i64 now, const struct pids *others) {
    struct pids kids = {0}, before = node->kids;
    size_t at;
    pids_parse(&kids, node->children, node->children_length);
    for (at = 0; others != NULL && at < others->count; ++at) pids_add(&kids, others->items[at]);
    for (at = 0; at < kids.count; ++at)
        if (!seen(kids.items[at])) add(kids.items[at], node, now);
    for (at = 0; at < before.count; ++at)
        if (!has(&kids, before.items[at])) {
            struct stat_of found;
            ++node->gone;
            /* It was waited for, and has not fallen to the reaper: its number may come again. */
            if (of(before.items[at]) == NULL && !stat_of(before.items[at], &found)) unsee(before.items[at]);
        }
    free(before.items);
    node->kids = kids;
}

/* Whether the children of a process's first thread are others than before. */
static int list(struct node *node) {
    static char text[65536];
    ssize_t length;
    if (node->descriptor < 0) return 0;
    length = pread(node->descriptor, text, sizeof text, 0);
    if (length < 0) return 0;
    if ((size_t)length == node->children_length && (length == 0 || memcmp(text, node->children, (size_t)length) == 0)) return 0;
    free(node->children);
    node->children = copy_text(text, (size_t)length);
    node->children_length = (size_t)length;
    return 1;
}

static void list_all(i64 now) {
    size_t at, count = tree.nodes.count;
    for (at = 0; at < count; ++at)
        if (list(tree.nodes.items[at])) children_changed(tree.nodes.items[at], now, NULL);
}

static void orphans(i64 now) {
    static char text[65536], before[4096];
    static size_t before_length;
    struct pids adopted = {0};
    size_t at;
    ssize_t length = pread(tree.adopted, text, sizeof text, 0);
    if (length < 0 || ((size_t)length == before_length && memcmp(text, before, before_length) == 0)) return;
    pids_parse(&adopted, text, (size_t)length);
    for (at = 0; at < adopted.count; ++at)
        if (!seen(adopted.items[at])) add(adopted.items[at], NULL, now);
    free(adopted.items);
    before_length = (size_t)length < sizeof before ? (size_t)length : 0;
    memcpy(before, text, before_length);
}

static void forget(struct node *node) {
    size_t at;
    for (at = 0; at < tree.nodes.count && tree.nodes.items[at] != node; ++at) {}
    memmove(tree.nodes.items + at, tree.nodes.items + at + 1, (--tree.nodes.count - at) * sizeof *tree.nodes.items);
    tree.members_known = 0;
    tree.changed = 1;
    statm_close(&node->statm);
    if (node->descriptor >= 0) close(node->descriptor);
    node->descriptor = -1;
}

static int larger(const void *left, const void *right) {
    i64 one = (*(struct node *const *)left)->rss_peak, other = (*(struct node *const *)right)->rss_peak;
    return one < other ? 1 : one > other ? -1 : 0;
}

static int earlier(const void *left, const void *right) {
    const struct node *one = *(struct node *const *)left, *other = *(struct node *const *)right;
    return one->begin_ns < other->begin_ns ? -1 : one->begin_ns > other->begin_ns ? 1 : one->pid - other->pid;
}

/* -- how much they have */

static void copied(struct node *node, i64 faults) {
    struct sum *sums[2];
    i64 size = max64(0, faults - node->faults), copied;
    int index, count;
    size = size > NEVER / page ? NEVER : size * page;
    if (min64(size, node->shared) > FEW && node->grown && huge_faults() == tree.huge_faults) size = max64(0, size - node->grown);
    copied = min64(size, node->shared);
    node->faults = max64(node->faults, faults);
    node->grown = 0;
    if (!copied) return;
    node->shared -= copied;
    node->own += copied;
    tree.changed = 1;
    count = sums_of(node, sums);
    for (index = 0; index < count; ++index) sum_copy(sums[index], copied);
}

static void tell_faults(struct node *node) {
    struct stat_of found;
    if (stat_of(node->pid, &found)) copied(node, found.faults);
}

void tree_tell_faults(struct node *node) { tell_faults(node); }

static i64 reaped_faults(int pid) {
    unsigned back;
    for (back = 1; back <= tree.reaped_count && back <= LENGTH(tree.reaped); ++back) {
        unsigned at = (tree.reaped_count - back) % LENGTH(tree.reaped);
        if (tree.reaped[at].pid == pid) return tree.reaped[at].faults;
    }
    return -1;
}

static void copied_at_its_end(struct node *node) {
    struct stat_of found;
    struct node *below = node;
    i64 others = 0, faults = stat_of(node->pid, &found) ? found.faults : reaped_faults(node->pid);
    for (; faults < 0 && below->above != NULL; below = below->above) {
        others += below->waited;
        if (stat_of(below->above->pid, &found)) faults = max64(found.child_faults - others, 0);
        else if (reaped_faults(below->above->pid) >= 0)
            faults = max64(reaped_faults(below->above->pid) - below->above->faults - others, 0);
        others += below->above->faults;
    }
    copied(node, faults >= 0 ? faults : (i64)1 << 40);
}

static void end(struct node *node, i64 now) {
    struct sum *sums[2];
    i64 shared;
    int index, count;
    copied_at_its_end(node);
    shared = min64(node->rss, node->shared + node->file);
    count = sums_of(node, sums);
    for (index = 0; index < count; ++index) sum_lose(sums[index], shared, min64(shared, node->rss - node->own));
    forget(node);
    rounds_left(&tree.rounds, node->pid, now);
    mappings_drop();
    if (node->samples) {
        append(&tree.ended, node);
        if (tree.ended.count > 4 * KEPT) {
            qsort(tree.ended.items, tree.ended.count, sizeof *tree.ended.items, larger);
            while (tree.ended.count > 2 * KEPT) release(tree.ended.items[--tree.ended.count]);
        }
    } else {
        if (node->pid != tree.root) ++tree.unseen; /* found only once it had ended */
        release(node);
    }
}

/* Where the last look found a higher high-water mark than any sample, that memory was there between two of them. */
static void missed(struct node *node) {
    if (node->rose && node->hwm > node->rss_peak) {
        struct sum *sums[2];
        int index, count = sums_of(node, sums);
        for (index = 0; index < count; ++index) sums[index]->missed = max64(sums[index]->missed, node->hwm - node->rss_peak);
    }
    node->rose = 0;
}

static void moved(struct node *node) {
    struct sum *sums[2];
    i64 rss = node->rss, file = node->file, grown, dropped, let_go;
    int index, count = sums_of(node, sums);
    tree.changed = 1;
    node->rss = node->statm.rss;
    node->file = node->statm.file;
    node->vms = node->statm.vms;
    node->rss_peak = max64(node->rss_peak, node->rss);
    node->own = max64(0, node->own + node->rss - rss);
    node->grown += max64(0, node->rss - node->file - rss + file);
    grown = max64(0, node->file - file);
    dropped = max64(0, file - node->file);
    let_go = min64(max64(0, rss - file - node->rss + node->file), node->shared);
    node->shared -= let_go;
    for (index = 0; index < count; ++index) {
        if (grown) sum_gain(sums[index], 0, 0, grown);
        if (dropped || let_go) sum_lose(sums[index], dropped + let_go, dropped + let_go);
    }
}

static void poll_one(struct node *node, i64 now) {
    if (node->twin) {
        struct node *twin = of(node->twin);
        if (twin == NULL || !same_memory(node->statm.task, twin->statm.task)) {
            node->twin = 0;
            tree.members_known = 0;
            begin_memory(node, twin);
        }
    }
    if (!statm_read(&node->statm)) {
        missed(node);
        end(node, now);
        return;
    }
    node->end_ns = now;
    ++node->samples;
    if (!node->twin && (node->rss != node->statm.rss || node->file != node->statm.file || node->vms != node->statm.vms)) moved(node);
    missed(node);
}

static void sample_one(struct sum *sum, i64 now) {
    static struct nodes inside;
    const struct nodes *members = &tree.members;
    int before = sum->several;
    size_t at;
    if (sum != tree.whole) {
        inside.count = 0;
        for (at = 0; at < tree.members.count; ++at)
            if (tree.members.items[at]->inside) append(&inside, tree.members.items[at]);
        members = &inside;
    }
    if (!members->count) return;
    if (tree.changed || !sum->sampled) sum_sample(sum, now, members);
    else sum_again(sum, now);
    if (sum != tree.own || !sum->several) return;
    if (!before) {
        if (tree.stretch_count == LENGTH(tree.stretches))
            memmove(tree.stretches, tree.stretches + 1, --tree.stretch_count * sizeof *tree.stretches);
        tree.stretches[tree.stretch_count++].begin_ns = now;
    }
    tree.stretches[tree.stretch_count - 1].end_ns = now;
}

static void sample(i64 now) {
    sample_one(tree.whole, now);
    if (tree.own != tree.whole) sample_one(tree.own, now);
    tree.changed = 0;
}

static void confirm(struct sum *sum, i64 overlap, i64 file, i64 unread, i64 beside) {
    i64 spread = rounds_spread(&tree.rounds, tree.whole);
    sum_confirm(sum, max64(0, overlap - spread - beside), overlap - file + unread + spread, file + spread);
}

/* A round of shares is complete, and nobody has come or gone since it began. */
static void confirm_all(void) {
    i64 overlap = 0, file = 0, unread = 0, beside = 0, own_overlap = 0, own_file = 0, own_unread = 0;
    size_t at;
    tree.changed = 1;
    for (at = 0; at < tree.rounds.read; ++at) {
        const struct reading *reading = &tree.rounds.readings[at];
        struct node *node = reading->node;
        i64 both;
        if (!reading->known) {
            unread += node->rss;
            own_unread += node->inside ? node->rss : 0;
            continue;
        }
        node->pss_peak = max64(node->pss_peak, reading->shares.pss);
        node->shared = reading->shares.shared_anon;
        node->own = reading->shares.private_;
        both = max64(0, reading->shares.rss - reading->shares.pss);
        overlap += both;
        file += min64(both, reading->shares.file_overlap);
        if (node->inside) {
            own_overlap += both;
            own_file += min64(both, reading->shares.file_overlap);
        } else {
            beside += both;
        }
    }
    confirm(tree.whole, overlap, file, unread, 0);
    if (tree.own != tree.whole && tree.own->several) confirm(tree.own, own_overlap, own_file, own_unread, beside + unread - own_unread);
}

/* -- what costs more */

static void ask_for_faults(i64 now) {
    double allowed = (double)(now - tree.begin_ns) * FAULTS_SHARE + FAULTS_ALLOWANCE_NS;
    size_t at, sharing = 0, turn;
    for (at = 0; at < tree.nodes.count; ++at) sharing += tree.nodes.items[at]->shared > 0;
    for (turn = 0; turn < sharing; ++turn) {
        i64 begin_ns = cpu_ns();
        if ((double)tree.faults_ns > allowed) return;
        for (at = 0; at < tree.nodes.count; ++at) {
            struct node *node = tree.nodes.items[++tree.faults_turn % tree.nodes.count];
            if (!node->shared) continue;
            tell_faults(node);
            break;
        }
        tree.faults_ns += cpu_ns() - begin_ns;
    }
}

/* Of processes that were forked and have not exec'd since, swapped pages may be the same: the most counts. */
static void tell_swapped(i64 now, i64 rss, int threads) {
    i64 swap = 0;
    size_t at, other, inside = 0;
    for (at = 0; at < tree.nodes.count; ++at) {
        const struct node *node = tree.nodes.items[at];
        int counts = 1;
        if (!node->inside || node->twin) continue;
        ++inside;
        for (other = 0; other < tree.nodes.count && counts; ++other) {
            const struct node *kin = tree.nodes.items[other];
            if (kin == node || !kin->inside || kin->twin || kin->stack_seen != node->stack_seen) continue;
            counts = node->swap > kin->swap || (node->swap == kin->swap && at < other);
        }
        if (counts) swap += node->swap;
    }
    swapped_take(now, inside > 1 && tree.own->sampled ? tree.own->last_rss : rss, swap, threads);
}

static void look_at(struct node *node, i64 now) {
    struct stat_of stat;
    struct pids others = {0}, first = {0}, all = {0};
    int changed;
    size_t at;
    if (!stat_of(node->pid, &stat) || stat.ended) return;
    memcpy(node->name, stat.name, sizeof node->name);
    if (!node->twin) {
        i64 read_ns = now_ns(), hwm;
        struct memory memory = memory_of(node->statm.task);
        hwm = max64(memory.hwm, 0);
        node->rose = node->hwm > 0 && hwm > node->hwm;
        node->hwm = max64(node->hwm, hwm);
        if (node->inside && memory.rss >= 0) {
            node->swap = max64(memory.swap, 0);
            node->stack_seen = stat.stack;
            tell_swapped(read_ns, memory.rss, stat.threads);
        }
    }
    if (!node->command[0] || node->samples < 100) {
        char command[sizeof node->command];
        command_of(node->pid, command, 201);
        if (command[0]) memcpy(node->command, command, sizeof command);
    }
    changed = list(node);
    if (stat.threads > 1 || node->descriptor < 0) {
        pids_parse(&first, node->children, node->children_length);
        children_of(&all, node->pid);
        for (at = 0; at < all.count; ++at)
            if (!has(&first, all.items[at])) {
                pids_add(&others, all.items[at]);
                changed |= !has(&node->kids, all.items[at]);
            }
        for (at = 0; at < node->kids.count; ++at)
            changed |= !has(&first, node->kids.items[at]) && !has(&others, node->kids.items[at]);
    }
    if (changed) children_changed(node, now, &others);
    free(first.items);
    free(all.items);
    free(others.items);
    if (node->child_faults >= 0 && stat.child_faults > node->child_faults) {
        if (node->gone) node->gone = 0;
        else ++tree.unseen;
    }
    node->child_faults = stat.child_faults;
}

/* Look closer at as many processes as their share of the time allows, in turn. */
static void look(i64 now) {
    double allowed = (double)(now - tree.begin_ns) * LOOK_SHARE + LOOK_ALLOWANCE_NS;
    size_t turn, count = tree.nodes.count;
    for (turn = 0; turn < count; ++turn) {
        i64 begin_ns = cpu_ns();
        if ((double)tree.look_ns > allowed) return;
        look_at(tree.nodes.items[++tree.turn % count], now);
        tree.look_ns += cpu_ns() - begin_ns;
    }
}

/* -- what others ask */

void tree_begin(int root, i64 now, int reaper) {
    memset(&tree, 0, sizeof tree);
    tree.root = tree.centre = root;
    tree.begin_ns = now;
    tree.seen = zeros(MOST_PIDS / 8);
    tree.huge_faults = huge_faults();
    tree.whole = tree.own = sum_new();
    rounds_begin(&tree.rounds, now);
    mappings_begin(now);
    tree.adopted = reaper ? open_children(reaper) : -1;
    add(root, NULL, now);
}

static struct sum *history(void) {
    struct sum *sum = sum_new();
    i64 anon = 0, file = 0;
    size_t at;
    for (at = 0; at < tree.nodes.count; ++at) {
        const struct node *node = tree.nodes.items[at];
        if (!node->inside || node->twin) continue;
        anon += node->rss - node->file;
        file += node->file;
    }
    sum_gain(sum, 0, anon, file);
    return sum;
}

static void drop(struct sum *sum) {
    timeline_free(&sum->timeline);
    timeline_free(&sum->possible);
    free(sum->pending);
    free(sum);
}

void tree_measure(int pid, int alone) {
    size_t at;
    struct sum *before = tree.own;
    tree.centre = pid;
    tree.stretch_count = 0;
    tree.changed = 1;
    for (at = 0; at < tree.nodes.count; ++at) {
        struct node *node = tree.nodes.items[at], *above = node;
        while (above != NULL && above->pid != pid) above = above->parent ? of(above->parent) : NULL;
        node->inside = above != NULL;
    }
    if (alone) {
        tree.root = pid;
        while (tree.ended.count) release(tree.ended.items[--tree.ended.count]);
        tree.most = tree.unseen = 0;
        rounds_changed(&tree.rounds, now_ns());
        for (at = tree.nodes.count; at-- > 0;) {
            struct node *node = tree.nodes.items[at];
            if (node->inside) continue;
            forget(node);
            release(node);
        }
        see(pid);
        if (tree.adopted >= 0) close(tree.adopted);
        tree.adopted = -1;
        if (before != tree.whole) drop(before);
        drop(tree.whole);
        before = tree.whole = history();
    }
    tree.own = tree.centre == tree.root ? tree.whole : history();
    if (before != tree.whole && before != tree.own) drop(before);
}

int tree_had_others(i64 begin_ns, i64 end_ns) {
    size_t at;
    for (at = 0; at < tree.stretch_count; ++at)
        if (tree.stretches[at].begin_ns <= end_ns && tree.stretches[at].end_ns >= begin_ns) return 1;
    return 0;
}

void tree_add(int pid, i64 now) {
    if (of(pid) == NULL && !seen(pid)) add(pid, NULL, now);
}

int tree_poll(i64 now, i64 *rss, i64 *file, i64 *vms) {
    int late = 1, again;
    size_t at;
    list_all(now);
    if (tree.adopted >= 0) orphans(now);
    look(now);
    for (again = 0; late && again < READS; ++again) {
        now = now_ns();
        for (at = 0; at < tree.nodes.count;) {
            const struct node *node = tree.nodes.items[at];
            poll_one(tree.nodes.items[at], now);
            if (at < tree.nodes.count && tree.nodes.items[at] == node) ++at; /* else it has ended, and the next stands here */
        }
        late = now_ns() - now > READ_NS + (i64)tree.nodes.count * READ_EACH_NS;
    }
    if (!tree.nodes.count) return 0;
    if (!(late && tree.nodes.count == 1 && tree.whole->sampled)) {
        tree.most = max64(tree.most, (i64)tree.nodes.count);
        if (tree.nodes.count > 1) ask_for_faults(now);
        if (!tree.members_known) {
            tree.members.count = 0;
            for (at = 0; at < tree.nodes.count; ++at)
                if (!tree.nodes.items[at]->twin) append(&tree.members, tree.nodes.items[at]);
            tree.members_known = 1;
        }
        sample(now);
        if (tree.members.count > 1 && rounds_step(&tree.rounds, now, &tree.members, tree.whole)) confirm_all();
        if (tree.members.count > 1 && mappings_step(now, &tree.members, tree.whole)) {
            tree.changed = 1;
            mappings_confirm(tree.whole, tree.own);
        }
    }
    *rss = tree.whole->last_rss;
    *file = tree.whole->last_file;
    *vms = tree.whole->last_vms;
    return 1;
}

void tree_settle(void) {
    sum_flush(tree.whole);
    sum_flush(tree.own);
}

void tree_reaped(int pid, i64 faults) {
    if (pid <= 0 || pid >= MOST_PIDS) return;
    if (!seen(pid)) ++tree.unseen;
    else if (of(pid) == NULL) unsee(pid);
    tree.reaped[tree.reaped_count % LENGTH(tree.reaped)].pid = pid;
    tree.reaped[tree.reaped_count++ % LENGTH(tree.reaped)].faults = faults;
}

static const struct node *known(int pid) {
    const struct node *node = of(pid);
    size_t at;
    for (at = 0; node == NULL && at < tree.ended.count; ++at)
        if (tree.ended.items[at]->pid == pid) node = tree.ended.items[at];
    return node;
}

i64 tree_high_water(int pid) { return known(pid) != NULL ? known(pid)->hwm : 0; }
const char *tree_called(int pid) { return known(pid) != NULL ? known(pid)->name : ""; }

void out_processes(void) {
    struct nodes all = {0};
    size_t at;
    int first = 1;
    for (at = 0; at < tree.ended.count; ++at) append(&all, tree.ended.items[at]);
    for (at = 0; at < tree.nodes.count; ++at) append(&all, tree.nodes.items[at]);
    if (all.count > KEPT) {
        qsort(all.items, all.count, sizeof *all.items, larger);
        all.count = KEPT;
    }
    if (all.count) qsort(all.items, all.count, sizeof *all.items, earlier);
    out("[");
    for (at = 0; at < all.count; ++at) {
        const struct node *node = all.items[at];
        if (!node->samples) continue;
        out("%s{\"pid\":%d,\"name\":", first ? "" : ",", node->pid);
        out_text(node->name);
        out(",\"begin_ns\":%lld,\"end_ns\":%lld,\"rss_peak_bytes\":%lld,\"command\":", (long long)node->begin_ns, (long long)node->end_ns,
            (long long)max64(node->rss_peak, node->hwm));
        out_text(node->command);
        out(",\"samples\":%d", node->samples);
        if (node->parent) out(",\"parent\":%d", node->parent);
        if (node->pss_peak >= 0) out(",\"pss_peak_bytes\":%lld", (long long)node->pss_peak);
        out("}");
        first = 0;
    }
    out("]");
    free(all.items);
}
