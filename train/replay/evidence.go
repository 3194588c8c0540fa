package replay

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"math"
	"slices"

	"github.com/tierlora/tierlora/dataset"
)

// Evidence is what a run had computed up to a step. Another run of the same configuration must have the same Evidence,
// bit for bit. Hashes are SHA-256 in hexadecimal.
type Evidence struct {
	Step   int    `json:"step"`
	Losses string `json:"losses_sha256"`         // hash over the float64 losses of all steps so far, little endian
	Rows   string `json:"rows_sha256,omitempty"` // hash over the rows of each step's micro-batches; see ChainRows
	// Padded is ChainPadded of all steps, in manifests of older programs. It depends on the token budgets that a
	// layout leaves room for.
	Padded string `json:"batches_sha256,omitempty"`
}

// KeepsEvidence reports whether a manifest keeps the Evidence of a step: of the first hundred steps, of a few hundred
// steps over the rest of the run, and of the last step.
func KeepsEvidence(step, total int) bool {
	every := 10
	for total/every > 400 {
		every *= 10
	}
	return step <= 100 || step%every == 0 || step == total
}

// ChainRows returns the hash of the micro-batches of all steps up to a step, from the previous step's hash and the
// step's batches. It covers the number of rows of each batch and the token ids and labels of each row with their
// lengths; for a group of several sequences also their borders. Padding and the positions of rows depend on the memory
// layout and are left out.
func ChainRows(before string, batches []dataset.Batch) string {
	h := sha256.New()
	h.Write([]byte(before))
	for _, b := range batches {
		HashInts(h, []int32{int32(len(b.Rows))})
		for k := range b.Rows {
			ids, labels := b.Row(k)
			HashInts(h, ids)
			HashInts(h, labels)
			if borders := b.Borders(k); borders != nil {
				HashInts(h, borders)
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ChainPadded returns the hash that older programs used in place of ChainRows: over ids, labels, positions and sequence
// borders of whole micro-batches, including padding.
func ChainPadded(before string, batches []dataset.Batch) string {
	h := sha256.New()
	h.Write([]byte(before))
	for _, b := range batches {
		for _, x := range [][]int32{b.IDs, b.Labels, b.Positions, b.CuSeqlens} {
			HashInts(h, x)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// HashInts adds numbers to a hash, after their count.
func HashInts(h hash.Hash, x []int32) {
	raw := binary.LittleEndian.AppendUint32(make([]byte, 0, 4*len(x)+4), uint32(len(x)))
	for _, v := range x {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(v))
	}
	h.Write(raw)
}

// HashLosses returns the SHA-256 over the float64 losses, little endian, in hexadecimal.
func HashLosses(losses []float64) string {
	raw := make([]byte, 0, 8*len(losses))
	for _, l := range losses {
		raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(l))
	}
	return HashBytes(raw)
}

// HashFiles returns the SHA-256 over the names and contents of files, in the order of the names, in hexadecimal.
func HashFiles(files map[string][]byte) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, part := range [][]byte{[]byte(name), files[name]} {
			h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(part))))
			h.Write(part)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
