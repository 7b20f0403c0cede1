// The kernel's entries for one instruction set; CMake compiles this file once for each, with LOGSPARSE_ISA set.
#include <cmath>

#include "backward.h"
#include "forward.h"
#include "step.h"

namespace logsparse {
namespace LOGSPARSE_ISA {

template <template <class, class> class Work> void dispatch(const Problem& p) {
  switch (p.type) {
    case Type::float32: return run<Work<float, float>>(p);
    case Type::float64: return run<Work<double, double>>(p);
    case Type::bfloat16: return run<Work<bfloat16, float>>(p);
  }
}

void forward(const Problem& p) { dispatch<Forward>(p); }
void backward(const Problem& p) { dispatch<Backward>(p); }
void step(const StepProblem& p) { p.type == Type::float64 ? run_step<double>(p) : run_step<float>(p); }

}  // namespace LOGSPARSE_ISA
}  // namespace logsparse
