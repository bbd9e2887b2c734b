/* xpu_top.h: the few calls a program may make to xpu-top's hook. SPDX-License-Identifier: Apache-2.0
 *
 * These calls are optional. The preload defines the functions in the process. A program that may also run
 * without the preload looks them up with dlsym(RTLD_DEFAULT, "xpu_top_step"), and does nothing if the result
 * is NULL. All functions are safe at any time and from any thread; none blocks, fails or prints. */
#ifndef XPU_TOP_H
#define XPU_TOP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks the end of training step number `completed`, or of the next step if `completed` is negative. */
void xpu_top_step(int64_t completed);

/* Like xpu_top_step, with the tokens and samples of the step (0 if the program does not count them).
 * `loss` is the last known loss, or NAN if none is known. If the loss itself is NaN, pass INFINITY: it is
 * then shown as not finite. */
void xpu_top_step_with(int64_t completed, uint64_t tokens, uint64_t samples, double loss);

/* Names a part of the program: `uint64_t begun = xpu_top_span_begin(); ...; xpu_top_span_end("data", begun);` on one thread. Spans
 * are counted by name (at most 64 names of 64 characters) and recorded in captures. */
uint64_t xpu_top_span_begin(void);
void xpu_top_span_end(const char *name, uint64_t begun);

/* Turns observing off (0) or on. While it is off, a launch costs one load. The hook still keeps what it cannot learn later: the
 * numbers of NCCL calls and steps, which must agree on all ranks, the sizes of allocations, and the contents of graphs. */
void xpu_top_set_enabled(int on);
int xpu_top_enabled(void);

/* Times one in `gemm` GEMMs and one in `collective` collectives (powers of two up to 2^20; 1 times all), whatever it costs.
 * Returns 0, or -1 without effect if a number is not such a power. */
int xpu_top_set_sampling(uint32_t gemm, uint32_t collective);

/* Sets the overhead budget as a percentage of wall time (default 0.1): the hook chooses what it times. A negative budget times
 * everything, zero times nothing. Overrides xpu_top_set_sampling. Returns 0, or -1 without effect if
 * `percent` is NaN. */
int xpu_top_set_budget(double percent);

/* Sets when the hook requests events from NCCL's profiler plugin interface: 0 only for communicators whose calls the preload
 * does not see, 1 also when it needs more detail, 2 always. Returns 0, or -1 without effect for another number. */
int xpu_top_set_plugin(int mode);

/* A counter of this process by name ("kernels", "graphs", "gemms", "collectives", "point_to_point", "captured",
 * "waits" (of GEMMs for communication), "timed", "untimed", "dropped", "panics", "steps"; "spent",
 * "event_cost" and "event_gap" in nanoseconds; "gemm_rate" and "collective_rate", each as the n of one in n);
 * UINT64_MAX if no counter has that name. */
uint64_t xpu_top_counter(const char *name);

/* The hook's version. */
const char *xpu_top_version(void);

#ifdef __cplusplus
}
#endif

#endif
