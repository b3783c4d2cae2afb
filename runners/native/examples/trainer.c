/* A small trainer whose tensors can be swapped to a mapped file and back by execution order: an example for a swap table, with known answers.
 *
 *     cc -O2 -pthread -I"$(memprof marks --include)" trainer.c -lm -o trainer
 *     memprof run --cmd 'orig=./trainer --epochs {runs}' --cmd 'swap=./trainer --epochs {runs} --swap' \
 *                 --cmd 'ahead=./trainer --epochs {runs} --swap --look-ahead 1' --runs 5 -o runs.jsonl
 *     memprof table runs.jsonl --style swap --window EPOCH
 *
 * The net is L layers of n neurons, each connected to a neuron of the layer before: a[l+1] = tanh(w[l] * a[l]), trained by gradient descent to turn
 * an input into a target. Its tensors are L weights and L + 1 activations of n floats, and one gradient that runs backwards in place.
 *
 * Without --swap all 2L + 2 tensors are anonymous memory for the whole run. With it the weights and activations lie in a file, and a tensor
 * is mapped only while the operation that runs needs it: an operation, forward or backward, needs a[l], w[l] and a[l+1]. So at most 3
 * tensors are mapped at a time, all of them file-backed, and one (the gradient) stays anonymous. With --look-ahead K another thread maps and
 * reads the tensors of the next K operations while an operation runs; neighbours share an activation, so it is at most 3 + 2K. The loss is the same
 * to the last bit in each case.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memprof.h"

static int layers = 8, epochs = 5, look_ahead = 0, swapping = 0;
static size_t bytes = (size_t)4 << 20; /* of a tensor */
static const float rate = 0.5f;

typedef struct {
    float *data; /* NULL while it is swapped out */
    int users;   /* operations that hold it: the operation that runs, and those that are looked ahead to */
} Tensor;

static Tensor *tensors; /* weights 0..L-1, activations L..2L */
static int file = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* How many operations' tensors the other thread is to bring in, and how many it has brought. */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long wanted = 0, brought = 0;
static int over = 0;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void *mapped(size_t size, int descriptor, off_t offset) {
    int flags = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, descriptor, offset);
    if (memory == MAP_FAILED) fail("mmap");
    return memory;
}

/* -- swapping */

static void swap_in(int index) {
    pthread_mutex_lock(&lock);
    if (tensors[index].users++ == 0 && swapping) {
        size_t at;
        volatile char touched;
        tensors[index].data = (float *)mapped(bytes, file, (off_t)(bytes * (size_t)index));
        for (at = 0; at < bytes; at += 4096) touched = ((char *)tensors[index].data)[at]; /* all of it, not page by page in the operation */
        (void)touched;
    }
    pthread_mutex_unlock(&lock);
}

static void swap_out(int index) {
    pthread_mutex_lock(&lock);
    if (--tensors[index].users == 0 && swapping) {
        munmap(tensors[index].data, bytes);
        tensors[index].data = NULL;
    }
    pthread_mutex_unlock(&lock);
}

/* Operation number `step` of the whole training: L forward and then L backward, again and again. */
static int layer_of(long step) {
    int in_epoch = (int)(step % (2 * layers));
    return in_epoch < layers ? in_epoch : 2 * layers - 1 - in_epoch;
}

static void for_each_tensor(long step, void (*act)(int)) {
    int layer = layer_of(step);
    act(layer);
    act(layers + layer);
    act(layers + layer + 1);
}

