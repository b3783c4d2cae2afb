/* Whether a line matches a pattern of Python's `re`: its search() without groups to read, so that lazy and greedy repeats are the same, and
 * all threads of the match can go through the line side by side (Thompson's construction): no pattern takes longer than its size times the
 * line's.
 *
 * Known: characters, . ^ $ \A \Z \b \B \d \D \s \S \w \W, the escapes \t \n \r \f \v \a \xHH \uHHHH and those of punctuation, [sets], (groups),
 * (?:groups), (?P<name>groups), |, * + ? {m} {m,} {,n} {m,n} and each with a ? behind it, (?i) at the begin. Letters, digits and spaces are
 * ASCII's. All else is refused: references to groups, looking ahead and behind, possessive repeats, other flags. */
#include "probe.h"

#define MOST_CODE 4000
#define MOST_REPEATS 1000
#define MOST_DEPTH 50
#define LAST_POINT 0x10FFFF

enum op { CHARACTER, SET, NO_SET, ANY, BEGIN, END, WORD_EDGE, NO_WORD_EDGE, SPLIT, JUMP, MATCH };

/* x: the character, the first range of a set, or how far the jump goes; y: the number of ranges, or how far the other jump goes. */
struct code { enum op op; int x, y; };
struct range { int low, high; };

struct pattern_code {
    struct code *code;
    struct range *ranges;
    size_t count, room, range_count, range_room;
    int any_case;
    unsigned *added; /* at which turn an instruction was last added, so that it is once only */
    int *now, *next;
    unsigned turn;
};

struct parser { const unsigned char *at, *end; struct pattern_code *into; const char *reason; int depth; };

static const struct range digit[] = {{'0', '9'}}, space[] = {{'\t', '\r'}, {0x1C, ' '}},
                          word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};

static void alternatives(struct parser *parser);

static int refuse(struct parser *parser, const char *reason) {
    if (parser->reason == NULL) parser->reason = reason;
    parser->at = parser->end;
    return 0;
}

static void emit(struct parser *parser, enum op op, int x, int y) {
    struct pattern_code *into = parser->into;
    if (into->count >= MOST_CODE) {
        refuse(parser, "it is too large");
        return;
    }
    into->code = grown(into->code, into->count, &into->room, sizeof *into->code);
    into->code[into->count].op = op;
    into->code[into->count].x = x;
    into->code[into->count++].y = y;
}

/* Move what stands from `place` on by one, which frees that place. Jumps are relative: none crosses it. */
static void insert(struct parser *parser, size_t place, enum op op, int x, int y) {
    struct code *code;
    emit(parser, op, x, y);
    if (parser->reason != NULL) return;
    code = parser->into->code;
    memmove(code + place + 1, code + place, (parser->into->count - 1 - place) * sizeof *code);
    code[place].op = op;
    code[place].x = x;
    code[place].y = y;
}

/* -- sets */

static void range(struct parser *parser, int low, int high) {
    struct pattern_code *into = parser->into;
    if (low > high) return;
    into->ranges = grown(into->ranges, into->range_count, &into->range_room, sizeof *into->ranges);
    into->ranges[into->range_count].low = low;
    into->ranges[into->range_count++].high = high;
}

/* The ranges of \d, \s and \w, or of their capitals all that lies between; 0 for another letter. */
static int class(struct parser *parser, int letter) {
    const struct range *ranges = (letter | 32) == 'd' ? digit : (letter | 32) == 's' ? space : word;
    size_t at, count = ranges == digit ? LENGTH(digit) : ranges == space ? LENGTH(space) : LENGTH(word);
    int from = 0;
    if (strchr("dswDSW", letter) == NULL || !letter) return 0;
    for (at = 0; at < count; ++at) {
        if (letter & 32) range(parser, ranges[at].low, ranges[at].high);
        else range(parser, from, ranges[at].low - 1), from = ranges[at].high + 1;
    }
    if (!(letter & 32)) range(parser, from, LAST_POINT);
    return 1;
}

