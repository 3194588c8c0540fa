package adapter

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestComponents compares what batches leave with the eigenvectors of the covariance of all rows at once. The rows are
// of so low a rank that nothing is lost from batch to batch.
func TestComponents(t *testing.T) {
	const cols, rank = 30, 5
	rng := rand.New(rand.NewPCG(7, 8))
	all := drawn(rng, 90, cols, rank, 0.5)
	for i := range all.data {
		all.data[i] += float32(i%cols) / 4 // a mean, which the components leave out
	}
	c := components{rank: rank}
	for from := 0; from < all.rows; from += 30 {
		part := matrix{30, cols, all.data[from*cols : (from+30)*cols]}
		if err := c.add(part, normalFrom(rng.Float64)); err != nil {
			t.Fatal(err)
		}
		if from == 0 && c.settled {
			t.Error("the first batch has settled the components")
		}
	}
	mean := make([]float64, cols)
	for i, x := range all.data {
		mean[i%cols] += float64(x) / float64(all.rows)
	}
	centred := matrix{all.rows, cols, make([]float32, len(all.data))}
	for i, x := range all.data {
		centred.data[i] = float32(float64(x) - mean[i%cols])
	}
	values, vectors := symmetricEigen(gramOf(centred))
	for k := range rank {
		if d := math.Abs(c.values[k]/math.Sqrt(values[k]) - 1); !(d <= 1e-5) {
			t.Errorf("singular value %d is %v, want %v", k, c.values[k], math.Sqrt(values[k]))
		}
		if cos := math.Abs(dot(c.vectors[k], vectors[k])); !(cos >= 1-1e-6) {
			t.Errorf("component %d has the cosine %v", k, cos)
		}
		if largest(c.vectors[k]) < 0 {
			t.Errorf("the largest element of component %d is negative", k)
		}
	}
	for i, x := range mean {
		if math.Abs(c.mean[i]-x) > 1e-9*math.Abs(x)+1e-6 {
			t.Errorf("mean %d is %v, want %v", i, c.mean[i], x)
		}
	}
	last := matrix{30, cols, all.data[60*cols:]}
	if err := c.add(last, normalFrom(rng.Float64)); err != nil || !c.settled {
		t.Errorf("rows that were seen before turn a component: %v", err)
	}
}
