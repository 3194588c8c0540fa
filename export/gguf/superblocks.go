package gguf

import "math"

// Super-blocks of 256 numbers. Q4_K and Q5_K: 8 blocks of 32, each scale * code - minimum, whose scales and minima are
// 6-bit codes of two numbers in F16. Q6_K: 16 blocks of 16, scale * (code - 32), scales 8-bit codes of one. The search
// for scales minimises the weighted square error as ggml's reference quantiser does; float32 throughout, rounded one by
// one, so that codes are equal to its.

const (
	superBlock = 256
	tiny       = 1e-15 // what is smaller counts as zeros
)

// nearest rounds to the nearest whole number, half to even, for numbers below 2^22.
func nearest(x float32) int {
	return int(math.Float32bits(x+12582912)&0x7fffff) - 0x400000
}

// affine finds scale and minimum (stored as a number not below zero) of a block, as codes 0 to most: the start is the
// range, then the least-squares fit of codes by trial scales, whose count and distance steps, first and step say.
func affine(x []float32, most int, codes []uint8, first float32, steps int) (scale, minimum float32) {
	var squares float32
	for _, v := range x {
		squares += float32(v * v)
	}
	mean := float32(math.Sqrt(float64(squares / float32(len(x)))))
	var w, trial [32]float32
	var code [32]uint8
	least, largest := x[0], x[0]
	var sumW, sumX float32
	for i, v := range x {
		w[i] = mean + abs32(v)
		least, largest = min(least, v), max(largest, v)
		sumW += w[i]
		sumX += float32(w[i] * v)
	}
	least = min(least, 0)
	if largest == least {
		clear(codes)
		return 0, -least
	}
	inv := float32(most) / (largest - least)
	scale = 1 / inv
	var best float32
	for i, v := range x {
		c := max(0, min(most, nearest(float32(inv*float32(v-least)))))
		codes[i] = uint8(c)
		diff := float32(float32(scale*float32(c))+least) - v
		best += float32(w[i] * float32(diff*diff))
	}
	for s := range steps + 1 { // each trial starts from the best minimum so far
		inv = float32(float32(first+float32(0.1*float32(s)))+float32(most)) / (largest - least)
		var l1, l2, xl float32
		for i, v := range x {
			c := max(0, min(most, nearest(float32(inv*float32(v-least)))))
			code[i] = uint8(c)
			trial[i] = float32(c)
			wc := float32(w[i] * trial[i])
			l1 += wc
			l2 += float32(wc * trial[i])
			xl += float32(wc * v)
		}
		d := float32(sumW*l2) - float32(l1*l1)
		if d <= 0 {
			continue
		}
		a := float32(float32(sumW*xl)-float32(sumX*l1)) / d
		b := float32(float32(l2*sumX)-float32(l1*xl)) / d
		if b > 0 {
			a, b = xl/l2, 0
		}
		var wrong float32
		for i, v := range x {
			diff := float32(float32(a*trial[i])+b) - v
			wrong += float32(w[i] * float32(diff*diff))
		}
		if wrong < best {
			copy(codes, code[:])
			best, scale, least = wrong, a, b
		}
	}
	return scale, -least
}

// quantiseAffine makes the scales of a super-block of Q4_K or Q5_K, the first 16 bytes, and the codes.
func quantiseAffine(x []float32, y []byte, most int, first float32, steps int) (codes [superBlock]uint8) {
	var scales, minima [8]float32
	var maxScale, maxMinimum float32
	for j := range scales {
		scales[j], minima[j] = affine(x[32*j:32*j+32], most, codes[32*j:32*j+32], first, steps)
		maxScale, maxMinimum = max(maxScale, scales[j]), max(maxMinimum, minima[j])
	}
	invScale, invMinimum := sixtyThirds(maxScale), sixtyThirds(maxMinimum)
	packed := y[4:16]
	clear(packed)
	for j := range scales {
		s := min(63, uint8(nearest(float32(invScale*scales[j]))))
		m := min(63, uint8(nearest(float32(invMinimum*minima[j]))))
		if j < 4 {
			packed[j], packed[j+4] = s, m
			continue
		}
		packed[j+4] = s&15 | m<<4
		packed[j-4] |= s >> 4 << 6
		packed[j] |= m >> 4 << 6
	}
	putHalf(y, maxScale/63)
	putHalf(y[2:], maxMinimum/63)
	for j := range scales {
		d, m := scaleOf(y, j)
		if d == 0 {
			continue
		}
		for i, v := range x[32*j : 32*j+32] {
			codes[32*j+i] = uint8(max(0, min(most, nearest(float32(v+m)/d))))
		}
	}
	return codes
}

func sixtyThirds(largest float32) float32 {
	if largest > 0 {
		return 63 / largest
	}
	return 0
}

