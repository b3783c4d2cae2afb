/* Starts one child, follows its marks, polls its memory and reaps it, in one loop: see memprof/probe/child.py. */
#include "probe.h"
#include <poll.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/wait.h>

#define LIVE_NS 100000000
#define LATE_NS 200000
#define KILL_NS 2000000000
#define ORPHANS_NS 200000000
#define HOLD_TICK_NS 1000000
#define STOP_WITHIN_NS 2000000000
#define LAST_READS 16

struct measurement m;

static volatile sig_atomic_t child_ended, asked_to_stop;
static int stopped, asked;

static void on_child(int number) { (void)number, child_ended = 1; }
static void on_stop(int number) { (void)number, asked_to_stop = 1; }

char *formatted(const char *format, ...) {
    va_list words;
    size_t length;
    char *text;
    va_start(words, format);
    length = vput(NULL, 0, format, words);
    va_end(words);
    text = take_memory(length + 1);
    va_start(words, format);
    vput(text, length + 1, format, words);
    va_end(words);
    return text;
}

void warn(const char *format, ...) {
    char text[4096];
    va_list words;
    va_start(words, format);
    vput(text, sizeof text, format, words);
    va_end(words);
    names_add(&m.warnings, copy_text(text, strlen(text)));
}

i64 interval_of(const char *phase) { return json_int(m.intervals, phase, json_int(m.intervals, "", 0)); }

void start_fails(const char *phase, const char *message) {
    m.outcome = "start";
    m.outcome_phase = phase;
    m.outcome_message = message;
}

/* -- following */

/* Another program had the CPU between the clock and the look: the process may be in its next phase by now. */
int is_late(i64 now) { return now_ns() - now > LATE_NS; }

static int sample(i64 now, i64 *rss, i64 *file, i64 *vms) {
    if (m.task != OWN_SIDE) {
        int some = tree_poll(now, rss, file, vms);
        command_settle();
        if (!some && m.task == ATTACH) m.ended = 1;
        return some;
    }
    if (m.statm.descriptor < 0 || !statm_read(&m.statm)) return 0;
    *rss = m.statm.rss, *file = m.statm.file, *vms = m.statm.vms;
    return !is_late(now);
}

static void hold_inside(i64 now, i64 rss) {
    struct json *at = json_get(json_get(m.hold, "at"), m.phase);
    i64 size;
    if (at == NULL || !json_count(at, &size) || rss < size) return;
    at->kind = J_NULL;
    kill(m.measured, SIGSTOP);
    m.held = formatted("%s/peak", m.phase);
    m.held_ns = now;
    m.held_said = 0;
}

static void poll_once(i64 now, i64 interval) {
    i64 rss, file, vms;
    if (!sample(now, &rss, &file, &vms)) return;
    if (m.task == OWN_SIDE) {
        timeline_add(&m.timeline, now, rss, file, vms);
        swapped_look(m.measured, now);
    }
    m.rss = rss;
    if (m.hold != NULL) hold_inside(now, rss);
    ++m.polls;
    if (m.last_poll_ns && interval == m.last_interval_ns && interval == interval_of(""))
        m.periods[m.period_count++ % (i64)LENGTH(m.periods)] = now - m.last_poll_ns;
    m.last_poll_ns = now;
    m.last_interval_ns = interval;
}

/* A phase that is not polled: its size for whoever watches, and for the case that it dies; no sample. */
static void look(void) {
    i64 rss, file, vms;
    if (!sample(now_ns(), &rss, &file, &vms)) return;
    m.rss = rss;
    if (m.task == OWN_SIDE) swapped_look(m.measured, now_ns());
}

static void live(void) {
    char line[1200];
    put(line, sizeof line, "live %s %lld\n", *m.phase ? m.phase : "-", (long long)m.rss);
    say(line);
}

static void let_go(void) {
    kill(m.measured, SIGCONT);
    m.held = NULL;
    m.held_seen_ns = 0;
}

/* Whether a line of the text is this word. */
static int says(const char *text, const char *word) {
    size_t length = strlen(word);
    for (;; ++text) {
        if (strncmp(text, word, length) == 0 && strchr("\r\n", text[length]) != NULL) return 1;
        text += strcspn(text, "\n");
        if (!*text) return 0;
    }
}

static void obey(const char *text) {
    if (m.task == ATTACH && says(text, "end")) m.ended = 1;
    if (says(text, "go") && m.held != NULL && m.held_said) let_go();
}

