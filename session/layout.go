package session

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/graph"
)

// Layout is the arrangement of a step in memory. All layouts compute the same numbers, except that LossRows may change
// rounding.
type Layout struct {
	Dequantised bool // quantised weights are kept dequantised
	Linears     int  // number of linear layers, from the first on, that Dequantised applies to; 0 = all
	Experts     bool // experts that a checkpoint has in MXFP4 are kept dequantised too
	Recompute   graph.Recompute
	Layers      int             // number of layers, from the first on, that Recompute applies to; 0 = all
	Rest        graph.Recompute // mode of the other layers, if Layers is not 0
	Overlap     bool            // memory is reserved so that independent calls may overlap
	LossRows    int             // rows whose logits exist at the same time; 0 = as many as use the machine fully
	// OffloadStates keeps the optimizer's states in host memory (training.optimizer_offload).
	OffloadStates bool
	// ShardStates keeps a slice of the optimizer's states on each rank (training.optimizer_sharding).
	ShardStates bool
	// Number of ranks that store one slice of the frozen weights each, and gather a layer before its use; 0 = each rank
	// stores all.
	Shards int
}

// String describes a layout by the configuration keys that select it.
func (l Layout) String() string {
	parts := []string{"gradient_checkpointing " + l.Recompute.String()}
	if l.Layers > 0 {
		parts[0] += fmt.Sprintf(" in the first %d layers", l.Layers)
	}
	switch {
	case l.Linears > 0:
		parts = append(parts, fmt.Sprintf("dequantised weights in the first %d linear layers", l.Linears))
	case l.Dequantised:
		parts = append(parts, "dequantised weights")
	}
	if l.Experts && !l.Dequantised {
		parts = append(parts, "dequantised experts")
	}
	if l.LossRows > 0 {
		parts = append(parts, fmt.Sprintf("the loss of %d rows at a time", l.LossRows))
	}
	if l.OffloadStates {
		parts = append(parts, "optimizer_offload")
	}
	if l.ShardStates {
		parts = append(parts, "optimizer_sharding")
	}
	if l.Sharded() {
		parts = append(parts, fmt.Sprintf("base_sharding over %d devices", l.Shards))
	}
	return strings.Join(parts, ", ")
}

// Sharded reports whether each rank stores only a slice of the frozen weights.
func (l Layout) Sharded() bool { return l.Shards > 1 }

// LeastLossRows is the number of rows of logits below which fewer rows save almost no memory.
const LeastLossRows = 32

// Planned is a step in one layout, with its planned memory.
type Planned[T any] struct {
	Layout Layout
	Need   graph.Bytes
	Step   T
}

// Search finds the first of some layouts that fits. The result depends on its fields alone.
type Search[T any] struct {
	Layouts []Layout // allowed layouts, fastest first
	// Try plans the step in a layout.
	Try   func(Layout) (Planned[T], error)
	Limit int64 // memory limit in bytes; below 0 = not known, so that the first layout is taken
	// Seconds estimates how long a step takes. nil = no estimate is known for the machine, and only Layouts are tried.
	Seconds func(T) float64
	// HostLimit is the limit in bytes of values that layouts chosen by Seconds copy to host memory, and of optimizer
	// states there; 0 = not known.
	HostLimit int64

	Layers   int     // number of layers of the model
	Linears  []int64 // numbers of each linear layer's quantised weight
	LossRows int     // rows of logits that exist at the same time unless a layout sets them
	Overlaps bool    // independent calls can overlap on the machine
	Offload  bool    // OffloadStates may be added to a layout if none of Layouts fits
	Shard    int     // number of ranks over which ShardStates may cut the optimizer's states in the same case; 0 = not
}

// Found is the result of a search.
type Found[T any] struct {
	Planned[T]
	Fits     bool       // false = Planned is the leanest layout, too large and without a Step
	Rejected []Rejected // layouts that were tried and do not fit, fastest first
}

// Rejected is a layout that needs too much memory.
type Rejected struct {
	Layout Layout
	Need   graph.Bytes
}

func (s Search[T]) fits(p Planned[T]) bool { return s.Limit < 0 || p.Need.Total() <= s.Limit }

// fitsHost reports whether a layout that Seconds may choose fits in device memory and in host memory.
func (s Search[T]) fitsHost(p Planned[T]) bool {
	return s.fits(p) && (s.HostLimit <= 0 || p.Need.Host <= s.HostLimit)
}

