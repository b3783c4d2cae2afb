#include "procfs.h"
#include <dirent.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

const char *path_of(int pid, const char *name) {
    static char path[96];
    add_text(add_text(add_int(add_text(path, "/proc/"), pid), "/"), name);
    return path;
}

int open_of(int pid, const char *name) { return open(path_of(pid, name), O_RDONLY | O_CLOEXEC); }

/* A number that is the name of a process or a thread, 0 for any other name. */
static int number_of(const char *name) { return *name >= '1' && *name <= '9' ? (int)read_int(name, NULL) : 0; }

/* The id of a thread through which a process's memory can be seen, 0 where it has none: a first thread that ends before the others leaves a
 * zombie, of which /proc/PID tells no memory, though /proc/TID of any other thread does. */
static int living(int pid) {
    char text[FIELDS_ROOM];
    struct dirent *entry;
    int thread = 0;
    DIR *folder = opendir(path_of(pid, "task"));
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        thread = number_of(entry->d_name);
        if (thread && read_whole(open_of(thread, "statm"), text, sizeof text) && *text != '0') break;
        thread = 0;
    }
    if (folder != NULL) closedir(folder);
    return thread;
}

int statm_open(struct statm *statm, int pid) {
    memset(statm, 0, sizeof *statm);
    add_text(statm->fields, NOTHING);
    statm->pid = statm->task = pid;
    statm->first = statm->descriptor = open_of(pid, "statm");
    return statm->descriptor >= 0;
}

static int read_once(struct statm *statm) {
    char text[FIELDS_ROOM];
    const char *rest;
    ssize_t length = pread(statm->descriptor, text, sizeof text - 1, 0);
    if (length <= 0 || *text == '0') return 0;
    text[length] = 0;
    read_int(text, &rest);
    statm->resident = read_int(rest, &rest);
    statm->shared = read_int(rest, &rest);
    text[rest - text] = 0;
    add_text(statm->fields, text);
    return 1;
}

int statm_is_there(const struct statm *statm) {
    char text[1];
    return pread(statm->first, text, sizeof text, 0) > 0;
}

/* Turn to another thread, as this one shows no memory any more; 0 where there is none that does. */
static int turn(struct statm *statm) {
    int task, descriptor;
    if (statm->task != statm->pid) {
        close(statm->descriptor);
        statm->descriptor = statm->first;
        statm->task = statm->pid;
        if (read_once(statm)) return 1; /* an exec of another thread has made that the first thread */
    }
    task = statm_is_there(statm) ? living(statm->pid) : 0;
    if (!task || task == statm->pid) return task != 0;
    descriptor = open_of(task, "statm");
    if (descriptor < 0) return 0;
    statm->descriptor = descriptor;
    statm->task = task;
    return 1;
}

int statm_read(struct statm *statm) {
    int some;
    while (!(some = read_once(statm)) && turn(statm)) {}
    return some;
}

void statm_close(struct statm *statm) {
    if (statm->descriptor != statm->first) close(statm->descriptor);
    close(statm->first);
}

int stat_read(int pid, struct stat_reading *stat) {
    char text[1024], *end, *name, *to = stat->fields;
    const char *at;
    i64 numbers[29] = {0};
    int field;
    memset(stat, 0, sizeof *stat);
    if (!read_whole(open_of(pid, "stat"), text, sizeof text) || (end = strrchr(text, ')')) == NULL || strlen(end) < 3) return 0;
    *end = 0; /* of the name, which may hold anything */
    name = strchr(text, '(');
    strncpy(stat->name, name != NULL ? name + 1 : "", sizeof stat->name - 1);
    stat->state = *to++ = end[2];
    for (at = end + 3, field = 4; field < (int)LENGTH(numbers); ++field) numbers[field] = read_int(at, &at);
    stat->parent = (int)numbers[4];
    stat->faults = numbers[10];
    stat->threads = numbers[20];
    stat->started = numbers[22];
    stat->stack = numbers[28];
    numbers[14] += numbers[15];
    for (field = 10; field < (int)LENGTH(numbers); ++field)
        if (field < 13 || field == 14 || field == 20 || field == 28) to = add_int(add_text(to, " "), numbers[field]);
    return 1;
}

/* A zombie with more than one thread is but the first thread: the others live on, and so does the memory. */
int stat_is_over(const struct stat_reading *stat) { return (stat->state == 'Z' || stat->state == 'X') && stat->threads <= 1; }

i64 number_behind(const char *text, const char *name) {
    const char *found = strstr(text, name);
    return found != NULL ? read_int(found + strlen(name), NULL) : -1;
}

/* The numbers of a file behind these names, as fields; 0 where it lacks the one at place `least`. */
static int collect(int descriptor, const char *const names[], size_t count, size_t least, char *to) {
    char text[4096];
    size_t at;
    read_whole(descriptor, text, sizeof text);
    for (at = 0; at < count; ++at) {
        i64 number = number_behind(text, names[at]);
        if (number < 0 && at == least) return 0;
        if (at) to = add_text(to, " ");
        to = number < 0 ? add_text(to, "-") : add_int(to, number);
    }
    return 1;
}

int status_read(int task, char fields[FIELDS_ROOM]) {
    static const char *const names[] = {"\nVmSize:",  "\nVmPeak:",   "\nVmRSS:",  "\nVmHWM:",  "\nRssAnon:",
                                        "\nRssFile:", "\nRssShmem:", "\nVmSwap:", "\nThreads:"};
    return collect(open_of(task, "status"), names, LENGTH(names), 2, fields);
}

