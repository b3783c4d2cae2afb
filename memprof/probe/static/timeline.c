/* What polling saw, in bounded memory: see memprof/probe/timeline.py. */
#include "probe.h"
#include <sys/mman.h>

#define CAPACITY 20000
#define GROUP 10

static void begin(struct timeline *timeline, int narrow) {
    timeline->t = zeros(CAPACITY * sizeof *timeline->t);
    timeline->rss = zeros(CAPACITY * sizeof *timeline->rss);
    timeline->file = narrow ? NULL : zeros(CAPACITY * sizeof *timeline->file);
    timeline->vms = narrow ? NULL : zeros(CAPACITY * sizeof *timeline->vms);
}

static void move(struct timeline *timeline, int to, int from) {
    timeline->t[to] = timeline->t[from];
    timeline->rss[to] = timeline->rss[from];
    if (timeline->file == NULL) return;
    timeline->file[to] = timeline->file[from];
    timeline->vms[to] = timeline->vms[from];
}

/* Each group of neighbours keeps the rows that hold an extreme of it, at most five. */
static void thin(struct timeline *timeline) {
    const uint32_t *rss = timeline->rss, *file = timeline->file;
    const i64 *vms = timeline->vms;
    int place = 0, start, at;
    for (start = 0; start < timeline->rows; start += GROUP) {
        int end = start + GROUP < timeline->rows ? start + GROUP : timeline->rows;
        int most = start, least = start, anon = start, files = start, space = start;
        for (at = start + 1; at < end; ++at) {
            if (rss[at] > rss[most]) most = at;
            if (rss[at] < rss[least]) least = at;
            if (file == NULL) continue;
            if ((i64)rss[at] - file[at] > (i64)rss[anon] - file[anon]) anon = at;
            if (file[at] > file[files]) files = at;
            if (vms[at] > vms[space]) space = at;
        }
        for (at = start; at < end; ++at)
            if (at == most || at == least || (file != NULL && (at == anon || at == files || at == space))) move(timeline, place++, at);
    }
    timeline->rows = place;
}

static void row(struct timeline *timeline, i64 t_ns) {
    if (timeline->t == NULL) begin(timeline, 0);
    if (timeline->rows >= CAPACITY) thin(timeline);
    timeline->t[timeline->rows] = t_ns;
    timeline->rss[timeline->rows] = (uint32_t)(timeline->last_rss / KIB);
    if (timeline->file != NULL) {
        timeline->file[timeline->rows] = (uint32_t)(timeline->last_file / KIB);
        timeline->vms[timeline->rows] = timeline->last_vms;
    }
    ++timeline->rows;
}

static void end_level(struct timeline *timeline) {
    if (timeline->seen) row(timeline, timeline->seen_ns);
    timeline->seen = 0;
}

void timeline_add(struct timeline *timeline, i64 t_ns, i64 rss, i64 file, i64 vms) {
    if (timeline->count == 0) {
        timeline->first_ns = t_ns;
        timeline->rss_min = timeline->rss_max = rss;
    } else {
        timeline->area += (double)(timeline->last_rss / KIB) * (double)(t_ns - timeline->last_ns);
        timeline->rss_min = min64(timeline->rss_min, rss);
        timeline->rss_max = max64(timeline->rss_max, rss);
    }
    ++timeline->count;
    if (timeline->any && rss == timeline->last_rss && file == timeline->last_file && vms == timeline->last_vms) {
        timeline->seen = 1;
        timeline->seen_ns = t_ns;
    } else {
        end_level(timeline); /* so that what lies between two rows is a slope only where it was one */
        timeline->last_rss = rss;
        timeline->last_file = file;
        timeline->last_vms = vms;
        timeline->any = 1;
        row(timeline, t_ns);
    }
    timeline->last_ns = t_ns;
}

void timeline_narrow(struct timeline *narrow, const struct timeline *from) {
    *narrow = *from;
    begin(narrow, 1);
    if (from->t == NULL) return;
    memcpy(narrow->t, from->t, (size_t)from->rows * sizeof *from->t);
    memcpy(narrow->rss, from->rss, (size_t)from->rows * sizeof *from->rss);
    narrow->last_file = narrow->last_vms = 0;
}

