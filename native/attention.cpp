// The CPU attention kernel of logsparse. Empty room: the kernel moves in with the attention package.
#include <nanobind/nanobind.h>

NB_MODULE(_native, m) { m.doc() = "logsparse CPU attention kernel"; }
