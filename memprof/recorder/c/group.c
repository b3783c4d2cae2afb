/* Version 1 (cgroup-v1/memory.rst) has memory.max_usage_in_bytes, memory.memsw.max_usage_in_bytes and memory.oom_control, and the kernel's memory in
 * memory.kmem...; version 2 (cgroup-v2.rst) memory.peak and memory.events, but no peak of memory and swap together, and the kernel's memory in
 * memory.stat. Both have memory.stat (group.py). */
#include "group.h"
#include "procfs.h"
#include "recording.h"
#include <sys/stat.h>

#define REMOVE_NS 2000000000
#define FIGURES_ROOM 200

/* descriptor: of the folder. peak, both, kernel: open descriptors of the peaks, -1 for none: from Linux 6.12 on memory.peak can be reset, for the
 * descriptor that it was reset through. told: the figures before and behind RESET, as they were written last. */
static struct {
    const char *folder;
    int descriptor, peak, both, kernel;
    char told[2][FIGURES_ROOM];
} group = {.descriptor = -1, .peak = -1, .both = -1, .kernel = -1};

static int open_file(const char *name, int flags) { return openat(group.descriptor, name, flags | O_CLOEXEC); }

/* 0, or an errno. */
static int write_file(const char *name, const char *text) {
    int descriptor = open_file(name, O_WRONLY), reason = descriptor < 0 || write(descriptor, text, strlen(text)) < 0 ? errno : 0;
    if (descriptor >= 0) close(descriptor);
    return reason;
}

int group_make(const char *folder, const struct words *settings) {
    int reason = 0;
    size_t at;
    if (mkdir(folder, 0777) < 0) return errno;
    group.folder = folder;
    group.descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (at = 0; at < settings->count && !reason; ++at) {
        char *text = settings->items[at] + strcspn(settings->items[at], " ");
        if (*text) *text++ = 0;
        reason = write_file(settings->items[at], text);
        if (reason == ENOENT) reason = 0; /* a file that is missing is left out */
    }
    group.peak = open_file("memory.max_usage_in_bytes", O_RDWR);
    if (group.peak < 0) group.peak = open_file("memory.peak", O_RDWR);
    group.both = open_file("memory.memsw.max_usage_in_bytes", O_RDWR);
    group.kernel = open_file("memory.kmem.max_usage_in_bytes", O_RDWR);
    return reason;
}

int group_join(void) {
    errno = group.folder != NULL ? write_file("cgroup.procs", "0") : 0;
    return !errno;
}

static i64 number_of(int descriptor) {
    char text[32];
    ssize_t length = descriptor >= 0 ? pread(descriptor, text, sizeof text - 1, 0) : 0;
    text[max64(length, 0)] = 0;
    return *text >= '0' && *text <= '9' ? read_int(text, NULL) : -1;
}

static i64 number_of_file(const char *name) {
    int descriptor = open_file(name, O_RDONLY);
    i64 number = number_of(descriptor);
    if (descriptor >= 0) close(descriptor);
    return number;
}

static char *add_figure(char *at, i64 number) {
    at = add_text(at, " ");
    return number < 0 ? add_text(at, NOTHING) : add_int(at, number);
}

/* Add the number of a file, NULL for none; where it is missing, that of a row of memory.stat. */
static char *add_kernel(char *at, const char *stat, const char *row, const char *file) {
    i64 number = file != NULL ? number_of_file(file) : -1;
    return add_figure(at, number >= 0 ? number : number_behind(stat, row));
}

static void read_figures(char *before, char *behind) {
    static char stat[1 << 14] = "\n"; /* memory.stat has 70 lines */
    i64 kills, refaults;
    stat[1] = 0;
    read_whole(open_file("memory.stat", O_RDONLY), stat + 1, sizeof stat - 1);
    refaults = number_behind(stat, "\nworkingset_refault_file ");
    if (refaults < 0) refaults = number_behind(stat, "\nworkingset_refault "); /* before 5.9, of files alone */
    kills = number_in(open_file("memory.oom_control", O_RDONLY), "\noom_kill ");
    if (kills < 0) kills = number_in(open_file("memory.events", O_RDONLY), "\noom_kill ");
    before = add_figure(add_figure(before, number_of(group.peak)), number_of(group.both));
    add_figure(add_figure(before, refaults), kills);
    behind = add_kernel(add_figure(behind, number_of(group.kernel)), stat, "\nkernel ", "memory.kmem.usage_in_bytes");
    behind = add_kernel(behind, stat, "\nkernel_stack ", NULL);
    behind = add_kernel(behind, stat, "\nslab ", NULL);
    behind = add_kernel(behind, stat, "\npagetables ", NULL);
    behind = add_kernel(behind, stat, "\nsock ", "memory.kmem.tcp.usage_in_bytes");
    add_kernel(behind, stat, "\npercpu ", NULL);
}

static int is_reset(int descriptor) { return descriptor < 0 || pwrite(descriptor, "0", 1, 0) == 1; }

void group_tell(int reset) {
    char before[FIGURES_ROOM], behind[FIGURES_ROOM], word[2] = NOTHING;
    i64 now = now_ns();
    if (group.folder == NULL) return;
    read_figures(before, behind);
    if (reset < 0 && strcmp(before, group.told[0]) == 0 && strcmp(behind, group.told[1]) == 0) return;
    if (reset >= 0) add_int(word, reset && is_reset(group.peak) && is_reset(group.both) && is_reset(group.kernel));
    line("group %l%s %s%s\n", now, before, word, behind);
    add_text(group.told[0], before);
    add_text(group.told[1], behind);
}

/* Its processes have ended; the kernel lets go of them a moment later. */
void group_remove(void) {
    i64 end_ns = now_ns() + REMOVE_NS;
    while (group.folder != NULL && rmdir(group.folder) < 0 && errno != ENOENT && now_ns() < end_ns) usleep(5000);
    group.folder = NULL;
}
