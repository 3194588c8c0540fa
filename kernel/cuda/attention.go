package cuda

import (
	"fmt"
	"strings"
)

// Family is one implementation of attention. Forward and backward of a call always come from the same one.
type Family int

// The families. MMA serves every chip from compute capability 8.0 on and every supported head size; Hopper serves 9.0;
// Single is fp32 without tensor cores, on every chip and for every supported head size.
const (
	MMA Family = iota
	Hopper
	Single
)

func (f Family) String() string { return [...]string{"mma.sync", "wgmma", "fp32"}[f] }

// AttentionFamily returns the dispatch table: the family for an element type (bf16, f16, f32), a compute capability (10
// major + minor) and a head size, or an error naming what is supported.
func AttentionFamily(elem string, sm, D int) (Family, error) {
	dp, err := HeadSize(D)
	switch {
	case err != nil:
		return 0, err
	case sm < 80:
		return 0, fmt.Errorf("attention: compute capability %d.%d is not supported; 8.0 and later are", sm/10, sm%10)
	case elem == "f32":
		return Single, nil
	case sm == 90 && dp >= 64 && dp <= 128:
		return Hopper, nil
	}
	return MMA, nil
}

// headTile is one instance of the attention kernels (the macros at the end of attention_*.cu).
type headTile struct {
	forwardRows, forwardKeys        int
	kvKeys, kvQueries, kvStages     int
	queryRows, queryKeys, queryStgs int
	threads                         [3]int // of a block of the three launches, where not 128
}

var headTiles = map[int]headTile{
	32:  {128, 64, 128, 32, 2, 128, 64, 2, [3]int{}},
	64:  {128, 64, 128, 32, 2, 128, 32, 2, [3]int{}},
	80:  {128, 64, 64, 64, 2, 128, 32, 2, [3]int{}},
	96:  {128, 64, 64, 64, 2, 128, 32, 1, [3]int{}},
	128: {128, 64, 64, 32, 2, 128, 32, 1, [3]int{}},
	256: {64, 32, 32, 32, 1, 64, 16, 1, [3]int{}},
	512: {64, 16, 32, 16, 1, 32, 16, 1, [3]int{256, 256, 128}},
}

var hopperTiles = map[int]headTile{
	64:  {192, 128, 128, 128, 2, 128, 128, 2, [3]int{}},
	128: {128, 128, 128, 64, 2, 128, 64, 2, [3]int{}},
}

// HeadSize returns the instance of the attention kernels that serves heads of size D, or an error naming what is
// supported.
func HeadSize(D int) (int, error) {
	if D >= 8 && D%8 == 0 {
		for _, d := range []int{32, 64, 80, 96, 128, 256, 512} {
			if D <= d {
				return d, nil
			}
		}
	}
	return 0, fmt.Errorf("head size %d is not supported on the GPU; multiples of 8 up to 512 are, and device: "+
		"cpu takes any even one", D)
}

// Boxes are the rows of the tensor maps that the Hopper family's launches take, {64, 1, rows} of {D, heads, M}.
type Boxes struct {
	ForwardQ, ForwardK int // q; k and v
	KVQ, KVK           int // q and dO; k and v
	QueryQ, QueryK     int // q and dO; k and v
}

// Order is a launch of attention_order: tiles of Rows rows, query tiles or (ByKeys) key tiles; its result has Tiles
// int32.
type Order struct {
	Geometry    Geometry
	Rows, Tiles int
	ByKeys      bool
}

// Places of the launches' orders in Attention.Orders.
const (
	OrderForward = iota
	OrderQuery
	OrderKV
)

// Attention holds the geometries of one attention: forward, and the three launches of backward (four with Splits > 1).
type Attention struct {
	Family                             Family
	Forward, Delta, KV, Query, Combine Geometry
	Boxes                              Boxes
	Orders                             []Order // Hopper: to be run once a batch, before the first forward
	Splits                             int     // parts into which a group's query heads are divided
	Part                               int64   // bytes of the fp32 parts; 0 when Splits is 1
}

