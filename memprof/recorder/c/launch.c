#include "launch.h"
#include "group.h"
#include "procfs.h"
#include "recording.h"
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define PAD "MEMPROF_PAD_"
#define HEAD 20 /* bytes of an ELF header up to the machine that it is for */

/* Why the child could not become the program. head: of a file in no format that the kernel starts. */
struct failure { const char *step, *what; int reason; size_t length; char head[HEAD + 1]; };

/* Of each pair the side that is read, then the one that is written. */
struct pipes { int marks[2], output[2], input[2], failure[2]; };

i64 begin_tell(int cpus) {
    i64 hwm = figure_of(getpid(), "status", "\nVmHWM:"), now = now_ns();
    line("begin %l %d %k %d\n", now, cpus, hwm, getpid());
    return now;
}

int cpus_of(int pid) {
    cpu_set_t set;
    return sched_getaffinity(pid, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

/* The CPUs of N,N,...; 0 where that is no such list. */
static int read_cpus(const char *text, cpu_set_t *set) {
    const char *rest;
    CPU_ZERO(set);
    for (;; text = rest + 1) {
        i64 number = read_int(text, &rest);
        if (rest == text || number < 0 || number >= CPU_SETSIZE) return 0;
        CPU_SET((size_t)number, set);
        if (*rest != ',') return *rest == 0;
    }
}

/* Run on the CPUs of a list from here on, and on no others; 0 where that may not be. */
static int run_on(const char *list) {
    cpu_set_t wanted, reached;
    errno = EINVAL;
    if (!read_cpus(list, &wanted) || sched_setaffinity(0, sizeof wanted, &wanted) < 0) return 0;
    return sched_getaffinity(0, sizeof reached, &reached) == 0 && CPU_EQUAL(&wanted, &reached);
}

/* On how many CPUs the child is to run. */
static int count_cpus(const char *list) {
    cpu_set_t set;
    return list != NULL && read_cpus(list, &set) ? CPU_COUNT(&set) : (int)max64(cpus_of(0), 1);
}

/* The recorder's variables, changed as ordered, and memprof's own. */
static void change_environment(const struct order *order, int marks, i64 begin_ns) {
    char **from, **to, text[96];
    struct stat found;
    size_t at;
    for (from = to = environ; *from != NULL; ++from)
        if (!begins(*from, PAD)) *to++ = *from;
    *to = NULL;
    for (at = 0; at < order->env.count; ++at) putenv(order->env.items[at]);
    for (at = 0; at < order->unset.count; ++at) unsetenv(order->unset.items[at]);
    fstat(marks, &found);
    add_text(add_int(text, marks), ":");
    add_text(add_int(text + strlen(text), (i64)found.st_dev), ":");
    add_int(text + strlen(text), (i64)found.st_ino);
    setenv("MEMPROF_MARKS", text, 1);
    add_int(text, begin_ns);
    setenv("MEMPROF_STARTED_NS", text, 1);
    for (at = 0; environ[at] != NULL;) ++at;
    for (marks = 0; order->pad && (i64)at % order->pad != 0; ++marks, ++at) {
        add_int(add_text(text, PAD), marks);
        setenv(text, "", 1);
    }
}

static int limit(const char *text) {
    static const struct { const char *name; int number; } known[] = {{"RLIMIT_AS ", RLIMIT_AS}, {"RLIMIT_DATA ", RLIMIT_DATA}};
    struct rlimit limits;
    size_t at = 0;
    while (at < LENGTH(known) && !begins(text, known[at].name)) ++at;
    errno = EINVAL;
    if (at == LENGTH(known) || getrlimit(known[at].number, &limits) < 0) return 0;
    limits.rlim_cur = (rlim_t)read_int(text + strlen(known[at].name), NULL);
    return setrlimit(known[at].number, &limits) == 0;
}

/* execvp(3) along the PATH that the child has by now, but without a shell for other files. */
static void execute(char **words, struct failure *failure) {
    const char *path = strchr(words[0], '/') != NULL ? "" : getenv("PATH");
    char file[4096];
    if (path == NULL) path = "/bin:/usr/bin";
    for (failure->reason = ENOENT;; ++path) {
        size_t length = strcspn(path, ":");
        errno = ENAMETOOLONG;
        if (length + strlen(words[0]) + 2 <= sizeof file) {
            memcpy(file, path, length);
            add_text(add_text(file + length, length ? "/" : ""), words[0]);
            execve(file, words, environ);
        }
        if (failure->reason == ENOENT || failure->reason == ENOTDIR) failure->reason = errno; /* the first that tells more */
        if (errno == ENOEXEC) failure->length = read_whole(open(file, O_RDONLY | O_CLOEXEC), failure->head, sizeof failure->head);
        path += length;
        if (!*path) return;
    }
}

/* The child between the fork and the exec; 0 with errno. */
static int prepare(const struct order *order, struct failure *failure) {
    size_t at;
    if (!group_join()) {
        failure->step = "group";
        failure->what = order->group;
        return 0;
    }
    if (order->cpus != NULL && !run_on(order->cpus)) {
        failure->step = "cpus";
        failure->what = order->cpus;
        return 0;
    }
    for (at = 0; at < order->rlimit.count; ++at)
        if (!limit(order->rlimit.items[at])) return 0;
    if (order->cwd == NULL || !*order->cwd || chdir(order->cwd) == 0) return 1;
    failure->what = order->cwd;
    return 0;
}

/* Become the program; returns only where that failed. */
static void become(const struct order *order, int parent, const struct pipes *pipes, i64 begin_ns, struct failure *failure) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGCHLD, SIGPIPE, SIGHUP, SIGXFSZ};
    sigset_t none;
    size_t at;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    /* Where Yama lets only the processes above it look at a process, others of this user may look at this one, also after the exec. */
    if (order->hold) prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    if (getppid() != parent) _exit(127); /* it ended before the lines above */
    for (at = 0; at < LENGTH(numbers); ++at) signal(numbers[at], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (order->personality) personality(ADDR_NO_RANDOMIZE); /* whether the kernel let us is read back from the child */
    dup2(pipes->input[0], 0);
    dup2(pipes->output[1], 1);
    dup2(pipes->output[1], 2);
    fcntl(pipes->marks[1], F_SETFD, 0);
    change_environment(order, pipes->marks[1], begin_ns);
    if (prepare(order, failure)) execute(order->argv.items, failure);
    else failure->reason = errno;
}

/* To a pipe the C library writes whole blocks, and each line would arrive with the last one. To a terminal it writes lines. */
static int open_terminal(int ends[2]) {
    char path[32];
    int locked = 0, number;
    ends[0] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (ends[0] < 0 || ioctl(ends[0], TIOCSPTLCK, &locked) < 0 || ioctl(ends[0], TIOCGPTN, &number) < 0) return 0;
    add_int(add_text(path, "/dev/pts/"), number);
    ends[1] = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
    return ends[1] >= 0;
}

static int open_pipes(const struct order *order, struct pipes *pipes) {
    if (pipe2(pipes->marks, O_CLOEXEC) < 0 || pipe2(pipes->input, O_CLOEXEC) < 0 || pipe2(pipes->failure, O_CLOEXEC) < 0) return 0;
    if (!(order->terminal ? open_terminal(pipes->output) : pipe2(pipes->output, O_CLOEXEC) == 0)) return 0;
    return order->input < 0 || (dup3((int)order->input, pipes->input[0], O_CLOEXEC) >= 0 && close((int)order->input) == 0);
}

static int without_waiting(int descriptor) {
    fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
    return descriptor;
}

/* Write why nothing was started; 0. */
static int fail(const struct failure *failure) {
    static const char digits[] = "0123456789abcdef";
    char head[2 * HEAD + 1] = NOTHING;
    size_t at;
    for (at = 0; at < failure->length; ++at) {
        head[2 * at] = digits[(unsigned char)failure->head[at] >> 4];
        head[2 * at + 1] = digits[failure->head[at] & 15];
        head[2 * at + 2] = 0;
    }
    line("error %l %s %d %s %e\n", now_ns(), failure->step, failure->reason ? failure->reason : EINVAL, head, failure->what);
    return 0;
}

/* Fork, and wait until the child has become the program; 0 where that failed. */
static int fork_child(const struct order *order, const struct pipes *pipes, struct child *child, struct failure *failure) {
    int parent = getpid(), theirs[] = {pipes->marks[1], pipes->output[1], pipes->input[0], pipes->failure[1]};
    ssize_t count;
    size_t at;
    child->pid = fork();
    if (child->pid == 0) {
        become(order, parent, pipes, child->begin_ns, failure);
        if (write(pipes->failure[1], failure, sizeof *failure) < 0) { /* nobody to tell */ }
        _exit(127);
    }
    failure->reason = errno;
    for (at = 0; at < LENGTH(theirs); ++at) close(theirs[at]);
    do count = read(pipes->failure[0], failure, sizeof *failure); /* ends at the exec */
    while (count < 0 && errno == EINTR);
    close(pipes->failure[0]);
    if (count > 0) waitpid(child->pid, NULL, 0);
    return child->pid > 0 && count <= 0;
}

int launch(const struct order *order, struct child *child) {
    struct failure of_group = {"group", order->group, 0, 0, ""};
    struct failure failure = {"exec", order->argv.items[0], 0, 0, ""};
    struct pipes pipes;
    char text[64];
    if (order->group != NULL) of_group.reason = group_make(order->group, &order->setting);
    if (of_group.reason) return fail(&of_group);
    if (!open_pipes(order, &pipes)) failure.reason = errno;
    if (failure.reason) return fail(&failure);
    child->begin_ns = begin_tell(count_cpus(order->cpus));
    if (!fork_child(order, &pipes, child, &failure)) return fail(&failure);
    child->marks = without_waiting(pipes.marks[0]);
    child->output = without_waiting(pipes.output[0]);
    child->input = without_waiting(pipes.input[1]);
    line("start %l %d\n", now_ns(), child->pid);
    if (!order->personality) return 1;
    read_whole(open_of(child->pid, "personality"), text, sizeof text);
    line("layout %l %d\n", now_ns(), (strtoul(text, NULL, 16) & ADDR_NO_RANDOMIZE) != 0);
    return 1;
}
