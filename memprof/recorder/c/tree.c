#include "tree.h"
#include "recording.h"
#include "watch.h"

#define READ_NS 200000
#define READ_EACH_NS 30000 /* a poll that took longer was held up: a process may be in its next phase by then */
#define READS 3            /* such a poll is repeated, at most this often in all */
#define FAULTS 64          /* so many new faults may tell of huge pages */
#define MOST_PIDS 4194304  /* PID_MAX_LIMIT in include/linux/threads.h */
#define MOST_LEAVING 256
#define MOST_NAMED 64
#define LIST_ROOM 65536

static struct {
    struct process **items;
    size_t count, room;
    int first, lists, told, owes;      /* told: whether the newest poll has a line; owes: whether one of the next is due */
    i64 t_ns, took_ns, last_ns, polls; /* of the newest poll */
    struct listing orphans;            /* the reaper's children */
    struct pids named, leaving;        /* by marks, the first of them; without memory, but perhaps not given back */
    struct pids members;               /* of the control group that is looked at, as they were read last */
    int huge_watched;
    i64 huge; /* as it was written last */
    struct motion motion;
} tree;

static unsigned char seen[MOST_PIDS / 8]; /* a bit a process id: it was listed, and has been dealt with */

static int is_seen(int pid) { return pid <= 0 || pid >= MOST_PIDS || seen[pid / 8] >> pid % 8 & 1; }
static void see(int pid) { seen[pid / 8] |= (unsigned char)(1 << pid % 8); }
static void unsee(int pid) { seen[pid / 8] &= (unsigned char)~(1 << pid % 8); }

/* -- readings */
static void tell_huge(void) {
    i64 count = huge_faults();
    if (tree.huge_watched && count == tree.huge) return;
    tree.huge_watched = 1;
    tree.huge = count;
    line("huge %l %k\n", now_ns(), count);
}

enum life process_tell_stat(struct process *process) {
    struct stat_reading stat;
    i64 now = now_ns();
    if (!stat_read(process->pid, &stat)) return UNREADABLE;
    if (process->moved || strcmp(stat.fields, process->stat.fields) != 0 || strcmp(stat.name, process->stat.name) != 0) {
        if (tree.huge_watched && stat.faults - process->stat.faults >= FAULTS) tell_huge();
        line("stat %l %d %s %e\n", now, process->pid, stat.fields, stat.name);
        process->stat = stat;
        process->moved = 0;
    }
    return stat_is_over(&stat) ? OVER : ALIVE;
}

void process_tell_status(struct process *process) {
    char fields[FIELDS_ROOM];
    i64 now = process->status_ns = now_ns(), took_ns;
    if (!status_read(process->statm.task, fields) || strcmp(fields, process->status) == 0) return;
    took_ns = now_ns() - now;
    add_text(process->status, fields);
    line("status %l %l %d %s\n", now, took_ns, process->pid, fields);
}

void process_tell_command(struct process *process) {
    char command[COMMAND_ROOM];
    /* An exec changes both. */
    if (process->command_stack == process->stat.stack && strcmp(process->command_name, process->stat.name) == 0) return;
    command_of(process->pid, command);
    if (!*command) return;
    process->command_stack = process->stat.stack;
    add_text(process->command_name, process->stat.name);
    if (strcmp(command, process->command) == 0) return;
    add_text(process->command, command);
    line("command %l %d %e\n", now_ns(), process->pid, command);
}

int process_has_kin(const struct process *process) {
    size_t at;
    for (at = 0; at < tree.count; ++at)
        if (tree.items[at] != process && tree.items[at]->stat.stack == process->stat.stack) return 1;
    return 0;
}

/* -- new processes */
/* What was read of its statm is written. */
static void take_statm(struct process *process) {
    add_text(process->pages, process->statm.fields);
    process->resident = process->statm.resident;
    process->shared = process->statm.shared;
}

