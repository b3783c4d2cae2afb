/* Measures any program, with all that it starts: see memprof/probe/command.py and outside.py. */
#include "probe.h"
#include <fcntl.h>
#include <sys/utsname.h>

#define LINE 4096
#define OUTSIDE "between phases"
#define MOST_STEPS 1000 /* from a process to the one that was started */

struct pattern { const char *phase, *text; struct pattern_code *code; int matched; };
struct gap { i64 begin_ns, end_ns, peak, high; const char *after, *before; int exact; };

/* A span whose sum is not settled yet, and what is to hear of it: a phase, or a gap between phases. */
struct span { i64 begin_ns, end_ns; const char *phase; struct gap *gap; };
struct ended_in { const char *phase; struct pids pids; };
struct other { int pid; char name[64]; };

static struct pattern *patterns;
static size_t pattern_count;
static struct span *unsettled;
static size_t span_count, span_room;
static struct names strays;
static struct other *others;
static size_t other_count, other_room;
static struct ended_in *ended_in;
static size_t ended_count, ended_room;
static struct { const char *phase; i64 begin_ns; } *opened;
static size_t opened_count, opened_room;
static int alone, marks_closed = -1, used_known;
static int outlived; /* the process that was started, by one that it had started */
static struct rusage used_up;
static i64 program_end_ns;

static struct { i64 since_ns, hwm; const char *after; struct gap *newest, *highest; } outside;

/* A phase of a process that says nothing itself, seen from outside. */
static struct { int there, reset, counted; i64 begin_ns, rss, hwm; struct counters counters; } line_mark;
static char line[LINE];
static size_t line_length;

/* -- starting */

int command_begins(void) {
    const struct json *command = json_get(m.start, "command"), *regexes = json_get(command, "regexes"), *item;
    alone = json_true(json_get(command, "alone"));
    for (item = regexes != NULL ? regexes->first : NULL; item != NULL; item = item->next) ++pattern_count;
    patterns = take_memory(pattern_count * sizeof *patterns);
    pattern_count = 0;
    for (item = regexes != NULL ? regexes->first : NULL; item != NULL; item = item->next) {
        struct pattern *pattern = &patterns[pattern_count++];
        const char *reason;
        if (item->first == NULL || item->first->next == NULL || item->first->text == NULL || item->first->next->text == NULL) return 0;
        pattern->phase = interned(item->first->text);
        pattern->text = item->first->next->text;
        pattern->matched = 0;
        pattern->code = pattern_read(pattern->text, item->first->next->length, &reason);
        if (pattern->code != NULL) continue;
        start_fails("STARTUP", formatted("the static probe cannot read the pattern '%s': %s", pattern->text, reason));
        return 0;
    }
    return 1;
}

int command_terminal(void) { return pattern_count > 0; }

static const char *unmatched(void) {
    size_t at;
    for (at = 0; at < pattern_count; ++at)
        if (!patterns[at].matched) return patterns[at].phase;
    return NULL;
}

static void line_mark_begins(i64 begin_ns, int fresh) {
    struct memory before;
    memset(&line_mark, 0, sizeof line_mark);
    line_mark.there = 1;
    line_mark.begin_ns = begin_ns;
    line_mark.reset = line_mark.counted = 1;
    if (fresh) return;
    before = memory_of(m.measured);
    line_mark.rss = max64(before.rss, 0);
    line_mark.hwm = max64(before.hwm, 0);
    line_mark.counted = counters_of(m.measured, &line_mark.counters);
    line_mark.reset = reset_high_water(m.measured);
}

void command_launched(void) {
    tree_begin(m.pid, now_ns(), getpid());
    if (!pattern_count) return;
    line_mark_begins(m.begin_ns, 1);
    m.phase = patterns[0].phase;
}

/* -- following */

i64 command_highest(i64 begin_ns, i64 end_ns) { return timeline_highest(&tree.own->timeline, begin_ns, end_ns); }

