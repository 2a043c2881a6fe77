// The operations of tile programs, by name, as `_executor.kernel_numbers()` calls the CPU's: the op
// and the element of its operands. A value in a slot is 64 bits, of which an f32 takes the lower
// 32, and a bool the lowest 8.
#pragma once

#include <cmath>
#include <cstdint>

#include "bits.hpp"

namespace shapescript::cuda {

// --- functions
// ----------------------------------------------------------------------------------------------------

SHAPESCRIPT_DEVICE float Exp(float x) { return ::expf(x); }
SHAPESCRIPT_DEVICE double Exp(double x) { return ::exp(x); }
SHAPESCRIPT_DEVICE float Expm1(float x) { return ::expm1f(x); }
SHAPESCRIPT_DEVICE double Expm1(double x) { return ::expm1(x); }
SHAPESCRIPT_DEVICE float Log(float x) { return ::logf(x); }
SHAPESCRIPT_DEVICE double Log(double x) { return ::log(x); }
SHAPESCRIPT_DEVICE float Log1p(float x) { return ::log1pf(x); }
SHAPESCRIPT_DEVICE double Log1p(double x) { return ::log1p(x); }
SHAPESCRIPT_DEVICE float Sqrt(float x) { return ::sqrtf(x); }
SHAPESCRIPT_DEVICE double Sqrt(double x) { return ::sqrt(x); }
SHAPESCRIPT_DEVICE float Sin(float x) { return ::sinf(x); }
SHAPESCRIPT_DEVICE double Sin(double x) { return ::sin(x); }
SHAPESCRIPT_DEVICE float Cos(float x) { return ::cosf(x); }
SHAPESCRIPT_DEVICE double Cos(double x) { return ::cos(x); }
SHAPESCRIPT_DEVICE float Tanh(float x) { return ::tanhf(x); }
SHAPESCRIPT_DEVICE double Tanh(double x) { return ::tanh(x); }
SHAPESCRIPT_DEVICE float Erf(float x) { return ::erff(x); }
SHAPESCRIPT_DEVICE double Erf(double x) { return ::erf(x); }
SHAPESCRIPT_DEVICE float Floor(float x) { return ::floorf(x); }
SHAPESCRIPT_DEVICE double Floor(double x) { return ::floor(x); }
SHAPESCRIPT_DEVICE float Ceil(float x) { return ::ceilf(x); }
SHAPESCRIPT_DEVICE double Ceil(double x) { return ::ceil(x); }
SHAPESCRIPT_DEVICE float Round(float x) { return ::rintf(x); }
SHAPESCRIPT_DEVICE double Round(double x) { return ::rint(x); }
SHAPESCRIPT_DEVICE float Power(float x, float y) { return ::powf(x, y); }
SHAPESCRIPT_DEVICE double Power(double x, double y) { return ::pow(x, y); }
SHAPESCRIPT_DEVICE float Fmod(float x, float y) { return ::fmodf(x, y); }
SHAPESCRIPT_DEVICE double Fmod(double x, double y) { return ::fmod(x, y); }
SHAPESCRIPT_DEVICE float Abs(float x) { return ::fabsf(x); }
SHAPESCRIPT_DEVICE double Abs(double x) { return ::fabs(x); }
SHAPESCRIPT_DEVICE std::int64_t Abs(std::int64_t x) { return x < 0 ? -x : x; }
SHAPESCRIPT_DEVICE bool Signbit(float x) { return (BitsOf(x) >> 31) != 0; }
SHAPESCRIPT_DEVICE bool Signbit(double x) { return (BitsOf(x) >> 63) != 0; }

template <class T>
SHAPESCRIPT_DEVICE T Sigmoid(T x) {
  return T(1) / (T(1) + Exp(-x));
}
template <class T>
SHAPESCRIPT_DEVICE T Gelu(T x) {
  return x * T(0.5) * (T(1) + Erf(x * T(0.70710678118654752440)));
}
template <class T>
SHAPESCRIPT_DEVICE T GeluTanh(T x) {
  const T inner = T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
  return T(0.5) * x * (T(1) + Tanh(inner));
}
template <class T>
SHAPESCRIPT_DEVICE T Silu(T x) {
  return x / (T(1) + Exp(-x));
}
template <class T>
SHAPESCRIPT_DEVICE T Softplus(T x) {
  return x != x ? x : (x > T(0) ? x : T(0)) + Log1p(Exp(-Abs(x)));
}
template <class T>
SHAPESCRIPT_DEVICE T Sign(T x) {
  return T(T(0) < x) - T(x < T(0));
}
// what isn't a number wins
template <class T>
SHAPESCRIPT_DEVICE T Maximum(T x, T y) {
  return x > y || x != x ? x : y;
}
template <class T>
SHAPESCRIPT_DEVICE T Minimum(T x, T y) {
  return x < y || x != x ? x : y;
}
// downwards, and with the sign of the divisor, as Python has them
template <class T>
SHAPESCRIPT_DEVICE T Remainder(T x, T y) {
  const T rest = Fmod(x, y);
  return rest != T(0) && ((y < T(0)) != (rest < T(0))) ? rest + y : rest;
}
template <class T>
SHAPESCRIPT_DEVICE T FloorDivide(T x, T y) {
  if (y == T(0)) return x / y;
  const T rest = Fmod(x, y);
  T quotient = (x - rest) / y;
  if (rest != T(0) && ((y < T(0)) != (rest < T(0)))) quotient -= T(1);
  if (quotient == T(0)) {
    const T exact = x / y;
    return exact < T(0) || (exact == T(0) && Signbit(exact)) ? -T(0) : T(0);
  }
  const T floored = Floor(quotient);
  return quotient - floored > T(0.5) ? floored + T(1) : floored;
}

// --- the table: a row is a name, its operands' element and type, the result's type, the value
// -----------------------

#define SHAPESCRIPT_ARITHMETIC(ROW, E, T) \
  ROW(add, E, T, T, x + y)                \
  ROW(subtract, E, T, T, x - y)           \
  ROW(multiply, E, T, T, x* y)            \
  ROW(maximum, E, T, T, Maximum(x, y))    \
  ROW(minimum, E, T, T, Minimum(x, y))    \
  ROW(equal, E, T, Byte, x == y)          \
  ROW(not_equal, E, T, Byte, x != y)      \
  ROW(less, E, T, Byte, x < y)            \
  ROW(less_equal, E, T, Byte, x <= y)     \
  ROW(negate, E, T, T, -x)                \
  ROW(abs, E, T, T, Abs(x))               \
  ROW(square, E, T, T, x* x)              \
  ROW(relu, E, T, T, x < T(0) ? T(0) : x) \
  ROW(sign, E, T, T, Sign(x))

#define SHAPESCRIPT_FLOATS(ROW, E, T)           \
  SHAPESCRIPT_ARITHMETIC(ROW, E, T)             \
  ROW(divide, E, T, T, x / y)                   \
  ROW(floor_divide, E, T, T, FloorDivide(x, y)) \
  ROW(remainder, E, T, T, Remainder(x, y))      \
  ROW(power, E, T, T, Power(x, y))              \
  ROW(exp, E, T, T, Exp(x))                     \
  ROW(expm1, E, T, T, Expm1(x))                 \
  ROW(log, E, T, T, Log(x))                     \
  ROW(log1p, E, T, T, Log1p(x))                 \
  ROW(sqrt, E, T, T, Sqrt(x))                   \
  ROW(rsqrt, E, T, T, T(1) / Sqrt(x))           \
  ROW(sin, E, T, T, Sin(x))                     \
  ROW(cos, E, T, T, Cos(x))                     \
  ROW(tanh, E, T, T, Tanh(x))                   \
  ROW(sigmoid, E, T, T, Sigmoid(x))             \
  ROW(gelu, E, T, T, Gelu(x))                   \
  ROW(gelu_tanh, E, T, T, GeluTanh(x))          \
  ROW(silu, E, T, T, Silu(x))                   \
  ROW(softplus, E, T, T, Softplus(x))           \
  ROW(erf, E, T, T, Erf(x))                     \
  ROW(floor, E, T, T, Floor(x))                 \
  ROW(ceil, E, T, T, Ceil(x))                   \
  ROW(round, E, T, T, Round(x))                 \
  ROW(is_nan, E, T, Byte, x != x)

#define SHAPESCRIPT_CASTS(ROW, E, T)                              \
  ROW(cast_f32, E, T, float, static_cast<float>(x))               \
  ROW(cast_f64, E, T, double, static_cast<double>(x))             \
  ROW(cast_i64, E, T, std::int64_t, static_cast<std::int64_t>(x)) \
  ROW(cast_bool, E, T, Byte, x != T(0))

#define SHAPESCRIPT_TILE_OPS(ROW)                \
  SHAPESCRIPT_FLOATS(ROW, f32, float)            \
  SHAPESCRIPT_FLOATS(ROW, f64, double)           \
  SHAPESCRIPT_ARITHMETIC(ROW, i64, std::int64_t) \
  SHAPESCRIPT_CASTS(ROW, f32, float)             \
  SHAPESCRIPT_CASTS(ROW, f64, double)            \
  SHAPESCRIPT_CASTS(ROW, i64, std::int64_t)      \
  SHAPESCRIPT_CASTS(ROW, bool, Byte)             \
  ROW(and, bool, Byte, Byte, x& y)               \
  ROW(or, bool, Byte, Byte, x | y)               \
  ROW(not, bool, Byte, Byte, x ^ 1)              \
  ROW(equal, bool, Byte, Byte, x == y)           \
  ROW(not_equal, bool, Byte, Byte, x != y)

#define SHAPESCRIPT_TILE_OP_NUMBER(NAME, E, T, R, ...) kOp_##NAME##_##E,
enum TileOp : std::int32_t {
  kOpLoad,      // dst: what input a has at the row and, within a loop, at the place
  kOpStore,     // output a, at each place: slot b
  kOpStoreRow,  // output a, at the row: slot b
  kOpCopy,      // dst: operand a
  kOpLoop,      // the next a codes are done at each of a lane's places of the row
  kOpCombine,   // dst: the lanes' values of dst, combined by operation a
  kOpWhere,     // dst: a ? b : c, of any element
  kOpBest,  // slots dst (value) and b (place): those of a, where it is better; c: operation `less`
            // of its element, negative for the least
  kOpCombineBest,  // the same of the lanes' slots dst and b
  SHAPESCRIPT_TILE_OPS(SHAPESCRIPT_TILE_OP_NUMBER) kTileOps
};
#undef SHAPESCRIPT_TILE_OP_NUMBER

#define SHAPESCRIPT_TILE_OP_CASE(NAME, E, T, R, ...) \
  case kOp_##NAME##_##E: {                           \
    const T x = ValueOf<T>(a);                       \
    [[maybe_unused]] const T y = ValueOf<T>(b);      \
    return BitsOf<R>(static_cast<R>(__VA_ARGS__));   \
  }
// One copy for all that calls it: it is long, and takes long to compile.
SHAPESCRIPT_APART Bits Evaluate(std::int32_t op, Bits a, Bits b) {
  switch (op) {
    SHAPESCRIPT_TILE_OPS(SHAPESCRIPT_TILE_OP_CASE)
    default:
      return 0;
  }
}
#undef SHAPESCRIPT_TILE_OP_CASE

}  // namespace shapescript::cuda