// Capped returns the same attention with a soft cap of its scores, whose kernels take the cap as their last argument.
func (a Attention) Capped() Attention {
	for _, g := range []*Geometry{&a.Forward, &a.KV, &a.Query} {
		*g = g.capped()
	}
	return a
}

// PrefixedHead is the largest head of attention whose sequences may continue others.
const PrefixedHead = 256

// NewPrefixedAttention is NewAttention for sequences that may continue others. Its kernels take the prefixes as their
// last argument in place of the window. Their tiles have no order.
func NewPrefixedAttention(f Family, M, H, K, D int) (Attention, error) {
	if D > PrefixedHead {
		return Attention{}, fmt.Errorf("attention: heads of %d, sequences continue others with heads of up to %d", D,
			PrefixedHead)
	}
	a, err := newAttention(f, M, H, K, D, prefixedTiles)
	for _, g := range []*Geometry{&a.Forward, &a.KV, &a.Query} {
		if err == nil {
			*g = g.form("prefixed")
		}
	}
	a.Orders = nil
	return a, err
}

// prefixedTiles returns the tiles of the prefixed forms, which need more registers than others: some take fewer rows.
func prefixedTiles(f Family, dp int, t headTile) headTile {
	switch {
	case f == Hopper && dp == 64:
		t.forwardRows, t.kvQueries = 128, 64
	case f == MMA && dp == 64:
		t.kvKeys = 64
	case f == MMA && dp == 128:
		t.forwardRows, t.queryRows = 64, 64
	}
	return t
}

// capped returns the launch of a kernel's capped form.
func (g Geometry) capped() Geometry { return g.form("capped") }

// form returns the launch of a kernel's form of that name.
func (g Geometry) form(name string) Geometry {
	size := strings.LastIndex(g.Entry, "_")
	g.Entry = g.Entry[:size] + "_" + name + g.Entry[size:]
	return g
}

// newSingle plans attention in fp32: rows of tiles, padded by 4 values, and matrices of scores, padded by one.
func newSingle(dp, M, H, K int) Attention {
	R := 32 // rows of a tile
	if dp > 128 {
		R = 4096 / dp
	}
	launch := func(stem, pass string, heads, tiles, scores int) Geometry {
		return Geometry{"attention_single_" + stem, fmt.Sprintf("attention_single_%s_%d", pass, dp),
			[3]int{ceil(M, R), heads, 1}, [3]int{8 * R, 1, 1},
			4 * (tiles*R*(dp+4) + scores*R*(R+1))}
	}
	return Attention{Family: Single, Splits: 1, Forward: launch("forward", "forward", H, 3, 1),
		KV: launch("backward", "backward_kv", K, 4, 2), Query: launch("backward", "backward_q", H, 4, 2)}
}

func tileBytes(dp, rows int) int { return rows * (dp + 8) * 2 }

// NewAttention plans attention over M packed rows, H query heads, K key heads of size D.
func NewAttention(f Family, M, H, K, D int) (Attention, error) {
	return newAttention(f, M, H, K, D, func(_ Family, _ int, t headTile) headTile { return t })
}