static void control(void) {
    char text[4096];
    ssize_t length = read(0, text, sizeof text - 1);
    if (length < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (length <= 0) {
        stopped = 1;
        return;
    }
    m.heard_ns = now_ns();
    text[length] = 0;
    obey(text);
}

/* Say once that the child stands still, and let it go when nobody does; returns the time to add to the job's own limit. */
static i64 follow_hold(i64 now) {
    i64 limit_ns = json_int(m.hold, "limit_ns", 0), before_ns;
    if (!m.held_said && is_stopped(m.measured)) {
        out_raw("held ", 5);
        out_raw(m.held, strlen(m.held));
        out(" %d\n", m.measured);
        out_flush();
        m.held_said = 1;
        m.held_ns = now;
    } else if (m.held_said && now - m.held_ns > limit_ns) {
        warn("%s: it was held for %lld s, its limit, and let go", m.held, (long long)(limit_ns / 1000000000));
        let_go();
    } else if (!m.held_said && now - m.held_ns > STOP_WITHIN_NS) { /* the first process of a PID namespace cannot stop itself */
        warn("%s: it could not be held, for it did not stop", m.held);
        let_go();
    }
    before_ns = m.held_seen_ns ? m.held_seen_ns : now;
    m.held_seen_ns = m.held != NULL ? now : 0;
    return now - before_ns;
}

static void reap(void) {
    struct rusage used;
    siginfo_t ended;
    int status, pid;
    child_ended = 0;
    for (;;) {
        memset(&ended, 0, sizeof ended);
        if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) < 0 || ended.si_pid == 0) return;
        if (m.task == COMMAND) command_ends(ended.si_pid);
        pid = wait4(ended.si_pid, &status, 0, &used);
        if (pid <= 0) return;
        if (pid == m.pid) m.ended = 1, m.status = status;
        if (m.task == COMMAND) command_reaped(pid, &used);
    }
}

static void printed(void) {
    static char data[65536];
    ssize_t length;
    if (m.output < 0) return;
    length = read(m.output, data, sizeof data);
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (length <= 0) { /* EIO: how a terminal says that nobody has its other side open */
        close(m.output);
        m.output = -1;
        return;
    }
    m.output_bytes += length;
    if ((size_t)length >= sizeof m.tail) {
        memcpy(m.tail, data + length - sizeof m.tail, sizeof m.tail);
        m.tail_length = sizeof m.tail;
    } else {
        size_t kept = sizeof m.tail - (size_t)length < m.tail_length ? sizeof m.tail - (size_t)length : m.tail_length;
        memmove(m.tail, m.tail + m.tail_length - kept, kept);
        memcpy(m.tail + kept, data, (size_t)length);
        m.tail_length = kept + (size_t)length;
    }
    if (m.task == COMMAND) command_heard(data, (size_t)length);
}

/* -- ending */

/* Kill a process; 0 where it may not be, because it has become another user's. */
static int put_to_end(int pid) { return kill(pid, SIGKILL) == 0 || errno != EPERM; }

static int is_writer(int pid, const struct json *writers) {
    char name[64];
    const struct json *item;
    name_of(pid, name);
    for (item = writers->first; item != NULL; item = item->next)
        if (item->text != NULL && strcmp(item->text, name) == 0) return 1;
    return 0;
}

/* A profiler writes its file at SIGTERM, and none at SIGKILL. The process that is measured is asked; where that is a profiler's script,
 * what it started, but not the programs that write its file. */
static void ask_to_end(void) {
    const struct json *writers = json_get(m.start, "writers");
    struct pids children = {0};
    size_t at;
    int told = 0;
    asked = 1;
    m.outcome = "timeout";
    if (writers != NULL && writers->first != NULL && m.measured == m.pid && children_of(&children, m.pid))
        for (at = 0; at < children.count; ++at)
            if (!is_writer(children.items[at], writers)) {
                kill(children.items[at], SIGTERM);
                ++told;
            }
    if (!told) kill(m.measured, SIGTERM);
    free(children.items);
}

static void time_out(void) {
    struct pids children = {0};
    i64 end_ns;
    size_t at;
    if (m.task == ATTACH) {
        m.ended = 1;
        return;
    }
    m.outcome = "timeout";
    kill(-m.pid, SIGKILL);
    children_of(&children, getpid());
    for (at = 0; at < children.count; ++at) put_to_end(children.items[at]);
    free(children.items);
    end_ns = now_ns() + KILL_NS;
    while (!m.ended) {
        reap();
        pause_ns(1000000);
        if (now_ns() > end_ns && !put_to_end(m.pid)) m.ended = 1, m.status = 0; /* another user's by now: `sweep` says so */
    }
}

