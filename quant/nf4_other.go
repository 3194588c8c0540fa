//go:build !amd64

package quant

func decode4(t *table4, dst []float32, codes []byte, absmax float32) {
	decode4Go(t, dst, codes, absmax)
}

func nf4Encode(codes []byte, x []float32, inv float32) { nf4EncodeGo(codes, x, inv) }

func decodeBlocks4(t *table4, dst []float32, codes []byte, size int, scales []float32) {
	decodeBlocks4Go(t, dst, codes, size, scales)
}