static int next_point(struct parser *parser) {
    size_t used;
    int point = utf8_next(parser->at, (size_t)(parser->end - parser->at), &used);
    parser->at += used;
    return point < 0 ? 0xFFFD : point;
}

/* The character of an escape, behind its backslash. */
static int escaped(struct parser *parser) {
    static const char from[] = "tnrfva", into[] = "\t\n\r\f\v\a";
    int point = parser->at < parser->end ? next_point(parser) : 0, digits = point == 'x' ? 2 : point == 'u' ? 4 : 0, number = 0;
    const char *known = point && point < 128 ? strchr(from, point) : NULL;
    if (known != NULL) return into[known - from];
    if (digits) {
        while (digits--) {
            int letter = parser->at < parser->end ? *parser->at++ : 0;
            if (letter >= '0' && letter <= '9') number = number * 16 + letter - '0';
            else if ((letter | 32) >= 'a' && (letter | 32) <= 'f') number = number * 16 + (letter | 32) - 'a' + 10;
            else return refuse(parser, "an escape has too few digits");
        }
        return number;
    }
    if ((point >= '0' && point <= '9') || (point >= 'A' && point <= 'Z') || (point >= 'a' && point <= 'z'))
        return refuse(parser, "it has an escape that is not known here");
    return point;
}

static void set(struct parser *parser) {
    size_t first = parser->into->range_count;
    enum op op = SET;
    int begin = 1;
    if (parser->at < parser->end && *parser->at == '^') op = NO_SET, ++parser->at;
    for (;; begin = 0) {
        int low, high;
        if (parser->at >= parser->end) {
            refuse(parser, "a set is not closed");
            return;
        }
        if (*parser->at == ']' && !begin) break;
        low = next_point(parser);
        if (low == '\\') {
            if (parser->at < parser->end && class(parser, *parser->at)) {
                ++parser->at;
                continue;
            }
            low = parser->at < parser->end && *parser->at == 'b' ? (++parser->at, '\b') : escaped(parser);
        }
        high = low;
        if (parser->end - parser->at >= 2 && *parser->at == '-' && parser->at[1] != ']') {
            ++parser->at;
            high = next_point(parser);
            if (high == '\\') high = parser->at < parser->end && *parser->at == 'b' ? (++parser->at, '\b') : escaped(parser);
        }
        if (low > high) refuse(parser, "a range of a set goes backwards");
        range(parser, low, high);
    }
    ++parser->at;
    emit(parser, op, (int)first, (int)(parser->into->range_count - first));
}

/* -- the rest of the syntax */

static void group(struct parser *parser) {
    if (parser->at < parser->end && *parser->at == '?') {
        size_t left = (size_t)(parser->end - parser->at);
        if (left > 1 && parser->at[1] == ':') {
            parser->at += 2;
        } else if (left > 2 && parser->at[1] == 'P' && parser->at[2] == '<') {
            while (parser->at < parser->end && *parser->at++ != '>') {}
        } else {
            refuse(parser, "it has a group of a kind that is not known here");
            return;
        }
    }
    if (++parser->depth > MOST_DEPTH) {
        refuse(parser, "its groups are too deep");
        return;
    }
    alternatives(parser);
    --parser->depth;
    if (parser->at >= parser->end) refuse(parser, "a group is not closed");
    else ++parser->at;
}

static void escape(struct parser *parser) {
    size_t first = parser->into->range_count;
    int letter = parser->at < parser->end ? *parser->at : 0;
    if (!letter) {
        refuse(parser, "it ends with a backslash");
    } else if (class(parser, letter)) {
        ++parser->at;
        emit(parser, SET, (int)first, (int)(parser->into->range_count - first));
    } else if (letter == 'A' || letter == 'Z' || letter == 'b' || letter == 'B') {
        ++parser->at;
        emit(parser, letter == 'A' ? BEGIN : letter == 'Z' ? END : letter == 'b' ? WORD_EDGE : NO_WORD_EDGE, 0, 0);
    } else {
        emit(parser, CHARACTER, escaped(parser), 0);
    }
}

