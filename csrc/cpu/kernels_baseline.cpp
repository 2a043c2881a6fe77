// The kernels on tiles for any machine; the build adds the flags of the instruction set.

#define SHAPESCRIPT_ISA_NAME "baseline"
#define SHAPESCRIPT_ISA_TABLE BaselineKernels

#include "kernels_body.inc"
