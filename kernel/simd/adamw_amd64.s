#include "textflag.h"

// func adamWAVX2(p, grad, m, v unsafe.Pointer, vectors int, s *adamScalars[float32])
// Every operation rounds as the plain form's does: no fused multiply-add.
TEXT ·adamWAVX2(SB), NOSPLIT, $0-48
	MOVQ p+0(FP), DI
	MOVQ grad+8(FP), SI
	MOVQ m+16(FP), R8
	MOVQ v+24(FP), R9
	MOVQ vectors+32(FP), CX
	MOVQ s+40(FP), DX
	VBROADCASTSS 0(DX), Y8   // factor
	VBROADCASTSS 4(DX), Y9   // toGrad
	VBROADCASTSS 8(DX), Y10  // beta2
	VBROADCASTSS 12(DX), Y11 // toSquare
	VBROADCASTSS 16(DX), Y12 // correct
	VBROADCASTSS 20(DX), Y13 // eps
	VBROADCASTSS 24(DX), Y14 // keep
	VBROADCASTSS 28(DX), Y15 // size
	XORQ AX, AX

loop:
	VMULPS (SI)(AX*1), Y8, Y0 // g'
	VMOVUPS (R8)(AX*1), Y1
	VSUBPS Y1, Y0, Y2
	VMULPS Y9, Y2, Y2
	VADDPS Y2, Y1, Y1         // m'
	VMULPS Y0, Y0, Y0
	VMULPS Y11, Y0, Y0
	VMULPS (R9)(AX*1), Y10, Y3
	VADDPS Y0, Y3, Y3         // v'
	VSQRTPS Y3, Y4
	VDIVPS Y12, Y4, Y4
	VADDPS Y13, Y4, Y4
	VDIVPS Y4, Y1, Y4
	VMULPS Y15, Y4, Y4
	VMULPS (DI)(AX*1), Y14, Y5
	VADDPS Y4, Y5, Y5         // p'
	VMOVUPS Y1, (R8)(AX*1)
	VMOVUPS Y3, (R9)(AX*1)
	VMOVUPS Y5, (DI)(AX*1)
	ADDQ $32, AX
	DECQ CX
	JNZ  loop
	VZEROUPPER
	RET
