//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// setRowsEntries are the entry points of the modes.
var setRowsEntries = [...]string{PutRows: "set_rows_put", AddRows: "set_rows_add", ClearRows: "set_rows_clear"}

// GPU writes a row a block.
func (o SetRows) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.SetRows(setRowsEntries[o.Mode], M, C), out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr,
		int32(in[1].Shape[0]), int32(C))
}
