package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Type is how a tensor's numbers are stored, numbered as in files.
type Type uint32

// The types that are written. K types have super-blocks of 256 numbers.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q5_0 Type = 6
	Q5_1 Type = 7
	Q8_0 Type = 8
	Q4_K Type = 12
	Q5_K Type = 13
	Q6_K Type = 14
	BF16 Type = 30
)

type storage struct {
	name         string
	block, bytes int // numbers of a block, and its bytes
	quantise     func(x []float32, y []byte)
	dequantise   func(y []byte, x []float32)
}

var storages = map[Type]storage{
	F32:  {"F32", 1, 4, putF32, getF32},
	F16:  {"F16", 1, 2, putF16, getF16},
	BF16: {"BF16", 1, 2, putBF16, getBF16},
	Q8_0: {"Q8_0", 32, 34, quantiseQ8, dequantiseQ8},
	Q4_0: {"Q4_0", 32, 18, quantiseQ4, dequantiseQ4},
	Q5_0: {"Q5_0", 32, 22, quantiseQ5, dequantiseQ5},
	Q5_1: {"Q5_1", 32, 24, quantiseQ51, dequantiseQ51},
	Q4_K: {"Q4_K", 256, 144, quantiseQ4K, dequantiseQ4K},
	Q5_K: {"Q5_K", 256, 176, quantiseQ5K, dequantiseQ5K},
	Q6_K: {"Q6_K", 256, 210, quantiseQ6K, dequantiseQ6K},
}

// String is ggml's name of the type.
func (t Type) String() string {
	if s, ok := storages[t]; ok {
		return s.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Block is how many numbers are stored together; 0 = the type is not known.
func (t Type) Block() int { return storages[t].block }

// BlockBytes is how many bytes a block takes.
func (t Type) BlockBytes() int { return storages[t].bytes }

// Quantise stores x, whole blocks, in y, which has just the bytes for it. The numbers are finite.
func (t Type) Quantise(x []float32, y []byte) {
	s := storages[t]
	for i, j := 0, 0; i < len(x); i, j = i+s.block, j+s.bytes {
		s.quantise(x[i:i+s.block], y[j:j+s.bytes])
	}
}

// Dequantise is what the bytes y stand for.
func (t Type) Dequantise(y []byte, x []float32) {
	s := storages[t]
	for i, j := 0, 0; i < len(x); i, j = i+s.block, j+s.bytes {
		s.dequantise(y[j:j+s.bytes], x[i:i+s.block])
	}
}

func putF32(x []float32, y []byte) { binary.LittleEndian.PutUint32(y, math.Float32bits(x[0])) }
func getF32(y []byte, x []float32) { x[0] = math.Float32frombits(binary.LittleEndian.Uint32(y)) }
func putF16(x []float32, y []byte) { putHalf(y, x[0]) }
func getF16(y []byte, x []float32) { x[0] = half(y) }
func getBF16(y []byte, x []float32) {
	x[0] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(y)) << 16)
}

func putBF16(x []float32, y []byte) {
	b := math.Float32bits(x[0])
	binary.LittleEndian.PutUint16(y, uint16((b+0x7fff+b>>16&1)>>16))
}

// half is a number in F16.
func half(y []byte) float32 {
	h := uint32(binary.LittleEndian.Uint16(y))
	bits := (h & 0x8000) << 16
	if h&0x7c00 == 0x7c00 {
		return math.Float32frombits(bits | 0x7f800000 | (h&0x3ff)<<13)
	}
	return math.Float32frombits(bits | math.Float32bits(math.Float32frombits((h&0x7fff)<<13)*0x1p112))
}

// putHalf stores a number in F16, rounded to nearest even.
func putHalf(y []byte, x float32) {
	b := math.Float32bits(x)
	sign, abs := uint16(b>>16)&0x8000, b&0x7fffffff
	var h uint16
	switch {
	case abs >= 0x477ff000: // 65520 and more
		h = 0x7c00
	case abs < 0x38800000: // below 2^-14 the sum with 0.5 rounds at the last bit
		h = uint16(math.Float32bits(math.Float32frombits(abs)+0.5) - math.Float32bits(0.5))
	default:
		h = uint16((abs - 0x38000000 + 0xfff + abs>>13&1) >> 13)
	}
	binary.LittleEndian.PutUint16(y, sign|h)
}