/* Pss_Anon is there from Linux 5.4 on. */
int rollup_read(int task, char fields[FIELDS_ROOM]) {
    static const char *const names[] = {"\nRss:",          "\nPss:",          "\nPss_Anon:",      "\nAnonymous:",
                                        "\nShared_Clean:", "\nShared_Dirty:", "\nPrivate_Clean:", "\nPrivate_Dirty:"};
    return collect(open_of(task, "smaps_rollup"), names, LENGTH(names), 1, fields);
}

void tables_read(int task, char fields[FIELDS_ROOM]) {
    static const char *const names[] = {"\nVmPTE:", "\nHugetlbPages:"};
    const char *huge;
    i64 shared;
    collect(open_of(task, "status"), names, LENGTH(names), LENGTH(names), fields);
    huge = strchr(fields, ' ');
    shared = read_int(huge, NULL) > 0 ? figure_of(task, "smaps_rollup", "\nShared_Hugetlb:") : -(huge[1] == '-');
    if (shared < 0) add_text(fields + strlen(fields), " -");
    else add_int(add_text(fields + strlen(fields), " "), shared);
}

i64 number_in(int descriptor, const char *name) {
    static char text[16384]; /* /proc/vmstat has some 190 lines, memory.stat 70 */
    *text = '\n';
    read_whole(descriptor, text + 1, sizeof text - 1);
    return number_behind(text, name);
}

i64 figure_of(int pid, const char *file, const char *name) { return number_in(open_of(pid, file), name); }

int reset_high_water(int pid) {
    int descriptor = open(path_of(pid, "clear_refs"), O_WRONLY | O_CLOEXEC), done = descriptor >= 0 && write(descriptor, "5", 1) == 1;
    if (descriptor >= 0) close(descriptor);
    return done;
}

void name_of(int pid, char name[NAME_ROOM]) {
    size_t length = read_whole(open_of(pid, "comm"), name, NAME_ROOM);
    if (length && name[length - 1] == '\n') name[length - 1] = 0;
}

void command_of(int pid, char command[COMMAND_ROOM]) {
    char text[4096];
    size_t at, filled = 0, length = read_whole(open_of(pid, "cmdline"), text, sizeof text);
    int space = 0;
    for (at = 0; at < length; ++at) {
        int is_space = text[at] == 0 || strchr(" \t\r\n\v\f", text[at]) != NULL;
        if (!is_space && space && filled && filled < COMMAND_ROOM - 1) command[filled++] = ' ';
        if (!is_space && filled < COMMAND_ROOM - 1) command[filled++] = text[at];
        space = is_space;
    }
    command[filled] = 0;
}

int same_memory(int task, int other) {
    char mine[FIELDS_ROOM], theirs[FIELDS_ROOM];
#ifdef SYS_kcmp
    long answer = syscall(SYS_kcmp, task, other, 1 /* KCMP_VM */, 0, 0);
    if (answer >= 0) return answer == 0; /* 1, 2 and 3 mean that they differ */
#endif
    /* Without kcmp (CONFIG_KCMP, the right to trace): a fork leaves out the page tables of files, so that its resident set differs. */
    if (!read_whole(open_of(task, "statm"), mine, sizeof mine) || !read_whole(open_of(other, "statm"), theirs, sizeof theirs)) return 0;
    return *mine != '0' && strcmp(mine, theirs) == 0;
}

int children_open(int pid, int thread) {
    char name[64];
    add_text(add_int(add_text(name, "task/"), thread), "/children");
    return open_of(pid, name);
}

void pids_parse(struct pids *pids, const char *text, size_t length) {
    size_t at;
    int pid = 0;
    for (at = 0; at <= length; ++at) {
        int is_digit = at < length && text[at] >= '0' && text[at] <= '9';
        if (!is_digit && pid) ADD(pids, pid);
        pid = is_digit ? pid * 10 + text[at] - '0' : 0;
    }
}

/* 0 where a thread ended meanwhile, or there are no such lists. */
static int list_threads(struct pids *pids, int pid) {
    static char text[65536];
    struct dirent *entry;
    int listed = 1;
    DIR *folder = opendir(path_of(pid, "task"));
    if (folder == NULL) return 0;
    while (listed && (entry = readdir(folder)) != NULL) {
        int thread = number_of(entry->d_name), descriptor = thread ? children_open(pid, thread) : -1;
        listed = !thread || descriptor >= 0;
        pids_parse(pids, text, read_whole(descriptor, text, sizeof text));
    }
    closedir(folder);
    return listed;
}

void children_of(struct pids *pids, int pid) {
    struct dirent *entry;
    DIR *folder;
    pids->count = 0;
    if (list_threads(pids, pid) || (folder = opendir("/proc")) == NULL) return;
    pids->count = 0;
    while ((entry = readdir(folder)) != NULL) {
        struct stat_reading stat;
        int other = number_of(entry->d_name);
        if (other && stat_read(other, &stat) && stat.parent == pid) ADD(pids, other);
    }
    closedir(folder);
}

static i64 counted(const char *path, const char *name) { return number_in(open(path, O_RDONLY | O_CLOEXEC), name); }

i64 oom_kills(void) { return counted("/proc/vmstat", "\noom_kill "); }
i64 oom_kills_inside(void) { return counted("/sys/fs/cgroup/memory.events", "\noom_kill "); }
i64 huge_faults(void) { return counted("/proc/vmstat", "\nthp_fault_alloc "); }

int kernel_counts_late(void) {
    struct utsname system;
    const char *rest;
    i64 major = uname(&system) == 0 ? read_int(system.release, &rest) : NEVER;
    return major < 6 || (major == 6 && read_int(rest + 1, NULL) < 17);
}
