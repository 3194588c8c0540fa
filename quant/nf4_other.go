//go:build !amd64

package quant

func nf4Decode(dst []float32, codes []byte, absmax float32) { nf4DecodeGo(dst, codes, absmax) }

func nf4Encode(codes []byte, x []float32, inv float32) { nf4EncodeGo(codes, x, inv) }

func nf4DecodeBlocks(dst []float32, codes []byte, size int, scales []float32) {
	nf4DecodeBlocksGo(dst, codes, size, scales)
}
