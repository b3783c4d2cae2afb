/* One look at a process. The kernel's field tables stand in memprof/probe/procfs.py. */
#include "probe.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>

i64 page;

static i64 clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (i64)now.tv_sec * 1000000000 + now.tv_nsec;
}

i64 now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
i64 cpu_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

void pause_ns(i64 ns) {
    struct timespec time = {ns / 1000000000, ns % 1000000000};
    nanosleep(&time, NULL);
}

int read_file(const char *path, char *text, int size) {
    int filled = 0, descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor >= 0) {
        while (filled < size - 1) {
            ssize_t count = read(descriptor, text + filled, (size_t)(size - 1 - filled));
            if (count <= 0) break;
            filled += (int)count;
        }
        close(descriptor);
    }
    text[filled] = 0;
    return filled;
}

static int read_of(int pid, const char *name, char *text, int size) {
    char path[64];
    put(path, sizeof path, "/proc/%d/%s", pid, name);
    return read_file(path, text, size);
}

/* The number after "NAME:" at a line's begin, in bytes where the kernel says kB, else -1. */
i64 field(const char *text, const char *name) {
    size_t length = strlen(name);
    const char *line = text;
    while (line != NULL && *line) {
        if (strncmp(line, name, length) == 0 && line[length] == ':') {
            const char *rest;
            i64 number = read_int(line + length + 1, &rest);
            if (rest == line + length + 1) return -1;
            return strncmp(rest, " kB", 3) == 0 ? number * KIB : number;
        }
        line = strchr(line, '\n');
        if (line != NULL) ++line;
    }
    return -1;
}

static int number_of(const char *name) { return *name >= '1' && *name <= '9' ? (int)read_int(name, NULL) : 0; }

/* The id of a thread through which a process's memory can be seen, 0 where it has none: a first thread that ends before the others leaves a
 * zombie, of which /proc/PID tells no memory, though /proc/TID of any other thread does. */
static int living(int pid) {
    char path[64], text[128];
    struct dirent *entry;
    int thread = 0;
    DIR *folder;
    put(path, sizeof path, "/proc/%d/task", pid);
    folder = opendir(path);
    if (folder == NULL) return 0;
    while ((entry = readdir(folder)) != NULL) {
        thread = number_of(entry->d_name);
        if (thread && read_of(thread, "statm", text, sizeof text) && *text != '0') break;
        thread = 0;
    }
    closedir(folder);
    return thread;
}

static int open_statm(int task) {
    char path[64];
    put(path, sizeof path, "/proc/%d/statm", task);
    return open(path, O_RDONLY | O_CLOEXEC);
}

int statm_open(struct statm *statm, int pid) {
    memset(statm, 0, sizeof *statm);
    statm->pid = statm->task = pid;
    statm->first = statm->descriptor = open_statm(pid);
    return statm->descriptor >= 0;
}

static int read_statm(struct statm *statm) {
    char text[sizeof statm->text];
    ssize_t length = pread(statm->descriptor, text, sizeof text - 1, 0);
    if (length <= 0) return 0;
    if (length != statm->length || memcmp(text, statm->text, (size_t)length) != 0) {
        const char *rest;
        text[length] = 0;
        memcpy(statm->text, text, (size_t)length + 1);
        statm->length = (int)length;
        statm->vms = read_int(text, &rest) * page;
        statm->rss = read_int(rest, &rest) * page;
        statm->file = read_int(rest, &rest) * page;
    }
    return statm->vms != 0;
}

/* Turn to another thread, as this one shows no memory any more; 0 where there is none that does. */
static int turn(struct statm *statm) {
    char text[2];
    int task, descriptor;
    if (statm->task != statm->pid) {
        close(statm->descriptor);
        statm->descriptor = statm->first;
        statm->task = statm->pid;
        if (read_statm(statm)) return 1; /* an exec of another thread has made that the first thread */
    }
    if (pread(statm->first, text, 1, 0) < 0) return 0; /* somebody has waited for the process: its number may be another's by now */
    task = living(statm->pid);
    if (!task || task == statm->pid) return task != 0;
    descriptor = open_statm(task);
    if (descriptor < 0) return 0;
    statm->descriptor = descriptor;
    statm->task = task;
    return 1;
}

int statm_read(struct statm *statm) {
    int some;
    while (!(some = read_statm(statm)) && turn(statm)) {}
    return some;
}

