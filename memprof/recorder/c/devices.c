#include "devices.h"
#include "recording.h"
#include "tree.h"
#include <dirent.h>
#include <sys/stat.h>

#define PART_NS 8000000 /* between two readings of a process, in part */
#define WHOLE_NS 100000000
#define COUNT_NS 16000000 /* the same where no process has a device's file (devices.py) */
#define IDLE_NS 1000000000
#define QUIET 64
#define KNOWN 4096 /* dma-bufs of which the size is kept */
#define AMOUNTS 5
#define REGIONS 16
#define WORD_ROOM 40

struct buffer { i64 inode, size, mapped, resident; char kind, exporter[WORD_ROOM]; };
struct region { char name[WORD_ROOM]; i64 amounts[AMOUNTS]; };

static struct {
    struct budget polls, borders;
    i64 next_ns, moved_ns, left_out; /* moved_ns: when a count was last seen to change, or a phase to begin or end */
    size_t turn;
    struct buffer known[KNOWN];                                  /* by inode */
    struct { struct buffer *items; size_t count, room; } buffers; /* of one process */
    struct { char *items; size_t count, room; } line;             /* its fields, each behind a space */
} devices = {.polls = {0.008, 50000000, 0, 0}, .borders = {0.02, 500000000, 0, 0}};

/* -- lines, written if they have changed */
static void add_field(const char *text) {
    for (; *text; ++text) ADD(&devices.line, *text);
}

static void add_number(const char *before, i64 number) {
    char digits[24];
    add_int(digits, number);
    add_field(before);
    add_field(number < 0 ? "-" : digits);
}

static void tell(struct process *process, int place, i64 begin_ns) {
    static const char *const kinds[] = {"buffers", "clients", "tables"};
    uint64_t hash = devices.line.count ? hashed(BEGIN_HASH, devices.line.items, devices.line.count) : 0;
    ADD(&devices.line, 0);
    if (hash != process->devices.written[place])
        line("%s %l %l %d%s\n", kinds[place], begin_ns, now_ns() - begin_ns, process->pid, devices.line.items);
    process->devices.written[place] = hash;
    devices.line.count = 0;
}

/* A word of the kernel's, as a field has it. */
static char *plain(char *to, const char *text, size_t length) {
    size_t at;
    length = (size_t)min64((i64)length, WORD_ROOM - 1);
    for (at = 0; at < length; ++at) {
        char letter = text[at];
        int is_plain = (letter >= '0' && letter <= '9') || ((letter | 32) >= 'a' && (letter | 32) <= 'z') || strchr("-.:", letter) != NULL;
        to[at] = is_plain ? letter : '_';
    }
    to[length] = 0;
    return to;
}

/* The value behind a name at the begin of a line: its begin and length; NULL for none. */
static const char *value_of(const char *text, const char *name, size_t *length) {
    const char *at = strstr(text, name);
    if (at == NULL) return NULL;
    at += strlen(name);
    at += strspn(at, " \t");
    *length = strcspn(at, "\n");
    return at;
}

/* -- clients of DRM drivers */

/* Take a line of fdinfo, `drm-AMOUNT-REGION: NUMBER [KiB|MiB]`; how many regions there are by now. */
static size_t take_amount(struct region regions[REGIONS], size_t count, const char *text) {
    static const char *const amounts[] = {"drm-total-", "drm-resident-", "drm-shared-", "drm-purgeable-", "drm-memory-"};
    const char *colon = text + strcspn(text, ":\n"), *rest;
    char name[WORD_ROOM];
    size_t at, amount = 0;
    i64 size;
    while (amount < AMOUNTS && !begins(text, amounts[amount])) ++amount;
    if (amount == AMOUNTS || *colon != ':') return count;
    text += strlen(amounts[amount]);
    if (begins(text, "cycles-")) return count; /* drm-total-cycles-ENGINE is a time */
    size = read_int(colon + 1, &rest);
    if (rest == colon + 1 || colon <= text) return count;
    size <<= begins(rest, " KiB") ? 10 : begins(rest, " MiB") ? 20 : 0;
    plain(name, text, (size_t)(colon - text));
    for (at = 0; at < count && strcmp(regions[at].name, name) != 0; ++at) {}
    if (at == REGIONS) return count;
    if (at == count) {
        memset(regions[at].amounts, 0xff, sizeof regions[at].amounts); /* -1 */
        add_text(regions[at].name, name);
        ++count;
    }
    regions[at].amounts[amount] = size;
    return count;
}

