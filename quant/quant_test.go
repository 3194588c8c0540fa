package quant

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func random(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * 0.05)
	}
	return x
}

func mustQuantise(t testing.TB, x []float32, rows, cols int, cfg Config) Packed {
	t.Helper()
	p, err := Quantise(x, rows, cols, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The bucket search must be the plain count of thresholds for every value,
// first of all around the thresholds and the buckets' edges.
func TestCodeSearchIsExact(t *testing.T) {
	try := func(y float32) {
		if got, want := nf4Code(y), nf4CodeAny(y); got != want {
			t.Fatalf("code of %v is %d, want %d", y, got, want)
		}
	}
	around := func(y float32) {
		b := math.Float32bits(y)
		for d := range uint32(9) {
			try(math.Float32frombits(b + d - 4))
		}
	}
	for _, th := range nf4Thresholds[:15] {
		around(th)
	}
	for b := range 65 {
		around(float32(b)/32 - 1)
	}
	around(math.SmallestNonzeroFloat32 * 8)
	for y := float32(-1.0000002); y < 1.0000003; y += 1e-6 {
		try(y)
	}
}

func TestDequantiseAnyRange(t *testing.T) {
	for _, cfg := range []Config{Default(), {Bits: 4, Type: "nf4", BlockSize: 64}} {
		rows, cols := 37, 53
		p := mustQuantise(t, random(rows*cols, 3), rows, cols, cfg)
		all := make([]float32, p.Len())
		p.Dequantise(all)
		r := rand.New(rand.NewPCG(7, 7))
		for range 2000 {
			from := r.IntN(p.Len() + 1)
			to := from + r.IntN(min(p.Len()-from, 200)+1)
			dst := make([]float32, to-from+2)
			dst[to-from], dst[to-from+1] = 7, 9
			p.DequantiseRange(dst, from, to)
			sameBits(t, "range", dst[:to-from], all[from:to])
			if dst[to-from] != 7 || dst[to-from+1] != 9 {
				t.Fatalf("range [%d,%d) wrote past its end", from, to)
			}
		}
	}
}

func TestFedInPieces(t *testing.T) {
	rows, cols := 37, 53
	x := random(rows*cols, 5)
	want := mustQuantise(t, x, rows, cols, Default())
	for _, size := range []int{1, 7, 53, 64, 65, 640, 1961} {
		q, err := NewQuantiser(rows, cols, Default())
		if err != nil {
			t.Fatal(err)
		}
		for from := 0; from < len(x); from += size {
			if err := q.Add(x[from:min(from+size, len(x))]); err != nil {
				t.Fatal(err)
			}
		}
		got, err := q.Finish()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Codes, want.Codes) || !slices.Equal(got.AbsmaxU8, want.AbsmaxU8) ||
			!slices.Equal(got.Absmax2, want.Absmax2) || got.Offset != want.Offset {
			t.Errorf("pieces of %d give another matrix", size)
		}
	}
}

func TestRefusals(t *testing.T) {
	nan := random(100, 1)
	nan[57] = float32(math.NaN())
	short := func(n int) error {
		q, err := NewQuantiser(10, 10, Default())
		if err == nil {
			err = q.Add(make([]float32, n))
		}
		if err == nil {
			_, err = q.Finish()
		}
		return err
	}
	quantise := func(x []float32, rows, cols int, cfg Config) error {
		_, err := Quantise(x, rows, cols, cfg)
		return err
	}
	off := func() error {
		q, err := NewQuantiser(10, 100, Default())
		if err == nil {
			err = q.Put(32, make([]float32, 64))
		}
		return err
	}
	for want, err := range map[string]error{
		"row 5 column 7 is NaN":           quantise(nan, 10, 10, Default()),
		"100 values given":                quantise(nan, 10, 11, Default()),
		"both sizes must be positive":     quantise(nil, 0, 11, Default()),
		"64 values were packed, not 100":  short(99),
		"too many":                        short(101),
		"does not lie on blocks of 64":    off(),
		"quantization.bits: 8":            quantise(nan, 10, 10, Config{Bits: 8, Type: "nf4", BlockSize: 64}),
		"quantization.type: \"nf5\"":      quantise(nan, 10, 10, Config{Bits: 4, Type: "nf5", BlockSize: 64}),
		"quantization.block_size: 128 is": quantise(nan, 10, 10, Config{Bits: 4, Type: "nf4", BlockSize: 128}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
	if errs := (Config{Bits: 3, Type: "x", BlockSize: 5}).Validate(); len(errs) != 3 {
		t.Errorf("%d problems reported, want 3: %v", len(errs), errs)
	}
	if errs := Default().Validate(); errs != nil {
		t.Error(errs)
	}
}

func BenchmarkDequantise(b *testing.B) {
	for name, cfg := range map[string]Config{"nested": Default(), "plain": {Bits: 4, Type: "nf4", BlockSize: 64}} {
		p := mustQuantise(b, random(1024*1024, 2), 1024, 1024, cfg)
		dst := make([]float32, 4096)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(4 * p.Len()))
			for b.Loop() {
				for at := 0; at < p.Len(); at += len(dst) {
					p.DequantiseRange(dst, at, at+len(dst))
				}
			}
		})
	}
}

func BenchmarkQuantise(b *testing.B) {
	x := random(1024*1024, 2)
	b.SetBytes(int64(4 * len(x)))
	for b.Loop() {
		mustQuantise(b, x, 1024, 1024, Default())
	}
}
