/* What a phase's memory was after each unit of its work: see memprof/probe/work.py. */
#include "probe.h"

#define ROWS (1 << 15)
#define ANCHORS (1 << 10)
#define FIXED 4
#define ANCHORED 6
#define PHASES 16
#define MOST_NUMBERS (1 << 13)

static const char *const fixed_names[FIXED] = {"t_ns", "rss", "file", "swap"};
static const char *const anchored[ANCHORED] = {"iteration", "seen", "rss", "swap", "heap_used", "heap_free"};

struct table { i64 *columns[FIXED + UNITS]; int capacity, width, rows; };

static struct work {
    const char *phase, *units[UNITS];
    i64 before[UNITS], counts[UNITS];
    int unit_count, no_heap;
    struct table rows, anchors;
} works[PHASES];

static int work_count;

static void widen(struct table *table, int width) {
    for (; table->width < width; ++table->width) table->columns[table->width] = zeros((size_t)table->capacity * sizeof(i64));
}

static void add_row(struct table *table, const i64 *row) {
    int column, place;
    if (table->rows == table->capacity) { /* each second row goes, never the newest */
        table->rows /= 2;
        for (column = 0; column < table->width; ++column)
            for (place = 0; place < table->rows; ++place) table->columns[column][place] = table->columns[column][2 * place + 1];
    }
    for (column = 0; column < table->width; ++column) table->columns[column][table->rows] = row[column];
    ++table->rows;
}

static struct work *work_of(const char *phase, int make) {
    int at = 0;
    while (at < work_count && works[at].phase != phase) ++at;
    if (at < work_count) return &works[at];
    if (phase == NULL || !make || work_count == PHASES) return NULL;
    ++work_count;
    works[at].phase = phase;
    works[at].rows.capacity = ROWS;
    works[at].anchors.capacity = ANCHORS;
    widen(&works[at].rows, FIXED);
    widen(&works[at].anchors, ANCHORED);
    return &works[at];
}

void work_again(const char *phase) {
    struct work *work = work_of(phase, 0);
    if (work != NULL) memcpy(work->before, work->counts, sizeof work->before);
}

static int place_of(const struct work *work, const char *unit) {
    int at = 0;
    while (at < work->unit_count && work->units[at] != unit) ++at;
    return at;
}

int take_work(const struct json *mark) {
    const struct json *units = json_get(mark, "units"), *rows = json_get(mark, "rows"), *item;
    const char *names[UNITS];
    struct work *work = work_of(word_of(mark, "phase"), 1);
    int count = 0, numbers = 0, fresh = 0, at, width;
    i64 number;
    if (work == NULL || units == NULL || units->kind != J_LIST || rows == NULL || rows->kind != J_LIST) return 0;
    for (item = units->first; item != NULL; item = item->next, ++count) {
        const char *name = word_in(item);
        if (name == NULL || count == UNITS) return 0;
        for (at = 0; at < count; ++at)
            if (names[at] == name) return 0;
        names[count] = name;
        fresh += place_of(work, name) == work->unit_count;
    }
    width = FIXED + count;
    for (item = rows->first; item != NULL; item = item->next, ++numbers)
        if (!json_count(item, &number)) return 0;
    if (!count || numbers % width || numbers > MOST_NUMBERS || work->unit_count + fresh > UNITS) return 0;
    for (at = 0; at < count; ++at)
        if (place_of(work, names[at]) == work->unit_count) work->units[work->unit_count++] = names[at];
    widen(&work->rows, FIXED + work->unit_count);
    for (item = rows->first; item != NULL;) {
        i64 row[FIXED + UNITS];
        for (at = 0; at < width; ++at, item = item->next) {
            json_count(item, &number);
            if (at < FIXED) {
                row[at] = number;
            } else {
                int place = place_of(work, names[at - FIXED]);
                work->counts[place] = work->before[place] + number;
            }
        }
        memcpy(row + FIXED, work->counts, sizeof work->counts);
        add_row(&work->rows, row);
    }
    return 1;
}

int take_anchor(const struct json *mark) {
    struct work *work = work_of(word_of(mark, "phase"), 1);
    i64 row[ANCHORED] = {0};
    int at, iteration;
    if (work == NULL) return 0;
    for (at = 0; at < ANCHORED; ++at) {
        const struct json *figure = json_get(mark, anchored[at]);
        if (figure == NULL && at < 4) return 0;
        if (figure == NULL) work->no_heap = 1;
        else if (!json_count(figure, &row[at])) return 0;
    }
    iteration = place_of(work, interned("iteration"));
    if (iteration < work->unit_count) row[0] += work->before[iteration];
    add_row(&work->anchors, row);
    return 1;
}

void work_line(const char *unit) {
    struct work *work = work_of(interned("RUN"), 1);
    int place = work != NULL ? place_of(work, unit) : UNITS;
    if (place == UNITS) return;
    if (place == work->unit_count) work->units[work->unit_count++] = unit;
    ++work->counts[place];
}

void work_lines(i64 t_ns, i64 rss, i64 file, i64 swap) {
    struct work *work = work_of(interned("RUN"), 1);
    i64 row[FIXED + UNITS] = {t_ns, rss, file, swap};
    if (work == NULL) return;
    widen(&work->rows, FIXED + work->unit_count);
    memcpy(row + FIXED, work->counts, sizeof work->counts);
    add_row(&work->rows, row);
}

static void out_table(const struct table *table, int column, const char *name) {
    if (name != NULL) out("\"%s\":", name);
    out("\"");
    out_numbers(table->columns[column], table->rows);
    out("\"");
}

void out_work(void) {
    int at, any = 0, place;
    for (at = 0; at < work_count; ++at) {
        const struct work *work = &works[at];
        if (work->rows.rows < 2) continue;
        out(any++ ? "," : ",\"work\":[");
        out("{\"phase\":");
        out_text(work->phase);
        out(",\"units\":[");
        for (place = 0; place < work->unit_count; ++place) {
            if (place) out(",");
            out_text(work->units[place]);
        }
        out("],\"rows\":%d", work->rows.rows);
        for (place = 0; place < FIXED; ++place) {
            out(",");
            out_table(&work->rows, place, fixed_names[place]);
        }
        out(",\"counts\":[");
        for (place = 0; place < work->unit_count; ++place) {
            if (place) out(",");
            out_table(&work->rows, FIXED + place, NULL);
        }
        out("]");
        if (work->anchors.rows) {
            out(",\"anchors\":{\"rows\":%d", work->anchors.rows);
            for (place = 0; place < (work->no_heap ? 4 : ANCHORED); ++place) {
                out(",");
                out_table(&work->anchors, place, anchored[place]);
            }
            out("}");
        }
        out("}");
    }
    if (any) out("]");
}
