/* How much file-backed and shared memory some processes can have together, from which parts of which files they have mapped: see
 * memprof/probe/mappings.py. */
#include "probe.h"
#include <fcntl.h>

#define SHARE 0.004
#define ALLOWANCE_NS 20000000
#define MAPPINGS_PAUSE_NS 4000000
#define LEAST_OVERLAP (1 << 20)

/* A part of a file, in bytes. file: a hash of its device, inode and name. */
struct place { uint64_t file; i64 begin, end; struct node *node; };

static struct {
    i64 begin_ns, spent_ns, next_ns, moved_seen;
    int reading; /* read once, and to be read again at the next poll */
    struct place *places;
    size_t count, room;
    struct nodes nodes;
} mappings;

void mappings_begin(i64 now) { mappings.begin_ns = now; }

void mappings_drop(void) { mappings.reading = 0; }

static uint64_t hashed(uint64_t hash, const char *text, size_t length) {
    size_t at;
    for (at = 0; at < length; ++at) hash = (hash ^ (unsigned char)text[at]) * 1099511628211u;
    return hash;
}

static i64 hexadecimal(const char **text) {
    uint64_t number = 0;
    for (;; ++*text) {
        int digit = **text;
        if (digit >= '0' && digit <= '9') digit -= '0';
        else if (digit >= 'a' && digit <= 'f') digit -= 'a' - 10;
        else return (i64)number;
        number = number * 16 + (uint64_t)digit;
    }
}

static int begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

/* A line of /proc/PID/maps: BEGIN-END PERMISSIONS OFFSET DEVICE INODE NAME. */
static void take_line(const char *line, struct node *node) {
    struct place place;
    const char *at = line, *device, *inode, *name;
    i64 begin = hexadecimal(&at), end = *at == '-' ? (++at, hexadecimal(&at)) : 0;
    size_t device_length, inode_length;
    at += strspn(at, " ");
    at += strcspn(at, " ");
    at += strspn(at, " ");
    place.begin = hexadecimal(&at);
    device = at += strspn(at, " ");
    at += device_length = strcspn(at, " ");
    inode = at += strspn(at, " ");
    at += inode_length = strcspn(at, " ");
    name = at + strspn(at, " ");
    if (inode_length == 1 && *inode == '0' && *name != '/' && !begins(name, "[v")) return; /* [vdso] and the like count as file-backed */
    place.end = place.begin + end - begin;
    place.node = node;
    place.file = 14695981039346656037u;
    if (*name == '/' && (!begins(name, "/dev/") || begins(name, "/dev/zero") || begins(name, "/dev/shm/"))) {
        place.file = hashed(place.file, device, device_length + 1);
        place.file = hashed(place.file, inode, inode_length + 1);
        place.file = hashed(place.file, name, strlen(name));
    } else {
        place.file = hashed(hashed(place.file, (const char *)&node->pid, sizeof node->pid), (const char *)&begin, sizeof begin);
    }
    mappings.places = grown(mappings.places, mappings.count, &mappings.room, sizeof place);
    mappings.places[mappings.count++] = place;
}

/* 0 where its maps may not be read, or hold nothing. */
static int read_maps(struct node *node) {
    static char text[8192];
    char path[64], *line, *end;
    size_t filled = 0;
    ssize_t length;
    int descriptor, some = 0, skipping = 0;
    put(path, sizeof path, "/proc/%d/maps", node->statm.task);
    descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return 0;
    while ((length = read(descriptor, text + filled, sizeof text - 1 - filled)) > 0) {
        filled += (size_t)length;
        for (line = text; (end = memchr(line, '\n', filled - (size_t)(line - text))) != NULL; line = end + 1) {
            *end = 0;
            if (!skipping) take_line(line, node), some = 1;
            skipping = 0;
        }
        filled -= (size_t)(line - text);
        memmove(text, line, filled);
        if (filled < sizeof text - 1) continue;
        text[filled] = 0; /* a name that is longer than any: its begin tells it apart */
        if (!skipping) take_line(text, node), some = 1;
        skipping = 1;
        filled = 0;
    }
    close(descriptor);
    return some;
}

int mappings_step(i64 now, const struct nodes *members, const struct sum *whole) {
    i64 begin_ns;
    size_t at;
    int done = mappings.reading;
    if (!mappings.reading) {
        i64 worth = min64(sum_width(whole), whole->file), moved = sum_moved(whole);
        if (worth < LEAST_OVERLAP || moved == mappings.moved_seen || now < mappings.next_ns) return 0;
        if ((double)mappings.spent_ns > (double)(now - mappings.begin_ns) * SHARE + ALLOWANCE_NS) return 0;
        mappings.moved_seen = moved;
        mappings.next_ns = now + MAPPINGS_PAUSE_NS;
        mappings.count = mappings.nodes.count = 0;
        for (at = 0; at < members->count; ++at) {
            mappings.nodes.items = grown(mappings.nodes.items, at, &mappings.nodes.room, sizeof *mappings.nodes.items);
            mappings.nodes.items[mappings.nodes.count++] = members->items[at];
            members->items[at]->mapped = 1;
        }
    }
    begin_ns = cpu_ns();
    for (at = 0; at < mappings.nodes.count; ++at) mappings.nodes.items[at]->mapped &= read_maps(mappings.nodes.items[at]);
    mappings.reading = !done;
    mappings.spent_ns += cpu_ns() - begin_ns;
    return done;
}

static int in_order(const void *left, const void *right) {
    const struct place *one = left, *other = right;
    if (one->file != other->file) return one->file < other->file ? -1 : 1;
    return one->begin < other->begin ? -1 : one->begin > other->begin;
}

static int counts(const struct node *node, int inside) { return node->mapped && (!inside || node->inside); }

/* What the processes have of files, less all places that they map, each place of a file counted once. */
static i64 counted_twice(int inside) {
    i64 twice = 0, reached = 0;
    uint64_t last = 0;
    size_t at;
    for (at = 0; at < mappings.nodes.count; ++at)
        if (counts(mappings.nodes.items[at], inside)) twice += mappings.nodes.items[at]->file;
    for (at = 0; at < mappings.count; ++at) {
        const struct place *place = &mappings.places[at];
        if (!counts(place->node, inside)) continue;
        if (!at || place->file != last) last = place->file, reached = 0;
        twice -= max64(0, place->end - max64(place->begin, reached));
        reached = max64(reached, place->end);
    }
    return twice;
}

void mappings_confirm(struct sum *whole, struct sum *own) {
    struct sum *sums[2] = {whole, own};
    i64 spread = sum_moved(whole) - mappings.moved_seen;
    int index;
    size_t at;
    if (mappings.count) qsort(mappings.places, mappings.count, sizeof *mappings.places, in_order);
    for (index = 0; index < (own == whole ? 1 : 2); ++index) {
        i64 low = counted_twice(index) - spread;
        if (low <= sums[index]->low) continue;
        sum_at_least(sums[index], low);
        for (at = 0; at < mappings.nodes.count; ++at) { /* its end takes all that it has of files from the overlap that is certain */
            struct node *node = mappings.nodes.items[at];
            if (counts(node, index)) node->own = min64(node->own, node->rss - node->file);
        }
    }
}
