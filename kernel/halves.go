package kernel

import "github.com/tierlora/tierlora/kernel/simd"

// ToBF16 rounds to the nearest bf16, ties to even; a NaN stays one.
func ToBF16(x float32) uint16 { return simd.ToBF16(x) }

// FromBF16 is the number that bf16 bits stand for.
func FromBF16(b uint16) float32 { return simd.FromBF16(b) }

// ToF16 rounds to the nearest IEEE binary16, ties to even; above 65504 and its half step to infinity, and a NaN stays one.
func ToF16(x float32) uint16 { return simd.ToF16(x) }

// FromF16 is the value of an IEEE binary16.
func FromF16(v uint16) float32 { return simd.FromF16(v) }
