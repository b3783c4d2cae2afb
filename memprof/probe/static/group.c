/* A control group with a memory limit for one child: see memprof/probe/group.py. */
#include "probe.h"
#include <fcntl.h>
#include <sys/stat.h>

#define REMOVE_NS 2000000000

static const char *folder;

static int write_file(const char *name, const char *text) {
    char path[4096];
    int descriptor, done;
    put(path, sizeof path, "%s/%s", folder, name);
    descriptor = open(path, O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) return 0;
    done = write(descriptor, text, strlen(text)) >= 0;
    if (!done) {
        int reason = errno;
        close(descriptor);
        errno = reason;
        return 0;
    }
    return close(descriptor) == 0;
}

int group_make(const struct json *group) {
    const struct json *settings = json_get(group, "settings"), *item;
    char path[4096];
    folder = json_text(group, "path");
    if (folder == NULL) return EINVAL;
    if (mkdir(folder, 0777) < 0) return errno;
    for (item = settings != NULL ? settings->first : NULL; item != NULL; item = item->next) {
        if (item->first == NULL || item->first->next == NULL || item->first->next->kind != J_STRING) return EINVAL;
        put(path, sizeof path, "%s/%s", folder, item->first->text);
        if (access(path, F_OK) < 0) continue; /* a file that is not there is left out */
        if (!write_file(item->first->text, item->first->next->text)) {
            int reason = errno;
            group_remove();
            return reason;
        }
    }
    return 0;
}

int group_join(void) { return write_file("cgroup.procs", "0"); }

static i64 number(const char *name, const char *field) {
    static char text[16384]; /* memory.stat has some 70 lines */
    char path[4096], *at;
    put(path, sizeof path, "%s/%s", folder, name);
    if (!read_file(path, text, sizeof text)) return -1;
    if (field == NULL) return *text >= '0' && *text <= '9' ? read_int(text, NULL) : -1;
    for (at = text; at != NULL && *at; at = strchr(at, '\n') != NULL ? strchr(at, '\n') + 1 : NULL)
        if (strncmp(at, field, strlen(field)) == 0 && at[strlen(field)] == ' ') return read_int(at + strlen(field), NULL);
    return -1;
}

void group_figures(i64 *peak, i64 *kills) {
    *peak = number("memory.max_usage_in_bytes", NULL);
    if (*peak < 0) *peak = number("memory.peak", NULL);
    *kills = number("memory.oom_control", "oom_kill");
    if (*kills < 0) *kills = number("memory.events", "oom_kill");
}

/* See memprof/probe/group.py; -1 where the kernel does not tell. */
i64 group_refaults(void) {
    i64 known = number("memory.stat", "workingset_refault_file");
    return known < 0 ? number("memory.stat", "workingset_refault") : known;
}

/* Its processes have ended; the kernel lets go of them a moment later. */
void group_remove(void) {
    i64 end_ns = now_ns() + REMOVE_NS;
    while (rmdir(folder) < 0 && errno != ENOENT && now_ns() < end_ns) pause_ns(5000000);
}
