package adapter

import "math"

// components are the leading principal components of rows that come in batches: the right singular vectors of the rows
// without their mean. Each batch keeps no more than rank of them (incremental PCA, Ross et al. 2008).
type components struct {
	rank    int
	seen    int       // rows so far
	mean    []float64 // of the rows so far
	values  []float64 // singular values, the largest first
	vectors block     // unit vectors, each with its largest element positive
	settled bool      // the last batch has turned no vector by more than settledCosine says
}

const (
	// settledCosine is the least cosine between a component and its predecessor at which it has settled: PEFT's tau.
	settledCosine = 0.99
	// componentPasses is the number of power iterations of each decomposition: PEFT's, of torch.svd_lowrank.
	componentPasses = 4
)

// add takes a batch of rows in, as many as rank or more. normal returns numbers of the standard normal distribution.
func (c *components) add(rows matrix, normal func() float64) error {
	mean := make([]float64, rows.cols)
	for i := range rows.rows {
		for j, x := range rows.data[i*rows.cols : (i+1)*rows.cols] {
			mean[j] += float64(x)
		}
	}
	for j := range mean {
		mean[j] /= float64(rows.rows)
	}
	t, err := randomised(c.stacked(rows, mean), min(2*c.rank, rows.rows, rows.cols), componentPasses, normal)
	if err != nil {
		return err
	}
	before := c.vectors
	c.values, c.vectors = t.s[:c.rank], t.v[:c.rank]
	c.settled = before != nil
	for k, v := range c.vectors {
		if largest(v) < 0 {
			scale(v, -1)
		}
		c.settled = c.settled && dot(v, before[k]) >= settledCosine
	}
	total := float64(c.seen + rows.rows)
	for j, x := range mean {
		if c.seen > 0 {
			mean[j] = (float64(c.mean[j]*float64(c.seen)) + float64(x*float64(rows.rows))) / total
		}
	}
	c.mean, c.seen = mean, c.seen+rows.rows
	return nil
}

// stacked returns a batch's rows without their mean, below what the batches before left: their components, each as long
// as its singular value. The last row is what the two means differ by.
func (c *components) stacked(rows matrix, mean []float64) matrix {
	m := matrix{rows.rows, rows.cols, make([]float32, 0, (rows.rows+c.rank+1)*rows.cols)}
	if c.seen > 0 {
		m.rows += c.rank + 1
		for k, v := range c.vectors {
			for _, x := range v {
				m.data = append(m.data, float32(c.values[k]*x))
			}
		}
	}
	for i, x := range rows.data {
		m.data = append(m.data, float32(float64(x)-mean[i%rows.cols]))
	}
	if c.seen > 0 {
		weight := math.Sqrt(float64(c.seen) / float64(c.seen+rows.rows) * float64(rows.rows))
		for j, x := range mean {
			m.data = append(m.data, float32(weight*(c.mean[j]-x)))
		}
	}
	return m
}

// largest returns the element of a vector with the largest magnitude.
func largest(v []float64) (most float64) {
	for _, x := range v {
		if math.Abs(x) > math.Abs(most) {
			most = x
		}
	}
	return most
}
