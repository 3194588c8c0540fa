#include "textflag.h"

// func decode512(dst, codes unsafe.Pointer, vectors int, absmax float32, table unsafe.Pointer)
// Sixteen values a turn: each byte becomes a pair of indices (high nibble, then
// low), which pick from the table held in one register.
TEXT ·decode512(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ codes+8(FP), SI
	MOVQ vectors+16(FP), CX
	VBROADCASTSS absmax+24(FP), Z1
	MOVQ table+32(FP), DX
	VMOVUPS (DX), Z0

loop:
	VPMOVZXBQ (SI), Z2
	VPSLLQ $32, Z2, Z3
	VPSRLQ $4, Z2, Z2
	VPORQ  Z3, Z2, Z2
	VPERMPS Z0, Z2, Z2
	VMULPS Z1, Z2, Z2
	VMOVUPS Z2, (DI)
	ADDQ $8, SI
	ADDQ $64, DI
	DECQ CX
	JNZ  loop
	VZEROUPPER
	RET

// func decode256(dst, codes unsafe.Pointer, vectors int, absmax float32, table unsafe.Pointer)
// Eight values a turn; the table's halves are looked up both, and bit 3 of the
// index chooses.
TEXT ·decode256(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ codes+8(FP), SI
	MOVQ vectors+16(FP), CX
	VBROADCASTSS absmax+24(FP), Y1
	MOVQ table+32(FP), DX
	VMOVUPS (DX), Y0
	VMOVUPS 32(DX), Y4

loop:
	VPMOVZXBQ (SI), Y2
	VPSLLQ $32, Y2, Y3
	VPSRLQ $4, Y2, Y2
	VPOR   Y3, Y2, Y2
	VPERMPS Y0, Y2, Y5
	VPERMPS Y4, Y2, Y6
	VPSLLD $28, Y2, Y2
	VBLENDVPS Y2, Y6, Y5, Y5
	VMULPS Y1, Y5, Y5
	VMOVUPS Y5, (DI)
	ADDQ $4, SI
	ADDQ $32, DI
	DECQ CX
	JNZ  loop
	VZEROUPPER
	RET
