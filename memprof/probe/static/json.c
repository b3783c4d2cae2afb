/* JSON as far as a message, a mark and a Run need it. */
#include "probe.h"
#include <poll.h>

#define DEPTH 100

struct reader { char *at, *end, *text; int depth; };

static struct json *value(struct reader *reader);

int utf8_next(const unsigned char *text, size_t length, size_t *used) {
    static const int least[] = {0, 0x80, 0x800, 0x10000};
    int more, point;
    size_t at;
    *used = 1;
    if (text[0] < 0x80) return text[0];
    if (text[0] < 0xC2 || text[0] > 0xF4) return -1;
    more = text[0] < 0xE0 ? 1 : text[0] < 0xF0 ? 2 : 3;
    point = text[0] & (0x3F >> more);
    for (at = 1; at <= (size_t)more; ++at) {
        if (at >= length || (text[at] & 0xC0) != 0x80) return -1;
        /* The second byte alone tells overlong forms, halves of surrogate pairs and what is beyond Unicode. */
        if (at == 1) {
            int high = (point << 6 | (text[1] & 0x3F)) << 6 * (more - 1);
            if (high + (1 << 6 * (more - 1)) - 1 < least[more] || (high >= 0xD800 && high <= 0xDFFF) || high > 0x10FFFF) return -1;
        }
        point = point << 6 | (text[at] & 0x3F);
        *used = at + 1;
    }
    return point;
}

int utf8_valid(const char *text, size_t length) {
    size_t at, used;
    for (at = 0; at < length; at += used)
        if (utf8_next((const unsigned char *)text + at, length - at, &used) < 0) return 0;
    return 1;
}

static char *put_utf8(char *to, int point) {
    if (point < 0x80) {
        *to++ = (char)point;
    } else if (point < 0x800) {
        *to++ = (char)(0xC0 | point >> 6);
        *to++ = (char)(0x80 | (point & 0x3F));
    } else if (point < 0x10000) {
        *to++ = (char)(0xE0 | point >> 12);
        *to++ = (char)(0x80 | (point >> 6 & 0x3F));
        *to++ = (char)(0x80 | (point & 0x3F));
    } else {
        *to++ = (char)(0xF0 | point >> 18);
        *to++ = (char)(0x80 | (point >> 12 & 0x3F));
        *to++ = (char)(0x80 | (point >> 6 & 0x3F));
        *to++ = (char)(0x80 | (point & 0x3F));
    }
    return to;
}

static int hex4(const char *text, const char *end) {
    int index, number = 0;
    if (end - text < 4) return -1;
    for (index = 0; index < 4; ++index) {
        int digit = text[index];
        if (digit >= '0' && digit <= '9') digit -= '0';
        else if ((digit | 32) >= 'a' && (digit | 32) <= 'f') digit = (digit | 32) - 'a' + 10;
        else return -1;
        number = number * 16 + digit;
    }
    return number;
}

static void spaces(struct reader *reader) {
    while (reader->at < reader->end && strchr(" \t\r\n", *reader->at) != NULL && *reader->at) ++reader->at;
}

/* Decoded in place: what is read is never shorter. Half a surrogate pair stays as it was written. */
static struct json *string(struct reader *reader, struct json *found) {
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    char *to = ++reader->at;
    found->kind = J_STRING;
    found->text = to;
    while (reader->at < reader->end && *reader->at != '"') {
        const char *escape;
        int point, low;
        if (*reader->at != '\\') {
            found->zero |= *reader->at == 0;
            *to++ = *reader->at++;
            continue;
        }
        if (++reader->at >= reader->end) return NULL;
        if (*reader->at != 'u') {
            escape = *reader->at ? strchr(from, *reader->at) : NULL;
            if (escape == NULL) return NULL;
            *to++ = into[escape - from];
            ++reader->at;
            continue;
        }
        point = hex4(reader->at + 1, reader->end);
        if (point < 0) return NULL;
        reader->at += 5;
        if (point >= 0xD800 && point < 0xDC00 && reader->end - reader->at >= 6 && reader->at[0] == '\\' && reader->at[1] == 'u'
            && (low = hex4(reader->at + 2, reader->end)) >= 0xDC00 && low < 0xE000) {
            point = 0x10000 + ((point - 0xD800) << 10) + low - 0xDC00;
            reader->at += 6;
        }
        found->zero |= point == 0;
        if (point >= 0xD800 && point < 0xE000) {
            char half[16];
            put(half, sizeof half, "\\u%04x", (unsigned)point);
            memmove(to, half, 6);
            to += 6;
        } else {
            to = put_utf8(to, point);
        }
    }
    if (reader->at >= reader->end) return NULL;
    ++reader->at;
    found->length = (size_t)(to - found->text);
    *to = 0; /* over the quote, or what stood before it */
    return found;
}

