package optimizer

import (
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// least8Bit is the number of elements from which a tensor's moments are kept in 8 bits: bitsandbytes' min_8bit_size.
const least8Bit = 4096

// momentBlocks cuts tensors into blocks of moments, which begin anew with each tensor. large are the blocks of tensors
// of at least least8Bit numbers, small those of the others.
func momentBlocks(tensors []Extent) (large, small []Extent) {
	for _, t := range tensors {
		to := &large
		if t.Numbers < least8Bit {
			to = &small
		}
		for at := 0; at < t.Numbers; at += kernel.MomentBlock {
			*to = append(*to, Extent{t.From + at, min(kernel.MomentBlock, t.Numbers-at)})
		}
	}
	return large, small
}

// blockTable declares the table of blocks that kernels with moments in 8 bits read: each block's first number and how
// many numbers it has.
func (u Update) blockTable(rows []Extent) *graph.Value {
	return u.Net.Table(u.named("blocks of moments"), func(dst []int32) {
		for i, b := range rows {
			dst[2*i], dst[2*i+1] = int32(uint32(b.From)), int32(b.Numbers)
		}
	}, len(rows), 2)
}
