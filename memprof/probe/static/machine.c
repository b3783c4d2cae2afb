/* One look at the machine: the part of memprof/probe/procfs.py that is not about a process. */
#include "probe.h"
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/utsname.h>

static i64 counted(const char *path, const char *name) {
    static char text[16384];
    const char *line;
    char wanted[32];
    if (!read_file(path, text, sizeof text)) return -1;
    put(wanted, sizeof wanted, "\n%s ", name);
    line = strstr(text, wanted);
    return line != NULL ? read_int(line + strlen(wanted), NULL) : -1;
}

i64 oom_kills(void) { return counted("/proc/vmstat", "oom_kill"); }
i64 oom_kills_inside(void) { return counted("/sys/fs/cgroup/memory.events", "oom_kill"); }
i64 huge_faults(void) { return counted("/proc/vmstat", "thp_fault_alloc"); }

/* How many there are in a list of the kernel's such as `0-3,8`. */
static i64 cpus(const char *path) {
    char text[1024];
    const char *at = text;
    i64 count = 0;
    if (!read_file(path, text, sizeof text)) return max64(sysconf(_SC_NPROCESSORS_CONF), 1);
    while (*at >= '0' && *at <= '9') {
        i64 from = read_int(at, &at), to = *at == '-' ? read_int(at + 1, &at) : from;
        count += to - from + 1;
        if (*at == ',') ++at;
    }
    return max64(count, 1);
}

i64 peak_bound(void) {
    static i64 online;
    if (late_by_thread()) return 67 * max64(page, 64 * KIB) * swapped_threads;
    if (!online) online = cpus("/sys/devices/system/cpu/online");
    return 2 * max64(32, 2 * online) * m.usable * page;
}

/* Before Linux 6.2. */
int late_by_thread(void) {
    struct utsname system;
    char *rest;
    long major, minor;
    if (uname(&system) < 0) return 0;
    major = strtol(system.release, &rest, 10);
    if (rest == system.release || *rest != '.' || rest[1] < '0' || rest[1] > '9') return 0;
    minor = strtol(rest + 1, NULL, 10);
    return major < 6 || (major == 6 && minor < 2);
}

int has_swap(void) {
    char text[8192];
    return read_file("/proc/meminfo", text, sizeof text) && field(text, "SwapTotal") > 0;
}

static void cpu_name(char name[128]) {
    static const char *const names[] = {"model name", "Hardware", "Model"};
    char text[2048], *line = text;
    size_t index;
    name[0] = 0;
    read_file("/proc/cpuinfo", text, sizeof text);
    while (line != NULL && *line) {
        char *end = strchr(line, '\n'), *colon = strchr(line, ':');
        for (index = 0; index < LENGTH(names) && colon != NULL && (end == NULL || colon < end); ++index) {
            size_t length = strlen(names[index]);
            if (strncmp(line, names[index], length) != 0 || strspn(line + length, " \t") + length != (size_t)(colon - line)) continue;
            if (end != NULL) *end = 0;
            colon += 1 + strspn(colon + 1, " \t");
            put(name, 128, "%s", colon);
            return;
        }
        line = end != NULL ? end + 1 : NULL;
    }
}

/* glibc writes its version into its file, as a sentence for whoever runs it as a program. */
static int glibc(const char *path, char name[64]) {
    static const char words[] = "release version ";
    static char text[16384];
    ssize_t length;
    off_t at;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC), known = 0;
    if (descriptor < 0) return 0;
    for (at = 0; !known && (length = pread(descriptor, text, sizeof text, at)) > 64; at += length - 64) {
        char *found = memmem(text, (size_t)length - 32, words, sizeof words - 1);
        if (found != NULL) {
            found += sizeof words - 1;
            put(name, 64, "glibc %.*s", (int)strspn(found, "0123456789"), found);
            if (found[strspn(found, "0123456789")] == '.') {
                size_t major = strspn(found, "0123456789");
                put(name, 64, "glibc %.*s", (int)(major + 1 + strspn(found + major + 1, "0123456789")), found);
            }
            known = 1;
        }
    }
    close(descriptor);
    return known;
}

static void libc_name(char name[64]) {
    static const char *const folders[] = {"/lib", "/usr/lib", "/lib64"};
    size_t index;
    name[0] = 0;
    for (index = 0; index < LENGTH(folders); ++index) {
        char path[400];
        struct dirent *entry;
        DIR *folder;
        put(path, sizeof path, "%s/libc.so.6", folders[index]);
        if (glibc(path, name)) return;
        folder = opendir(folders[index]);
        while (folder != NULL && (entry = readdir(folder)) != NULL) {
            if (strncmp(entry->d_name, "ld-musl-", 8) == 0) strcpy(name, "musl");
            if (strstr(entry->d_name, "-linux-gnu") == NULL) continue;
            put(path, sizeof path, "%s/%s/libc.so.6", folders[index], entry->d_name);
            if (glibc(path, name)) break;
        }
        if (folder != NULL) closedir(folder);
        if (name[0]) return;
    }
}

void out_machine(void) {
    char memory[4096], huge[256], name[128], *chosen, *end;
    struct utsname system;
    cpu_set_t usable;
    i64 known;
    uname(&system);
    CPU_ZERO(&usable);
    sched_getaffinity(0, sizeof usable, &usable);
    read_file("/proc/meminfo", memory, sizeof memory);
    out("{\"name\":");
    out_text(system.nodename);
    out(",\"arch\":");
    out_text(system.machine);
    out(",\"kernel\":");
    out_text(system.release);
    out(",\"libc\":");
    libc_name(name);
    out_text(name);
    out(",\"cpu\":");
    cpu_name(name);
    out_text(name);
    out(",\"cpus\":%lld,\"cpus_usable\":%d", (long long)cpus("/sys/devices/system/cpu/online"), CPU_COUNT(&usable));
    known = field(memory, "MemTotal");
    out(",\"memory_bytes\":%lld", (long long)max64(known, 0));
    known = field(memory, "SwapTotal");
    out(",\"swap_bytes\":%lld,\"page_bytes\":%lld,\"huge_pages\":", (long long)max64(known, 0), (long long)page);
    read_file("/sys/kernel/mm/transparent_hugepage/enabled", huge, sizeof huge);
    chosen = strchr(huge, '[');
    end = chosen != NULL ? strchr(chosen, ']') : NULL;
    out_string(end != NULL ? chosen + 1 : "", end != NULL ? (size_t)(end - chosen - 1) : 0);
    out(",\"peak_bound_bytes\":%lld}", (long long)peak_bound());
}
