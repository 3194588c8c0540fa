package bench

import (
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
)

// randomWeights gives weights of random numbers: uniform, with the spread that keeps activations near one, whatever the
// pieces they are read in.
type randomWeights struct{}

// randomBlock is how many numbers follow from one seed.
const randomBlock = 4096

// Factor and step of a linear congruential generator modulo 2^64 (Knuth).
const (
	randomFactor = 6364136223846793005
	randomStep   = 1442695040888963407
)

func (randomWeights) Float32s(name string, from int, dst []float32) error {
	if strings.HasSuffix(name, "norm.weight") {
		for i := range dst {
			dst[i] = 1
		}
		return nil
	}
	seed := uint64(len(name))<<40 ^ uint64(name[len(name)/2])<<32
	for len(dst) > 0 {
		block, skip := from/randomBlock, from%randomBlock
		x := session.Mix(seed ^ uint64(block))
		for range skip {
			x = x*randomFactor + randomStep
		}
		n := min(randomBlock-skip, len(dst))
		for i := range dst[:n] {
			x = x*randomFactor + randomStep
			dst[i] = float32(int32(x>>32)) * (0.035 / (1 << 31))
		}
		dst, from = dst[n:], from+n
	}
	return nil
}

// randomAdapter gives trained tensors random numbers, so that no gradient is zero.
func randomAdapter(t *adapter.Trained, m graph.Store) error {
	params, err := t.Snapshot(m)
	if err != nil {
		return err
	}
	for _, p := range params {
		if err := (randomWeights{}).Float32s(p.Name, 0, p.Data); err != nil {
			return err
		}
	}
	return t.Restore(m, params)
}

// randomWindow is one micro-batch of random tokens, all of them trained.
func randomWindow(o Options, vocab int) train.Window {
	M := o.Batch * o.Length
	b := dataset.Batch{IDs: make([]int32, M), Positions: make([]int32, M), Labels: make([]int32, M), CuSeqlens: make([]int32, o.Batch+1)}
	for i := range b.IDs {
		b.IDs[i] = int32(session.Mix(uint64(i)) % uint64(vocab))
		b.Positions[i] = int32(i % o.Length)
	}
	copy(b.Labels, b.IDs)
	for i := range b.CuSeqlens {
		b.CuSeqlens[i] = int32(i * o.Length)
	}
	return train.Window{Batches: []dataset.Batch{b}, Trained: M - o.Batch, LR: 1e-4}
}