static void add_client(const char *text) {
    static const char *const names[] = {"\ndrm-driver:", "\ndrm-pdev:", "\ndrm-client-id:"};
    struct region regions[REGIONS];
    size_t at, amount, count = 0, length;
    const char *next;
    char word[WORD_ROOM];
    for (next = strchr(text, '\n'); next != NULL; next = strchr(next + 1, '\n')) count = take_amount(regions, count, next + 1);
    for (at = 0; at < LENGTH(names); ++at) {
        const char *value = value_of(text, names[at], &length);
        add_field(at ? "," : "");
        add_field(value != NULL && length ? plain(word, value, length) : NOTHING);
    }
    for (at = 0; at < count; ++at) {
        add_field(",");
        add_field(regions[at].name);
        for (amount = 0; amount < AMOUNTS; ++amount) add_number("/", regions[at].amounts[amount]);
    }
}

static void tell_clients(struct process *process) {
    static char text[8192];
    struct device_files *files = &process->devices;
    i64 begin_ns = now_ns();
    size_t at, begin;
    for (at = 0; at < files->links.count; ++at) {
        const struct device_link *link = &files->links.items[at];
        char name[32];
        add_int(add_text(name, "fdinfo/"), link->number);
        if (link->kind != 's' && (link->kind != 'd' || !read_whole(open_of(process->statm.task, name), text, sizeof text))) continue;
        begin = devices.line.count;
        add_field(" ");
        if (link->kind == 'd') add_client(text);
        else add_field(link->silent), add_field(",-,-");
        add_field(" "); /* for the moment: no other field begins so */
        ADD(&devices.line, 0);
        devices.line.count -= 2;
        if (strstr(devices.line.items, devices.line.items + begin) != devices.line.items + begin)
            devices.line.count = begin; /* another descriptor of it */
    }
    files->tells = devices.line.count && memchr(devices.line.items, '/', devices.line.count) != NULL;
    tell(process, 1, begin_ns);
}

/* -- buffers */
static struct buffer *buffer_of(char kind, i64 inode) {
    struct buffer fresh = {.inode = inode, .kind = kind};
    size_t at = 0;
    while (at < devices.buffers.count && (devices.buffers.items[at].inode != inode || devices.buffers.items[at].kind != kind)) ++at;
    if (at == devices.buffers.count) ADD(&devices.buffers, fresh);
    return &devices.buffers.items[at];
}

static void take_descriptor(int task, const struct device_link *link) {
    char text[1024], name[32];
    const char *exporter;
    struct buffer *buffer;
    struct stat status;
    size_t length;
    add_int(add_text(name, "fd/"), link->number);
    if (stat(path_of(task, name), &status) != 0) return; /* it has been closed */
    buffer = buffer_of(link->kind, (i64)status.st_ino);
    buffer->size = (i64)status.st_blocks * 512;
    if (link->kind == 'm') return;
    add_int(add_text(name, "fdinfo/"), link->number);
    read_whole(open_of(task, name), text, sizeof text);
    exporter = value_of(text, "\nexp_name:", &length);
    plain(buffer->exporter, exporter != NULL ? exporter : "", exporter != NULL ? length : 0);
    exporter = value_of(text, "\nsize:", &length);
    buffer->size = exporter != NULL ? read_int(exporter, NULL) : 0;
    devices.known[buffer->inode % KNOWN] = *buffer;
}

/* A line of debugfs: size flags mode count exporter inode name. */
static void take_shown(char *text, void *to) {
    struct buffer *buffer = to;
    const char *words[6];
    size_t at;
    for (at = 0; at < LENGTH(words); ++at) {
        words[at] = text += strspn(text, " \t");
        text += strcspn(text, " \t");
        if (*text) *text++ = 0;
    }
    if (*words[0] < '0' || *words[0] > '9' || read_int(words[5], NULL) != buffer->inode) return;
    buffer->size = read_int(words[0], NULL);
    plain(buffer->exporter, words[4], strlen(words[4]));
}