static void *look_forward(void *nothing) {
    pthread_mutex_lock(&lock);
    while (!over) {
        if (brought < wanted) {
            pthread_mutex_unlock(&lock);
            for_each_tensor(brought, swap_in);
            pthread_mutex_lock(&lock);
            ++brought;
            pthread_cond_broadcast(&changed);
        } else
            pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    return nothing;
}

static void begin_operation(long step, long steps) {
    if (look_ahead == 0) {
        for_each_tensor(step, swap_in);
        return;
    }
    pthread_mutex_lock(&lock);
    wanted = step + 1 + look_ahead < steps ? step + 1 + look_ahead : steps;
    pthread_cond_broadcast(&changed);
    while (brought <= step) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void end_operation(long step) { for_each_tensor(step, swap_out); }

/* -- the net */

static float *weight(int layer) { return tensors[layer].data; }
static float *activation(int layer) { return tensors[layers + layer].data; }

static void forward(int layer, size_t count) {
    const float *in = activation(layer), *w = weight(layer);
    float *out = activation(layer + 1);
    size_t i;
    for (i = 0; i < count; ++i) out[i] = tanhf(w[i] * in[i]);
}

/* gradient holds dLoss/da[l+1] and then dLoss/da[l]. */
static void backward(int layer, float *gradient, size_t count) {
    const float *in = activation(layer), *out = activation(layer + 1);
    float *w = weight(layer);
    size_t i;
    for (i = 0; i < count; ++i) {
        float inner = gradient[i] * (1.0f - out[i] * out[i]);
        gradient[i] = inner * w[i];
        w[i] -= rate * inner * in[i];
    }
}

static double loss(float *gradient, size_t count) {
    const float *out = activation(layers);
    double sum = 0;
    size_t i;
    for (i = 0; i < count; ++i) {
        float target = 0.25f + 0.5f * (float)(i % 7) / 7.0f;
        gradient[i] = 2.0f * (out[i] - target);
        sum += (double)(out[i] - target) * (out[i] - target);
    }
    return sum / (double)count;
}

static void fill(int index, float first, float step, size_t count) {
    size_t i;
    swap_in(index);
    for (i = 0; i < count; ++i) tensors[index].data[i] = first + step * (float)(i % 5);
    swap_out(index);
}

/* -- the program */

static void options(int count, char **words) {
    int at;
    for (at = 1; at < count; ++at) {
        int more = at + 1 < count;
        if (strcmp(words[at], "--swap") == 0) swapping = 1;
        else if (more && strcmp(words[at], "--layers") == 0) layers = atoi(words[++at]);
        else if (more && strcmp(words[at], "--tensor-kib") == 0) bytes = (size_t)atoi(words[++at]) << 10;
        else if (more && strcmp(words[at], "--epochs") == 0) epochs = atoi(words[++at]);
        else if (more && strcmp(words[at], "--look-ahead") == 0) look_ahead = atoi(words[++at]);
        else {
            fprintf(stderr, "%s: --layers N --tensor-kib N --epochs N [--swap [--look-ahead N]]\n", words[0]);
            exit(2);
        }
    }
    if (layers < 1 || epochs < 1 || bytes < 4096 || look_ahead < 0) fail("options");
}

static void swap_file(void) {
    const char *folder = getenv("TMPDIR");
    char path[1024];
    snprintf(path, sizeof path, "%s/trainer-XXXXXX", folder != NULL ? folder : "/tmp");
    file = mkstemp(path);
    if (file < 0 || ftruncate(file, (off_t)(bytes * (size_t)(2 * layers + 1))) != 0) fail(path);
    unlink(path);
}

int main(int count, char **words) {
    size_t numbers;
    float *gradient;
    double last = 0;
    int index, epoch;
    long step = 0, steps;
    pthread_t ahead;

    options(count, words);
    numbers = bytes / sizeof(float);
    steps = 2L * layers * epochs;

    memprof_begin("PREPARE");
    tensors = (Tensor *)calloc((size_t)(2 * layers + 1), sizeof *tensors);
    if (tensors == NULL) fail("calloc");
    gradient = (float *)mapped(bytes, -1, 0);
    memset(gradient, 0, bytes);
    if (swapping) swap_file();
    for (index = 0; index < 2 * layers + 1; ++index) {
        if (!swapping) tensors[index].data = (float *)mapped(bytes, -1, 0);
        fill(index, index < layers ? 0.9f : 0.5f, 0.01f, numbers);
    }
    memprof_end();
    memprof_value("weight_bytes", (double)bytes * layers);
    memprof_value("tensor_bytes", (double)bytes * (2 * layers + 2));

    if (look_ahead && pthread_create(&ahead, NULL, look_forward, NULL) != 0) fail("pthread_create");
    memprof_begin("EPOCH");
    for (epoch = 0; epoch < epochs; ++epoch) {
        int at;
        for (at = 0; at < 2 * layers; ++at, ++step) {
            begin_operation(step, steps);
            if (at < layers) {
                forward(layer_of(step), numbers);
                if (at == layers - 1) last = loss(gradient, numbers);
            } else
                backward(layer_of(step), gradient, numbers);
            end_operation(step);
        }
        memprof_iteration();
        memprof_value("loss", last);
    }
    memprof_end();

    if (look_ahead) {
        pthread_mutex_lock(&lock);
        over = 1;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        pthread_join(ahead, NULL);
    }
    printf("loss %.17g\n", last);
    return 0;
}