void statm_close(struct statm *statm) {
    if (statm->descriptor >= 0 && statm->descriptor != statm->first) close(statm->descriptor);
    if (statm->descriptor >= 0) close(statm->first);
    statm->descriptor = statm->first = -1;
}

void pids_add(struct pids *pids, int pid) {
    pids->items = grown(pids->items, pids->count, &pids->room, sizeof *pids->items);
    pids->items[pids->count++] = pid;
}

void pids_parse(struct pids *pids, const char *text, size_t length) {
    size_t at = 0;
    while (at < length) {
        int pid = 0;
        while (at < length && text[at] >= '0' && text[at] <= '9') pid = pid * 10 + text[at++] - '0';
        if (pid > 0) pids_add(pids, pid);
        ++at;
    }
}

int children_of(struct pids *pids, int pid) {
    static char text[65536];
    char path[64];
    struct dirent *entry;
    DIR *folder;
    pids->count = 0;
    put(path, sizeof path, "/proc/%d/task", pid);
    folder = opendir(path);
    if (folder == NULL && errno != ENOENT) return 0;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        int descriptor, thread = number_of(entry->d_name);
        ssize_t count, length = 0;
        if (!thread) continue;
        put(path, sizeof path, "/proc/%d/task/%d/children", pid, thread);
        descriptor = open(path, O_RDONLY | O_CLOEXEC);
        if (descriptor < 0) { /* a thread that ended meanwhile, or a kernel without CONFIG_PROC_CHILDREN */
            int missing = errno == ENOENT;
            closedir(folder);
            if (!missing) return 0;
            folder = NULL;
            break;
        }
        while ((count = read(descriptor, text + length, sizeof text - (size_t)length)) > 0) length += count;
        close(descriptor);
        pids_parse(pids, text, (size_t)length);
    }
    if (folder != NULL) return closedir(folder), 1;
    pids->count = 0;
    folder = opendir("/proc");
    if (folder == NULL) return 0;
    while ((entry = readdir(folder)) != NULL) {
        int other = number_of(entry->d_name);
        if (other && parent_of(other) == pid) pids_add(pids, other);
    }
    return closedir(folder), 1;
}

/* The fields of /proc/PID/stat from the third, the state, on: after the name, which may hold anything. NULL where there is none. */
static char *stat_fields(int pid, char *text, int size, char **name) {
    char *end;
    if (!read_of(pid, "stat", text, size) || (end = strrchr(text, ')')) == NULL || end[1] == 0) return NULL;
    *end = 0;
    if (name != NULL) *name = strchr(text, '(') != NULL ? strchr(text, '(') + 1 : text;
    return end + 2;
}

/* Field `number` of proc_pid_stat(5), from 4 on. */
static i64 stat_field(const char *fields, int number) {
    for (; number > 3 && fields != NULL; --number) {
        fields = strchr(fields, ' ');
        if (fields != NULL) ++fields;
    }
    return fields != NULL ? read_int(fields, NULL) : 0;
}

/* Whether nothing is left of a process but its exit code. A zombie with more than one thread is but the first thread: the others live on. */
static int is_over(const char *fields) { return (*fields == 'Z' || *fields == 'X') && stat_field(fields, 20) <= 1; }

int parent_of(int pid) {
    char text[1024], *fields = stat_fields(pid, text, sizeof text, NULL);
    return fields != NULL && !is_over(fields) ? (int)stat_field(fields, 4) : 0;
}

void name_of(int pid, char name[64]) {
    size_t length = (size_t)read_of(pid, "comm", name, 64);
    while (length && strchr(" \t\r\n", name[length - 1]) != NULL) name[--length] = 0;
}

int is_stopped(int pid) {
    char text[1024], *fields = stat_fields(pid, text, sizeof text, NULL);
    return fields != NULL && *fields == 'T';
}

int stat_of(int pid, struct stat_of *found) {
    char text[1024], *name, *fields = stat_fields(pid, text, sizeof text, &name);
    if (fields == NULL) return 0;
    put(found->name, sizeof found->name, "%.63s", name);
    found->ended = is_over(fields);
    found->faults = stat_field(fields, 10);
    found->child_faults = stat_field(fields, 11);
    found->threads = (int)stat_field(fields, 20);
    found->stack = stat_field(fields, 28);
    return 1;
}

i64 started_of(int pid) {
    char text[1024], *fields = stat_fields(pid, text, sizeof text, NULL);
    return fields != NULL && !is_over(fields) ? stat_field(fields, 22) : 0;
}

