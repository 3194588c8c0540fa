package gguf

import (
	"encoding/binary"
	"math"
)

// Blocks of 32 numbers with one scale in F16, as ggml defines them: Q8_0 and Q5_0, Q4_0 are scale * code, the last two
// with codes less 16 and 8; Q5_1 is scale * code + minimum. Multiplications and sums of float32 are rounded one by one.

func abs32(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

func inverse(d float32) float32 {
	if d == 0 {
		return 0
	}
	return 1 / d
}

// extreme is the number of the largest size, the first of equals.
func extreme(x []float32) (size, value float32) {
	for _, v := range x {
		if a := abs32(v); a > size {
			size, value = a, v
		}
	}
	return size, value
}

func quantiseQ8(x []float32, y []byte) {
	size, _ := extreme(x)
	d := size / 127
	inv := inverse(d)
	putHalf(y, d)
	for i, v := range x {
		y[2+i] = byte(int8(math.Round(float64(v * inv)))) // half away from zero
	}
}

func dequantiseQ8(y []byte, x []float32) {
	d := half(y)
	for i := range x {
		x[i] = d * float32(int8(y[2+i]))
	}
}

func quantiseQ4(x []float32, y []byte) {
	_, value := extreme(x)
	d := value / -8
	inv := inverse(d)
	putHalf(y, d)
	code := func(v float32) byte { return byte(min(15, int8(float32(v*inv)+8.5))) }
	for i := range 16 {
		y[2+i] = code(x[i]) | code(x[16+i])<<4
	}
}

func dequantiseQ4(y []byte, x []float32) {
	d := half(y)
	for i := range 16 {
		x[i], x[16+i] = d*float32(int(y[2+i]&15)-8), d*float32(int(y[2+i]>>4)-8)
	}
}

func quantiseQ5(x []float32, y []byte) {
	_, value := extreme(x)
	d := value / -16
	inv := inverse(d)
	putHalf(y, d)
	putFives(y[2:], func(i int) byte { return byte(min(31, int8(float32(x[i]*inv)+16.5))) })
}

func dequantiseQ5(y []byte, x []float32) {
	d := half(y)
	for i := range x {
		x[i] = d * float32(five(y[2:], i)-16)
	}
}

func quantiseQ51(x []float32, y []byte) {
	least, most := x[0], x[0]
	for _, v := range x { // of zeros with both signs the first stays
		if v < least {
			least = v
		}
		if v > most {
			most = v
		}
	}
	d := (most - least) / 31
	inv := inverse(d)
	putHalf(y, d)
	putHalf(y[2:], least)
	putFives(y[4:], func(i int) byte { return byte(float32((x[i]-least)*inv) + 0.5) })
}

func dequantiseQ51(y []byte, x []float32) {
	d, least := half(y), half(y[2:])
	for i := range x {
		x[i] = float32(d*float32(five(y[4:], i))) + least
	}
}

// putFives stores 32 codes of five bits: the fifth bits, then the rest, that of i and of 16+i in one byte.
func putFives(y []byte, code func(i int) byte) {
	var high uint32
	for i := range 16 {
		a, b := code(i), code(16+i)
		y[4+i] = a&15 | b<<4
		high |= uint32(a>>4&1)<<i | uint32(b>>4&1)<<(16+i)
	}
	binary.LittleEndian.PutUint32(y, high)
}

func five(y []byte, i int) int {
	low := y[4+i%16] >> (4 * (i / 16)) & 15
	return int(low) | int(binary.LittleEndian.Uint32(y)>>i&1)<<4
}
