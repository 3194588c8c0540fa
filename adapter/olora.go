package adapter

// startOLoRA starts from the first columns of Q and rows of R of the QR decomposition of the base weight W = Q R: B = Q_r
// and A = R_r, without regard to the scale, as PEFT does (Büyükakyüz 2024). The base loses s B A.
func startOLoRA(_ Config, f Fresh, a, b Param, _ int) error {
	w, err := f.Weight()
	if err != nil {
		return err
	}
	rank := a.Shape[0]
	columns := make(block, rank) // of W
	for k := range columns {
		columns[k] = make([]float64, w.rows)
		for o := range w.rows {
			columns[k][o] = float64(w.data[o*w.cols+k])
		}
	}
	q := span(columns)
	for k, row := range w.transposedTimes(q) { // R = Qᵀ W
		for i, x := range row {
			if i < k {
				x = 0 // R is upper triangular
			}
			a.Data[k*w.cols+i] = float32(x)
		}
		for o, x := range q[k] {
			b.Data[o*rank+k] = float32(x)
		}
	}
	return nil
}