// scaleOf is scale and minimum of block j of a super-block.
func scaleOf(y []byte, j int) (scale, minimum float32) {
	packed := y[4:16]
	s, m := packed[j%8]&63, packed[min(j+4, 11)]&63
	if j >= 4 {
		s, m = packed[j+4]&15|packed[j-4]>>6<<4, packed[j+4]>>4|packed[j]>>6<<4
	}
	return half(y) * float32(s), half(y[2:]) * float32(m)
}

func quantiseQ4K(x []float32, y []byte) {
	codes := quantiseAffine(x, y, 15, -1, 20)
	packFours(y[16:], codes[:])
}

// packFours stores the low four bits of 256 codes: in each 64, number i beside number 32+i.
func packFours(y []byte, codes []uint8) {
	for n := 0; n < superBlock; n += 64 {
		for i := range 32 {
			y[n/2+i] = codes[n+i]&15 | codes[n+32+i]<<4
		}
	}
}

func dequantiseQ4K(y []byte, x []float32) {
	for j := range 8 {
		d, m := scaleOf(y, j)
		for i := range 32 {
			code := y[16+32*(j/2)+i] >> (4 * (j % 2)) & 15
			x[32*j+i] = float32(d*float32(code)) - m
		}
	}
}

func quantiseQ5K(x []float32, y []byte) {
	codes := quantiseAffine(x, y, 31, -0.5, 15)
	high := y[16:48]
	clear(high)
	for i, c := range codes {
		high[i%32] |= c >> 4 << (i / 32)
	}
	packFours(y[48:], codes[:])
}

func dequantiseQ5K(y []byte, x []float32) {
	for j := range 8 {
		d, m := scaleOf(y, j)
		for i := range 32 {
			code := y[48+32*(j/2)+i]>>(4*(j%2))&15 | y[16+i]>>j&1<<4
			x[32*j+i] = float32(d*float32(code)) - m
		}
	}
}

// symmetric finds the scale of 16 numbers as codes -32 to 31, stored plus 32, weighted by their squares.
func symmetric(x []float32, codes []uint8) float32 {
	size, value := extreme(x)
	if size < tiny {
		clear(codes)
		return 0
	}
	fit := func(inv float32, codes []uint8) (lx, l2 float32) {
		for i, v := range x {
			c := max(-32, min(31, nearest(float32(inv*v))))
			codes[i] = uint8(c + 32)
			wl := float32(float32(v*v) * float32(c))
			lx += float32(float32(float32(v*v)*v) * float32(c))
			l2 += float32(wl * float32(c))
		}
		return lx, l2
	}
	lx, l2 := fit(-32/value, codes)
	var scale float32
	if l2 != 0 {
		scale = lx / l2
	}
	best := float32(scale * lx)
	var trial [16]uint8
	for s := -9; s <= 9; s++ {
		if s == 0 {
			continue
		}
		lx, l2 := fit(-(32+float32(0.1*float32(s)))/value, trial[:])
		if l2 > 0 && float32(lx*lx) > float32(best*l2) {
			copy(codes, trial[:])
			scale = lx / l2
			best = float32(scale * lx)
		}
	}
	return scale
}

func quantiseQ6K(x []float32, y []byte) {
	var codes [superBlock]uint8
	var scales [16]float32
	for j := range scales {
		scales[j] = symmetric(x[16*j:16*j+16], codes[16*j:16*j+16])
	}
	size, value := extreme(scales[:])
	clear(y)
	if size < tiny {
		return
	}
	inv := -128 / value
	putHalf(y[208:], 1/inv)
	for j, s := range scales {
		y[192+j] = byte(int8(min(127, nearest(float32(inv*s)))))
		d := half(y[208:]) * float32(int8(y[192+j]))
		if d == 0 {
			continue
		}
		for i, v := range x[16*j : 16*j+16] {
			codes[16*j+i] = uint8(max(-32, min(31, nearest(v/d))) + 32)
		}
	}
	for n := 0; n < superBlock; n += 128 {
		low, high, c := y[n/2:], y[128+n/4:], codes[n:]
		for i := range 32 {
			low[i] = c[i]&15 | c[64+i]<<4
			low[32+i] = c[32+i]&15 | c[96+i]<<4
			high[i] = c[i]>>4 | c[32+i]>>4<<2 | c[64+i]>>4<<4 | c[96+i]>>4<<6
		}
	}
}

func dequantiseQ6K(y []byte, x []float32) {
	d := half(y[208:])
	for i := range x {
		n, part, at := i/128*128, i%128/32, i%32
		low := y[n/2+part%2*32+at] >> (part / 2 * 4) & 15
		high := y[128+n/4+at] >> (2 * part) & 3
		x[i] = float32(d*float32(int8(y[192+i/16]))) * float32(int(low|high<<4)-32)
	}
}