/* Reads {m}, {m,}, {,n} or {m,n}; 0, and nothing read, where it is none of them and therefore itself. most is -1 for no end. */
static int bounds(struct parser *parser, int *least, int *most) {
    const unsigned char *at = parser->at + 1;
    int numbers[2] = {-1, -1}, index, comma = 0;
    for (index = 0; index < 2; ++index) {
        for (; at < parser->end && *at >= '0' && *at <= '9'; ++at)
            if (numbers[index] <= MOST_REPEATS) numbers[index] = (numbers[index] < 0 ? 0 : numbers[index]) * 10 + *at - '0';
        if (index == 0 && at < parser->end && *at == ',') comma = 1, ++at;
        else break;
    }
    if (at >= parser->end || *at != '}' || (numbers[0] < 0 && !comma)) return 0;
    *least = numbers[0] < 0 ? 0 : numbers[0];
    *most = comma ? numbers[1] : numbers[0];
    if (*least > MOST_REPEATS || *most > MOST_REPEATS) refuse(parser, "it repeats something too often");
    else parser->at = at + 1;
    return 1;
}

/* What stands from `begin` on, from `least` to `most` times. */
static void repeat(struct parser *parser, size_t begin, int least, int most) {
    struct pattern_code *into = parser->into;
    size_t size = into->count - begin, at;
    int times, copies = most < 0 ? (least > 1 ? least : 1) : most;
    if (most == 0) {
        into->count = begin;
        return;
    }
    for (times = 1; times < copies && parser->reason == NULL; ++times)
        for (at = 0; at < size; ++at) emit(parser, into->code[begin + at].op, into->code[begin + at].x, into->code[begin + at].y);
    if (parser->reason != NULL) return;
    if (most < 0 && least > 0) { /* once more, as often as it likes */
        emit(parser, SPLIT, -(int)size, 1);
    } else if (most < 0) {
        insert(parser, begin, SPLIT, 1, (int)size + 2);
        emit(parser, JUMP, -(int)size - 1, 0);
    } else {
        for (times = copies - 1; times >= least; --times) /* from the last on: each may be left out, with all that follow */
            insert(parser, begin + (size_t)times * size, SPLIT, 1, (int)size + 1 + (int)(copies - 1 - times) * (int)(size + 1));
    }
}

static void sequence(struct parser *parser) {
    while (parser->at < parser->end && *parser->at != '|' && *parser->at != ')') {
        size_t begin = parser->into->count;
        int point = next_point(parser), least, most;
        if (point == '(') group(parser);
        else if (point == '[') set(parser);
        else if (point == '\\') escape(parser);
        else if (point == '*' || point == '+' || point == '?') refuse(parser, "it repeats nothing");
        else emit(parser, point == '.' ? ANY : point == '^' ? BEGIN : point == '$' ? END : CHARACTER, point, 0);
        if (parser->at >= parser->end) return;
        if (*parser->at == '*') least = 0, most = -1, ++parser->at;
        else if (*parser->at == '+') least = 1, most = -1, ++parser->at;
        else if (*parser->at == '?') least = 0, most = 1, ++parser->at;
        else if (*parser->at != '{' || !bounds(parser, &least, &most)) continue;
        if (most >= 0 && least > most) refuse(parser, "it repeats something less often than at least");
        if (parser->at < parser->end && *parser->at == '?') ++parser->at;
        else if (parser->at < parser->end && *parser->at == '+') refuse(parser, "it has a possessive repeat");
        if (parser->at < parser->end && (*parser->at == '*' || *parser->at == '+' || *parser->at == '?')) refuse(parser, "it repeats a repeat");
        if (parser->reason == NULL) repeat(parser, begin, least, most);
    }
}

static void alternatives(struct parser *parser) {
    size_t begin = parser->into->count;
    sequence(parser);
    while (parser->at < parser->end && *parser->at == '|') {
        size_t other;
        ++parser->at;
        insert(parser, begin, SPLIT, 1, (int)(parser->into->count - begin) + 2);
        emit(parser, JUMP, 0, 0);
        other = parser->into->count;
        alternatives(parser);
        if (parser->reason == NULL) parser->into->code[other - 1].x = (int)(parser->into->count - other) + 1;
    }
}