// Run takes the first layout that fits. If none does, it takes the first that fits with the optimizer's states in
// slices over the ranks or in host memory, as Shard and Offload allow, and then the leanest with fewer and fewer rows
// of logits at a time. It uses memory that is left to keep weights dequantised, to recompute fewer layers, or to let
// calls overlap.
func (s Search[T]) Run() (Found[T], error) {
	var found Found[T]
	for i, l := range s.Layouts {
		p, err := s.Try(l)
		if err != nil {
			return found, err
		}
		if s.fits(p) {
			if i > 0 {
				p, err = s.improve(found.Rejected[i-1], p)
			}
			if err == nil {
				p, err = s.overlap(p)
			}
			found.Planned, found.Fits = p, true
			return found, err
		}
		found.Rejected = append(found.Rejected, Rejected{p.Layout, p.Need})
	}
	if ok, err := s.leaner(&found); ok || err != nil {
		return found, err
	}
	for _, m := range s.moves() {
		if found, err := s.move(found, m); err != nil || found.Fits {
			return found, err
		}
	}
	return s.shortenLoss(found)
}

// move is a way to take the optimizer's states out of a device's memory.
type move struct {
	of   func(Layout) Layout
	left func(states int64) int64 // bytes of states that stay
	host bool                     // the others lie in host memory
}

// takes reports whether a move has anything to take, and a place for it.
func (s Search[T]) takes(m move, need graph.Bytes) bool {
	return need.Movable > 0 && (!m.host || s.HostLimit <= 0 || need.Movable <= s.HostLimit)
}

// moves returns the ways that the search may use, the fastest first.
func (s Search[T]) moves() (all []move) {
	if s.Shard > 1 {
		all = append(all, move{func(l Layout) Layout { l.ShardStates = true; return l },
			func(states int64) int64 { return states / int64(s.Shard) }, false})
	}
	if s.Offload {
		all = append(all, move{func(l Layout) Layout { l.OffloadStates = true; return l },
			func(int64) int64 { return 0 }, true})
	}
	return all
}

// move takes the first of the rejected layouts that fits with the optimizer's states elsewhere. Only a layout that may
// fit is planned again: the states are all that leaves the machine's memory.
func (s Search[T]) move(found Found[T], m move) (Found[T], error) {
	for i, r := range found.Rejected {
		if !s.takes(m, r.Need) || r.Need.Total()-r.Need.Movable+m.left(r.Need.Movable) > s.Limit {
			continue
		}
		p, err := s.Try(m.of(r.Layout))
		if err != nil {
			return found, err
		}
		if !s.fits(p) {
			continue
		}
		if i > 0 {
			p, err = s.improve(found.Rejected[i-1], p)
		}
		if err == nil {
			p, err = s.overlap(p)
		}
		found.Planned, found.Fits = p, true
		return found, err
	}
	return found, nil
}

// improve uses the memory that is left between a layout that fits and the faster one before it.
func (s Search[T]) improve(before Rejected, p Planned[T]) (Planned[T], error) {
	switch {
	case before.Layout.Dequantised && !p.Layout.Dequantised:
		return s.dequantiseSome(before, p)
	case p.Layout.Recompute >= graph.RecomputeLayers:
		return s.lessRecomputed(p, before.Layout.Recompute)
	case p.Layout.Recompute > before.Layout.Recompute:
		return s.fewerLayers(p, before.Layout.Recompute)
	}
	return p, nil
}

// lessRecomputed uses the memory that is left beside a layout p that recomputes whole layers: the outputs of attention
// are kept, if that takes less time by estimate, and as many layers as fit have the mode rest.
func (s Search[T]) lessRecomputed(p Planned[T], rest graph.Recompute) (Planned[T], error) {
	if s.Seconds != nil {
		kept, err := s.keepingAttention(p)
		if err != nil {
			return p, err
		}
		if s.Seconds(kept.Step) < s.Seconds(p.Step) {
			return s.fewerLayers(kept, graph.RecomputeCheap)
		}
	}
	if p.Layout.Recompute == graph.Offload {
		return p, nil
	}
	best, err := s.fewerLayers(p, rest)
	if err != nil || s.Seconds == nil {
		return best, err
	}
	kept, err := s.fewerLayers(p, graph.KeepAttention)
	if err == nil && s.Seconds(kept.Step) < s.Seconds(best.Step) {
		best = kept
	}
	return best, err
}

// keepingAttention returns the layout p with the outputs of attention kept in all layers: in host memory if that is
// allowed and has room, else on the device. It returns p if neither fits.
func (s Search[T]) keepingAttention(p Planned[T]) (Planned[T], error) {
	l := p.Layout
	if s.offloads(l) {
		l.Recompute = graph.OffloadAttention
		if kept, err := s.Try(l); err != nil || s.fitsHost(kept) {
			return kept, err
		}
	}
	if p.Layout.Recompute == graph.Offload {
		return p, nil
	}
	l.Recompute = graph.KeepAttention
	if kept, err := s.Try(l); err != nil || s.fits(kept) {
		return kept, err
	}
	return p, nil
}

