package quant

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// TestReset: a quantiser that was used gives the bytes of a new one, also behind a matrix that was not finished.
func TestReset(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var again Quantiser
	for i, size := range [][2]int{{64, 96}, {7, 33}, {1, 1}, {128, 64}, {3, 50}} {
		src := make([]float32, size[0]*size[1])
		for j := range src {
			src[j] = float32(rng.NormFloat64())
		}
		cfg := Default()
		cfg.DoubleQuant = i%2 == 0
		want, err := Quantise(src, size[0], size[1], cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Reset(size[0], size[1], cfg); err != nil {
			t.Fatal(err)
		}
		if err := again.Add(src); err != nil {
			t.Fatal(err)
		}
		got, err := again.Finish()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v: other bytes (%v)", size, err)
		}
		if err := again.Reset(2, 40, cfg); err != nil {
			t.Fatal(err)
		}
		if err := again.Add(make([]float32, 70)); err != nil { // six of them wait for their block
			t.Fatal(err)
		}
	}
}