struct pattern_code *pattern_read(const char *text, size_t length, const char **reason) {
    struct pattern_code *into = take_memory(sizeof *into);
    struct parser parser = {(const unsigned char *)text, (const unsigned char *)text + length, into, NULL, 0};
    memset(into, 0, sizeof *into);
    if (length >= 4 && memcmp(text, "(?i)", 4) == 0) into->any_case = 1, parser.at += 4;
    alternatives(&parser);
    if (parser.at < parser.end) refuse(&parser, "a group is closed that was not opened");
    emit(&parser, MATCH, 0, 0);
    *reason = parser.reason;
    if (*reason != NULL) return NULL;
    into->added = take_memory(into->count * sizeof *into->added);
    memset(into->added, 0, into->count * sizeof *into->added);
    into->now = take_memory(into->count * sizeof *into->now);
    into->next = take_memory(into->count * sizeof *into->next);
    return into;
}

/* -- matching */

static int is_word(int point) {
    size_t at;
    for (at = 0; at < LENGTH(word); ++at)
        if (point >= word[at].low && point <= word[at].high) return 1;
    return 0;
}

static int in_set(const struct pattern_code *pattern, const struct code *code, int point) {
    int at;
    for (at = code->x; at < code->x + code->y; ++at)
        if (point >= pattern->ranges[at].low && point <= pattern->ranges[at].high) return 1;
    return 0;
}

static int fits(const struct pattern_code *pattern, const struct code *code, int point) {
    if (code->op == CHARACTER) return point == code->x;
    if (code->op == ANY) return point != '\n';
    return in_set(pattern, code, point);
}

static int takes(const struct pattern_code *pattern, const struct code *code, int point) {
    int letter = (point | 32) >= 'a' && (point | 32) <= 'z', fit = fits(pattern, code, point);
    if (!fit && pattern->any_case && letter) fit = fits(pattern, code, point ^ 32);
    return code->op == NO_SET ? !fit : fit;
}

/* Add an instruction to the threads, or those that it leads to without a character; 1 where that is the end of the pattern. */
static int add(struct pattern_code *pattern, int *threads, int *count, int at, int before, int after) {
    for (;;) {
        const struct code *code = &pattern->code[at];
        int edge;
        if (pattern->added[at] == pattern->turn) return 0;
        pattern->added[at] = pattern->turn;
        edge = is_word(before) != is_word(after);
        switch (code->op) {
        case MATCH: return 1;
        case JUMP: at += code->x; break;
        case SPLIT:
            if (add(pattern, threads, count, at + code->x, before, after)) return 1;
            at += code->y;
            break;
        case BEGIN:
            if (before >= 0) return 0;
            ++at;
            break;
        case END:
            if (after >= 0) return 0;
            ++at;
            break;
        case WORD_EDGE:
        case NO_WORD_EDGE:
            if (edge != (code->op == WORD_EDGE)) return 0;
            ++at;
            break;
        default: threads[(*count)++] = at; return 0;
        }
    }
}

int pattern_found(struct pattern_code *pattern, const char *line, size_t length) {
    const unsigned char *at = (const unsigned char *)line, *end = at + length;
    int *now = pattern->now, *next = pattern->next, *other, count = 0, following, before = -1, after, index;
    size_t used = 0;
    for (;; before = after, at += used) {
        int point = at < end ? utf8_next(at, (size_t)(end - at), &used) : -2;
        after = point == -2 ? -1 : point < 0 ? 0xFFFD : point;
        following = 0;
        /* Threads came here by the character before, and one begins. */
        ++pattern->turn;
        for (index = 0; index < count; ++index)
            if (takes(pattern, &pattern->code[now[index]], before) && add(pattern, next, &following, now[index] + 1, before, after)) return 1;
        if (add(pattern, next, &following, 0, before, after)) return 1;
        if (after < 0) return 0;
        other = now, now = next, next = other, count = following;
    }
}