static struct json *inside(struct reader *reader, struct json *found, char closing) {
    struct json **next = &found->first;
    found->kind = closing == '}' ? J_MAP : J_LIST;
    ++reader->at;
    spaces(reader);
    if (reader->at < reader->end && *reader->at == closing) return ++reader->at, found;
    while (reader->at < reader->end) {
        const char *name = NULL;
        if (closing == '}') {
            struct json key = {0};
            spaces(reader);
            if (reader->at >= reader->end || *reader->at != '"' || string(reader, &key) == NULL) return NULL;
            name = key.text;
            spaces(reader);
            if (reader->at >= reader->end || *reader->at++ != ':') return NULL;
        }
        *next = value(reader);
        if (*next == NULL) return NULL;
        (*next)->name = name;
        next = &(*next)->next;
        spaces(reader);
        if (reader->at >= reader->end) return NULL;
        if (*reader->at == closing) return ++reader->at, found;
        if (*reader->at++ != ',') return NULL;
    }
    return NULL;
}

static int digits(struct reader *reader) {
    char *begin = reader->at;
    while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9') ++reader->at;
    return reader->at > begin;
}

static struct json *number(struct reader *reader, struct json *found) {
    static const char *const words[] = {"NaN", "Infinity", "-Infinity", "null", "true", "false"};
    static const enum kind kinds[] = {J_NUMBER, J_NUMBER, J_NUMBER, J_NULL, J_TRUE, J_FALSE};
    char *begin = reader->at;
    size_t index;
    for (index = 0; index < LENGTH(words); ++index)
        if ((size_t)(reader->end - begin) >= strlen(words[index]) && memcmp(begin, words[index], strlen(words[index])) == 0) {
            found->kind = kinds[index];
            found->text = words[index];
            reader->at += found->length = strlen(words[index]);
            return found;
        }
    found->kind = J_NUMBER;
    if (reader->at < reader->end && *reader->at == '-') ++reader->at;
    if (reader->at < reader->end && *reader->at == '0') ++reader->at;
    else if (!digits(reader)) return NULL;
    if (reader->at + 1 < reader->end && *reader->at == '.' && reader->at[1] >= '0' && reader->at[1] <= '9') {
        ++reader->at;
        digits(reader);
    }
    if (reader->at < reader->end && (*reader->at | 32) == 'e') {
        char *before = reader->at++;
        if (reader->at < reader->end && (*reader->at == '+' || *reader->at == '-')) ++reader->at;
        if (!digits(reader)) reader->at = before;
    }
    found->length = (size_t)(reader->at - begin);
    found->text = begin; /* what ends it is a comma, a bracket or the end */
    return found;
}

static struct json *value(struct reader *reader) {
    struct json *found = take_memory(sizeof *found), *whole = NULL;
    memset(found, 0, sizeof *found);
    spaces(reader);
    found->from = (size_t)(reader->at - reader->text);
    ++reader->depth;
    if (reader->at < reader->end && reader->depth <= DEPTH) {
        if (*reader->at == '"') whole = string(reader, found);
        else if (*reader->at == '{') whole = inside(reader, found, '}');
        else if (*reader->at == '[') whole = inside(reader, found, ']');
        else whole = number(reader, found);
    }
    --reader->depth;
    found->to = (size_t)(reader->at - reader->text);
    if (whole == NULL) json_free(found);
    return whole;
}