static void check_layout(void) {
    char path[64], text[64];
    put(path, sizeof path, "/proc/%d/personality", m.pid);
    if (read_file(path, text, sizeof text) && strtoul(text, NULL, 16) & ADDR_NO_RANDOMIZE) return;
    warn("address space randomisation could not be turned off here: --deterministic is only partly so");
}

int loop(void) {
    i64 end_ns = m.begin_ns + m.timeout_ns, next_ns = now_ns(), tick_ns = 0, interval = interval_of("");
    i64 grace_ns = json_int(m.start, "grace_ns", 0), reports = 0;
    int leaving = 0, last;
    sigset_t open_signals;
    sigemptyset(&open_signals);
    m.heard_ns = next_ns;
    obey(m.early);
    if (m.task != ATTACH && json_true(json_get(m.start, "deterministic"))) check_layout();
    while (!m.ended) {
        struct pollfd watched[4] = {{0, POLLIN, 0}, {m.marks, POLLIN, 0}, {m.output, POLLIN, 0}, {m.input, POLLOUT, 0}};
        struct timespec time = {0, 0};
        i64 now = now_ns(), wait_ns = (interval && next_ns < tick_ns ? next_ns : tick_ns) - now, changed;
        if (wait_ns > 0) time.tv_sec = wait_ns / 1000000000, time.tv_nsec = wait_ns % 1000000000;
        if (ppoll(watched, LENGTH(watched), &time, &open_signals) > 0) {
            if (watched[0].revents) control();
            if (watched[1].revents) marks_read();
            if (watched[2].revents) printed();
            if (watched[3].revents) send_input();
        }
        if (child_ended) reap();
        if (stopped || asked_to_stop) return 0;
        changed = interval_of(m.phase);
        if (changed != interval) interval = changed, next_ns = now_ns();
        now = now_ns();
        if (m.silence_ns && now - m.heard_ns > m.silence_ns) return 0; /* a connection can die without an end */
        if (m.held != NULL) { /* no sample is taken: being looked at moves its figures */
            end_ns += follow_hold(now);
            tick_ns = now + HOLD_TICK_NS;
            next_ns = now;
            continue;
        }
        if (interval && now >= next_ns) {
            poll_once(now, interval);
            next_ns += interval;
            if (next_ns <= now) next_ns = now + interval;
        }
        if (now < tick_ns) continue;
        if (m.report_ns && now - m.begin_ns > m.report_ns * (reports + 1)) ++reports, report();
        if (!interval) look();
        live();
        if (grace_ns && m.done && !leaving) leaving = 1, end_ns = min64(end_ns, now + grace_ns);
        if (now >= end_ns && !m.ended) {
            if (grace_ns && !asked) {
                ask_to_end();
                end_ns = now + grace_ns;
            } else {
                time_out();
                end_ns = NEVER;
            }
        }
        tick_ns = min64(now + LIVE_NS, end_ns);
    }
    for (last = 0; last < LAST_READS; ++last) { /* of what was written before the end; a grandchild may write for ever */
        marks_read();
        printed();
    }
    return 1;
}

static int out_of_memory(void) {
    i64 peak, group_kills = -1;
    if (m.grouped) group_figures(&peak, &group_kills);
    return group_kills > 0 ? 1 : kills_ended();
}

