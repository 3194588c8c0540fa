package cuda

// HeadGate is the geometry of the head_gate_* kernels over that many heads of D values.
func HeadGate(entry string, heads int64, D int) Geometry {
	return Flat("head_gate", entry, heads*int64(D/HeadsUnit(D)))
}

// HeadColumns is the geometry of the head_columns_* kernels over that many heads of D columns, of which W are taken from that one on, and how
// many of them a thread moves.
func HeadColumns(entry string, heads int64, D, from, W int) (g Geometry, unit int) {
	if unit = HeadsUnit(D); from%unit != 0 || W%unit != 0 {
		unit = 1
	}
	moved := W
	if entry == "head_columns_spread" {
		moved = D
	}
	return Flat("head_columns", entry, heads*int64(moved/unit)), unit
}
