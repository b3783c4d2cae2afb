/* What a child says on the pipe of its marks, lines that become the records of its phases: see memprof/probe/listening.py. */
#include "probe.h"

#define LINE_LIMIT 65536
#define READ 65536
#define FOLLOWED_TIMES 4096

static const char *const figure_names[FIGURES] = {
    "hwm_bytes", "rss_begin_bytes", "rss_end_bytes", "anon_end_bytes", "file_end_bytes", "shmem_end_bytes", "swap_end_bytes",
    "vms_end_bytes", "vms_peak_bytes", "pss_end_bytes", "uss_end_bytes", "heap_used_end_bytes", "heap_free_end_bytes", "minor_faults",
    "major_faults", "read_bytes", "cpu_ns",
};

/* -- names */

const char *interned(const char *text) {
    static struct name { struct name *next; char text[1]; } *table[256];
    struct name *name;
    unsigned hash = 2166136261u;
    const char *at;
    for (at = text; *at; ++at) hash = (hash ^ (unsigned char)*at) * 16777619u;
    for (name = table[hash % LENGTH(table)]; name != NULL; name = name->next)
        if (strcmp(name->text, text) == 0) return name->text;
    name = take_memory(sizeof *name + strlen(text));
    strcpy(name->text, text);
    name->next = table[hash % LENGTH(table)];
    return (table[hash % LENGTH(table)] = name)->text;
}

/* A text of words as one word, of at most 200 characters. */
const char *word_in(const struct json *found) {
    char word[4 * 200 + 1];
    size_t at = 0, filled = 0, used;
    int count = 0, gap = 0;
    if (found == NULL || found->kind != J_STRING) return NULL;
    for (; at < found->length && count < 200; at += used) {
        int point = utf8_next((const unsigned char *)found->text + at, found->length - at, &used);
        if (point == ' ' || (point >= '\t' && point <= '\r') || (point >= 0x1C && point <= 0x1F) || point == 0 || point == 0xA0) {
            gap = 1;
            continue;
        }
        if (gap && filled) word[filled++] = '_', ++count;
        gap = 0;
        if (count++ == 200) break;
        memcpy(word + filled, found->text + at, used);
        filled += used;
    }
    word[filled] = 0;
    return filled ? interned(word) : NULL;
}

const char *word_of(const struct json *map, const char *name) { return word_in(json_get(map, name)); }

void names_add(struct names *names, const char *name) {
    names->items = grown(names->items, names->count, &names->room, sizeof *names->items);
    names->items[names->count++] = name;
}

void names_remove(struct names *names, const char *name) {
    size_t at = 0;
    while (at < names->count && names->items[at] != name) ++at;
    if (at == names->count) return;
    --names->count;
    memmove(names->items + at, names->items + at + 1, (names->count - at) * sizeof *names->items);
}

/* -- records */

static void times_add(struct times *times, i64 time_ns) {
    times->items = grown(times->items, times->count, &times->room, sizeof *times->items);
    times->items[times->count++] = time_ns;
}

struct mark mark_seen(const char *phase, i64 begin_ns, i64 end_ns, i64 peak) {
    struct mark mark;
    memset(&mark, 0, sizeof mark);
    memset(mark.figures, -1, sizeof mark.figures);
    mark.phase = phase;
    mark.begin_ns = begin_ns;
    mark.end_ns = end_ns;
    mark.peak = peak;
    mark.high = -1;
    mark.refaults = -1;
    return mark;
}

void mark_memory_end(struct mark *mark, const struct memory *memory) {
    mark->figures[RSS_END] = memory->rss;
    mark->figures[ANON_END] = memory->anon;
    mark->figures[FILE_END] = memory->file;
    mark->figures[SHMEM_END] = memory->shmem;
    mark->figures[SWAP_END] = memory->swap;
    mark->figures[VMS_END] = memory->vms;
}

struct mark *mark_of(const char *phase) {
    size_t at;
    for (at = 0; at < m.records.count; ++at)
        if (m.records.items[at].phase == phase) return &m.records.items[at];
    return NULL;
}

void marks_insert(size_t place, struct mark mark) {
    struct marks *marks = &m.records;
    marks->items = grown(marks->items, marks->count, &marks->room, sizeof *marks->items);
    memmove(marks->items + place + 1, marks->items + place, (marks->count - place) * sizeof *marks->items);
    marks->items[place] = mark;
    ++marks->count;
}

static i64 both(i64 before, i64 after) { return before >= 0 && after >= 0 ? before + after : after; }

