package simd

import "unsafe"

// dropoutArgs is what dropoutAVX2 reads; its offsets stand in dropout_amd64.s.
type dropoutArgs struct {
	keys      [10][2][4]uint64 // of each round, repeated for four counters
	group     [4]uint64        // the first four counters
	step      [4]uint64
	threshold [8]uint32
	scale     [8]float32
}

// dropoutAVX2 masks blocks of 32 elements.
//
//go:noescape
func dropoutAVX2(y, x unsafe.Pointer, blocks int, args *dropoutArgs)

// Dropout returns what masks as much of x as vectors can and tells how much that was, or nil. group is
// the number of x's first four elements, keys are those of Philox's rounds.
func Dropout(threshold uint32, scale float32) func(y, x []float32, group uint64, step uint32, keys [10][2]uint32) int {
	if !hasAVX2 {
		return nil
	}
	return func(y, x []float32, group uint64, step uint32, keys [10][2]uint32) int {
		blocks := len(x) / 32
		if blocks == 0 {
			return 0
		}
		var a dropoutArgs
		for i, k := range keys {
			for j := range 4 {
				a.keys[i][0][j], a.keys[i][1][j] = uint64(k[0]), uint64(k[1])
			}
		}
		for j := range 4 {
			a.group[j], a.step[j] = group+uint64(j), uint64(step)
		}
		for j := range 8 {
			a.threshold[j], a.scale[j] = threshold, scale
		}
		_ = y[blocks*32-1]
		dropoutAVX2(unsafe.Pointer(&y[0]), unsafe.Pointer(&x[0]), blocks, &a)
		return blocks * 32
	}
}
