#include "textflag.h"

// func decode512(dst, codes unsafe.Pointer, blocks, vectors int, scales, table unsafe.Pointer)
// Blocks of so many vectors, each with its scale. Sixteen values a turn: each byte becomes a pair of indices (high nibble, then
// low), which pick from the table held in one register.
TEXT ·decode512(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ codes+8(FP), SI
	MOVQ blocks+16(FP), BX
	MOVQ vectors+24(FP), R9
	MOVQ scales+32(FP), R8
	MOVQ table+40(FP), DX
	VMOVUPS (DX), Z0

block:
	VBROADCASTSS (R8), Z1
	MOVQ R9, CX

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
	ADDQ $4, R8
	DECQ BX
	JNZ  block
	VZEROUPPER
	RET

// func decode256(dst, codes unsafe.Pointer, blocks, vectors int, scales, table unsafe.Pointer)
// Eight values a turn; the table's halves are looked up both, and bit 3 of the
// index chooses.
TEXT ·decode256(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ codes+8(FP), SI
	MOVQ blocks+16(FP), BX
	MOVQ vectors+24(FP), R9
	MOVQ scales+32(FP), R8
	MOVQ table+40(FP), DX
	VMOVUPS (DX), Y0
	VMOVUPS 32(DX), Y4

block:
	VBROADCASTSS (R8), Y1
	MOVQ R9, CX

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
	ADDQ $4, R8
	DECQ BX
	JNZ  block
	VZEROUPPER
	RET

// Step of a search: each lane moves up by BIT if its value lies above the
// threshold LESS = BIT-1 places on (predicate 1: threshold < value, never of a NaN).
#define STEP(BIT, LESS) \
	VPADDD LESS, Z3, Z4 \
	VPERMPS Z0, Z4, Z4 \
	VCMPPS $1, Z2, Z4, K1 \
	VPADDD BIT, Z3, K1, Z3

// func encode512(codes, x unsafe.Pointer, vectors int, inv float32, thresholds unsafe.Pointer)
// Sixteen values a turn: a binary search for the number of thresholds below.
TEXT ·encode512(SB), NOSPLIT, $0-40
	MOVQ codes+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ vectors+16(FP), CX
	VBROADCASTSS inv+24(FP), Z1
	MOVQ thresholds+32(FP), DX
	VMOVUPS (DX), Z0
	MOVL $8, AX
	VPBROADCASTD AX, Z8
	MOVL $7, AX
	VPBROADCASTD AX, Z9
	MOVL $4, AX
	VPBROADCASTD AX, Z10
	MOVL $3, AX
	VPBROADCASTD AX, Z11
	MOVL $2, AX
	VPBROADCASTD AX, Z12
	MOVL $1, AX
	VPBROADCASTD AX, Z13
	VPXORD Z14, Z14, Z14

loop:
	VMULPS (SI), Z1, Z2
	VPXORD Z3, Z3, Z3
	STEP(Z8, Z9)
	STEP(Z10, Z11)
	STEP(Z12, Z13)
	STEP(Z13, Z14)
	VPSLLQ $4, Z3, Z4
	VPSRLQ $32, Z3, Z3
	VPORQ  Z4, Z3, Z3
	VPMOVQB Z3, (DI)
	ADDQ $64, SI
	ADDQ $8, DI
	DECQ CX
	JNZ  loop
	VZEROUPPER
	RET