/* 0 if there are too many units. */
static int add_units(struct mark *mark, const char *name, i64 count) {
    size_t at = 0;
    while (at < UNITS && mark->units[at].name != NULL && mark->units[at].name != name) ++at;
    if (at == UNITS) return 0;
    mark->units[at].name = name;
    mark->units[at].count += count;
    return 1;
}

/* Keep a phase. One that was there before has come once more: each time is an iteration of it, its figures at the end are the last. */
static void merge(struct mark record) {
    static const enum figure counted[] = {MINOR_FAULTS, MAJOR_FAULTS, READ_BYTES, CPU};
    struct mark *before = mark_of(record.phase);
    struct times times;
    size_t at;
    if (before == NULL) {
        marks_insert(m.records.count, record);
        return;
    }
    times = before->times;
    if (!times.count) times_add(&times, before->end_ns - before->begin_ns);
    for (at = 0; at < record.times.count; ++at) times_add(&times, record.times.items[at]);
    if (!record.times.count) times_add(&times, record.end_ns - record.begin_ns);
    if (m.follows && times.count > FOLLOWED_TIMES) times.count = FOLLOWED_TIMES; /* of hours the first are enough */
    free(record.times.items);
    record.times = times;
    record.begin_ns = before->begin_ns;
    swapped_merge(&record, before);
    for (at = 0; at < UNITS && before->units[at].name != NULL; ++at) add_units(&record, before->units[at].name, before->units[at].count);
    record.peak = max64(before->peak, record.peak);
    record.exact = before->exact && record.exact;
    record.samples += before->samples;
    for (at = 0; at < LENGTH(counted); ++at) record.figures[counted[at]] = both(before->figures[counted[at]], record.figures[counted[at]]);
    record.refaults = both(before->refaults, record.refaults);
    if (before->high >= 0) record.high = max64(before->high, record.peak);
    if (before->figures[RSS_BEGIN] >= 0) record.figures[RSS_BEGIN] = before->figures[RSS_BEGIN];
    *before = record;
}

void keep(struct mark record) {
    const char *phase = record.phase;
    i64 begin_ns = record.begin_ns, end_ns = record.end_ns;
    int several;
    i64 refaults = m.grouped ? group_refaults() : -1;
    swapped_tell(&record);
    if (refaults >= 0 && m.refaults_begin >= 0) record.refaults = refaults - m.refaults_begin;
    m.refaults_begin = refaults;
    several = m.task != OWN_SIDE && command_keeps(&record);
    merge(record);
    if (several) command_kept(phase, begin_ns, end_ns);
}

void out_marks(void) {
    size_t at, index;
    for (at = 0; at < m.records.count; ++at) {
        const struct mark *mark = &m.records.items[at];
        out("%s{\"phase\":", at ? "," : "");
        out_text(mark->phase);
        out(",\"begin_ns\":%lld,\"end_ns\":%lld,\"times_ns\":[", (long long)mark->begin_ns, (long long)mark->end_ns);
        for (index = 0; index < mark->times.count; ++index) out("%s%lld", index ? "," : "", (long long)mark->times.items[index]);
        out("],\"rss_peak_bytes\":%lld,\"rss_peak_exact\":%s,\"samples\":%lld,\"interval_ns\":%lld", (long long)mark->peak,
            mark->exact ? "true" : "false", (long long)mark->samples, (long long)mark->interval_ns);
        if (mark->high >= 0) out(",\"rss_peak_high_bytes\":%lld", (long long)mark->high);
        if (mark->swap_peak > 0)
            out(",\"swap_peak_bytes\":%lld,\"rss_swap_peak_bytes\":%lld", (long long)mark->swap_peak, (long long)mark->both_peak);
        if (mark->refaults >= 0) out(",\"refaults\":%lld", (long long)mark->refaults);
        for (index = 0; index < FIGURES; ++index)
            if (mark->figures[index] >= 0) out(",\"%s\":%lld", figure_names[index], (long long)mark->figures[index]);
        for (index = 0; index < UNITS && mark->units[index].name != NULL; ++index) {
            out(index ? "," : ",\"units\":{");
            out_text(mark->units[index].name);
            out(":%lld", (long long)mark->units[index].count);
        }
        out(index ? "}}" : "}");
    }
}

/* -- lines; each function says whether it has understood its line */

int begin_phase(const char *phase) {
    if (phase == NULL) return 0;
    m.phase = phase;
    names_add(&m.open, phase);
    m.times.count = 0;
    m.polls_begin = m.polls;
    m.refaults_begin = m.grouped ? group_refaults() : -1;
    work_again(phase);
    return 1;
}