struct json *json_read(char *text, size_t length) {
    struct reader reader = {text, text + length, text, 0};
    return value(&reader);
}

void json_free(struct json *found) {
    while (found != NULL) {
        struct json *next = found->next;
        json_free(found->first);
        free(found);
        found = next;
    }
}

struct json *json_get(const struct json *map, const char *name) {
    struct json *item, *found = NULL;
    if (map == NULL || map->kind != J_MAP) return NULL;
    for (item = map->first; item != NULL; item = item->next)
        if (strcmp(item->name, name) == 0) found = item; /* the last of a name counts */
    return found != NULL && found->kind != J_NULL ? found : NULL;
}

/* NaN and the infinities are written as Python does. */
static int is_finite(const struct json *number) { return number->text[0] != 'N' && number->text[number->text[0] == '-'] != 'I'; }

int json_true(const struct json *found) {
    if (found == NULL || found->kind == J_NULL || found->kind == J_FALSE) return 0;
    if (found->kind == J_NUMBER) return decimal_of(found->text).digits != 0 || !is_finite(found);
    if (found->kind == J_STRING) return found->length > 0;
    return found->kind == J_TRUE || found->first != NULL;
}

int json_count(const struct json *found, i64 *count) {
    struct decimal number;
    if (found == NULL) return 0;
    if (found->kind == J_TRUE || found->kind == J_FALSE) return *count = found->kind == J_TRUE, 1;
    if (found->kind != J_NUMBER || !is_finite(found)) return 0;
    number = decimal_of(found->text);
    for (; number.exponent > 0 && number.digits; --number.exponent) {
        if (number.digits > NEVER / 10) return 0;
        number.digits *= 10;
    }
    for (; number.exponent < 0 && number.digits; ++number.exponent) number.digits /= 10;
    *count = (i64)number.digits;
    return number.digits < (uint64_t)NEVER && !(number.negative && number.digits);
}

i64 json_int(const struct json *map, const char *name, i64 other) {
    const struct json *found = json_get(map, name);
    return found != NULL && found->kind == J_NUMBER ? read_int(found->text, NULL) : other;
}

const char *json_text(const struct json *map, const char *name) {
    const struct json *found = json_get(map, name);
    return found != NULL && found->kind == J_STRING ? found->text : NULL;
}

/* -- out */

static char buffer[4096];
static size_t filled;

void out_flush(void) {
    size_t done = 0;
    while (done < filled) {
        ssize_t count = write(1, buffer + done, filled - done);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break; /* nobody reads any more */
        done += (size_t)count;
    }
    filled = 0;
}

void out_raw(const char *text, size_t length) {
    while (length) {
        size_t part = sizeof buffer - filled < length ? sizeof buffer - filled : length;
        memcpy(buffer + filled, text, part);
        filled += part;
        text += part;
        length -= part;
        if (filled == sizeof buffer) out_flush();
    }
}

void out(const char *format, ...) {
    char text[400];
    va_list words;
    size_t length;
    va_start(words, format);
    length = vput(text, sizeof text, format, words);
    va_end(words);
    out_raw(text, length < sizeof text ? length : sizeof text - 1);
}

/* What is no UTF-8 becomes U+FFFD, as Python's "replace" does it. */
void out_string(const char *text, size_t length) {
    size_t at, used;
    out_raw("\"", 1);
    for (at = 0; at < length; at += used) {
        int point = utf8_next((const unsigned char *)text + at, length - at, &used);
        if (point < 0) out_raw("\xEF\xBF\xBD", 3);
        else if (point == '"' || point == '\\') out("\\%c", point);
        else if (point < ' ') out("\\u%04x", (unsigned)point);
        else out_raw(text + at, used);
    }
    out_raw("\"", 1);
}

void out_text(const char *text) {
    if (text == NULL) out_raw("null", 4);
    else out_string(text, strlen(text));
}

void say(const char *line) {
    struct pollfd output = {1, POLLOUT, 0};
    if (poll(&output, 1, 0) == 1 && output.revents & POLLOUT && write(1, line, strlen(line)) < 0) { /* nobody reads any more */ }
}