int counters_of(int pid, struct counters *found) {
    char text[1024], *fields = stat_fields(pid, text, sizeof text, NULL);
    if (fields == NULL || is_over(fields)) return 0;
    found->minor = stat_field(fields, 10);
    found->major = stat_field(fields, 12);
    found->cpu_ns = (stat_field(fields, 14) + stat_field(fields, 15)) * (1000000000 / sysconf(_SC_CLK_TCK));
    return 1;
}

struct memory memory_of(int pid) {
    int threads;
    return memory_and_threads(pid, &threads);
}

struct memory memory_and_threads(int pid, int *threads) {
    char text[4096];
    struct memory found;
    int other;
    read_of(pid, "status", text, sizeof text);
    if (field(text, "VmRSS") < 0 && (other = living(pid)) != 0) read_of(other, "status", text, sizeof text);
    found.rss = field(text, "VmRSS");
    found.anon = field(text, "RssAnon");
    found.file = field(text, "RssFile");
    found.shmem = field(text, "RssShmem");
    found.swap = field(text, "VmSwap");
    found.vms = field(text, "VmSize");
    found.hwm = field(text, "VmHWM");
    found.vms_peak = field(text, "VmPeak");
    *threads = (int)max64(field(text, "Threads"), 1);
    return found;
}

struct memory exact_memory_of(int pid) {
    struct memory found = memory_of(pid);
    struct shares exact;
    if (found.rss < 0 || !shares_of(pid, &exact) || (exact.rss - found.rss <= page && found.rss - exact.rss <= page)) return found;
    found.rss = exact.rss;
    found.anon = exact.anon;
    found.file = max64(0, exact.rss - exact.anon - max64(found.shmem, 0));
    return found;
}

int shares_of(int pid, struct shares *found) {
    char text[4096];
    i64 anon, own_anon;
    read_of(pid, "smaps_rollup", text, sizeof text);
    found->rss = field(text, "Rss");
    found->pss = field(text, "Pss");
    if (found->rss < 0 || found->pss < 0) return 0;
    anon = max64(field(text, "Anonymous"), 0);
    own_anon = max64(field(text, "Pss_Anon"), 0);
    found->file_overlap = max64(0, found->rss - found->pss - max64(0, anon - own_anon));
    found->private_ = max64(field(text, "Private_Clean"), 0) + max64(field(text, "Private_Dirty"), 0);
    found->anon = anon;
    found->shared_anon = min64(anon, max64(field(text, "Shared_Clean"), 0) + max64(field(text, "Shared_Dirty"), 0));
    return 1;
}

int reset_high_water(int pid) {
    char path[64];
    int descriptor, done;
    put(path, sizeof path, "/proc/%d/clear_refs", pid);
    descriptor = open(path, O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) return 0;
    done = write(descriptor, "5", 1) == 1;
    close(descriptor);
    return done;
}

/* The words of a process as one line, its first 200 characters as far as `size` has room for them. */
void command_of(int pid, char command[], int size) {
    char text[2048];
    int at, filled = 0, length = read_of(pid, "cmdline", text, sizeof text);
    for (at = 0; at < length && filled < size - 1; ++at) {
        int space = text[at] == 0 || strchr(" \t\r\n\v\f", text[at]) != NULL;
        if (!space) command[filled++] = text[at];
        else if (filled && command[filled - 1] != ' ') command[filled++] = ' ';
    }
    while (filled && command[filled - 1] == ' ') --filled;
    while (filled && at < length && !utf8_valid(command, (size_t)filled) && (command[filled - 1] & 0x80)) --filled;
    command[filled] = 0;
}

int same_memory(int pid, int other) {
    char mine[128], theirs[128];
    int fields, at;
#ifdef SYS_kcmp
    long answer = syscall(SYS_kcmp, pid, other, 1 /* KCMP_VM */, 0, 0);
    if (answer >= 0) return answer == 0;
#endif
    /* Without kcmp: a fork leaves out the page tables of files, so that its resident set differs. */
    if (!read_of(pid, "statm", mine, sizeof mine) || !read_of(other, "statm", theirs, sizeof theirs) || *mine == '0') return 0;
    for (fields = at = 0; mine[at] == theirs[at] && mine[at]; ++at)
        if (mine[at] == ' ' && ++fields == 3) return 1;
    return 0;
}