static int take_begin(const struct json *mark, int pid) {
    int understood = 1;
    if (m.task == COMMAND && !command_opens(mark, pid, &understood)) return understood;
    return begin_phase(word_of(mark, "phase"));
}

static int take_times(const struct json *mark) {
    const struct json *times = json_get(mark, "times_ns"), *item;
    const char *phase = word_of(mark, "phase");
    i64 time_ns;
    if (m.task == COMMAND) {
        if (phase == NULL) return 0;
        if (command_reserved_name(phase)) return 1;
    }
    if (times == NULL || times->kind != J_LIST) return 0;
    for (item = times->first; item != NULL; item = item->next)
        if (!json_count(item, &time_ns)) return 0;
    for (item = times->first; item != NULL; item = item->next) {
        json_count(item, &time_ns);
        times_add(&m.times, time_ns);
    }
    return 1;
}

static int all_text(const struct json *list) {
    const struct json *item;
    for (item = list->first; item != NULL; item = item->next)
        if (item->kind != J_STRING) return 0;
    return 1;
}

static int is_about(const struct json *mark) {
    const struct json *notes = json_get(mark, "notes"), *packages = json_get(mark, "packages");
    return json_text(mark, "runtime_version") != NULL && json_text(mark, "python_version") != NULL && notes != NULL && notes->kind == J_LIST
        && all_text(notes) && (packages == NULL || (packages->kind == J_MAP && all_text(packages)));
}

static int take_error(const struct json *mark) {
    static const char *const kinds[] = {"import", "refused", "error"};
    const char *kind = json_text(mark, "kind"), *phase = word_of(mark, "phase"), *message = json_text(mark, "message");
    size_t at;
    for (at = 0; kind != NULL && phase != NULL && message != NULL && at < LENGTH(kinds); ++at)
        if (strcmp(kind, kinds[at]) == 0) {
            m.error = kinds[at];
            m.error_phase = phase;
            m.error_message = copy_text(message, strlen(message));
            return 1;
        }
    return 0;
}

static int take_end(const struct json *mark, int pid) {
    const char *phase = word_of(mark, "phase");
    const struct json *units = json_get(mark, "units"), *unit;
    struct mark record;
    i64 begin_ns, end_ns, seen, hwm = 0, hwm_begin = 0;
    size_t at;
    if (phase == NULL || !json_count(json_get(mark, "begin_ns"), &begin_ns) || !json_count(json_get(mark, "end_ns"), &end_ns)) return 0;
    if (m.task == COMMAND && command_reserved(phase, pid, begin_ns)) return 1;
    if (end_ns < begin_ns) return 0;
    if (m.measured == m.pid && strcmp(phase, "STARTUP") == 0) begin_ns = begin_ns ? min64(begin_ns, m.begin_ns) : m.begin_ns;
    record = mark_seen(phase, begin_ns, end_ns, 0);
    for (at = 0; at < FIGURES; ++at) {
        const struct json *figure = json_get(mark, figure_names[at]);
        if (figure != NULL && !json_count(figure, &record.figures[at])) return 0;
    }
    if (units != NULL && units->kind != J_MAP) return 0;
    for (unit = units != NULL ? units->first : NULL; unit != NULL; unit = unit->next) {
        struct json name = {J_STRING, 0, NULL, unit->name, strlen(unit->name), 0, 0, NULL, NULL};
        i64 total;
        if (word_in(&name) == NULL || !json_count(unit, &total) || !add_units(&record, word_in(&name), total)) return 0;
    }
    if (json_get(mark, "hwm_phase_bytes") != NULL && !json_count(json_get(mark, "hwm_phase_bytes"), &hwm)) return 0;
    if (json_get(mark, "hwm_begin_bytes") != NULL && !json_count(json_get(mark, "hwm_begin_bytes"), &hwm_begin)) return 0;
    record.exact = hwm > 0 && (json_true(json_get(mark, "hwm_reset")) || hwm > hwm_begin);
    seen = m.task == OWN_SIDE ? timeline_highest(&m.timeline, begin_ns, end_ns) : command_highest(begin_ns, end_ns);
    /* That was another program: a mark's process has only its own memory, not that from before its last exec. */
    if (record.exact && strcmp(phase, "STARTUP") == 0 && seen > hwm + peak_bound()) seen = 0;
    record.peak = max64(max64(seen, record.figures[RSS_END]), max64(record.exact ? hwm : record.figures[RSS_BEGIN], 0));
    record.samples = m.polls - m.polls_begin;
    record.interval_ns = interval_of(phase);
    record.times = m.times;
    memset(&m.times, 0, sizeof m.times);
    keep(record);
    names_remove(&m.open, phase);
    m.phase = m.open.count ? m.open.items[m.open.count - 1] : "";
    m.polls_begin = m.polls;
    if (m.hold != NULL) {
        m.held = phase;
        m.held_ns = now_ns();
        m.held_said = 0;
    }
    if (m.task == COMMAND) command_phase_ended(phase, pid, mark);
    return 1;
}