static void tell_gap(struct gap *gap, i64 low, i64 high) {
    gap->peak = max64(gap->peak, low);
    gap->high = max64(gap->high, high);
    if (outside.highest == NULL || gap->peak > outside.highest->peak) outside.highest = gap;
}

static void tell(const struct span *span) {
    struct mark *mark;
    i64 low, high;
    sum_highest(tree.own, span->begin_ns, span->end_ns, &low, &high);
    if (span->gap != NULL) {
        tell_gap(span->gap, low, high);
    } else if ((mark = mark_of(span->phase)) != NULL) {
        mark->peak = max64(mark->peak, low);
        mark->high = max64(max64(mark->high, 0), max64(high, mark->peak));
    }
}

/* Tell the spans whose sum is known by now. */
void command_settle(void) {
    size_t at, left = 0;
    if (!span_count || unsettled[0].end_ns > tree.own->settled_ns) return;
    for (at = 0; at < span_count; ++at) {
        if (unsettled[at].end_ns <= tree.own->settled_ns) tell(&unsettled[at]);
        else unsettled[left++] = unsettled[at];
    }
    span_count = left;
}

void command_settle_all(void) {
    size_t at;
    tree_settle();
    for (at = 0; at < span_count; ++at) tell(&unsettled[at]);
    span_count = 0;
    if (tree.most > 1) m.rss_max_high = max64(tree.whole->most, tree.whole->timeline.rss_max);
}

static void span(i64 begin_ns, i64 end_ns, const char *phase, struct gap *gap) {
    struct span found = {begin_ns, end_ns, phase, gap};
    unsettled = grown(unsettled, span_count, &span_room, sizeof *unsettled);
    unsettled[span_count++] = found;
    command_settle();
}

static int is_root_measured(void) { return tree.most <= 1 && m.measured == m.pid; }

/* A process has ended, and /proc still has it. */
void command_ends(int pid) {
    struct pids children = {0};
    struct stat_of stat;
    size_t at;
    if (pid != m.pid) return;
    if (is_root_measured() && stat_of(pid, &stat) && stat.child_faults > 0) tree.unseen = max64(1, tree.unseen);
    children_of(&children, getpid());
    for (at = 0; at < children.count; ++at) outlived |= children.items[at] != pid;
    free(children.items);
}

void command_reaped(int pid, const struct rusage *used) {
    tree_reaped(pid, used->ru_minflt);
    if (pid != m.pid) return;
    program_end_ns = now_ns();
    used_up = *used;
    used_known = 1;
}

void command_marks_closed(void) {
    /* A process that ends closes its descriptors too, but only when its memory has gone. */
    if (marks_closed < 0) marks_closed = memory_of(m.measured).rss >= 0;
}

static int measure_another(int pid) {
    int ancestor = pid, above, steps = 0;
    while (ancestor != m.measured && ancestor != m.pid && ancestor != getpid()) {
        if (ancestor == 1 || ++steps > MOST_STEPS) return 0; /* 0 may also be the parent of who came into a namespace of processes from outside */
        above = parent_of(ancestor);
        if (!above && ancestor == pid) break; /* it has ended by now; its marks have its figures */
        ancestor = above ? above : pid;       /* a process between the two has just ended: the ones below it have another parent */
    }
    command_settle_all();
    tree_add(pid, now_ns());
    tree_measure(pid, alone);
    m.measured = pid;
    alone = 0;
    return 1;
}

/* Whether another process is the one to measure from here on: it speaks first, or speaks after the one before has ended. */
int command_heeds(const char *kind, int pid, int *understood) {
    int nobody = line_mark.there || !(m.records.count || *m.phase);
    size_t at;
    *understood = pid >= 0;
    if (pid < 0) return 0;
    if ((strcmp(kind, "begin") == 0 || strcmp(kind, "program") == 0) && (nobody || (!*m.phase && !parent_of(m.measured))))
        return *understood = measure_another(pid);
    for (at = 0; at < other_count && others[at].pid != pid; ++at) {}
    if (at == other_count) {
        others = grown(others, other_count, &other_room, sizeof *others);
        others[other_count].pid = pid;
        others[other_count++].name[0] = 0;
    }
    if (!others[at].name[0]) name_of(pid, others[at].name);
    return 0;
}

