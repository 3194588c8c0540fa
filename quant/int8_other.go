//go:build !amd64

package quant

func int8Decode(dst []float32, codes []byte, absmax float32) { int8DecodeGo(dst, codes, absmax) }