/* What the machine shows of a dma-buf that is mapped alone (CONFIG_DMABUF_SYSFS_STATS, or debugfs). */
static void take_from_machine(struct buffer *buffer) {
    char path[96], text[64], *end = add_text(add_int(add_text(path, "/sys/kernel/dmabuf/buffers/"), buffer->inode), "/");
    add_text(end, "size");
    if (!read_whole(open(path, O_RDONLY | O_CLOEXEC), text, sizeof text)) {
        each_line(open("/sys/kernel/debug/dma_buf/bufinfo", O_RDONLY | O_CLOEXEC), take_shown, buffer);
        return;
    }
    buffer->size = read_int(text, NULL);
    add_text(end, "exporter_name");
    read_whole(open(path, O_RDONLY | O_CLOEXEC), text, sizeof text);
    plain(buffer->exporter, text, strcspn(text, "\n"));
}

static void take_mapped(int task, const struct mapped *mapped) {
    struct buffer *buffer = buffer_of(mapped->kind, mapped->inode);
    const struct buffer *known = &devices.known[mapped->inode % KNOWN];
    char name[64];
    struct stat status;
    buffer->mapped = mapped->size;
    buffer->resident = mapped->resident;
    if (buffer->size) return;
    if (mapped->kind == 'm') { /* the kernel asks for CAP_CHECKPOINT_RESTORE */
        add_text(add_text(name, "map_files/"), mapped->addresses);
        buffer->size = stat(path_of(task, name), &status) == 0 ? (i64)status.st_blocks * 512 : 0;
        return;
    }
    buffer->size = mapped->size;
    if (known->inode == mapped->inode) {
        buffer->size = known->size;
        add_text(buffer->exporter, known->exporter);
    } else take_from_machine(buffer);
}

static void tell_buffers(struct process *process) {
    const struct device_files *files = &process->devices;
    i64 begin_ns = now_ns();
    size_t at;
    char *colon;
    devices.buffers.count = 0;
    for (at = 0; at < files->links.count; ++at)
        if (files->links.items[at].kind == 'b' || files->links.items[at].kind == 'm') take_descriptor(process->statm.task, &files->links.items[at]);
    for (at = 0; at < files->mapped.count; ++at) take_mapped(process->statm.task, &files->mapped.items[at]);
    for (at = 0; at < devices.buffers.count; ++at) {
        struct buffer *buffer = &devices.buffers.items[at];
        while ((colon = strchr(buffer->exporter, ':')) != NULL) *colon = '_';
        add_field(buffer->kind == 'b' ? " dmabuf:" : " memfd:");
        add_field(buffer->exporter);
        add_number(":", buffer->inode);
        add_number(":", buffer->size);
        add_number(":", buffer->mapped);
        add_number(":", buffer->resident);
    }
    tell(process, 0, begin_ns);
}

/* -- what a process has */
static char kind_of(const char *link) {
    if (begins(link, "/dev/dri/") || begins(link, "/dev/accel/")) return 'd';
    return begins(link, "/dmabuf:") ? 'b' : begins(link, "/memfd:") ? 'm' : 0;
}

/* The name of a closed driver, NULL for other files. */
static const char *silent_driver(const char *link) {
    static const char *const names[][2] = {{"/dev/mali", "mali"},   {"/dev/kgsl", "kgsl"},       {"/dev/nvidia", "nvidia"},
                                           {"/dev/rknpu", "rknpu"}, {"/dev/galcore", "galcore"}, {"anon_inode:dmabuf", "dmabuf"}};
    size_t at = 0;
    while (at < LENGTH(names) && !begins(link, names[at][0])) ++at;
    return at < LENGTH(names) ? names[at][1] : NULL;
}

/* Who has one of these is about to have buffers. */
static int is_device(const char *link) {
    static const char *const names[] = {"/dev/dma_heap/", "/dev/udmabuf", "/dev/ion", "/dev/kfd", "/dev/fastrpc", "/dev/adsprpc"};
    size_t at = 0;
    while (at < LENGTH(names) && !begins(link, names[at])) ++at;
    return at < LENGTH(names);
}

