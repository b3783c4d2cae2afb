/* One line of JSON in, lines out: the contract stands in memprof/probe/__main__.py. */
#include "probe.h"
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

/* The line, and in m.early the bytes after it that came with it; the others stay in the pipe for the loop that watches it. */
static char *first_line(size_t *length) {
    size_t room = 65536;
    char *text = take_memory(room), *end;
    *length = 0;
    while ((end = memchr(text, '\n', *length)) == NULL) {
        ssize_t count;
        if (*length + 1 >= room) {
            char *longer = take_memory(room * 2);
            memcpy(longer, text, *length);
            free(text);
            text = longer;
            room *= 2;
        }
        count = read(0, text + *length, room - *length - 1);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;
        *length += (size_t)count;
    }
    m.early = end != NULL ? copy_text(end + 1, *length - (size_t)(end + 1 - text)) : "";
    if (end != NULL) *length = (size_t)(end - text);
    text[*length] = 0;
    return text;
}

static const char *signal_name(int number) {
    static const struct { int number; const char *name; } names[] = {
        {SIGHUP, "SIGHUP"}, {SIGINT, "SIGINT"}, {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"}, {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"},
        {SIGBUS, "SIGBUS"}, {SIGFPE, "SIGFPE"}, {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
        {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"}, {SIGSTKFLT, "SIGSTKFLT"}, {SIGCHLD, "SIGCHLD"},
        {SIGCONT, "SIGCONT"}, {SIGSTOP, "SIGSTOP"}, {SIGTSTP, "SIGTSTP"}, {SIGTTIN, "SIGTTIN"}, {SIGTTOU, "SIGTTOU"}, {SIGURG, "SIGURG"},
        {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"}, {SIGVTALRM, "SIGVTALRM"}, {SIGPROF, "SIGPROF"}, {SIGWINCH, "SIGWINCH"},
        {SIGIO, "SIGIO"}, {SIGPWR, "SIGPWR"}, {SIGSYS, "SIGSYS"}, {34, "SIGRTMIN"}, {64, "SIGRTMAX"},
    };
    size_t at;
    for (at = 0; at < LENGTH(names); ++at)
        if (names[at].number == number) return names[at].name;
    return formatted("SIG%d", number);
}

static void out_field(const char *name, const char *text) {
    out(",\"%s\":", name);
    out_text(text);
}

static void out_outcome(void) {
    int ok = strcmp(m.outcome, "ok") == 0;
    out("{\"status\":");
    out_text(m.outcome);
    if (m.outcome_phase != NULL) out_field("phase", m.outcome_phase);
    if (m.outcome_message != NULL) out_field("message", m.outcome_message);
    if (!ok && m.exit_code >= 0) out(",\"exit_code\":%d", m.exit_code);
    if (!ok && m.signal) out_field("signal", signal_name(m.signal));
    if (!ok && m.rss_last >= 0) out(",\"rss_last_bytes\":%lld", (long long)m.rss_last);
    out(",\"out_of_memory\":%s}", m.out_of_memory < 0 ? "null" : m.out_of_memory ? "true" : "false");
}

static void out_about(void) {
    const struct json *notes = json_get(m.about, "notes"), *packages = json_get(m.about, "packages"), *item;
    if (m.about == NULL) {
        out("null");
        return;
    }
    out("{\"runtime_version\":");
    out_text(json_text(m.about, "runtime_version"));
    out_field("python_version", json_text(m.about, "python_version"));
    out(",\"notes\":[");
    for (item = notes->first; item != NULL; item = item->next) {
        out_string(item->text, item->length);
        if (item->next != NULL) out(",");
    }
    out("],\"packages\":{");
    for (item = packages != NULL ? packages->first : NULL; item != NULL; item = item->next) {
        out_text(item->name);
        out(":");
        out_string(item->text, item->length);
        if (item->next != NULL) out(",");
    }
    out("}}");
}

static int smaller(const void *left, const void *right) {
    i64 one = *(const i64 *)left, other = *(const i64 *)right;
    return one < other ? -1 : one > other;
}

static void out_polling(void) {
    i64 count = min64(m.period_count, (i64)LENGTH(m.periods));
    if (!count) {
        out("null");
        return;
    }
    qsort(m.periods, (size_t)count, sizeof *m.periods, smaller);
    out("{\"polls\":%lld,\"median_ns\":%lld,\"p99_ns\":%lld}", (long long)m.polls, (long long)m.periods[count / 2],
        (long long)m.periods[min64(count - 1, count * 99 / 100)]);
}

static void out_run(const char *job, size_t job_length, i64 started_ns) {
    struct timeline *timeline = m.task != OWN_SIDE && tree.whole != NULL ? &tree.whole->timeline : &m.timeline;
    size_t at;
    out("{\"memprof\":1,\"job\":");
    out_raw(job, job_length);
    out(",\"machine\":");
    out_machine();
    out(",\"started_ns\":%lld,\"marks\":[", (long long)started_ns);
    out_marks();
    out("],\"about\":");
    out_about();
    out(",\"outcome\":");
    out_outcome();
    out(",\"warnings\":[");
    for (at = 0; at < m.warnings.count; ++at) {
        if (at) out(",");
        out_text(m.warnings.items[at]);
    }
    out("],\"timeline\":");
    out_timeline(timeline, m.rss_max_high);
    out(",\"polling\":");
    out_polling();
    out(",\"output_bytes\":%lld,\"charged\":", (long long)m.output_bytes);
    if (m.charged) {
        out("{\"peak_bytes\":");
        out(m.charged_peak >= 0 ? "%lld" : "null", (long long)m.charged_peak);
        out(",\"oom_kills\":");
        out(m.charged_kills >= 0 ? "%lld" : "null", (long long)m.charged_kills);
        out("}");
    } else {
        out("null");
    }
    if (m.value_count) {
        out(",\"values\":[");
        out_values();
        out("]");
    }
    out_work();
    if (m.task != OWN_SIDE && tree.most > 1) {
        out(",\"processes\":");
        out_processes();
    }
    if (strcmp(m.outcome, "ok") != 0) {
        out(",\"output_tail\":");
        out_string(m.tail, m.tail_length);
    }
    out("}\n");
    out_flush();
}

static struct { const char *job; size_t length; i64 started_ns; } asked;

void report(void) {
    const char *outcome = m.outcome, *phase = m.outcome_phase, *message = m.outcome_message;
    m.outcome = "lost", m.outcome_message = "it was ended, with memprof, while it ran";
    m.outcome_phase = *m.phase ? m.phase : NULL;
    out("sofar ");
    out_run(asked.job, asked.length, asked.started_ns);
    m.outcome = outcome, m.outcome_phase = phase, m.outcome_message = message;
}

static int not_understood(const char *reason) {
    const char *line = formatted("not understood: %s\n", reason);
    if (write(2, line, strlen(line)) < 0) { /* nobody listens */ }
    return 2;
}

int main(void) {
    size_t length;
    char *text, *copy;
    const struct json *job;
    struct json *order;
    struct timespec started;
    const char *state, *followed;
    sigset_t none;
    i64 number;
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL); /* what memprof was started with may block SIGCHLD, and for the child any other */
    page = sysconf(_SC_PAGESIZE);
    text = first_line(&length);
    if (!utf8_valid(text, length)) return not_understood("no UTF-8");
    copy = copy_text(text, length);
    order = json_read(copy, length);
    if (order == NULL) return not_understood("no JSON");
    job = json_get(order, "job");
    m.start = json_get(order, "start");
    m.intervals = json_get(order, "intervals");
    m.hold = json_get(order, "hold");
    m.silence_ns = json_int(order, "silence_ns", 0);
    m.report_ns = json_int(order, "report_ns", 0);
    followed = m.start != NULL ? json_text(json_get(m.start, "env"), "MEMPROF_WORK") : NULL;
    m.follows = followed != NULL && strcmp(followed, "1") == 0;
    state = json_text(order, "cache");
    if (job == NULL || m.start == NULL || m.start->kind != J_MAP) return not_understood("no job or no start");
    if (m.intervals == NULL || json_get(m.intervals, "") == NULL) return not_understood("no intervals");
    if (!json_count(json_get(order, "timeout_ns"), &m.timeout_ns) || state == NULL) return not_understood("no timeout_ns or no cache");
    if (json_count(json_get(m.start, "attach"), &number) && number) m.task = ATTACH, m.pid = m.measured = (int)number;
    else if (json_get(m.start, "command") != NULL) m.task = COMMAND;
    if (m.task != ATTACH && (json_get(m.start, "argv") == NULL || json_get(m.start, "argv")->first == NULL))
        return not_understood("no program");
    m.marks = m.output = m.input = m.statm.descriptor = m.exit_code = -1;
    m.rss_last = m.rss_max_high = -1;
    m.outcome = "ok";
    m.phase = "";
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); /* orphans of the tree fall to this process */
    pagecache_prepare(json_get(order, "files"), state, json_true(json_get(order, "cache_drop")));
    clock_gettime(CLOCK_REALTIME, &started);
    asked.job = text + job->from, asked.length = job->to - job->from;
    asked.started_ns = (i64)started.tv_sec * 1000000000 + started.tv_nsec;
    if (m.task == ATTACH) m.hold = NULL;
    if (!(m.task == ATTACH ? attach() : follow())) return 3;
    out("run ");
    out_run(asked.job, asked.length, asked.started_ns);
    return 0;
}