/* It has come or gone, or has memory of its own from now on: its whole memory counts as changed. */
static void turn(const struct process *process) {
    tree.owes = 1;
    ++tree.motion.changes;
    tree.motion.moved += process->resident;
    tree.motion.moved_shared += process->shared;
}

/* Write that it was found, with all that must be read at once. */
static void tell_process(struct process *process, struct process *parent) {
    struct stat_reading of_parent;
    i64 now = now_ns(), took_ns;
    int has_memory = statm_read(&process->statm), has_stat = stat_read(process->pid, &process->stat);
    int parent_memory = parent != NULL && statm_read(&parent->statm), parent_stat = parent != NULL && stat_read(parent->pid, &of_parent);
    if (parent != NULL && same_memory(process->statm.task, parent->statm.task)) process->twin = parent->pid;
    took_ns = now_ns() - now;
    take_statm(process);
    line("process %l %l %d %d %d ", now, took_ns, process->pid, process->parent, process->twin != 0);
    line("%s %s ", has_memory ? process->pages : NOTHING, has_stat ? process->stat.fields : NOTHING);
    line("%s %s ", parent_memory ? parent->statm.fields : NOTHING, parent_stat ? of_parent.fields : NOTHING);
    line("%e\n", process->stat.name);
}

/* Whether two more files can be opened: the list of a process's children, and what is read of all. */
static int has_room(void) {
    int one = dup(1), other = dup(1);
    if (one >= 0) close(one);
    if (other >= 0) close(other);
    return other >= 0;
}

static void add(int pid, struct process *parent, int is_ours) {
    struct process *process;
    struct statm statm;
    int there, full;
    if (is_seen(pid)) return;
    tree_tell_poll(); /* the readings of now are not those of that time */
    see(pid);
    there = statm_open(&statm, pid);
    full = there ? !has_room() : errno == EMFILE || errno == ENFILE;
    if (!there || full || (!is_ours && !statm_read(&statm))) {
        line("missed %l %d %s\n", now_ns(), pid, full ? "files" : "ended");
        if (there) statm_close(&statm);
        return;
    }
    process = memset(take_memory(sizeof *process), 0, sizeof *process);
    process->pid = pid;
    process->parent = parent != NULL ? parent->pid : 0;
    process->devices.used = parent != NULL && parent->devices.used;
    process->statm = statm;
    tell_process(process, parent);
    process->listing.descriptor = children_open(pid, pid);
    ADD(&tree, process);
    if (tree.count == 2) tell_huge();
    turn(process);
}

void tree_begin(int pid, int is_ours, int lists) {
    tree.first = pid;
    tree.lists = lists;
    tree.orphans.descriptor = lists && is_ours ? children_open(getpid(), getpid()) : -1;
    add(pid, NULL, is_ours);
}

/* Write the processes above one, up to the recorder or one that is known; whether it belongs to the tree. Where one between has just
 * ended, those below it have another parent by then. */
static int tell_lineage(int pid) {
    struct pids above = {0};
    struct stat_reading stat;
    int tries, next, found = 0, known = 0;
    size_t at;
    for (tries = 0; tries < READS && !found; ++tries) {
        above.count = 0;
        for (next = pid; next && !known && (found = stat_read(next, &stat));) {
            next = stat.parent;
            ADD(&above, next); /* 0 is above the first process of all */
            known = next && (next == getpid() || tree_of(next) != NULL);
        }
    }
    line("lineage %l %d", now_ns(), pid);
    for (at = 0; at < above.count; ++at) line(" %d", above.items[at]);
    line("\n");
    free(above.items);
    return known;
}

void tree_add_named(int pid) {
    static int stranger; /* the newest that does not belong to the tree */
    if (pid <= 0 || pid >= MOST_PIDS || pid == stranger || pids_have(&tree.named, pid)) return;
    if (!is_seen(pid)) tree_list();
    if (!is_seen(pid) && !tell_lineage(pid)) {
        stranger = pid;
        return;
    }
    if (tree.named.count) tree_tell_poll(), tree_read(); /* the process whose marks came before may have ended: then this one takes over */
    add(pid, NULL, 0);
    if (tree.named.count < MOST_NAMED) ADD(&tree.named, pid);
}

