/* Starts the child: see memprof/probe/launching.py. */
#include "probe.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define PAD "MEMPROF_PAD_" /* variables without a meaning */
#define VARIABLES 128      /* by how many the number of all can be divided */

extern char **environ;

static const char *unsent; /* of the child's standard input */
static size_t unsent_length;

/* A list of strings that ends with NULL; NULL where one of them holds a 0. */
static char **texts(const struct json *list) {
    const struct json *item;
    char **words;
    size_t count = 0;
    for (item = list != NULL ? list->first : NULL; item != NULL; item = item->next) ++count;
    words = take_memory((count + 1) * sizeof *words);
    count = 0;
    for (item = list != NULL ? list->first : NULL; item != NULL; item = item->next) {
        if (item->zero) return NULL;
        words[count++] = (char *)item->text;
    }
    words[count] = NULL;
    return words;
}

static int names_variable(const char *variable, const char *name) {
    size_t length = strlen(name);
    return strncmp(variable, name, length) == 0 && variable[length] == '=';
}

/* The child's environment: what is here, changed by the message, and memprof's own. NULL where the message holds a 0 or a name with '='. */
static char **environment(const char *const own[]) {
    const struct json *changes = json_get(m.start, "env"), *item;
    char **here, **all;
    size_t count = 0, filled = 0, at;
    for (here = environ; *here != NULL; ++here) ++count;
    for (item = changes != NULL ? changes->first : NULL; item != NULL; item = item->next) ++count;
    all = take_memory((count + 8 + VARIABLES) * sizeof *all);
    for (here = environ; *here != NULL; ++here) {
        int changed = strncmp(*here, PAD, sizeof PAD - 1) == 0;
        for (item = changes != NULL ? changes->first : NULL; item != NULL && !changed; item = item->next)
            changed = names_variable(*here, item->name);
        for (at = 0; own[at] != NULL && !changed; ++at) {
            size_t length = strcspn(own[at], "=");
            changed = strncmp(*here, own[at], length + 1) == 0;
        }
        if (!changed) all[filled++] = *here;
    }
    for (item = changes != NULL ? changes->first : NULL; item != NULL; item = item->next) {
        int ours = 0;
        for (at = 0; own[at] != NULL; ++at) ours |= names_variable(own[at], item->name);
        if (item->kind == J_NULL || ours) continue;
        if (item->zero || !*item->name || strchr(item->name, '=') != NULL) return NULL;
        all[filled++] = formatted("%s=%s", item->name, item->text);
    }
    for (at = 0; own[at] != NULL; ++at) all[filled++] = (char *)own[at];
    /* As launching.py does, and why is said there. */
    for (at = 0; m.task != COMMAND && filled % VARIABLES != 0; ++at) all[filled++] = formatted(PAD "%d=", (int)at);
    all[filled] = NULL;
    return all;
}

/* execvp(3) along the PATH that the child will have; sets errno. */
static void execute(char **words, char **variables) {
    const char *path = "/bin:/usr/bin";
    char file[4096];
    int first = 0, last = ENOENT;
    size_t at;
    if (strchr(words[0], '/') != NULL) {
        execve(words[0], words, variables);
        return;
    }
    for (at = 0; variables[at] != NULL; ++at)
        if (names_variable(variables[at], "PATH")) path = variables[at] + 5;
    for (;;) {
        size_t length = strcspn(path, ":");
        int fits = put(file, sizeof file, "%.*s%s%s", (int)length, path, length ? "/" : "", words[0]) < sizeof file;
        if (fits) execve(file, words, variables);
        last = fits ? errno : ENAMETOOLONG;
        if (last != ENOENT && last != ENOTDIR && !first) first = last;
        if (!path[length]) break;
        path += length + 1;
    }
    errno = first ? first : last;
}

static int limit(const char *name, i64 value) {
    static const struct { const char *name; int number; } known[] = {
        {"RLIMIT_AS", RLIMIT_AS}, {"RLIMIT_DATA", RLIMIT_DATA}, {"RLIMIT_STACK", RLIMIT_STACK}, {"RLIMIT_RSS", RLIMIT_RSS},
        {"RLIMIT_CORE", RLIMIT_CORE}, {"RLIMIT_CPU", RLIMIT_CPU}, {"RLIMIT_FSIZE", RLIMIT_FSIZE}, {"RLIMIT_NOFILE", RLIMIT_NOFILE},
        {"RLIMIT_NPROC", RLIMIT_NPROC}, {"RLIMIT_MEMLOCK", RLIMIT_MEMLOCK},
    };
    size_t at;
    for (at = 0; at < LENGTH(known); ++at)
        if (strcmp(name, known[at].name) == 0) {
            struct rlimit limits;
            if (getrlimit(known[at].number, &limits) < 0) return 0;
            limits.rlim_cur = (rlim_t)value;
            return setrlimit(known[at].number, &limits) == 0;
        }
    errno = EINVAL;
    return 0;
}

