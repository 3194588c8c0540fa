package bench

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/step"
)

// randomWeights reads weights of random numbers: uniform, with the spread that keeps activations near one, independent
// of the pieces they are read in. A block of numbers is a part of one table, chosen by its tensor and position, so that
// weights of a hundred gigabytes are made as fast as memory is copied.
type randomWeights struct{ table []byte } // bf16, as in files

const (
	randomBlock = 4096    // consecutive numbers of the table
	randomTable = 1 << 20 // numbers in the table
)

// Factor and step of a linear congruential generator modulo 2^64 (Knuth).
const (
	randomFactor = 6364136223846793005
	randomStep   = 1442695040888963407
)

func newRandomWeights() randomWeights {
	table, x := make([]byte, 0, 2*randomTable), uint64(1)
	for range randomTable {
		x = x*randomFactor + randomStep
		table = binary.LittleEndian.AppendUint16(table, bf16(float32(int32(x>>32))*(0.035/(1<<31))))
	}
	return randomWeights{table}
}

// bf16 truncates a number to 16 bits.
func bf16(x float32) uint16 { return uint16(math.Float32bits(x) >> 16) }

// part returns the part of the table with a tensor's numbers from index from on, at most n of them.
func (w randomWeights) part(tensor uint64, from, n int) []byte {
	block := session.Mix(tensor^session.Mix(uint64(from/randomBlock))) % (randomTable / randomBlock)
	skip := from % randomBlock
	return w.table[2*randomBlock*block:][2*skip : 2*min(skip+n, randomBlock)]
}

func nameHash(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name)) //nolint:errcheck // a hash takes all
	return h.Sum64()
}

func isNorm(name string) bool { return strings.HasSuffix(name, "norm.weight") }

// Float32s reads numbers of a tensor; a norm's weights are one.
func (w randomWeights) Float32s(name string, from int, dst []float32) error {
	tensor := nameHash(name)
	for len(dst) > 0 {
		part := w.part(tensor, from, len(dst))
		n := len(part) / 2
		for i := range n {
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(part[2*i:])) << 16)
			if isNorm(name) {
				dst[i] = 1
			}
		}
		dst, from = dst[n:], from+n
	}
	return nil
}

// Stored reads the same numbers as they would be in a file, two bytes each.
func (w randomWeights) Stored(name string) (d kernel.DType, read func(dst []byte, from int) error, ok bool) {
	if isNorm(name) {
		return 0, nil, false
	}
	tensor := nameHash(name)
	return kernel.BF16, func(dst []byte, from int) error {
		for len(dst) > 1 {
			n := copy(dst, w.part(tensor, from, len(dst)/2))
			dst, from = dst[n:], from+n/2
		}
		return nil
	}, true
}

// randomAdapter sets trained tensors to random numbers, so that no gradient is zero.
func randomAdapter(t *adapter.Trained, m graph.Store, random randomWeights) error {
	params, err := t.Snapshot(m)
	if err != nil {
		return err
	}
	for _, p := range params {
		if err := random.Float32s(p.Name, 0, p.Data); err != nil {
			return err
		}
	}
	return t.Restore(m, params)
}

// randomWindow returns one micro-batch of random tokens, all of them trained.
func randomWindow(o Options, vocab int) step.Window {
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
	return step.Window{Batches: []dataset.Batch{b}, Trained: M - o.Batch, LR: 1e-4}
}