// newAttention plans attention with tiles that adjust changes; dp is the head size of the kernels' instance.
func newAttention(f Family, M, H, K, D int, adjust func(f Family, dp int, t headTile) headTile) (Attention, error) {
	dp, err := HeadSize(D)
	if err != nil {
		return Attention{}, err
	}
	if M < 1 || K < 1 || H < K || H%K != 0 {
		return Attention{}, fmt.Errorf("attention: %d rows, %d query heads, %d key heads: the query heads must "+
			"be a multiple of the key heads", M, H, K)
	}
	delta := Geometry{"attention_delta", "attention_delta", [3]int{ceil(M*H, 8), 1, 1}, [3]int{256, 1, 1}, 0}
	if f == Single {
		a := newSingle(dp, M, H, K)
		a.Delta = delta
		return a, nil
	}
	a := Attention{Family: f, Splits: 1, Delta: delta}
	prefix, block, t := "attention_", [3]int{128, 1, 1}, headTiles[dp]
	if f == Hopper {
		if dp > 64 && dp <= 128 {
			dp = 128
		}
		if hopperTiles[dp].forwardRows == 0 {
			return Attention{}, fmt.Errorf("attention: head size %d has no wgmma kernel; 40 to 128 have", D)
		}
		prefix, block, t = "attention_hopper_", [3]int{384, 1, 1}, hopperTiles[dp]
	}
	t = adjust(f, dp, t)
	if f == Hopper {
		a.Boxes = Boxes{t.forwardRows, t.forwardKeys, t.kvQueries, t.kvKeys, t.queryRows, t.queryKeys}
	}
	// two blocks for each of about 132 multiprocessors
	for s := 2; s <= H/K && ceil(M, t.kvKeys)*K*a.Splits < 264; s++ {
		if H/K%s == 0 {
			a.Splits = s
		}
	}
	if a.Splits > 1 {
		a.Part = int64(a.Splits) * 2 * int64(M) * int64(K) * int64(D) * 4
	}
	launch := func(stem, pass string, rows, heads, z, shared int) Geometry {
		grid := [3]int{ceil(M, rows), heads, z}
		if f == Hopper {
			// Heads side by side share the order of tiles, which balances the load; in the passes over keys only as
			// many as keep their keys and values within the second-level cache.
			c := heads
			if pass != "backward_kv" {
				c = 1
				for d := 2; d <= heads; d++ {
					if heads%d == 0 && d*M*D*4*K/H <= 24<<20 {
						c = d
					}
				}
			}
			grid = [3]int{c, ceil(M, rows), heads / c * z}
		}
		return Geometry{prefix + stem, fmt.Sprintf("%s%s_%d", prefix, pass, dp), grid, block, shared}
	}
	var forward, kv, query int
	if f == Hopper {
		forward = 2*dp*(t.forwardRows+4*t.forwardKeys) + 1024
		kv = 2*dp*(2*t.kvKeys+4*t.kvQueries) + 1024
		query = 2*dp*(2*t.queryRows+4*t.queryKeys) + 1024
	} else {
		forward = tileBytes(dp, t.forwardRows+2*t.forwardKeys)
		kv = tileBytes(dp, 2*t.kvKeys) + t.kvStages*(tileBytes(dp, 2*t.kvQueries)+8*t.kvQueries)
		query = tileBytes(dp, 2*t.queryRows) + t.queryStgs*tileBytes(dp, 2*t.queryKeys)
	}
	backward := "backward"
	if dp > 256 {
		backward = "backward_wide"
		kv, query = tileBytes(dp, 2*(t.kvKeys+t.kvQueries))+512, tileBytes(dp, 2*(t.queryRows+t.queryKeys))+512
	}
	a.Forward = launch("forward", "forward", t.forwardRows, H, 1, forward)
	a.KV = launch(backward, "backward_kv", t.kvKeys, K, a.Splits, kv)
	a.Query = launch(backward, "backward_q", t.queryRows, H, 1, query)
	if t.threads[0] > 0 {
		a.Forward.Block[0], a.KV.Block[0], a.Query.Block[0] = t.threads[0], t.threads[1], t.threads[2]
	}
	if f == Hopper {
		a.Forward.Block[0] = 128 * (t.forwardRows/64 + 1)
		for _, o := range []Order{{Rows: t.forwardRows}, {Rows: t.queryRows}, {Rows: t.kvKeys, ByKeys: true}} {
			o.Tiles = ceil(M, o.Rows)
			o.Geometry = Geometry{"attention_forward", "attention_order", [3]int{1, 1, 1}, [3]int{1024, 1, 1},
				(4*o.Tiles + 31) / 16 * 16}
			a.Orders = append(a.Orders, o)
		}
	}
	a.Combine = Flat("attention_backward", "attention_combine", int64(M)*int64(K)*int64(D)/2)
	return a, nil
}
