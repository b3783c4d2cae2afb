/* Holds MEMPROF_BALLAST bytes for as long as its process lives: a known increase of a program, to prove a gate with. To be preloaded.
 *
 * The process holds them that memprof started, whatever programs it becomes, and no process that it starts. */

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

__attribute__((constructor)) static void hold(void) {
    const char *bytes = getenv("MEMPROF_BALLAST"), *holder = getenv("MEMPROF_BALLAST_HOLDER");
    char self[24];
    size_t size;
    void *memory;
    if (bytes == NULL) return;
    snprintf(self, sizeof self, "%ld", (long)getpid());
    if (holder == NULL) setenv("MEMPROF_BALLAST_HOLDER", self, 1);
    else if (strcmp(holder, self) != 0) return;
    size = strtoull(bytes, NULL, 10);
    memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        fputs("memprof's ballast: out of memory\n", stderr);
        _exit(1);
    }
    memset(memory, 1, size);
}
