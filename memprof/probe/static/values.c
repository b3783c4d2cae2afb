/* Values that a program says, such as a rate or a size: they are kept as they came, and thinned out where they are many. */
#include "probe.h"
#include <float.h>

#define VALUES 4000
#define MOST_VALUE 9.9999999999999e99 /* memprof refuses 1e100; to within what decimal_double is exact */

static double size_of(const struct value *value) { return value->note != NULL ? 0 : decimal_double(value->number); }

static int by_time(const void *left, const void *right) {
    const struct value *one = left, *other = right;
    return one->t_ns < other->t_ns ? -1 : one->t_ns > other->t_ns;
}

/* Of each four neighbours of a name the smallest and the largest. */
static void thin_values(void) {
    size_t at, left = 0;
    struct value *kept = take_memory(m.value_count * sizeof *kept);
    for (at = 0; at < m.value_count; ++at) {
        const char *name = m.values[at].name;
        const struct value *low = NULL, *high = NULL, *first = NULL;
        size_t other, count = 0;
        if (name == NULL) continue;
        for (other = at; other <= m.value_count; ++other) {
            struct value *value = other < m.value_count ? &m.values[other] : NULL;
            if (value != NULL && value->name == name) {
                if (!count++) first = value;
                value->name = NULL; /* dealt with; `name` has it */
                if (value->note == NULL) {
                    if (low == NULL || size_of(value) < size_of(low)) low = value;
                    if (high == NULL || size_of(value) > size_of(high)) high = value;
                }
            }
            if (count && (count == 4 || value == NULL)) {
                if (low == NULL) low = high = first;
                kept[left] = *low;
                kept[left++].name = name;
                if (high != low) kept[left] = *high, kept[left++].name = name;
                low = high = NULL;
                count = 0;
            }
        }
    }
    qsort(kept, left, sizeof *kept, by_time);
    memcpy(m.values, kept, left * sizeof *kept);
    m.value_count = left;
    free(kept);
}

int take_value(const struct json *mark) {
    struct value value = {0};
    const struct json *number = json_get(mark, "value");
    double size;
    value.name = word_of(mark, "name");
    if (number == NULL || number->kind != J_NUMBER || value.name == NULL || !json_count(json_get(mark, "t_ns"), &value.t_ns)) return 0;
    value.phase = *m.phase ? m.phase : NULL;
    value.number = decimal_of(number->text);
    size = decimal_double(value.number);
    if (*number->text == 'N') value.note = "not a number";
    else if (*number->text == 'I' || size > DBL_MAX) value.note = "infinite";
    else if (strncmp(number->text, "-I", 2) == 0 || size < -DBL_MAX) value.note = "minus infinite";
    else if (size >= MOST_VALUE) value.note = "1e100 or more";
    else if (size <= -MOST_VALUE) value.note = "minus 1e100 or more";
    m.values = grown(m.values, m.value_count, &m.value_room, sizeof *m.values);
    m.values[m.value_count++] = value;
    if (m.value_count > VALUES) thin_values();
    return 1;
}

void out_values(void) {
    size_t at;
    for (at = 0; at < m.value_count; ++at) {
        const struct value *value = &m.values[at];
        out("%s{\"name\":", at ? "," : "");
        out_text(value->name);
        out(",\"t_ns\":%lld,\"value\":", (long long)value->t_ns);
        if (value->note != NULL) out("null,\"note\":\"%s\"", value->note);
        else out("%s%llu", value->number.negative ? "-" : "", (unsigned long long)value->number.digits);
        if (value->note == NULL && value->number.exponent) out("e%d", value->number.exponent);
        if (value->phase != NULL) {
            out(",\"phase\":");
            out_text(value->phase);
        }
        out("}");
    }
}
