"""What the tests of grow share."""

from __future__ import annotations

LEAK = """unsigned seed = 1; int units = atoi(words[1]);
    memprof_begin("EXECUTE");
    for (int i = 0; i < units; ++i) {
        seed = seed * 1103515245 + 12345;
        int tokens = (seed >> 16) % 50 + 1;
        memset(malloc(tokens * 300), 1, tokens * 300);
        memprof_iteration_of(tokens, NULL);
    }
    memprof_end();"""