/* Whether two names are the same to a reader, in whatever case, and with _ for a space; `name` has neither capitals nor _. */
static int reads_as(const char *phase, const char *name) {
    for (; *phase && *name; ++phase, ++name) {
        int letter = *phase >= 'A' && *phase <= 'Z' ? *phase - 'A' + 'a' : *phase == '_' ? ' ' : *phase;
        if (letter != *name) return 0;
    }
    return *phase == *name;
}

int command_reserved_name(const char *phase) {
    static const char *const names[] = {"startup", "peak", "run", "baseline", OUTSIDE};
    size_t at;
    for (at = 0; at < LENGTH(names); ++at)
        if (reads_as(phase, names[at])) return 1;
    return 0;
}

static int ended_before(int pid) {
    size_t at, index;
    for (at = 0; at < ended_count; ++at)
        for (index = 0; index < ended_in[at].pids.count; ++index)
            if (ended_in[at].pids.items[index] == pid) return 1;
    return 0;
}

/* STARTUP is said by the marks themselves, at a program's first phase; it began before the program did. */
int command_reserved(const char *phase, int pid, i64 begin_ns) {
    if (strcmp(phase, "STARTUP") == 0) return begin_ns > m.begin_ns && ended_before(pid);
    return command_reserved_name(phase);
}

/* Time outside of all phases is over. */
static void gap_ends(i64 begin_ns, i64 end_ns, const char *before) {
    struct gap *gap = take_memory(sizeof *gap);
    memset(gap, 0, sizeof *gap);
    gap->begin_ns = begin_ns;
    gap->end_ns = end_ns;
    gap->after = outside.after;
    gap->before = before;
    if (outside.newest != NULL && outside.newest != outside.highest) {
        size_t at;
        for (at = 0; at < span_count && unsettled[at].gap != outside.newest; ++at) {}
        if (at == span_count) free(outside.newest);
    }
    outside.newest = gap;
    span(begin_ns, end_ns, NULL, gap);
}

int command_opens(const struct json *mark, int pid, int *understood) {
    const char *phase;
    i64 begin_ns;
    size_t at;
    if (line_mark.there) {
        line_mark.there = 0;
        m.records.count = 0;
        m.phase = "";
        warn("its phases came by marks or by functions: its output was not searched for them");
    }
    phase = word_of(mark, "phase");
    *understood = phase != NULL && json_count(json_get(mark, "t_ns"), &begin_ns);
    if (!*understood) return 0;
    if (command_reserved(phase, pid, begin_ns)) {
        names_add(&strays, formatted("%s is a name of memprof's own figures: the phase that the program calls so is left out", phase));
        return 0;
    }
    for (at = 0; at < m.open.count; ++at)
        if (m.open.items[at] == phase) {
            names_add(&strays, formatted("%s was begun again before it had ended: it is counted from there", phase));
            names_remove(&m.open, phase);
            break;
        }
    for (at = 0; at < opened_count && opened[at].phase != phase; ++at) {}
    if (at == opened_count) opened = grown(opened, opened_count++, &opened_room, sizeof *opened);
    opened[at].phase = phase;
    opened[at].begin_ns = begin_ns;
    if (!m.open.count && outside.since_ns) gap_ends(outside.since_ns, begin_ns, phase);
    return 1;
}

