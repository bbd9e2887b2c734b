// Counts calls and does nothing else. It is preloaded together with the hook, to check the hook's counts.
//
//     cc -O2 -shared -fPIC -o libcount.so count.c -ldl
//     LD_PRELOAD="libxpu_hook.so libcount.so" ...; then `count_of("ncclAllReduce")`
//
// Every counted function takes only integers and pointers. It is called with more words than it has
// arguments, which the System V ABI of x86-64 allows.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

typedef long word;
#define WORDS(W) W a0, W a1, W a2, W a3, W a4, W a5, W a6, W a7, W a8, W a9, W a10, W a11, W a12, W a13, W a14, W a15, W a16, W a17, W a18, W a19, W a20, W a21, W a22, W a23
#define PASSED a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, a23
typedef word (*function)(WORDS(word));

struct counted { const char *name; atomic_ulong calls; function real; };
static __thread int inside;

static function find(const char *name, const char *library, void *own) {
    void *at = dlsym(RTLD_NEXT, name);
    if (at && at != own) return (function)at;
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    return handle ? (function)dlsym(handle, name) : NULL;
}

// NCCL and cuBLAS call themselves through public names. Only the outermost call counts, as in the hook.
#define COUNT(library, name)                                          \
    static struct counted counted_##name = {#name, 0, NULL};          \
    word name(WORDS(word)) {                                          \
        struct counted *c = &counted_##name;                          \
        if (!c->real) c->real = find(#name, library, (void *)name);   \
        if (!c->real) return 1;                                       \
        if (inside) return c->real(PASSED);                           \
        atomic_fetch_add(&c->calls, 1);                               \
        inside = 1;                                                   \
        word result = c->real(PASSED);                                \
        inside = 0;                                                   \
        return result;                                                \
    }

#define CUDART "libcudart.so.13"
#define BLAS "libcublas.so.13"
#define LT "libcublasLt.so.13"
#define NCCL "libnccl.so.2"
#define ALL(X)                                                                                                          \
    X(CUDART, __cudaLaunchKernel) X(CUDART, cudaLaunchKernel) X(CUDART, cudaLaunchKernelExC) X(CUDART, cudaGraphLaunch) \
    X(CUDART, cudaMemcpyAsync) X(CUDART, cudaMemsetAsync) X(CUDART, cudaMalloc) X(CUDART, cudaFree)                     \
    X(CUDART, cudaStreamSynchronize) X(CUDART, cudaDeviceSynchronize) X(CUDART, cudaEventSynchronize)                   \
    X(BLAS, cublasGemmEx) X(BLAS, cublasGemmStridedBatchedEx) X(BLAS, cublasSgemm_v2) X(BLAS, cublasDgemm_v2)           \
    X(BLAS, cublasGemmBatchedEx) X(BLAS, cublasSgemmBatched) X(BLAS, cublasHgemm)                                       \
    X(BLAS, cublasSgemmStridedBatched) X(BLAS, cublasDgemmStridedBatched) X(BLAS, cublasSgemmEx) X(LT, cublasLtMatmul)  \
    X(NCCL, ncclAllReduce) X(NCCL, ncclAllGather) X(NCCL, ncclReduceScatter) X(NCCL, ncclBroadcast) X(NCCL, ncclBcast)  \
    X(NCCL, ncclReduce) X(NCCL, ncclAlltoAll) X(NCCL, ncclGather) X(NCCL, ncclScatter) X(NCCL, ncclSend)                \
    X(NCCL, ncclRecv) X(NCCL, ncclGroupEnd)

ALL(COUNT)

#define ENTRY(library, name) &counted_##name,
static struct counted *all[] = {ALL(ENTRY)};

unsigned long count_of(const char *name) {
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        if (!strcmp(all[n]->name, name)) return atomic_load(&all[n]->calls);
    return (unsigned long)-1;
}
