// Trains a network of two layers with cuBLAS alone. It reads the loss every ten steps, and evaluates every 200.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

extern "C" {
int cudaMalloc(void **, size_t), cudaMemcpy(void *, const void *, size_t, int);
int cublasCreate_v2(void **);
int cublasSgemm_v2(void *, int, int, int, int, int, const float *, const float *, int, const float *, int,
                   const float *, float *, int);
int cublasSaxpy_v2(void *, int, const float *, const float *, int, float *, int);
int cublasSnrm2_v2(void *, int, const float *, int, float *);
}

constexpr int WIDTH = 4096, ROWS = 2048, SAME = 0, TRANSPOSED = 1;
static void *handle;

static void check(int status) {
    if (status) std::fprintf(stderr, "failed: %d\n", status), std::exit(1);
}

static float *filled(int count) {
    float *values = new float[count], *device;
    for (int at = 0; at < count; at++) values[at] = (std::rand() / float(RAND_MAX) - 0.5f) / 64;
    check(cudaMalloc((void **)&device, sizeof(float) * count));
    check(cudaMemcpy(device, values, sizeof(float) * count, 1));
    delete[] values;
    return device;
}

static void multiply(int ta, int tb, int m, int n, int k, const float *a, const float *b, float *c) {
    const float one = 1, none = 0;
    check(cublasSgemm_v2(handle, ta, tb, m, n, k, &one, a, ta ? k : m, b, tb ? n : k, &none, c, m));
}

static void add(int count, float factor, const float *from, float *to) {
    check(cublasSaxpy_v2(handle, count, &factor, from, 1, to, 1));
}

int main() {
    check(cublasCreate_v2(&handle));
    // By columns: rows of the batch are columns of x.
    float *x = filled(WIDTH * ROWS), *target = filled(WIDTH * ROWS), *first = filled(WIDTH * WIDTH);
    float *second = filled(WIDTH * WIDTH), *h = filled(WIDTH * ROWS), *y = filled(WIDTH * ROWS);
    float *of_h = filled(WIDTH * ROWS), *gradient = filled(WIDTH * WIDTH);
    const char *name = std::getenv("ZOO_LOG");
    FILE *log = std::fopen((std::string(name ? name : "/tmp/own") + ".0").c_str(), "w");
    auto forward = [&] {
        multiply(SAME, SAME, WIDTH, ROWS, WIDTH, first, x, h);
        multiply(SAME, SAME, WIDTH, ROWS, WIDTH, second, h, y);
        add(WIDTH * ROWS, -1, target, y);
    };
    float loss;
    for (long step = 1;; step++) {
        forward();
        multiply(TRANSPOSED, SAME, WIDTH, ROWS, WIDTH, second, y, of_h);
        multiply(SAME, TRANSPOSED, WIDTH, WIDTH, ROWS, y, h, gradient);
        add(WIDTH * WIDTH, -1e-5f, gradient, second);
        multiply(SAME, TRANSPOSED, WIDTH, WIDTH, ROWS, of_h, x, gradient);
        add(WIDTH * WIDTH, -1e-5f, gradient, first);
        if (step % 10 == 0) check(cublasSnrm2_v2(handle, WIDTH * ROWS, y, 1, &loss));
        const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
        std::fprintf(log, "%.6f %ld\n", now.count(), step);
        std::fflush(log);
        if (step % 200 == 0) {
            for (int batch = 0; batch < 5; batch++) forward();
            check(cublasSnrm2_v2(handle, WIDTH * ROWS, y, 1, &loss));
            std::printf("%ld %f\n", step, loss);
        }
    }
}
