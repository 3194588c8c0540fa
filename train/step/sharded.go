package step

import (
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/train/optimizer"
)

// LeastSliced is the size from which a tensor's states lie in slices. Those of smaller ones, such as norms, save less
// than an exchange of their numbers costs.
const LeastSliced = 4096

// slicesOf returns how the parameters of an update are cut for the ranks; nil = each rank updates all of them.
func (b *builder) slicesOf(u optimizer.Update) *optimizer.Slice {
	o, ok := b.options.Optimizer.(optimizer.Slicing)
	n := u.Params.Type.Elems()
	if !b.shard || !b.summing.shared() || !ok || n < LeastSliced {
		return nil
	}
	unit := o.Unit(u)
	if unit == 0 {
		return nil
	}
	return &optimizer.Slice{Slices: kernel.Slices{World: b.summing.Ranks, Unit: max(unit, 4)}, Rank: b.summing.Rank,
		Numbers: n, States: b.Sharded}
}

// changeSlice adds what change does to parameters. Where the optimizer's states lie in slices, each rank changes its
// slice of the parameters and receives those of the others. A number's update depends on no other rank, so that the
// result is the same for any number of ranks.
func (b *builder) changeSlice(u optimizer.Update, change func(u optimizer.Update)) {
	u.Slice = b.slicesOf(u)
	if u.Slice == nil {
		change(u)
		return
	}
	whole := u.Params
	u.Params = b.Apply(kernel.TakeSlice{Slices: u.Slice.Slices}, whole)
	u.Grads = b.Apply(kernel.TakeSlice{Slices: u.Slice.Slices}, u.Grads)
	change(u)
	b.Received += int64(u.Slice.World-1) * int64(u.Slice.Length(u.Slice.Numbers)) * 4
	b.Apply(kernel.SpreadSlices{Slices: u.Slice.Slices}, whole, u.Params.Newest(b.Builder))
}