void command_phase_ended(const char *phase, int pid, const struct json *mark) {
    size_t at, index;
    i64 begin = 0, hwm = 0, end_ns = 0;
    for (at = 0; at < ended_count && ended_in[at].phase != phase; ++at) {}
    if (at == ended_count) {
        ended_in = grown(ended_in, ended_count++, &ended_room, sizeof *ended_in);
        memset(&ended_in[at], 0, sizeof *ended_in);
        ended_in[at].phase = phase;
    }
    for (index = 0; index < ended_in[at].pids.count && ended_in[at].pids.items[index] != pid; ++index) {}
    if (index == ended_in[at].pids.count) pids_add(&ended_in[at].pids, pid);
    if (m.open.count) return;
    /* The high-water mark with which a phase began tells of the gap before it, where that had risen since the phase before. */
    json_count(json_get(mark, "hwm_begin_bytes"), &begin);
    json_count(json_get(mark, "hwm_phase_bytes"), &hwm);
    json_count(json_get(mark, "end_ns"), &end_ns);
    if (outside.newest != NULL && outside.newest->before == phase && begin > outside.hwm) {
        outside.newest->exact = 1;
        tell_gap(outside.newest, begin, begin);
    }
    outside.hwm = hwm;
    outside.since_ns = end_ns;
    outside.after = phase;
}

int command_keeps(struct mark *record) {
    int several = tree_had_others(record->begin_ns, record->end_ns);
    if (several) record->exact = 0; /* each process has a high-water mark, their sum has none */
    return several;
}

void command_kept(const char *phase, i64 begin_ns, i64 end_ns) { span(begin_ns, end_ns, phase, NULL); }

/* -- marks of a program */

static int take_stray(const struct json *mark) {
    const char *what = json_text(mark, "what"), *given = json_text(mark, "phase");
    const char *phase = given != NULL && *given ? word_of(mark, "phase") : "?";
    if (given == NULL || phase == NULL || what == NULL) return 0;
    if (strcmp(what, "begin") == 0) names_add(&strays, formatted("%s had not ended when the next phase began: it ends there", phase));
    else if (*given) names_add(&strays, formatted("a phase was ended where none had begun (after %s)", phase));
    else names_add(&strays, "a phase was ended where none had begun");
    return 1;
}

static int take_say(const struct json *mark) {
    const char *text = json_text(mark, "text");
    char words[1024 + 8] = "say ";
    size_t filled = 4;
    if (text == NULL) return 0;
    for (; *text && filled < sizeof words - 8; ++text) {
        int space = strchr(" \t\r\n\v\f", *text) != NULL;
        if (!space) words[filled++] = *text;
        else if (words[filled - 1] != ' ') words[filled++] = ' ';
    }
    while (filled > 4 && words[filled - 1] == ' ') --filled;
    while (filled > 4 && !utf8_valid(words, filled)) --filled;
    words[filled++] = '\n';
    words[filled] = 0;
    say(words);
    return 1;
}

int command_mark(const char *kind, const struct json *mark) {
    if (strcmp(kind, "value") == 0) return take_value(mark);
    if (strcmp(kind, "stray") == 0) return take_stray(mark);
    return strcmp(kind, "say") == 0 && take_say(mark);
}

/* -- what it prints */

static void line_ends(const char *phase, i64 now) {
    struct memory after = exact_memory_of(m.measured);
    struct counters counters;
    struct mark record;
    i64 hwm = max64(after.hwm, 0), peak = command_highest(line_mark.begin_ns, now);
    size_t at;
    peak = max64(peak, max64(after.rss, line_mark.reset || hwm > line_mark.hwm ? hwm : line_mark.rss));
    record = mark_seen(phase, line_mark.begin_ns, now, peak);
    record.samples = m.polls - m.polls_begin;
    record.interval_ns = interval_of("");
    record.figures[RSS_BEGIN] = line_mark.rss;
    mark_memory_end(&record, &after);
    if (line_mark.counted && counters_of(m.measured, &counters)) {
        record.figures[MINOR_FAULTS] = counters.minor - line_mark.counters.minor;
        record.figures[MAJOR_FAULTS] = counters.major - line_mark.counters.major;
        record.figures[CPU] = counters.cpu_ns - line_mark.counters.cpu_ns;
    }
    keep(record);
    m.polls_begin = m.polls;
    for (at = 0; at < pattern_count; ++at) patterns[at].matched |= patterns[at].phase == phase;
    m.phase = unmatched() != NULL ? unmatched() : "";
    line_mark_begins(now, 0);
}

