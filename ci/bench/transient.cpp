// A program of known cost that knows nothing of memprof: its phases are functions, found by their names in the unmodified program.
//
//     transient PHASE BYTES THREADS HOLD_US SETTLE_US     one transient of exactly BYTES in one phase, held by all threads at the same moment
//     transient calls COUNT THREADS                       COUNT calls of a function that does nothing, beside threads that sleep; prints ns a call
//
// So that nothing else moves meanwhile, all threads start before the first phase and have done once by then what a transient does.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#define OUT __attribute__((noinline))

namespace {

struct Barrier {
    explicit Barrier(int count) : count_(count) {}
    void wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        const long round = round_;
        if (++waiting_ == count_) {
            waiting_ = 0;
            ++round_;
            changed_.notify_all();
        } else {
            changed_.wait(lock, [&] { return round != round_; });
        }
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    const int count_;
    int waiting_ = 0;
    long round_ = 0;
};

size_t bytes = 4096;
int threads = 1;
unsigned hold_us = 0, settle_us = 1;
Barrier *go, *touched, *over;

void transient() {
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    std::memset(memory, 1, bytes);
    if (threads > 1) touched->wait();  // from here until the first of them goes on, every byte is resident
    if (hold_us) usleep(hold_us);
    munmap(memory, bytes);
}

void helper() {
    for (;;) {
        go->wait();
        transient();
        over->wait();
    }
}

void once() {
    if (threads == 1) return transient();
    go->wait();
    over->wait();
}

}  // namespace

namespace known {

class Model {
  public:
    Model(std::string phase, size_t whole) : phase_(std::move(phase)), whole_(whole) {}
    OUT void load(const char *path) { cost(path ? "load" : ""); }
    OUT void load(int) { cost(""); }  // an overload that is never meant
    template <class T> OUT void prepare(T) { cost("prepare"); }
    OUT void execute() { cost("execute"); }

  private:
    OUT void cost(const std::string &name) {
        usleep(settle_us);
        if (name == phase_) {
            bytes = whole_ / static_cast<size_t>(threads);
            once();
        }
        usleep(settle_us);
    }
    std::string phase_;
    size_t whole_;
};

}  // namespace known

extern "C" OUT void nothing() { asm volatile(""); }

static int calls(long count, int beside) {
    for (int at = 0; at < beside; ++at) std::thread([] { for (;;) usleep(1000); }).detach();
    nothing();  // the first is slower than those that follow
    const auto begin = std::chrono::steady_clock::now();
    for (long at = 0; at < count; ++at) nothing();
    const auto taken = std::chrono::steady_clock::now() - begin;
    std::printf("%.0f\n", std::chrono::duration<double, std::nano>(taken).count() / static_cast<double>(count));
    std::fflush(stdout);
    _exit(0);
}

int main(int count, char **words) {
    if (count == 4 && std::string(words[1]) == "calls") return calls(std::atol(words[2]), std::atoi(words[3]));
    if (count != 6) return 2;
    threads = std::atoi(words[3]);
    if (threads > 1) {
        go = new Barrier(threads + 1);
        touched = new Barrier(threads);
        over = new Barrier(threads + 1);
        for (int at = 0; at < threads; ++at) std::thread(helper).detach();
        for (int at = 0; at < 3; ++at) once();
    } else {
        once();
    }
    known::Model model(words[1], std::strtoul(words[2], nullptr, 10));
    hold_us = static_cast<unsigned>(std::atoi(words[4]));
    settle_us = static_cast<unsigned>(std::atoi(words[5]));
    model.load("a path");
    model.prepare<int>(1);
    model.execute();
    std::fflush(stdout);
    _exit(0);
}
