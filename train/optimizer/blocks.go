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

// momentUnit returns the size of a block if all blocks of an update are of one tensor and in 8 bits, else 0.
func (u Update) momentUnit() int {
	if len(u.Extents) != 1 || u.Extents[0].Numbers < least8Bit {
		return 0
	}
	return kernel.MomentBlock
}

// momentBlocks returns the blocks of an update, or of this rank's slice of it. Slices have equally many blocks, of
// which the last ones may be short or empty.
func (u Update) momentBlocks() (large, small []Extent) {
	if u.Slice == nil {
		return momentBlocks(u.Extents)
	}
	from, to := u.Slice.Of(u.Slice.Numbers, u.Slice.Rank)
	for at := 0; at < u.Slice.Length(u.Slice.Numbers); at += kernel.MomentBlock {
		large = append(large, Extent{at, max(0, min(kernel.MomentBlock, to-from-at))})
	}
	return large, nil
}

// cutMoments records a state that has each elements for a block in 8 bits; it lies in slices where the update does.
func (u Update) cutMoments(name string, each int) {
	if u.Slice != nil {
		u.Slice.States[name] = each * ((u.Slice.Numbers + kernel.MomentBlock - 1) / kernel.MomentBlock)
	}
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