// offloads reports whether a layout, with values in host memory, is allowed.
func (s Search[T]) offloads(l Layout) bool {
	l.Recompute = graph.Offload
	states := func(l Layout) Layout { l.OffloadStates, l.ShardStates = false, false; return l }
	return slices.ContainsFunc(s.Layouts, func(o Layout) bool { return states(o) == states(l) })
}

// leaner tries the layout that copies the outputs of attention to host memory, after no other fitted: attention that is
// recomputed needs more memory for a while.
func (s Search[T]) leaner(found *Found[T]) (ok bool, err error) {
	l := s.Layouts[len(s.Layouts)-1]
	if s.Seconds == nil || l.Recompute != graph.Offload {
		return false, nil
	}
	l.Recompute = graph.OffloadAttention
	p, err := s.Try(l)
	switch {
	case err != nil:
		return false, err
	case s.fitsHost(p):
		found.Planned, found.Fits = p, true
		return true, nil
	case !s.fits(p):
		found.Rejected = append(found.Rejected, Rejected{l, p.Need})
	}
	return false, nil
}

// dequantiseSome keeps the weights of as many linear layers dequantised as fit, if those of all layers do not fit and
// the step as planned does.
func (s Search[T]) dequantiseSome(all Rejected, packed Planned[T]) (Planned[T], error) {
	left, sum, total := s.Limit-packed.Need.Total(), int64(0), int64(0)
	for _, n := range s.Linears {
		total += n
	}
	each := float64(all.Need.Frozen-packed.Need.Frozen) / float64(total) // bytes that dequantising adds per number
	l := packed.Layout
	for _, n := range s.Linears {
		if sum += n; float64(sum)*each > float64(left) {
			break
		}
		l.Linears++
	}
	// The estimate ignores rounding up to whole blocks.
	for back := 1; l.Linears > 0; l.Linears, back = l.Linears-back, 2*back {
		l.Dequantised = true
		p, err := s.Try(l)
		if err != nil || s.fits(p) {
			return p, err
		}
	}
	return packed, nil
}

// fewerLayers finds the smallest number of layers that the mode of a layout that fits must apply to, with rest as the
// mode of the others.
func (s Search[T]) fewerLayers(best Planned[T], rest graph.Recompute) (Planned[T], error) {
	l := best.Layout
	l.Rest = rest
	for least, most := 1, s.Layers; least < most; {
		l.Layers = (least + most) / 2
		p, err := s.Try(l)
		if err != nil {
			return p, err
		}
		if s.fits(p) {
			best, most = p, l.Layers
		} else {
			least = l.Layers + 1
		}
	}
	return best, nil
}

// shortenLoss halves the rows of logits in the leanest layout tried until it fits or gets no smaller.
func (s Search[T]) shortenLoss(found Found[T]) (Found[T], error) {
	lean := found.Rejected[0]
	for _, p := range found.Rejected {
		if p.Need.Total() < lean.Need.Total() {
			lean = p
		}
	}
	for _, m := range slices.Backward(s.moves()) {
		if !s.takes(m, lean.Need) {
			continue
		}
		p, err := s.Try(m.of(lean.Layout))
		if err != nil {
			return found, err
		}
		lean = Rejected{p.Layout, p.Need}
		found.Rejected = append(found.Rejected, lean)
		break
	}
	rows := LeastLossRows
	for 2*rows < s.LossRows {
		rows *= 2
	}
	for ; rows >= LeastLossRows && rows < s.LossRows; rows /= 2 {
		l := lean.Layout
		l.LossRows = rows
		p, err := s.Try(l)
		if err != nil {
			return found, err
		}
		if s.fits(p) {
			found.Fits = true
			found.Planned, err = s.overlap(p)
			return found, err
		}
		if p.Need.Total() >= lean.Need.Total() {
			break
		}
		lean = Rejected{p.Layout, p.Need}
		found.Rejected = append(found.Rejected, lean)
	}
	found.Layout, found.Need = lean.Layout, lean.Need
	return found, nil
}

// overlap reserves memory so that calls may overlap, if there is enough and it costs little: at most a sixth of the
// rest. For a small model that memory would be several times the rest.
func (s Search[T]) overlap(plain Planned[T]) (Planned[T], error) {
	l := plain.Layout
	// The other modes were chosen to save memory.
	if !s.Overlaps || l.Sharded() || l.Recompute != graph.KeepAll && l.Recompute != graph.RecomputeCheap {
		return plain, nil
	}
	l.Overlap = true
	p, err := s.Try(l)
	if cost := p.Need.Total() - plain.Need.Total(); err != nil || s.fits(p) && cost <= plain.Need.Total()/6 {
		return p, err
	}
	return plain, nil
}