int tree_program(void) {
    size_t at;
    for (at = 0; at < tree.named.count; ++at)
        if (tree_of(tree.named.items[at]) != NULL) return tree.named.items[at];
    return tree.first;
}

/* -- who is listed */
static void take_listed(struct process *parent, const struct pids *now, struct pids *before) {
    struct stat_reading stat;
    size_t at;
    for (at = 0; at < now->count; ++at) add(now->items[at], parent, 0);
    for (at = 0; at < before->count; ++at) {
        int pid = before->items[at];
        /* If it was waited for, and has not fallen to the reaper, its number may come again. */
        if (!pids_have(now, pid) && tree_of(pid) == NULL && !stat_read(pid, &stat)) unsee(pid);
    }
    free(before->items);
    *before = *now;
}

/* Read a list again, and take it if it is another than before. process: whose children it has, NULL for the reaper's. */
static void list(struct listing *listing, struct process *process) {
    static char text[LIST_ROOM];
    ssize_t length = pread(listing->descriptor, text, sizeof text, 0);
    struct pids kids = {0};
    size_t at;
    if (length < 0 || ((size_t)length == listing->length && (!length || memcmp(text, listing->text, listing->length) == 0))) return;
    free(listing->text);
    listing->length = (size_t)length;
    listing->text = memcpy(take_memory(listing->length), text, listing->length);
    pids_parse(&kids, text, listing->length);
    for (at = 0; process == NULL && at < kids.count; ++at) add(kids.items[at], NULL, 0);
    if (process != NULL) take_listed(process, &kids, &process->kids);
    else free(kids.items);
}

void tree_list(void) {
    struct pids members = {0};
    size_t at;
    if (tree.lists) list(&tree.orphans, NULL);
    for (at = 0; tree.lists && at < tree.count; ++at) list(&tree.items[at]->listing, tree.items[at]); /* those that are found come last */
    if (watch_members(now_ns(), &members)) take_listed(NULL, &members, &tree.members);
}

void process_list_threads(struct process *process) {
    struct pids kids = {0};
    if (!tree.lists || (process->stat.threads <= 1 && process->listing.descriptor >= 0)) return;
    children_of(&kids, process->pid);
    take_listed(process, &kids, &process->kids);
}

/* -- who goes */
/* No memory is left of it. Those above it may hold pages that it shared, and tell of its faults if they have waited for it. */
static void tell_gone(struct process *process) {
    struct process *above = tree_of(process->parent);
    size_t at = 0;
    if (statm_is_there(&process->statm)) process_tell_stat(process);
    for (; above != NULL; above = tree_of(above->parent)) process_tell_stat(above);
    line("gone %l %d\n", now_ns(), process->pid);
    if (tree.leaving.count == MOST_LEAVING) tree_has_leaving();
    if (tree.leaving.count < MOST_LEAVING) ADD(&tree.leaving, process->pid);
    turn(process);
    while (tree.items[at] != process) ++at;
    memmove(tree.items + at, tree.items + at + 1, (--tree.count - at) * sizeof *tree.items);
    for (at = 0; at < tree.count; ++at) /* if they end unseen, those above their parent tell of it */
        if (tree.items[at]->parent == process->pid) tree.items[at]->parent = process->parent;
    statm_close(&process->statm);
    if (process->listing.descriptor >= 0) close(process->listing.descriptor);
    free(process->listing.text);
    free(process->kids.items);
    free(process->devices.links.items);
    free(process->devices.mapped.items);
    free(process);
}

