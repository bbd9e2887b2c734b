// Trains with libtorch alone: there is no Python in the process, and no optimizer of Python's.
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

int main() {
    const torch::Device gpu(torch::kCUDA, 0);
    torch::nn::Sequential model;
    for (int layer = 0; layer < 4; layer++) {
        model->push_back(torch::nn::Linear(2048, 2048));
        model->push_back(torch::nn::GELU());
    }
    model->push_back(torch::nn::Linear(2048, 10));
    model->to(gpu);
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-4));
    const char *name = std::getenv("ZOO_LOG");
    FILE *log = std::fopen((std::string(name ? name : "/tmp/own") + ".0").c_str(), "w");
    for (long step = 1;; step++) {
        const auto rows = torch::randn({2048, 2048}, gpu);
        const auto labels = torch::randint(10, {2048}, torch::TensorOptions(gpu).dtype(torch::kLong));
        optimizer.zero_grad();
        const auto loss = torch::nn::functional::cross_entropy(model->forward(rows), labels);
        loss.backward();
        optimizer.step();
        const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
        std::fprintf(log, "%.6f %ld\n", now.count(), step);
        std::fflush(log);
        if (step % 20 == 0) std::printf("%ld %f\n", step, loss.item<double>());
    }
}