void timeline_free(struct timeline *timeline) {
    if (timeline->t != NULL) {
        munmap(timeline->t, CAPACITY * sizeof *timeline->t);
        munmap(timeline->rss, CAPACITY * sizeof *timeline->rss);
        if (timeline->file != NULL) {
            munmap(timeline->file, CAPACITY * sizeof *timeline->file);
            munmap(timeline->vms, CAPACITY * sizeof *timeline->vms);
        }
    }
    memset(timeline, 0, sizeof *timeline);
}

i64 timeline_mean(const struct timeline *timeline) {
    if (timeline->count < 2) return timeline->any ? timeline->last_rss : 0;
    return (i64)(timeline->area / (double)(timeline->last_ns - timeline->first_ns) * KIB);
}

static i64 highest(const struct timeline *timeline, const uint32_t *column, i64 last, i64 begin_ns, i64 end_ns) {
    i64 best = timeline->seen && begin_ns <= timeline->seen_ns && timeline->seen_ns <= end_ns ? last : 0;
    int at;
    for (at = timeline->rows - 1; at >= 0 && timeline->t[at] >= begin_ns; --at)
        if (timeline->t[at] <= end_ns) best = max64(best, (i64)column[at] * KIB);
    return best;
}

i64 timeline_highest(const struct timeline *timeline, i64 begin_ns, i64 end_ns) {
    return highest(timeline, timeline->rss, timeline->last_rss, begin_ns, end_ns);
}

i64 timeline_highest_file(const struct timeline *timeline, i64 begin_ns, i64 end_ns) {
    return highest(timeline, timeline->file, timeline->last_file, begin_ns, end_ns);
}

/* -- packing: the differences between neighbours as little-endian 64-bit integers, zlib (RFC 1950), base64 (RFC 4648).
 *
 * Deflate (RFC 1951) in one block of fixed codes; what repeats is looked for one, eight and sixteen bytes back, which is where such columns
 * repeat. */

enum column { T, RSS, FILES, VMS };

static struct {
    const struct timeline *timeline; /* and its column, or plain numbers */
    enum column column;
    const i64 *numbers;
    i64 place, step; /* the difference that was computed last, and of which row */
} source;

static struct { uint32_t bits; int count, taken; unsigned char group[3]; } packed;

static i64 cell(i64 at) {
    const struct timeline *timeline = source.timeline;
    if (timeline == NULL) return source.numbers[at];
    if (source.column == T) return timeline->t[at];
    if (source.column == VMS) return timeline->vms[at];
    return (i64)(source.column == RSS ? timeline->rss : timeline->file)[at] * KIB;
}

static unsigned char byte(i64 at) {
    if (source.place != at / 8) {
        source.place = at / 8;
        source.step = cell(source.place) - (source.place ? cell(source.place - 1) : 0);
    }
    return (unsigned char)((uint64_t)source.step >> at % 8 * 8);
}

static void put_group(void) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *group = packed.group;
    char text[4];
    text[0] = digits[group[0] >> 2];
    text[1] = digits[(group[0] & 3) << 4 | group[1] >> 4];
    text[2] = digits[(group[1] & 15) << 2 | group[2] >> 6];
    text[3] = digits[group[2] & 63];
    if (packed.taken < 3) text[3] = '=';
    if (packed.taken < 2) text[2] = '=';
    out_raw(text, 4);
    packed.taken = 0;
    memset(packed.group, 0, sizeof packed.group);
}

static void put_byte(unsigned value) {
    packed.group[packed.taken++] = (unsigned char)value;
    if (packed.taken == 3) put_group();
}

static void put_bits(unsigned bits, int count) { /* the lowest first */
    packed.bits |= (uint32_t)bits << packed.count;
    packed.count += count;
    for (; packed.count >= 8; packed.count -= 8, packed.bits >>= 8) put_byte(packed.bits & 255);
}