/* Whether a unit of work ended with the line. */
static int search(i64 now) {
    size_t at;
    size_t length = line_length;
    line_length = 0;
    for (at = 0; at < pattern_count; ++at)
        if (pattern_found(patterns[at].code, line, length)) {
            if (m.follows) work_line(patterns[at].phase);
            if (!m.follows || !patterns[at].matched) line_ends(patterns[at].phase, now);
            return m.follows;
        }
    return 0;
}

void command_heard(const char *data, size_t length) {
    i64 now = now_ns(), rss, file, vms;
    size_t at;
    int counted = 0;
    for (at = 0; line_mark.there && at < length; ++at) {
        int end = data[at] == '\n' || data[at] == '\r';
        if (!end) line[line_length++] = data[at];
        if (end || line_length == LINE) counted |= search(now);
    }
    if (!counted || !tree_poll(now_ns(), &rss, &file, &vms)) return;
    command_settle();
    work_lines(now_ns(), rss, file, swapped_newest());
}

/* -- ending */

static int is_blank(const char *text, size_t length) {
    size_t at;
    for (at = 0; at < length; ++at)
        if (text[at] == 0 || strchr(" \t\r\n\v\f", text[at]) == NULL) return 0;
    return 1;
}

void command_judge_begins(void) {
    m.done = 1; /* it does not know that there is such a word */
    if (line_mark.there && !is_blank(line, line_length)) command_heard("\n", 1);
    if (line_mark.there) m.phase = m.status ? m.phase : m.records.count ? "" : interned("RUN");
    else if (!m.records.count && !*m.phase) m.phase = interned("RUN");
}

/* The last line with anything on it of what was printed, or NULL. */
static char *last_line(void) {
    size_t end = m.tail_length, begin;
    while (end && is_blank(m.tail + end - 1, 1)) --end;
    for (begin = end; begin && m.tail[begin - 1] != '\n' && m.tail[begin - 1] != '\r';) --begin;
    while (begin < end && is_blank(m.tail + begin, 1)) ++begin;
    return end > begin ? copy_text(m.tail + begin, end - begin) : NULL;
}

static int was_alone(void) { return is_root_measured() && tree.unseen == 0 && !outlived; }

/* What wait4 tells of the largest resident set, and whether it was reached after the exec. 0 where it told nothing. */
static i64 largest(int *after_exec) {
    i64 size = used_known ? (i64)used_up.ru_maxrss * KIB : 0, own = memory_of(getpid()).hwm;
    *after_exec = own > 0 && own < size;
    return size;
}

/* The largest resident set of the measured process in all its life, where wait4 tells that; else 0. */
static i64 life_peak(void) {
    int after_exec;
    i64 size = largest(&after_exec);
    return after_exec && was_alone() ? size : 0;
}

/* Phases that were never ended, or the one phase of a program that says nothing, up to the program's end. */
static void complete(void) {
    struct mark record;
    size_t at, index;
    i64 size, peak;
    char resident[32];
    int after_exec, only;
    for (at = 0; at < m.open.count; ++at) {
        const char *phase = m.open.items[at];
        for (index = 0; index < opened_count && opened[index].phase != phase; ++index) {}
        warn("%s was never ended: it is taken to last until the program's end", phase);
        record = mark_seen(phase, opened[index].begin_ns, program_end_ns, command_highest(opened[index].begin_ns, program_end_ns));
        record.samples = m.polls - m.polls_begin;
        record.interval_ns = interval_of("");
        if (record.peak) keep(record);
    }
    if (m.records.count || m.open.count) return;
    size = largest(&after_exec);
    only = was_alone();
    peak = max64(timeline_highest(&tree.whole->timeline, 0, program_end_ns), tree.most == 1 ? tree_high_water(m.measured) : 0);
    if (after_exec && is_root_measured()) peak = max64(peak, size);
    if (!peak) {
        warn("it ended before it could be looked at%s%s%s", only && size ? ", and had at most " : "",
             only && size ? fixed(resident, size, 1 << 20, 1) : "", only && size ? " MiB resident" : "");
        return;
    }
    record = mark_seen(interned("RUN"), m.begin_ns, program_end_ns, peak);
    record.exact = after_exec && only;
    if (only && size && !after_exec) record.high = max64(peak, size);
    record.samples = m.polls;
    record.interval_ns = interval_of("");
    if (used_known) { /* of all its children that were waited for too */
        record.figures[MINOR_FAULTS] = used_up.ru_minflt;
        record.figures[MAJOR_FAULTS] = used_up.ru_majflt;
        record.figures[CPU] = ((i64)used_up.ru_utime.tv_sec + used_up.ru_stime.tv_sec) * 1000000000
                            + ((i64)used_up.ru_utime.tv_usec + used_up.ru_stime.tv_usec) * 1000;
    }
    keep(record);
}

