// One process that drives several GPUs. It multiplies and all-reduces on each for a while, and prints what
// its own events measured.
//
//     several threads|one SECONDS GPUS
//
// `threads`: one thread per GPU. `one`: one thread for all, with NCCL calls in a group and the last GPU
// current. GPU number g runs 32 + 16 g GEMMs and 16 all-reduces a round, so that the program's own times hardly
// include launches. The first round, in which kernels are loaded, counts only for the numbers of calls. Prints one
// line of JSON per GPU, with the milliseconds of GEMMs in the first rounds and in the longest one.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

extern "C" {
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
int cudaSetDevice(int);
int cudaStreamCreateWithFlags(cudaStream_t *, unsigned);
int cudaStreamSynchronize(cudaStream_t);
int cudaMalloc(void **, size_t);
int cudaMemset(void *, int, size_t);
int cudaEventCreate(cudaEvent_t *);
int cudaEventRecord(cudaEvent_t, cudaStream_t);
int cudaEventElapsedTime(float *, cudaEvent_t, cudaEvent_t);
int cublasCreate_v2(void **);
int cublasSetStream_v2(void *, cudaStream_t);
int cublasGemmEx(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
                 const void *, void *, int, int, int, int);
int ncclCommInitAll(void **, int, const int *);
int ncclAllReduce(const void *, void *, size_t, int, int, void *, cudaStream_t);
int ncclGroupStart();
int ncclGroupEnd();
}

static const int GROUP = 16, SIZE = 8192, BFLOAT16 = 14, COMPUTE_FLOAT = 68, NCCL_BFLOAT16 = 9;
static const size_t ELEMENTS = size_t(SIZE) * SIZE;

static void ok(int code) {
    if (code != 0) {
        fprintf(stderr, "a call failed with code %d\n", code);
        exit(1);
    }
}

struct Gpu {
    int number;
    void *comm, *blas, *a, *b, *c;
    cudaStream_t stream;
    cudaEvent_t begin, multiplied, reduced;
    double gemm_ms = 0, reduce_ms = 0;
    long gemms = 0, reduces = 0, longest = 0;
    std::vector<float> rounds;

    void prepare() {
        ok(cudaSetDevice(number));
        ok(cudaStreamCreateWithFlags(&stream, 1));
        ok(cublasCreate_v2(&blas));
        ok(cublasSetStream_v2(blas, stream));
        for (void **matrix : {&a, &b, &c}) {
            ok(cudaMalloc(matrix, 2 * ELEMENTS));
            ok(cudaMemset(*matrix, 0, 2 * ELEMENTS));
        }
        for (cudaEvent_t *event : {&begin, &multiplied, &reduced}) ok(cudaEventCreate(event));
    }

    int gemms_a_round() const { return GROUP * (2 + number); }

    // The events belong to this GPU, which is current.
    void multiply() {
        const float one = 1, none = 0;
        ok(cudaEventRecord(begin, stream));
        for (int n = 0; n < gemms_a_round(); n++)
            ok(cublasGemmEx(blas, 0, 0, SIZE, SIZE, SIZE, &one, a, BFLOAT16, SIZE, b, BFLOAT16, SIZE, &none, c, BFLOAT16,
                            SIZE, COMPUTE_FLOAT, -1));
        ok(cudaEventRecord(multiplied, stream));
    }

    void reduce() { ok(ncclAllReduce(c, c, ELEMENTS, NCCL_BFLOAT16, 0, comm, stream)); }

    void finish() {
        ok(cudaSetDevice(number));
        ok(cudaEventRecord(reduced, stream));
        ok(cudaStreamSynchronize(stream));
        float ms;
        ok(cudaEventElapsedTime(&ms, begin, multiplied));
        const bool first = rounds.empty();
        gemm_ms += first ? 0 : ms, gemms += gemms_a_round();
        rounds.push_back(ms);
        if (ms > rounds[longest]) longest = long(rounds.size()) - 1;
        ok(cudaEventElapsedTime(&ms, multiplied, reduced));
        reduce_ms += first ? 0 : ms, reduces += GROUP;
    }

    double timed(long calls) const { return double(calls) * (rounds.size() - 1) / rounds.size(); }
};

int main(int argc, char **argv) {
    if (argc != 4) return 64;
    const bool threads = !strcmp(argv[1], "threads");
    const int count = atoi(argv[3]);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(atoi(argv[2]));
    std::vector<void *> comms(count);
    ok(ncclCommInitAll(comms.data(), count, nullptr));
    std::vector<Gpu> gpus(count);
    for (int g = 0; g < count; g++) {
        gpus[g].number = g, gpus[g].comm = comms[g];
        gpus[g].prepare();
    }
    if (threads) {
        std::vector<std::thread> all;
        const long rounds = 12L * atoi(argv[2]);
        for (Gpu &gpu : gpus)
            all.emplace_back([&gpu, rounds] {
                ok(cudaSetDevice(gpu.number));
                for (long n = 0; n < rounds; n++) {
                    gpu.multiply();
                    for (int m = 0; m < GROUP; m++) gpu.reduce();
                    gpu.finish();
                }
            });
        for (auto &thread : all) thread.join();
    } else {
        while (std::chrono::steady_clock::now() < until) {
            for (Gpu &gpu : gpus) ok(cudaSetDevice(gpu.number)), gpu.multiply();
            for (int m = 0; m < GROUP; m++) {
                ok(ncclGroupStart());
                for (Gpu &gpu : gpus) gpu.reduce();
                ok(ncclGroupEnd());
            }
            for (Gpu &gpu : gpus) gpu.finish();
        }
    }
    // The shortest all-reduce of all did not wait. It is that of the GPU with the most GEMMs.
    const double bus = 2.0 * (count - 1) / count * 2 * ELEMENTS;
    for (Gpu &gpu : gpus) {
        printf("{\"gpu\": %d, \"gemms\": %ld, \"reduces\": %ld, \"tflops\": %.2f, \"bus_gb_s\": %.2f, "
               "\"longest_round\": [%ld, %.2f], \"first_rounds_ms\": [",
               gpu.number, gpu.gemms, gpu.reduces, 2.0 * SIZE * SIZE * SIZE * gpu.timed(gpu.gemms) / gpu.gemm_ms / 1e9,
               bus * gpu.timed(gpu.reduces) / gpu.reduce_ms / 1e6, gpu.longest, gpu.rounds[gpu.longest]);
        for (size_t n = 0; n < gpu.rounds.size() && n < 20; n++) printf("%s%.2f", n ? ", " : "", gpu.rounds[n]);
        printf("]}\n");
    }
    // Its calls can be counted until it ends.
    fflush(stdout);
    std::this_thread::sleep_for(std::chrono::seconds(6));
    return 0;
}