static void put_code(unsigned code, int count) { /* codes go the other way round */
    while (count--) put_bits(code >> count & 1, 1);
}

static void put_symbol(int symbol) {
    if (symbol < 144) put_code(0x30 + (unsigned)symbol, 8);
    else if (symbol < 256) put_code(0x190 + (unsigned)symbol - 144, 9);
    else if (symbol < 280) put_code((unsigned)symbol - 256, 7);
    else put_code(0xC0 + (unsigned)symbol - 280, 8);
}

static void put_match(int length, int distance) {
    /* Lengths from 3 on: eight symbols of one length each, then four symbols of each number of further bits; 258 has one to itself. */
    if (length == 258) {
        put_symbol(285);
    } else if (length < 11) {
        put_symbol(254 + length);
    } else {
        int extra = 1, base = 11, symbol = 265;
        while (length >= base + (4 << extra)) {
            base += 4 << extra;
            symbol += 4;
            ++extra;
        }
        put_symbol(symbol + ((length - base) >> extra));
        put_bits((unsigned)((length - base) & ((1 << extra) - 1)), extra);
    }
    if (distance == 1) put_code(0, 5);
    else if (distance == 8) put_code(5, 5), put_bits(1, 1);
    else put_code(7, 5), put_bits(3, 2);
}

static void out_source(i64 rows) {
    static const int distances[] = {8, 1, 16};
    i64 size = rows * 8, at = 0, end;
    uint32_t low = 1, high = 0; /* Adler-32 */
    memset(&packed, 0, sizeof packed);
    source.place = -1;
    put_byte(0x78);
    put_byte(0x01);
    put_bits(1, 1); /* the last block */
    put_bits(1, 2); /* fixed codes */
    while (at < size) {
        int best = 0, from = 0;
        size_t index;
        for (index = 0; index < LENGTH(distances); ++index) {
            int length = 0, distance = distances[index];
            if (at < distance) continue;
            while (length < 258 && at + length < size && byte(at + length) == byte(at + length - distance)) ++length;
            if (length > best) best = length, from = distance;
        }
        if (best < 3) best = 1;
        if (best == 1) put_symbol(byte(at));
        else put_match(best, from);
        for (end = at + best; at < end; ++at) {
            low = (low + byte(at)) % 65521;
            high = (high + low) % 65521;
        }
    }
    put_symbol(256);
    if (packed.count) put_bits(0, 8 - packed.count);
    put_byte(high >> 8);
    put_byte(high & 255);
    put_byte(low >> 8);
    put_byte(low & 255);
    if (packed.taken) put_group();
}

static void out_column(const struct timeline *timeline, enum column column) {
    source.timeline = timeline;
    source.column = column;
    out_source(timeline->rows);
}

void out_numbers(const i64 *numbers, i64 rows) {
    source.timeline = NULL;
    source.numbers = numbers;
    out_source(rows);
}

void out_timeline(struct timeline *timeline, i64 rss_max_high) {
    static const char *const names[] = {"t_ns", "rss", "file", "vms"};
    int column;
    end_level(timeline);
    out("{");
    for (column = T; column <= VMS; ++column) {
        out("\"%s\":\"", names[column]);
        out_column(timeline, (enum column)column);
        out("\",");
    }
    out("\"samples\":%lld,\"rss_min_bytes\":%lld,\"rss_mean_bytes\":%lld,\"rss_max_bytes\":%lld", (long long)timeline->count,
        (long long)timeline->rss_min, (long long)timeline_mean(timeline), (long long)timeline->rss_max);
    if (rss_max_high >= 0) out(",\"rss_max_high_bytes\":%lld", (long long)rss_max_high);
    out_swapped();
    out("}");
}

void out_swap(struct timeline *timeline) {
    end_level(timeline);
    out(",\"swap_t_ns\":\"");
    out_column(timeline, T);
    out("\",\"swap\":\"");
    out_column(timeline, FILES);
    out("\"");
}