/* Memory outside of all phases is a row, where that is more than in any phase. */
static void tell_outside(void) {
    struct gap *gap;
    struct mark record;
    i64 most = 0, life;
    size_t at;
    int several;
    char *where, time[32], reached[32], highest[32];
    if (line_mark.there || !outside.since_ns || m.open.count || !m.records.count) return;
    gap_ends(outside.since_ns, max64(program_end_ns, outside.since_ns), NULL);
    command_settle_all();
    for (at = 0; at < m.records.count; ++at) most = max64(most, m.records.items[at].peak);
    life = life_peak();
    if (life > max64(most, outside.highest != NULL && outside.highest != outside.newest ? outside.highest->peak : 0)) {
        outside.newest->exact = 1;
        tell_gap(outside.newest, life, life);
    }
    gap = outside.highest;
    if (gap == NULL || gap->peak <= most + peak_bound()) return;
    several = tree_had_others(gap->begin_ns, gap->end_ns);
    record = mark_seen(OUTSIDE, gap->begin_ns, gap->end_ns, gap->peak);
    record.exact = gap->exact && !several;
    record.interval_ns = interval_of("");
    if (several) record.high = max64(gap->high, gap->peak);
    swapped_tell(&record);
    for (at = 0; at < m.records.count && m.records.items[at].phase != gap->before; ++at) {}
    marks_insert(at, record);
    where = gap->before != NULL ? formatted("between %s and %s", gap->after, gap->before) : formatted("after %s", gap->after);
    warn("%s, for %s s outside of all phases, memory reached %s MiB, above the %s MiB of the highest phase", where,
         fixed(time, gap->end_ns - gap->begin_ns, 1000000000, 2), fixed(reached, gap->peak, 1 << 20, 1), fixed(highest, most, 1 << 20, 1));
}

void command_judged(void) {
    size_t at;
    command_settle_all();
    if (strcmp(m.outcome, "exit") == 0 && (m.outcome_message == NULL || !*m.outcome_message)) {
        m.outcome_message = last_line();
        if (m.outcome_message == NULL && m.exit_code == 127) m.outcome_message = "its shell did not find the command";
    }
    if (strcmp(m.outcome, "ok") == 0) {
        char *missed = NULL;
        complete();
        for (at = 0; line_mark.there && at < pattern_count; ++at) {
            if (patterns[at].matched) continue;
            missed = formatted("%s%sno line that it printed matches '%s', the end of %s", missed != NULL ? missed : "",
                               missed != NULL ? "; " : "", patterns[at].text, patterns[at].phase);
        }
        if (missed != NULL) {
            m.outcome = "lost";
            m.outcome_phase = unmatched();
            m.outcome_message = missed;
        }
    }
    command_settle_all();
    tell_outside();
    command_words();
}

