#include "textflag.h"

// Numbers of 16 bits, eight at a time.

// func fromBF16AVX2(dst *float32, src *uint16, n int), n a multiple of eight
TEXT ·fromBF16AVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	VPMOVZXWD (SI), Y0
	VPSLLD    $16, Y0, Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $16, SI
	ADDQ      $32, DI
	SUBQ      $8, CX
	JGT       loop
	VZEROUPPER
	RET

// func fromF16AVX2(dst *float32, src *uint16, n int), n a multiple of eight
TEXT ·fromF16AVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	VCVTPH2PS (SI), Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $16, SI
	ADDQ      $32, DI
	SUBQ      $8, CX
	JGT       loop
	VZEROUPPER
	RET
