#include "textflag.h"

// func int8Decode512(dst, codes unsafe.Pointer, vectors int, absmax, step float32)
// Sixteen values a turn: code * absmax, rounded, times step, rounded.
TEXT ·int8Decode512(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ codes+8(FP), SI
	MOVQ vectors+16(FP), CX
	VBROADCASTSS absmax+24(FP), Z0
	VBROADCASTSS step+28(FP), Z1

loop:
	VPMOVSXBD (SI), Z2
	VCVTDQ2PS Z2, Z2
	VMULPS Z0, Z2, Z2
	VMULPS Z1, Z2, Z2
	VMOVUPS Z2, (DI)
	ADDQ $16, SI
	ADDQ $64, DI
	DECQ CX
	JNZ  loop
	VZEROUPPER
	RET

// func int8Decode256(dst, codes unsafe.Pointer, vectors int, absmax, step float32)
// The same, eight values a turn.
TEXT ·int8Decode256(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ codes+8(FP), SI
	MOVQ vectors+16(FP), CX
	VBROADCASTSS absmax+24(FP), Y0
	VBROADCASTSS step+28(FP), Y1

loop:
	VPMOVSXBD (SI), Y2
	VCVTDQ2PS Y2, Y2
	VMULPS Y0, Y2, Y2
	VMULPS Y1, Y2, Y2
	VMOVUPS Y2, (DI)
	ADDQ $8, SI
	ADDQ $32, DI
	DECQ CX
	JNZ  loop
	VZEROUPPER
	RET