/* What a reader of the figures must know. */
void command_words(void) {
    size_t at, index, told = 0, different = 0, most = 0;
    char *list = NULL;
    int several = 0, matched = 0;
    for (at = 0; at < strays.count; ++at) {
        for (index = 0; index < at && strcmp(strays.items[index], strays.items[at]) != 0; ++index) {}
        if (index < at) continue;
        if (++different <= 5) names_add(&m.warnings, strays.items[at]), ++told;
    }
    if (different > told) warn("%d more marks came in the wrong order", (int)(different - told));
    for (at = 0; at < other_count && at < 5; ++at)
        list = formatted("%s%s%s (%d)", list != NULL ? list : "", list != NULL ? ", " : "", others[at].name[0] ? others[at].name : "a process",
                         others[at].pid);
    if (list != NULL) warn("marks came from more than one process; only those of the first count, not those of %s", list);
    list = NULL;
    for (at = 0; at < ended_count; ++at)
        if (ended_in[at].pids.count > 1) {
            list = formatted("%s%s%s", list != NULL ? list : "", list != NULL ? ", " : "", ended_in[at].phase);
            most = ended_in[at].pids.count > most ? ended_in[at].pids.count : most;
        }
    if (list != NULL)
        warn("%s: in %d processes one after another; each time is an iteration, the peak is the largest, all else is of the last", list,
             (int)most);
    if (marks_closed > 0 && opened_count) warn("the program closed the descriptor of its marks: its later work is in no phase");
    if (tree.most > 1) {
        const char *who = tree_called(m.measured);
        char *how;
        if (!*who) who = "the process that has the phase";
        if (!tree.rounds.count) how = formatted("pages they share counted once as far as is known without PSS, for which there was no time");
        else if (tree.rounds.refused)
            how = formatted("pages they share counted once, but possibly in full in %lld whose PSS may not be read",
                            (long long)tree.rounds.refused);
        else if (tree.rounds.count == 1) how = formatted("pages they share counted once (PSS was read once)");
        else how = formatted("pages they share counted once (PSS was read %lld times)", (long long)tree.rounds.count);
        if (tree.own == tree.whole) warn("up to %lld processes at once; peaks and the timeline are of their sum, %s", (long long)tree.most, how);
        else
            warn("up to %lld processes at once; peaks are of %s and what it starts, the timeline is of their sum, %s", (long long)tree.most,
                 who, how);
        for (at = 0; at < m.records.count; ++at) several |= m.records.items[at].figures[ANON_END] >= 0 && !m.records.items[at].exact;
        if (several) warn("anonymous memory, VMS, HWM, PSS and all else but peaks are of %s alone, without what it starts", who);
    }
    if (tree.unseen) warn("processes that started and ended between two polls and are in no figure: at least %lld", (long long)tree.unseen);
    if (tree.unfollowed) warn("processes that were not followed, because too many files are open here: %lld", (long long)tree.unfollowed);
    for (at = 0; at < pattern_count; ++at) matched |= patterns[at].matched;
    if (line_mark.there && matched) warn("phases end where a line arrived: their times and peaks are approximate");
}

/* Why a program could not be started, where the kernel's own words do not say it. */
const char *command_why_not(const char *message) {
    static const struct { int number; const char *name; } machines[] = {
        {2, "SPARC"}, {3, "x86 (32-bit)"}, {8, "MIPS"}, {20, "PowerPC"}, {21, "PowerPC 64"}, {22, "S390"}, {40, "ARM (32-bit)"},
        {62, "x86-64"}, {183, "AArch64"}, {243, "RISC-V"}, {258, "LoongArch"},
    };
    const char *cwd = json_text(m.start, "cwd"), *program = json_get(m.start, "argv")->first->text;
    unsigned char head[21];
    struct utsname system;
    int number;
    size_t at;
    char *path;
    if (message == NULL || strstr(message, strerror(ENOEXEC)) == NULL) return message;
    path = *program == '/' ? formatted("%s", program) : formatted("%s/%s", cwd != NULL && *cwd ? cwd : ".", program);
    if (!read_file(path, (char *)head, sizeof head)) return message;
    if (memcmp(head, "\177ELF", 4) != 0) return formatted("%s (a script needs #! and its interpreter in its first line)", message);
    number = head[5] == 1 ? head[18] | head[19] << 8 : head[19] | head[18] << 8;
    uname(&system);
    for (at = 0; at < LENGTH(machines); ++at)
        if (machines[at].number == number)
            return formatted("%s (a program for %s; this machine is %s)", message, machines[at].name, system.machine);
    return formatted("%s (a program for machine type %d; this machine is %s)", message, number, system.machine);
}