/* What was started is a wrapper; the process that speaks first is the one to measure. */
static int measure_another(int pid) {
    int ancestor = pid;
    struct statm statm;
    while (ancestor != m.pid && ancestor != getpid())
        if ((ancestor = parent_of(ancestor)) == 0) return 0; /* a process that is none of the child's */
    if (!statm_open(&statm, pid)) return 0;
    statm_close(&m.statm);
    m.statm = statm;
    m.measured = pid;
    timeline_free(&m.timeline);
    swapped_forget();
    return 1;
}

static int take_mark(struct json *mark) {
    const char *kind = json_text(mark, "mark");
    const struct json *number = json_get(mark, "pid");
    i64 pid = -1;
    int understood = 1;
    if (kind == NULL || number == NULL) return 0;
    if (!json_count(number, &pid) || pid > INT32_MAX) pid = -1;
    if (m.task == COMMAND) {
        if (pid != m.measured && strcmp(kind, "value") != 0 && !command_heeds(kind, (int)pid, &understood)) return understood;
    } else if (pid != m.measured) {
        if (*m.phase || m.records.count || (strcmp(kind, "begin") != 0 && strcmp(kind, "program") != 0) || pid < 0) return 0;
        if (!measure_another((int)pid)) return 0;
    }
    if (strcmp(kind, "begin") == 0) return take_begin(mark, (int)pid);
    if (strcmp(kind, "end") == 0) return take_end(mark, (int)pid);
    if (strcmp(kind, "times") == 0) return take_times(mark);
    if (strcmp(kind, "work") == 0) return take_work(mark);
    if (strcmp(kind, "anchor") == 0) return take_anchor(mark);
    if (strcmp(kind, "error") == 0) return take_error(mark);
    if (strcmp(kind, "about") == 0) return is_about(mark);
    if (strcmp(kind, "done") == 0) return m.done = 1;
    if (strcmp(kind, "program") == 0) return 1; /* a debugger says which process its program is, before that has anything to say */
    return (m.task == COMMAND || strcmp(kind, "value") == 0) && command_mark(kind, mark);
}

static void take_line(char *line, size_t length) {
    struct json *mark = NULL;
    char *copy = NULL;
    int understood = 0;
    if (utf8_valid(line, length)) {
        if (memmem(line, length, "\"about\"", 7) != NULL) line = copy = copy_text(line, length); /* it may be kept */
        mark = json_read(line, length);
    }
    if (mark != NULL && mark->kind == J_MAP) understood = take_mark(mark);
    if (!understood) ++m.foreign;
    if (understood && copy != NULL && strcmp(json_text(mark, "mark"), "about") == 0 && is_about(mark)) {
        json_free(m.about);
        free(m.about_text);
        m.about = mark;
        m.about_text = copy;
        return;
    }
    json_free(mark);
    free(copy);
}

/* Once only: a program that writes without end must not keep the loop from its other work. */
void marks_read(void) {
    static char lines[LINE_LIMIT + READ + 1];
    static size_t filled;
    static int skipping;
    char *begin = lines, *end;
    ssize_t length;
    if (m.marks < 0) return;
    length = read(m.marks, lines + filled, READ);
    if (length < 0) return;
    if (length == 0) {
        close(m.marks);
        m.marks = -1;
        if (m.task == COMMAND) command_marks_closed();
        return;
    }
    filled += (size_t)length;
    while ((end = memchr(begin, '\n', filled - (size_t)(begin - lines))) != NULL) {
        *end = 0;
        if (skipping) skipping = 0;
        else take_line(begin, (size_t)(end - begin));
        begin = end + 1;
    }
    filled -= (size_t)(begin - lines);
    memmove(lines, begin, filled);
    if (filled > LINE_LIMIT) {
        filled = 0;
        m.foreign += !skipping;
        skipping = 1;
    }
}
