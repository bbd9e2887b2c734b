/* xpu_top.h: the few calls a program may make to xpu-top's hook. SPDX-License-Identifier: Apache-2.0
 *
 * A program need not call any of them. With the preload in place the functions are in the process; a program that may
 * also run without it looks them up with dlsym(RTLD_DEFAULT, "xpu_top_step") and does nothing if that is NULL.
 * All are safe at any time, from any thread; none blocks, fails, or prints. */
#ifndef XPU_TOP_H
#define XPU_TOP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks the end of a training step: of number `completed`, or of the next one if that is negative. */
void xpu_top_step(int64_t completed);

/* The same, and says that the step worked through so many tokens and samples (0 where the program does not count them).
 * `loss` is the last one known, NAN if none is. */
void xpu_top_step_with(int64_t completed, uint64_t tokens, uint64_t samples, double loss);

/* A part of the program: `uint64_t begun = xpu_top_span_begin(); ...; xpu_top_span_end("data", begun);` on one thread. Under
 * its name (64 letters, 64 names) it is counted, and is in captures. */
uint64_t xpu_top_span_begin(void);
void xpu_top_span_end(const char *name, uint64_t begun);

/* Turns observing off (0) or on. Off, a launch costs one load. What would be wrong later is kept: the numbers of
 * NCCL's calls and of steps, on which ranks agree, the sizes of allocations, and what graphs hold. */
void xpu_top_set_enabled(int on);
int xpu_top_enabled(void);

/* Times one GEMM in `gemm` and one collective in `collective` (powers of two up to 2^20; 1 times all of them), whatever
 * that costs. Returns 0, or -1 and changes nothing. */
int xpu_top_set_sampling(uint32_t gemm, uint32_t collective);

/* Has the hook choose what it times so that it takes at most so many percent of wall time (0.1 unless told otherwise).
 * Below zero nothing bounds it and all is timed; zero times nothing. Ends what xpu_top_set_sampling set. Returns 0, or -1
 * and changes nothing if it is not a number. */
int xpu_top_set_budget(double percent);

/* A counter of this process by name ("kernels", "graphs", "gemms", "collectives", "point_to_point", "captured",
 * "waits", of products for communication, "timed", "untimed", "dropped", "panics", "steps"; "spent", "event_cost" and "event_gap" in nanoseconds; "gemm_rate" and
 * "collective_rate", one in so many); UINT64_MAX if there is none of that name. */
uint64_t xpu_top_counter(const char *name);

/* The hook's version. */
const char *xpu_top_version(void);

#ifdef __cplusplus
}
#endif

#endif
