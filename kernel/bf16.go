package kernel

import "math"

// ToBF16 rounds to the nearest bf16, ties to even; a NaN stays one.
func ToBF16(x float32) uint16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// FromBF16 is the number that bf16 bits stand for.
func FromBF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }
