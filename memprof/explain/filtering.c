/* The places of 32-bit words that equal a constant under a mask: what a scan of a process does with every word. Compiled on first use; filtering.py says how.
 *
 * The first loop of a block has no exit and no store, so that a compiler makes it one of vectors; few blocks have anything to find. */

#include <stdint.h>

#if defined(__x86_64__) && defined(__linux__)
__attribute__((target_clones("avx2", "default")))
#endif
int64_t memprof_filter(const uint32_t *words, int64_t count, uint32_t mask, uint32_t constant, int64_t *found)
{
	enum { BLOCK = 128 };
	int64_t hits = 0;

	for (int64_t start = 0; start < count; start += BLOCK) {
		int64_t end = count - start < BLOCK ? count : start + BLOCK;
		uint32_t any = end - start < BLOCK;

		if (!any)
			for (int64_t at = start; at < start + BLOCK; at++)
				any |= (words[at] & mask) == constant;
		for (int64_t at = start; any && at < end; at++)
			if ((words[at] & mask) == constant)
				found[hits++] = at;
	}
	return hits;
}
