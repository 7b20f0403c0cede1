// The state of torch's generator -> dropout factors, and the state after them.
//
// torch draws numbers one by one: two words of the Mersenne Twister make a number of 53 bits in [0, 1), and an entry is
// kept if that is below the kept share. Here the same words are computed in vectors, with the same results.
#pragma once
#include <cstring>

#include "problem.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

// Layout of torch's `Generator.get_state`; the rest of it belongs to normal draws.
struct GeneratorState {
  uint64_t seed;
  int32_t left, seeded;  // `left` - 1 words remain before the next turn
  uint64_t next;  // index of the first of them
  uint64_t words[624];
};

struct Twister {
  static constexpr int size = 624, middle = 397;
  uint32_t words[size], tempered[size];
  int used = size;

  explicit Twister(const GeneratorState& state) {
    for (int i = 0; i < size; ++i) words[i] = uint32_t(state.words[i]);
    if (state.left > 1) temper(), used = int(state.next);
  }
  void put(GeneratorState& state) const {
    for (int i = 0; i < size; ++i) state.words[i] = words[i];
    state.left = size - used + 1, state.next = uint64_t(used);
  }

  static uint32_t twist(uint32_t here, uint32_t after) {
    return (((here & 0x80000000u) | (after & 0x7FFFFFFFu)) >> 1) ^ (after & 1u ? 0x9908B0DFu : 0u);
  }
  // In three pieces, so that no word depends on a near one within a piece.
  void turn() {
    for (int i = 0; i < size - middle; ++i) words[i] = words[i + middle] ^ twist(words[i], words[i + 1]);
    for (int i = size - middle; i < size - 1; ++i) words[i] = words[i + middle - size] ^ twist(words[i], words[i + 1]);
    words[size - 1] = words[middle - 1] ^ twist(words[size - 1], words[0]);
    temper();
    used = 0;
  }
  void temper() {
    for (int i = 0; i < size; ++i) {
      uint32_t y = words[i];
      y ^= y >> 11;
      y ^= (y << 7) & 0x9D2C5680u;
      y ^= (y << 15) & 0xEFC60000u;
      tempered[i] = y ^ (y >> 18);
    }
  }
  uint32_t next() {
    if (used == size) turn();
    return tempered[used++];
  }
};

// Eight numbers at a time; the first word is the lower half of a pair in memory and the upper half of the number.
typedef uint64_t Pairs __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t Answers __attribute__((vector_size(32)));

template <class T> void draw_kept(GeneratorState& state, T* out, int64_t count, double share, T factor) {
  constexpr uint64_t mask = (uint64_t(1) << 53) - 1;
  const double scaled = share * double(mask + 1);
  const uint64_t limit = uint64_t(scaled) + (scaled > double(uint64_t(scaled)) ? 1 : 0);
  Twister twister(state);
  for (int64_t n = 0; n < count;) {
    const int64_t pairs = (Twister::size - twister.used) / 2, some = pairs < count - n ? pairs : count - n;
    const uint32_t* const words = twister.tempered + twister.used;
    int64_t i = 0;
    for (; i + 8 <= some; i += 8) {
      const Pairs both = *reinterpret_cast<const Pairs*>(words + 2 * i);
      const Answers stays = __builtin_convertvector(((both >> 32 | both << 32) & mask) < limit, Answers);
      for (int lane = 0; lane < 8; ++lane) out[n + i + lane] = stays[lane] ? factor : T(0);
    }
    for (; i < some; ++i) {
      uint64_t both;
      std::memcpy(&both, words + 2 * i, 8);
      out[n + i] = ((both >> 32 | both << 32) & mask) < limit ? factor : T(0);
    }
    twister.used += int(2 * some), n += some;
    if (n == count) break;
    const uint64_t high = twister.next();
    out[n++] = ((high << 32 | twister.next()) & mask) < limit ? factor : T(0);
  }
  twister.put(state);
}

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
