// Fails the n-th allocation of a kernel call, in whichever thread it happens: `native_failing WHAT N THREADS`.
// Exit 0: the call ended as it should, with bad_alloc if the n-th allocation was reached and with the right result if not,
// and the next call succeeds. Exit 3: the same, but fewer than n allocations were made, so that the caller can stop.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <new>
#include <string>
#include <vector>

#define LOGSPARSE_ISA baseline
#include "kernel.cpp"

using namespace logsparse;

static std::atomic<long> countdown{-1};  // below 0: nothing fails
static bool fails() { return countdown.load() > 0 && countdown.fetch_sub(1) == 1; }

extern "C" void* aligned_alloc(size_t alignment, size_t size) { return fails() ? nullptr : memalign(alignment, size); }
void* operator new(size_t size) {
  void* const memory = fails() ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

// A thread keeps its scratch from call to call: only the first call of a process allocates in every thread.
static constexpr int64_t batch = 2, heads = 2, length = 5000, width = 8;
static const std::vector<int64_t> distances{0, 1, 2, 4, 8, 64, 1000};

struct Call {
  std::string what;
  int threads;

  std::vector<float> in, out, lse, sums;
  std::vector<int64_t> cells, repeating;

  Call(const char* name, int count) : what(name), threads(count), in(batch * heads * length * width + 64), lse(batch * heads * length) {
    for (size_t i = 0; i < in.size(); ++i) in[i] = float(i % 17) * 0.1f - 0.7f;
    out.resize(3 * in.size());
    for (int64_t i = 0; i < length; i += 2) cells.push_back(i);
    for (int64_t s = 0; s < length; s += 100) repeating.insert(repeating.end(), {s, s + 1, s + 3});
  }

  View view(float* data) const { return {data, heads * length * width, length * width, width, 1}; }

  void run() {
    if (what == "step") {
      StepProblem p;
      p.series = batch, p.paths = 3, p.heads = heads, p.width = width, p.value_width = width, p.history = length;
      p.step_room = 1, p.old_cells = cells.data(), p.old_count = int64_t(cells.size()), p.threads = threads;
      p.q = {in.data(), 3 * heads * width, width, heads * width, 1};
      p.history_k = p.history_v = p.steps_k = p.steps_v = in.data(), p.out = out.data();
      return baseline::step(p);
    }
    if (what.find("convolve") == 0) {
      ConvolvePart part;
      part.channels = width, part.taps = 3, part.weight = part.turned = part.bias = in.data(), part.out = out.data();
      part.grad = {in.data(), length * width, 0, 1, length};
      ConvolveProblem p;
      p.batch = batch, p.length = length, p.width = width, p.kernel = 3, p.threads = threads, p.parts = &part, p.part_count = 1;
      p.x = {in.data(), length * width, 0, width, 1}, p.grad_x = out.data();
      sums.assign(threads * (1 << 16), 0), p.sums = sums.data(), p.sums_size = 1 << 16;
      return baseline::convolve(p, what != "convolve");
    }
    if (what.find("feed forward") == 0) {
      FeedForwardProblem p;
      p.batch = batch, p.length = length, p.width = width, p.inner = p.wide = 2 * width, p.pre = true, p.threads = threads;
      p.epsilon = 1e-5;
      p.x = p.grad_out = {in.data(), length * width, 0, width, 1}, p.gathered = {in.data(), length * 2 * width, 0, 2 * width, 1};
      p.out = p.grad_x = {out.data(), length * width, 0, width, 1};
      p.grad_gathered = {out.data() + in.size(), length * 2 * width, 0, 2 * width, 1};
      p.merge = p.merge_bias = p.widen = p.widen_bias = p.narrow = p.narrow_bias = p.first_gain = p.first_shift = in.data();
      sums.assign(threads * (1 << 16), 0), p.sums = sums.data(), p.sums_size = 1 << 16;
      return baseline::feed_forward(p, what != "feed forward");
    }
    Problem p;
    p.dense_rows = what.find("dense") == std::string::npos ? 0 : 200, p.lse_head = length;
    p.batch = what.find("one") == std::string::npos ? batch : 1, p.heads = p.batch == 1 ? 1 : heads, p.length = length;
    p.width = p.value_width = width, p.distances = distances.data(), p.distance_count = int64_t(distances.size());
    p.threads = threads, p.lse = lse.data();
    p.q = p.k = p.v = p.grad_out = view(in.data());
    if (what.find("folded") != std::string::npos)
      p.distances = repeating.data(), p.distance_count = int64_t(repeating.size());
    const bool backward = what.find("backward") != std::string::npos;
    p.out = view(backward ? in.data() : out.data());
    p.grad_q = view(out.data()), p.grad_k = view(out.data() + in.size()), p.grad_v = view(out.data() + 2 * in.size());
    backward ? baseline::backward(p) : baseline::forward(p);
  }
};

int main(int, char** argv) {
  Call call(argv[1], std::atoi(argv[3]));
  bool refused = false;
  countdown = std::atol(argv[2]);
  try {
    call.run();
  } catch (const std::bad_alloc&) {
    refused = true;
  }
  const bool reached = countdown.exchange(-1) <= 0;
  if (refused != reached) return std::printf("refused %d, reached %d\n", refused, reached), 1;
  call.run();
  const std::vector<float> again = call.out;
  call.run();
  return again != call.out ? 2 : reached ? 0 : 3;
}