static void judge(void) {
    int code = WIFEXITED(m.status) ? WEXITSTATUS(m.status) : -1, number = WIFSIGNALED(m.status) ? WTERMSIG(m.status) : 0;
    char seconds[32];
    size_t last;
    if (m.task == COMMAND) command_judge_begins();
    if (m.measured != m.pid && code > 128) number = code - 128; /* how a shell that wraps it says that a signal ended it */
    if (strcmp(m.outcome, "timeout") == 0) {
        code = -1, number = 0; /* the end that was put to it is none of its own */
        fixed(seconds, m.timeout_ns, 1000000000, 3);
        last = strlen(seconds);
        while (seconds[last - 1] == '0') --last;
        seconds[seconds[last - 1] == '.' ? last - 1 : last] = 0;
        m.outcome_message = formatted("did not end in time (timeout %s s)", seconds);
    } else if (m.error != NULL && !number) {
        m.outcome = m.error, m.outcome_phase = m.error_phase, m.outcome_message = m.error_message;
    } else if (number) {
        m.outcome = "signal";
    } else if (code != 0 || !m.done) {
        m.outcome = code ? "exit" : "lost";
    }
    if (m.foreign) warn("%lld line(s) on the marks' descriptor were not understood and left out", (long long)m.foreign);
    if (strcmp(m.outcome, "ok") != 0) {
        if (m.outcome_phase == NULL)
            m.outcome_phase = *m.phase        ? m.phase
                            : m.records.count ? formatted("after %s", m.records.items[m.records.count - 1].phase)
                                              : "STARTUP";
        m.exit_code = code;
        m.signal = number;
        m.rss_last = m.rss ? m.rss : -1;
        m.out_of_memory = number == SIGKILL ? out_of_memory() : 0;
    }
    if (m.task == COMMAND) command_judged();
}

/* Some end by themselves once the child has gone, and clean up. */
static void let_orphans_end(void) {
    i64 end_ns = now_ns() + ORPHANS_NS;
    while (now_ns() < end_ns) {
        int pid = waitpid(-1, NULL, WNOHANG);
        if (pid < 0) return;
        if (pid == 0) pause_ns(2000000);
    }
}

static int in_order(const void *left, const void *right) { return strcmp(*(const char *const *)left, *(const char *const *)right); }

static char *joined(struct names *names) {
    char *text = copy_text("", 0);
    size_t at;
    for (at = 0; at < names->count; ++at) {
        char *longer = formatted("%s%s%s", text, at ? ", " : "", names->items[at]);
        free(text);
        text = longer;
    }
    return text;
}

/* End everything that is left of the child's tree: orphans have fallen to this process. */
static void sweep(int ended_alone) {
    struct pids pids = {0};
    struct names names = {0};
    int left = 0, status;
    if (ended_alone) let_orphans_end();
    if (m.pid > 0) kill(-m.pid, SIGKILL);
    for (;;) {
        struct names refused = {0};
        size_t at;
        int pid;
        children_of(&pids, getpid());
        for (at = 0; at < pids.count; ++at) {
            char name[64];
            const char *known;
            name_of(pids.items[at], name);
            known = interned(name);
            if (pids.items[at] != m.pid && *name) {
                names_remove(&names, known);
                names_add(&names, known);
            }
            if (!put_to_end(pids.items[at])) names_add(&refused, *name ? known : formatted("%d", pids.items[at]));
        }
        pid = waitpid(-1, &status, refused.count ? WNOHANG : 0);
        if (pid < 0 && errno == EINTR) continue;
        if (pid < 0) break;
        if (pid == 0 && refused.count == pids.count) {
            warn("processes of another user that could not be ended and may still run: %d (%s)", (int)refused.count, joined(&refused));
            break;
        }
        left += pid != 0 && pid != m.pid;
        if (pid == 0) pause_ns(1000000);
    }
    if (!left || strcmp(m.outcome, "timeout") == 0) return;
    if (names.count) qsort(names.items, names.count, sizeof *names.items, in_order);
    warn(names.count ? "processes that outlived the measured one and were ended: %d (%s)"
                     : "processes that outlived the measured one and were ended: %d", left, joined(&names));
}

/* 0 where it was told to stop; the child is gone then too. */
int follow(void) {
    struct sigaction action;
    sigset_t blocked;
    int done = 1, ended_alone = 0;
    kills_begin();
    memset(&action, 0, sizeof action);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_SETMASK, &blocked, NULL); /* they arrive while the loop waits, and only then */
    action.sa_handler = on_child;
    sigaction(SIGCHLD, &action, NULL);
    action.sa_handler = on_stop;
    sigaction(SIGTERM, &action, NULL);
    if (m.task != COMMAND || command_begins()) {
        if (launch()) {
            if (m.task == COMMAND) command_launched();
            done = loop();
            if (done) judge();
            ended_alone = done && strcmp(m.outcome, "timeout") != 0;
        } else if (m.task == COMMAND) {
            m.outcome_message = command_why_not(m.outcome_message);
        }
    }
    sweep(ended_alone);
    if (m.grouped) {
        m.charged = 1;
        group_figures(&m.charged_peak, &m.charged_kills);
        group_remove();
    }
    return done;
}
