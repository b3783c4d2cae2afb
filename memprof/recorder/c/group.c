/* Version 1 (cgroup-v1/memory.rst) has memory.max_usage_in_bytes, memory.memsw.max_usage_in_bytes and memory.oom_control, version 2
 * (cgroup-v2.rst) memory.peak and memory.events, but no peak of memory and swap together; both have memory.stat. */
#include "group.h"
#include "procfs.h"
#include "recording.h"
#include <sys/stat.h>

#define REMOVE_NS 2000000000

/* descriptor: of the folder. peak, both: open descriptors of the peaks, -1 for none: from Linux 6.12 on memory.peak can be reset, for the
 * descriptor that it was reset through. */
static struct { const char *folder; int descriptor, peak, both; } group = {NULL, -1, -1, -1};

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

static i64 field_of(const char *file, const char *name) { return number_in(open_file(file, O_RDONLY), name); }

static int is_reset(int descriptor) { return descriptor < 0 || pwrite(descriptor, "0", 1, 0) == 1; }

void group_tell(int reset) {
    i64 now = now_ns(), kills, refaults;
    if (group.folder == NULL) return;
    refaults = field_of("memory.stat", "\nworkingset_refault_file ");
    if (refaults < 0) refaults = field_of("memory.stat", "\nworkingset_refault "); /* before 5.9, of files alone */
    kills = field_of("memory.oom_control", "\noom_kill ");
    if (kills < 0) kills = field_of("memory.events", "\noom_kill ");
    line("group %l %k %k %k %k ", now, number_of(group.peak), number_of(group.both), refaults, kills);
    line("%d\n", reset && is_reset(group.peak) && is_reset(group.both));
}

/* Its processes have ended; the kernel lets go of them a moment later. */
void group_remove(void) {
    i64 end_ns = now_ns() + REMOVE_NS;
    while (group.folder != NULL && rmdir(group.folder) < 0 && errno != ENOENT && now_ns() < end_ns) usleep(5000);
    group.folder = NULL;
}
