/* /proc/PID/maps (proc_pid_maps(5)): BEGIN-END PERMISSIONS OFFSET DEVICE INODE NAME, the first three numbers in hexadecimal. Shared
 * anonymous memory is a file too: /dev/zero (deleted), with an inode for each piece. */
#include "maps.h"
#include "recording.h"
#include "tree.h"

#define PAUSE_NS 4000000 /* between two readings */
#define LEAST 1048576    /* bytes of file-backed pages that have come or gone since the last reading */
#define NUMBER_BITS 48   /* of a file's number: so many that two files have the same one in no run */

struct part { i64 file, page, count; };

static struct {
    struct budget budget;
    i64 next_ns;
    struct motion read; /* when it was read */
    int again;          /* read once, and to be read again at the next poll */
    struct { struct part *items; size_t count, room; } parts; /* of one process */
} maps = {.budget = {0.004, 20000000, 0, 0}};

/* Cut the next word off. */
static char *word(char **at) {
    char *begin = *at + strspn(*at, " ");
    *at = begin + strcspn(begin, " ");
    if (**at) *(*at)++ = 0;
    return begin;
}

static int is_device(const char *name) { return begins(name, "/dev/") && !begins(name, "/dev/zero") && !begins(name, "/dev/shm/"); }

/* A device can put different memory at the same place of each mapping, and so can what has only a name in brackets or an inode that many
 * things share (anon_inode:[io_uring]): the file is then this process's own, told apart by its id and the address. Inodes of two volumes
 * of one btrfs can have the same device and number, so that the name tells files apart too. */
static void take_line(char *text, void *process_id) {
    int pid = *(const int *)process_id;
    char *end, *address = word(&text), *offset = (word(&text), word(&text)), *device = word(&text), *inode = word(&text);
    const char *name = text + strspn(text, " ");
    uint64_t begin = strtoull(address, &end, 16), size = strtoull(end + (*end == '-'), NULL, 16) - begin, hash;
    struct part part, *last = maps.parts.count ? &maps.parts.items[maps.parts.count - 1] : NULL;
    i64 page = sysconf(_SC_PAGESIZE);
    if (strcmp(inode, "0") == 0 && *name != '/' && !begins(name, "[v")) return; /* [vdso] and other names of that kind count as file-backed */
    hash = hashed(hashed(BEGIN_HASH, device, strlen(device) + 1), inode, strlen(inode) + 1);
    hash = hashed(hash, name, strlen(name));
    if (*name != '/' || is_device(name)) hash = hashed(hashed(hash, &pid, sizeof pid), &begin, sizeof begin);
    part.file = (i64)(hash >> (64 - NUMBER_BITS));
    part.page = (i64)strtoull(offset, NULL, 16) / page;
    part.count = (i64)size / page;
    if (last != NULL && last->file == part.file && last->page + last->count == part.page) last->count += part.count;
    else ADD(&maps.parts, part);
}

static void tell_maps(struct process *process) {
    i64 now = now_ns();
    uint64_t hash;
    size_t at;
    maps.parts.count = 0;
    each_line(open_of(process->statm.task, "maps"), take_line, &process->pid);
    hash = hashed(BEGIN_HASH, maps.parts.items, maps.parts.count * sizeof *maps.parts.items);
    if (hash == process->parts) return;
    process->parts = hash;
    line("maps %l %d", now, process->pid);
    for (at = 0; at < maps.parts.count; ++at) {
        const struct part *part = &maps.parts.items[at];
        line(" %l:%l:%l", part->file, part->page, part->count);
    }
    line("\n");
}

void maps_step(i64 now) {
    int again = maps.again && maps.read.changes == tree_motion()->changes; /* else the first reading was of other processes */
    i64 moved = (tree_motion()->moved_shared - maps.read.moved_shared) * sysconf(_SC_PAGESIZE), before_ns;
    size_t at;
    maps.again = 0;
    if (!again && (moved < LEAST || now < maps.next_ns || !budget_is_left(&maps.budget, now))) return;
    if (tree_count_members() < 2) return;
    before_ns = cpu_ns();
    if (!again) {
        maps.again = 1;
        maps.read = *tree_motion();
        maps.next_ns = now + PAUSE_NS;
    }
    for (at = 0; at < tree_count(); ++at)
        if (!tree_at(at)->twin) tell_maps(tree_at(at));
    line("mapped %l\n", now_ns());
    budget_spend(&maps.budget, before_ns);
}