/* A hash of the numbers of all descriptors, 0 where they or their links may not be read; with their links if `files` is not NULL. A container's root
 * often has CAP_DAC_OVERRIDE, which the numbers need, and no CAP_SYS_PTRACE, which the links need. */
static uint64_t list(int task, struct device_files *files) {
    DIR *folder = opendir(path_of(task, "fd"));
    const struct dirent *entry;
    uint64_t hash = BEGIN_HASH;
    int reason;
    if (folder == NULL) return 0;
    if (files != NULL) files->links.count = 0;
    while ((entry = readdir(folder)) != NULL) {
        char text[64];
        ssize_t length;
        struct device_link link;
        if (*entry->d_name == '.') continue;
        hash = hashed(hash, entry->d_name, strlen(entry->d_name) + 1);
        if (files == NULL) continue;
        if ((length = readlinkat(dirfd(folder), entry->d_name, text, sizeof text - 1)) <= 0) {
            if (errno != EACCES && errno != EPERM) continue; /* closed meanwhile */
            hash = 0;
            break;
        }
        text[length] = 0;
        link.number = (int)read_int(entry->d_name, NULL);
        link.silent = silent_driver(text);
        link.kind = link.silent != NULL ? 's' : kind_of(text);
        if (link.kind) ADD(&files->links, link);
        files->used |= link.kind || is_device(text);
    }
    reason = errno;
    closedir(folder);
    errno = reason;
    return hash;
}

/* What changes with a process's descriptors: how many there are, or where the kernel does not tell (before 6.2) a hash of their numbers, if
 * it is `used`; 0 where they may not be seen. */
static uint64_t signature_of(int task, int used) {
    struct stat status;
    uint64_t count = stat(path_of(task, "fd"), &status) == 0 ? (uint64_t)status.st_size : 0;
    return count || !used ? count : list(task, NULL);
}

/* Whether fdinfo may be read, where it has a figure; what one descriptor says of that, all of the process do. */
static int is_told(int task, const struct device_files *files) {
    size_t at = 0;
    char name[32];
    int descriptor;
    while (at < files->links.count && files->links.items[at].kind != 'b' && files->links.items[at].kind != 'd') ++at;
    if (at == files->links.count) return 1;
    add_int(add_text(name, "fdinfo/"), files->links.items[at].number);
    descriptor = open_of(task, name);
    if (descriptor >= 0) close(descriptor);
    return descriptor >= 0 || (errno != EACCES && errno != EPERM);
}

static int is_of_buffer(const char *text) { return strstr(text, " /dmabuf:") != NULL || strstr(text, " /memfd:") != NULL; }

static void take_range(char *text, void *to) {
    uint64_t *hash = to;
    if (is_of_buffer(text)) *hash = hashed(*hash, text, strlen(text) + 1);
}

/* A line of smaps: the first of a mapping as in maps, then its figures, whose names begin with a capital. */
static void take_figure(char *text, void *to) {
    static size_t place; /* of the mapping that the figures are of, 0 for none */
    struct device_files *files = to;
    struct mapped mapped = {0};
    char *rest, *name = strchr(text, '/');
    if (*text >= 'A' && *text <= 'Z') {
        if (place && (begins(text, "Rss:") || begins(text, "Shared_Hugetlb:") || begins(text, "Private_Hugetlb:")))
            files->mapped.items[place - 1].resident += read_int(strchr(text, ':') + 1, NULL) << 10;
        return;
    }
    place = 0;
    if (!is_of_buffer(text) || (mapped.kind = kind_of(name)) == 0) return;
    while (name[-1] == ' ') --name;
    *name = 0;
    mapped.inode = read_int(strrchr(text, ' '), NULL);
    for (place = 1; place <= files->mapped.count; ++place) {
        const struct mapped *other = &files->mapped.items[place - 1];
        if (other->inode == mapped.inode && other->kind == mapped.kind) break;
    }
    text[strcspn(text, " ")] = 0;
    strncpy(mapped.addresses, text, sizeof mapped.addresses - 1);
    if (place > files->mapped.count) ADD(&files->mapped, mapped);
    mapped.size = -(i64)strtoull(text, &rest, 16);
    files->mapped.items[place - 1].size += mapped.size + (i64)strtoull(rest + 1, NULL, 16);
}

