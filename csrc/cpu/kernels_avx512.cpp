// The kernels on tiles for AVX-512; the build adds the flags of the instruction set.

#define SHAPESCRIPT_ISA_NAME "avx512"
#define SHAPESCRIPT_ISA_TABLE Avx512Kernels

#include "kernels_body.inc"