/* -- the CPUs that it may run on */

int usable_cpus(int pid) {
    cpu_set_t set;
    return sched_getaffinity(pid, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* Run on the CPUs of the message from here on, and on no others; 0 where that may not be. */
static int run_on(const struct json *list) {
    cpu_set_t wanted, reached;
    const struct json *item;
    i64 number;
    CPU_ZERO(&wanted);
    for (item = list->first; item != NULL; item = item->next) {
        if (!json_count(item, &number) || number >= CPU_SETSIZE) return 0;
        CPU_SET((int)number, &wanted);
    }
    return sched_setaffinity(0, sizeof wanted, &wanted) == 0 && sched_getaffinity(0, sizeof reached, &reached) == 0
        && CPU_EQUAL(&wanted, &reached);
}

/* Whether the child may be set to run on these CPUs, found by setting this process for a moment. */
static int may_run_on(const struct json *list) {
    cpu_set_t before;
    int may;
    if (sched_getaffinity(0, sizeof before, &before) < 0) return 0;
    may = run_on(list);
    sched_setaffinity(0, sizeof before, &before);
    return may;
}

static char *listed(const struct json *list) {
    char *text = copy_text("", 0);
    const struct json *item;
    for (item = list->first; item != NULL; item = item->next) {
        i64 number = -1;
        char *longer;
        json_count(item, &number);
        longer = formatted("%s%s%d", text, item == list->first ? "" : ",", (int)number);
        free(text);
        text = longer;
    }
    return text;
}

/* In the child; returns only where that failed, with errno. */
static void become(int parent, int input, int output, int marks, char **words, char **variables) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGCHLD, SIGPIPE, SIGHUP, SIGXFSZ};
    const struct json *limits = json_get(m.start, "rlimits"), *item, *cwd = json_get(m.start, "cwd"), *cpus = json_get(m.start, "cpus");
    sigset_t none;
    size_t at;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (m.hold != NULL) prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* for who looks at it while it is held: see launching.py */
    if (getppid() != parent) _exit(127); /* it ended before the line above */
    for (at = 0; at < LENGTH(numbers); ++at) signal(numbers[at], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (json_true(json_get(m.start, "deterministic"))) personality(ADDR_NO_RANDOMIZE);
    dup2(input, 0);
    dup2(output, 1);
    dup2(output, 2);
    fcntl(marks, F_SETFD, 0);
    if (words == NULL || variables == NULL || words[0] == NULL || (cwd != NULL && cwd->zero)) {
        errno = EINVAL;
        return;
    }
    if (m.grouped && !group_join()) return;
    if (cpus != NULL && cpus->first != NULL && !run_on(cpus)) return;
    for (item = limits != NULL ? limits->first : NULL; item != NULL; item = item->next)
        if (!limit(item->name, json_int(limits, item->name, 0))) return;
    if (cwd != NULL && cwd->length && chdir(cwd->text) < 0) return;
    execute(words, variables);
}

static void close_all(const int *descriptors, size_t count) {
    size_t at;
    for (at = 0; at < count; ++at)
        if (descriptors[at] >= 0) close(descriptors[at]);
}

/* To a pipe the C library writes whole blocks, and each line would arrive with the last one. To a terminal it writes lines. */
static int terminal(int ends[2]) {
    char path[32];
    int locked = 0, number;
    ends[0] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (ends[0] < 0 || ioctl(ends[0], TIOCSPTLCK, &locked) < 0 || ioctl(ends[0], TIOCGPTN, &number) < 0) return 0;
    put(path, sizeof path, "/dev/pts/%d", number);
    ends[1] = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
    return ends[1] >= 0;
}

void send_input(void) {
    ssize_t count = unsent_length ? write(m.input, unsent, unsent_length) : 0;
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    unsent += count > 0 ? count : 0;
    unsent_length = count < 0 ? 0 : unsent_length - (size_t)count;
    if (unsent_length) return;
    close(m.input);
    m.input = -1;
}

enum { MARKS = 0, OUTPUT = 2, INPUT = 4, STATUS = 6 }; /* of each pair the side that is read, then the one that is written */

int launch(void) {
    int ends[8] = {-1, -1, -1, -1, -1, -1, -1, -1}, failed = 0, parent = getpid(), made;
    const struct json *input = json_get(m.start, "input"), *text = json_get(m.start, "stdin"), *group = json_get(m.start, "group");
    const struct json *argv = json_get(m.start, "argv"), *cpus = json_get(m.start, "cpus"), *cpu;
    const char *own[5], *first = argv != NULL && argv->first != NULL ? argv->first->text : "";
    char **words, **variables;
    size_t count = 0;
    struct stat found;
    m.usable = usable_cpus(0);
    if (cpus != NULL && cpus->first != NULL) {
        if (!may_run_on(cpus)) {
            start_fails("STARTUP", formatted("it may not run on exactly the CPUs %s: one of them is not there, or not allowed to this process",
                                             listed(cpus)));
            return 0;
        }
        for (m.usable = 0, cpu = cpus->first; cpu != NULL; cpu = cpu->next) ++m.usable;
    }
    made = pipe2(ends + MARKS, O_CLOEXEC) == 0 && pipe2(ends + INPUT, O_CLOEXEC) == 0 && pipe2(ends + STATUS, O_CLOEXEC) == 0
        && (m.task == COMMAND && command_terminal() ? terminal(ends + OUTPUT) : pipe2(ends + OUTPUT, O_CLOEXEC) == 0);
    if (!made) {
        start_fails("STARTUP", formatted("%s: %s", first, strerror(errno)));
        close_all(ends, LENGTH(ends));
        return 0;
    }
    if (input != NULL) {
        int given = (int)json_int(m.start, "input", -1);
        dup3(given, ends[INPUT], O_CLOEXEC);
        close(given);
    }
    fstat(ends[MARKS + 1], &found);
    own[count++] = formatted("MEMPROF_MARKS=%d:%llu:%llu", ends[MARKS + 1], (unsigned long long)found.st_dev,
                             (unsigned long long)found.st_ino);
    own[count++] = formatted("MEMPROF_STARTED_NS=%lld", (long long)now_ns());
    /* A process that will be stopped shall have its memory where one that will not has it, so that one of them tells of the other. */
    own[count++] = m.hold != NULL ? "MEMPROF_HOLD=1" : "MEMPROF_GOES=1";
    if (m.task == COMMAND && command_terminal()) {
        const struct json *env = json_get(m.start, "env"), *item;
        int named = 0;
        for (item = env != NULL ? env->first : NULL; item != NULL; item = item->next) named |= strcmp(item->name, "TERM") == 0;
        if (!named) own[count++] = "TERM=dumb";
    }
    own[count] = NULL;
    words = texts(argv);
    variables = environment(own);
    if (group != NULL && (failed = group_make(group)) != 0) {
        start_fails("STARTUP", formatted("%s: %s", json_text(group, "path"), strerror(failed)));
        close_all(ends, LENGTH(ends));
        return 0;
    }
    m.grouped = group != NULL;
    m.begin_ns = now_ns();
    m.pid = m.measured = fork();
    if (m.pid == 0) {
        become(parent, ends[INPUT], ends[OUTPUT + 1], ends[MARKS + 1], words, variables);
        failed = errno ? errno : EINVAL;
        if (write(ends[STATUS + 1], &failed, sizeof failed) < 0) { /* nobody to tell */ }
        _exit(127);
    }
    if (m.pid < 0) failed = errno;
    close(ends[MARKS + 1]), close(ends[OUTPUT + 1]), close(ends[INPUT]), close(ends[STATUS + 1]);
    while (m.pid > 0 && read(ends[STATUS], &failed, sizeof failed) < 0 && errno == EINTR) {} /* ends at the exec */
    close(ends[STATUS]);
    if (failed) {
        if (m.pid > 0) waitpid(m.pid, NULL, 0);
        start_fails("STARTUP", formatted("%s: %s", first, strerror(failed)));
        close(ends[MARKS]), close(ends[OUTPUT]), close(ends[INPUT + 1]);
        return 0;
    }
    m.marks = ends[MARKS], m.output = ends[OUTPUT], m.input = ends[INPUT + 1];
    fcntl(m.marks, F_SETFL, O_NONBLOCK);
    fcntl(m.output, F_SETFL, fcntl(m.output, F_GETFL) | O_NONBLOCK);
    fcntl(m.input, F_SETFL, O_NONBLOCK | O_WRONLY);
    if (m.task == OWN_SIDE) statm_open(&m.statm, m.pid);
    unsent = text != NULL ? text->text : "";
    unsent_length = text != NULL ? text->length : 0;
    send_input();
    return 1;
}
