/* Holds MEMPROF_BALLAST bytes for as long as its process lives: a known increase of a program, to prove a gate with. To be preloaded.
 *
 * The process holds them that memprof started, whatever programs it becomes, and no process that it starts. With MEMPROF_BALLAST_PROGRAM, the name that
 * exec gives a process, the first process of that name does. Under gdb that is never gdb: symbols.py takes the holder out of the program's environment. */

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

__attribute__((constructor)) static void hold(void) {
    const char *bytes = getenv("MEMPROF_BALLAST"), *holder = getenv("MEMPROF_BALLAST_HOLDER");
    const char *program = getenv("MEMPROF_BALLAST_PROGRAM");
    char self[24], name[16];
    size_t size;
    void *memory;
    if (bytes == NULL) return;
    if (program != NULL && (prctl(PR_GET_NAME, name) != 0 || strcmp(name, program) != 0)) return;
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