void tree_end(int pid) {
    struct process *process = tree_of(pid);
    struct stat_reading stat;
    tree_tell_poll();
    if (process != NULL) tell_gone(process);
    else if (stat_read(pid, &stat)) line("stat %l %d %s %e\n", now_ns(), pid, stat.fields, stat.name);
    if (pid < MOST_PIDS) unsee(pid); /* its number may come again */
}

/* -- statm of all */
static void separate(struct process *process) {
    i64 now = now_ns(), took_ns;
    int has_memory = statm_read(&process->statm), has_stat = stat_read(process->pid, &process->stat);
    took_ns = now_ns() - now;
    if (!has_memory) return; /* it has ended without an exec */
    process->twin = 0;
    take_statm(process);
    line("separate %l %l %d %s %s\n", now, took_ns, process->pid, process->pages, has_stat ? process->stat.fields : NOTHING);
    turn(process);
}

static void read_all(void) {
    size_t at = 0;
    while (at < tree.count) {
        struct process *process = tree.items[at];
        const struct process *twin = process->twin ? tree_of(process->twin) : NULL;
        if (process->twin && (twin == NULL || !same_memory(process->statm.task, twin->statm.task))) separate(process);
        if (statm_read(&process->statm)) ++at;
        else tell_gone(process); /* and the next stands in its place */
    }
}

/* Write the line of the newest poll. If it comes later than the poll, nothing had changed. */
static void tell_poll(int changed) {
    size_t at;
    tree.told = 1;
    tree.owes = 0;
    line(". %l %l %l %l", tree.t_ns, tree.took_ns, tree.last_ns, tree.polls);
    for (at = 0; changed && at < tree.count; ++at) {
        struct process *process = tree.items[at];
        if (strcmp(process->statm.fields, process->pages) == 0) continue;
        if (!process->twin) {
            tree.motion.moved += llabs(process->statm.resident - process->resident);
            tree.motion.moved_shared += llabs(process->statm.shared - process->shared);
        }
        process->moved = 1;
        take_statm(process);
        line(" %d %s", process->pid, process->pages);
    }
    line("\n");
}

void tree_tell_poll(void) {
    if (!tree.told && tree.polls) tell_poll(0);
}

void tree_read(void) {
    int reads, changed = 0;
    i64 begin_ns, took_ns, count;
    size_t at;
    for (reads = 1;; ++reads) {
        count = (i64)tree.count;
        begin_ns = now_ns();
        read_all();
        took_ns = now_ns() - begin_ns;
        if (count < 2 || reads == READS || took_ns <= READ_NS + count * READ_EACH_NS) break;
    }
    tree.last_ns = tree.polls++ ? tree.t_ns : begin_ns;
    tree.t_ns = begin_ns;
    tree.took_ns = took_ns;
    tree.told = 0;
    for (at = 0; at < tree.count; ++at) changed |= strcmp(tree.items[at]->statm.fields, tree.items[at]->pages) != 0;
    if (changed || tree.owes) tell_poll(changed);
}

/* -- what others ask */
i64 tree_polls(void) { return tree.polls; }
size_t tree_count(void) { return tree.count; }
struct process *tree_at(size_t place) { return tree.items[place]; }
const struct motion *tree_motion(void) { return &tree.motion; }

struct process *tree_of(int pid) {
    size_t at = 0;
    while (at < tree.count && tree.items[at]->pid != pid) ++at;
    return at < tree.count ? tree.items[at] : NULL;
}

size_t tree_count_members(void) {
    size_t at, count = 0;
    for (at = 0; at < tree.count; ++at) count += !tree.items[at]->twin;
    return count;
}

int tree_has_leaving(void) {
    struct stat_reading stat;
    size_t at, left = 0;
    for (at = 0; at < tree.leaving.count; ++at)
        if (stat_read(tree.leaving.items[at], &stat) && !stat_is_over(&stat)) tree.leaving.items[left++] = tree.leaving.items[at];
    tree.leaving.count = left;
    return left != 0;
}
