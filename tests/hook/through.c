/* A runtime that calls the driver by its public names. A launch of the program must still count once.
 *
 * cc -shared -fPIC through.c -o libthrough.so */
#include <stddef.h>

typedef struct {
    unsigned x, y, z;
} dim3;

int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuGraphLaunch(void *, void *);

int cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream) {
    return cuLaunchKernel((void *)function, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared, stream,
                          arguments, NULL);
}

int cudaGraphLaunch(void *graph, void *stream) { return cuGraphLaunch(graph, stream); }
