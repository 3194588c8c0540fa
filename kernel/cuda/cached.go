package cuda

import (
	"fmt"
	"strings"
)

// AttentionCached returns the geometry of attention_cached_* over M query rows of H heads of size D, with or without a
// soft cap, or an error naming what is supported.
func AttentionCached(M, H, D int, capped bool) (Geometry, error) {
	if D >= 8 && D%8 == 0 {
		for _, d := range []int{8, 16, 32, 64, 128, 256, 512} {
			if D <= d {
				g := Geometry{"attention_cached", fmt.Sprintf("attention_cached_%d", d), [3]int{M, H, 1},
					[3]int{128, 1, 1}, 0}
				if capped {
					g = g.capped()
				}
				return g, nil
			}
		}
	}
	return Geometry{}, fmt.Errorf("head size %d is not supported on the GPU; multiples of 8 up to 512 are, and device: cpu takes any even one", D)
}

// splitRows is the most query rows for which keys are divided among blocks: more of them fill a device by themselves.
const splitRows = 64

// AttentionSplit is attention_cached_* or attention_grouped_* with the keys of a row divided: in Z parts of Span keys,
// which Join adds. Both depend on the longest sequence alone, so a row's sums do too.
type AttentionSplit struct {
	Part, Join      Geometry
	Z, Span         int
	PartBytes, Stat int64 // of scratch: parts, and behind them statistics
}

// NewAttentionSplit returns the split form over M rows of H heads of size D, of sequences of at most that many keys; ok
// is false where one block a row and head does as well.
func NewAttentionSplit(M, H, D, longest int, capped bool) (a AttentionSplit, ok bool, err error) {
	g, err := AttentionCached(M, H, D, capped)
	if err != nil || longest <= 0 || M > splitRows {
		return a, false, err
	}
	a.Span = max(128, ceil(ceil(longest, 32), 64)*64)
	if a.Z = ceil(longest, a.Span); a.Z == 1 {
		return a, false, nil
	}
	a.Part = g
	a.Part.Entry, a.Part.Grid[2] = strings.Replace(g.Entry, "attention_cached", "attention_split", 1), a.Z
	a.join(M, H, D)
	return a, true, nil
}

// groupedSpan is how many keys of a row one block of attention_grouped_* takes, where a row has more.
const groupedSpan = 640

// NewAttentionGrouped returns attention_grouped_* over M rows of H heads of size D that share K key heads, of sequences
// of at most that many keys; 0 = not known. ok is false where no kernel serves. Join is empty where Z is 1.
func NewAttentionGrouped(elem string, M, H, K, D, longest int, capped bool) (a AttentionSplit, ok bool) {
	if elem == "f32" || D < 8 || D%8 != 0 || D > 128 {
		return a, false
	}
	dp, most, wide := 64, 8, ""
	if D > dp {
		dp = 128
	}
	if H/K > most {
		most, wide = 16, "_wide"
	}
	form := ""
	if a.Z, a.Span = max(1, ceil(longest, groupedSpan)), 0; a.Z > 1 {
		a.Span = ceil(ceil(longest, a.Z), 128) * 128
		a.Z = ceil(longest, a.Span)
		form = "split_"
	}
	if capped {
		form += "capped_"
	}
	a.Part = Geometry{"attention_grouped", fmt.Sprintf("attention_grouped_%s%d%s", form, dp, wide),
		[3]int{M, K * ceil(H/K, most), a.Z}, [3]int{256, 1, 1}, 0}
	if a.Z > 1 {
		a.join(M, H, D)
	}
	return a, true
}

// join adds the launch that joins the parts of rows, and the bytes that they take.
func (a *AttentionSplit) join(M, H, D int) {
	a.Join = Geometry{"attention_cached", "attention_join", [3]int{M, H, 1}, [3]int{128, 1, 1}, 0}
	n := int64(M) * int64(H) * int64(a.Z)
	a.PartBytes, a.Stat = (4*n*int64(D)+255)&^255, 8*n
}

// AttentionPrompt is attention of one sequence's queries over a cache, in the forward pass of NewAttention's family.
type AttentionPrompt struct {
	Family         Family
	Geometry       Geometry
	BoxesQ, BoxesK int // rows of the tensor maps that the Hopper family takes, as Attention.Boxes
}

// ServesPrompt tells whether AttentionPrompt is the form for M query rows in S sequences: a piece of one prompt. Fewer
// rows, and those of several sequences, are better off by themselves.
func ServesPrompt(elem string, M, S int) bool { return elem != "f32" && S == 1 && M > splitRows }

// NewAttentionPrompt plans it over M rows of H heads of size D, with or without a soft cap.
func NewAttentionPrompt(f Family, M, H, D int, capped bool) (a AttentionPrompt, err error) {
	if _, err := HeadSize(D); err != nil {
		return a, err
	}
	dp := 64
	for dp < D {
		dp *= 2
	}
	t := headTiles[dp]
	g := Geometry{"attention_prompt", "attention_prompt", [3]int{ceil(M, t.forwardRows), H, 1},
		[3]int{max(128, t.threads[0]), 1, 1}, tileBytes(dp, t.forwardRows+2*t.forwardKeys)}
	if f == Hopper {
		if t = hopperTiles[dp]; t.forwardRows == 0 {
			return a, fmt.Errorf("attention: head size %d has no wgmma kernel; 40 to 128 have", D)
		}
		g = Geometry{"attention_hopper_prompt", "attention_hopper_prompt", [3]int{H, ceil(M, t.forwardRows), 1},
			[3]int{128 * (t.forwardRows/64 + 1), 1, 1},
			2*dp*(t.forwardRows+4*t.forwardKeys) + 1024}
	}
	if g.Entry += fmt.Sprintf("_%d", dp); capped {
		g = g.capped()
	}
	return AttentionPrompt{f, g, t.forwardRows, t.forwardKeys}, nil
}

// KVAppend returns the geometry of kvappend_rows over T rows of W.
func KVAppend(T, W int) Geometry {
	return Geometry{"kvappend", "kvappend_rows", [3]int{T, 1, 1},
		[3]int{min(256, max(32, ceil(ceil(W, 8), 32)*32)), 1, 1}, 0}
}

// RopeAppend returns the geometry of rope_append over M rows of H heads of queries and K of keys of size D, R of them
// turned, and of values of W.
func RopeAppend(M, H, K, D, R, W int) Geometry {
	n := 1
	if R%16 == 0 && D%8 == 0 && W%8 == 0 {
		n = 8
	}
	items := ((H+K)*R/2 + K*(D-R) + W) / n
	return Geometry{"rope_append", "rope_append", [3]int{M, min(32, ceil(items, 128)), 1}, [3]int{128, 1, 1}, 0}
}
