// The kernels on tiles for AVX2; the build adds the flags of the instruction set.

#define SHAPESCRIPT_ISA_NAME "avx2"
#define SHAPESCRIPT_ISA_TABLE Avx2Kernels

#include "kernels_body.inc"