/* A process without a device's file may have a buffer that was mapped and closed before anybody looked: its address space has changed then. */
static void read_mapped(struct device_files *files, const struct statm *statm, i64 now) {
    i64 size = read_int(statm->fields, NULL);
    uint64_t ranges = BEGIN_HASH;
    int task = statm->task;
    if (!files->used && files->maps_ns && (now - files->maps_ns < IDLE_NS || size == files->size)) return;
    files->maps_ns = now;
    files->size = size;
    each_line(open_of(task, "maps"), take_range, &ranges);
    files->used |= ranges != BEGIN_HASH;
    if (ranges == files->ranges) return;
    files->ranges = ranges;
    files->mapped.count = 0;
    if (ranges != BEGIN_HASH) each_line(open_of(task, "smaps"), take_figure, files);
}

static void read_whole_of(struct process *process, i64 now) {
    struct device_files *files = &process->devices;
    char fields[FIELDS_ROOM];
    int task = process->statm.task;
    files->whole_ns = now;
    files->signature = signature_of(task, files->used);
    errno = 0;
    if (!list(task, files) || !is_told(task, files)) {
        if (errno != EACCES && errno != EPERM) return; /* it has ended */
        files->links.count = 0;
        add_field(" -");
        tell(process, 0, now);
        return;
    }
    read_mapped(files, &process->statm, now);
    tell_buffers(process);
    tell_clients(process);
    now = now_ns();
    tables_read(task, fields);
    files->used |= read_int(strchr(fields, ' '), NULL) > 0;
    add_field(" ");
    add_field(fields);
    tell(process, 2, now);
}

/* Read in whole what may have changed. */
static void read_in_part(struct process *process, i64 now) {
    const struct device_files *files = &process->devices;
    uint64_t signature = signature_of(process->statm.task, files->used);
    int changes = files->tells, moved = signature != files->signature;
    size_t at;
    if (moved) devices.moved_ns = now;
    if (moved || now - files->whole_ns >= (signature && !files->used ? IDLE_NS : WHOLE_NS)) {
        read_whole_of(process, now);
        return;
    }
    for (at = 0; at < files->links.count; ++at) changes |= files->links.items[at].kind == 'm';
    if (!changes) return;
    tell_buffers(process);
    tell_clients(process);
}

static int any_used(void) {
    size_t at = 0;
    while (at < tree_count() && !tree_at(at)->devices.used) ++at;
    return at < tree_count();
}

void devices_step(i64 now) {
    size_t left = tree_count();
    if (now < devices.next_ns) return;
    if (!devices.moved_ns) devices.moved_ns = now;
    devices.next_ns = now + (any_used() ? PART_NS : min64(max64(COUNT_NS, (now - devices.moved_ns) / QUIET), WHOLE_NS));
    for (; left; --left) {
        struct process *process = tree_at(devices.turn % tree_count());
        i64 before_ns = cpu_ns();
        if (!budget_is_left(&devices.polls, now)) {
            devices.left_out += process->devices.used;
            return;
        }
        ++devices.turn;
        if (!process->twin) read_in_part(process, now);
        budget_spend(&devices.polls, before_ns);
    }
}

void devices_look(int must) {
    struct budget *budget = must ? &devices.borders : &devices.polls;
    i64 now;
    size_t at;
    if (must) tree_list(), tree_read();
    now = now_ns();
    if (must) devices.moved_ns = now;
    for (at = 0; at < tree_count(); ++at) {
        struct process *process = tree_at(at);
        i64 before_ns = cpu_ns();
        if (process->twin || !(budget_is_left(budget, now) || (must && process->devices.used))) continue;
        process->devices.ranges = 0;
        process->devices.maps_ns = 0;
        read_whole_of(process, now);
        budget_spend(budget, before_ns);
    }
}

void devices_tell_left_out(void) {
    if (devices.left_out) line("fault %l devices %l\n", now_ns(), devices.left_out);
    devices.left_out = 0;
}
