#include "textflag.h"

// The inner loops of loops_amd64.go for AVX2 and FMA. Each has one shape: eight elements at a time, then a
// masked step for what is left. DI is the first result, SI the first source, CX counts down.

// e^x: constants, eight times each.
#define EIGHT(name, bits) \
	DATA name<>+0(SB)/4, $bits; DATA name<>+4(SB)/4, $bits; DATA name<>+8(SB)/4, $bits; DATA name<>+12(SB)/4, $bits; \
	DATA name<>+16(SB)/4, $bits; DATA name<>+20(SB)/4, $bits; DATA name<>+24(SB)/4, $bits; DATA name<>+28(SB)/4, $bits; \
	GLOBL name<>(SB), RODATA|NOPTR, $32

EIGHT(least, 0xc2d00000)    // -104: e^x is below half the smallest float32
EIGHT(most, 0x42b20000)     // 89: e^x is above the largest
EIGHT(log2e, 0x3fb8aa3b)
EIGHT(ln2high, 0x3f318000)  // ln2 in two parts, the first of nine bits
EIGHT(ln2low, 0xb95e8083)
EIGHT(c6, 0x3ab511e7)       // minimax of (e^r-1-r)/r^2 on [-ln2/2, ln2/2], 3e-9 of e^r
EIGHT(c5, 0x3c091d10)
EIGHT(c4, 0x3d2aac79)
EIGHT(c3, 0x3e2aaa49)
EIGHT(c2, 0x3efffffe)
EIGHT(one, 0x3f800000)
EIGHT(bias, 0x0000007f)
EIGHT(sign, 0x80000000)
EIGHT(lowest, 0xff800000)   // -Inf

DATA mask<>+0(SB)/8, $-1
DATA mask<>+8(SB)/8, $-1
DATA mask<>+16(SB)/8, $-1
DATA mask<>+24(SB)/8, $-1
DATA mask<>+32(SB)/8, $0
DATA mask<>+40(SB)/8, $0
DATA mask<>+48(SB)/8, $0
DATA mask<>+56(SB)/8, $0
GLOBL mask<>(SB), RODATA|NOPTR, $64

// MASK sets Y to ones in the first CX lanes of eight, 0 < CX < 8.
#define MASK(Y) \
	LEAQ    mask<>+32(SB), AX; \
	SHLQ    $2, CX; \
	SUBQ    CX, AX; \
	VMOVUPS (AX), Y

// EXP turns Y0 into e^Y0 and spends Y1, Y2, Y3. 2^n is multiplied in two halves, so that results below the
// normal numbers and above the largest come out right.
#define EXP \
	VMAXPS       Y0, Y4, Y0; \
	VMINPS       Y0, Y5, Y0; \
	VMULPS       Y6, Y0, Y1; \
	VROUNDPS     $0, Y1, Y1; \
	VFNMADD231PS ln2high<>(SB), Y1, Y0; \
	VFNMADD231PS ln2low<>(SB), Y1, Y0; \
	VMOVUPS      c6<>(SB), Y2; \
	VFMADD213PS  c5<>(SB), Y0, Y2; \
	VFMADD213PS  c4<>(SB), Y0, Y2; \
	VFMADD213PS  c3<>(SB), Y0, Y2; \
	VFMADD213PS  c2<>(SB), Y0, Y2; \
	VFMADD213PS  Y7, Y0, Y2; \
	VFMADD213PS  Y7, Y0, Y2; \
	VCVTPS2DQ    Y1, Y1; \
	VPSRAD       $1, Y1, Y3; \
	VPSUBD       Y3, Y1, Y1; \
	VPADDD       Y8, Y1, Y1; \
	VPADDD       Y8, Y3, Y3; \
	VPSLLD       $23, Y1, Y1; \
	VPSLLD       $23, Y3, Y3; \
	VMULPS       Y1, Y2, Y2; \
	VMULPS       Y3, Y2, Y0

#define EXPCONSTANTS \
	VMOVUPS least<>(SB), Y4; \
	VMOVUPS most<>(SB), Y5; \
	VMOVUPS log2e<>(SB), Y6; \
	VMOVUPS one<>(SB), Y7; \
	VMOVUPS bias<>(SB), Y8

// ACROSS folds the eight lanes of Y with an operation, into X.
#define ACROSS(op, Y, X, T) \
	VEXTRACTF128 $1, Y, T; \
	op           T, X, X; \
	VPERMILPS    $0x4e, X, T; \
	op           T, X, X; \
	VPERMILPS    $0xb1, X, T; \
	op           T, X, X

// func expAVX2(dst, src *float32, n int, shift float32) float32
TEXT ·expAVX2(SB), NOSPLIT, $0-36
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         n+16(FP), CX
	VBROADCASTSS shift+24(FP), Y15
	VXORPS       Y14, Y14, Y14
	EXPCONSTANTS
	SUBQ         $8, CX
	JLT          rest
loop:
	VMOVUPS (SI), Y0
	VSUBPS  Y15, Y0, Y0
	EXP
	VMOVUPS Y0, (DI)
	VADDPS  Y0, Y14, Y14
	ADDQ    $32, SI
	ADDQ    $32, DI
	SUBQ    $8, CX
	JGE     loop
rest:
	ADDQ       $8, CX
	JEQ        done
	MASK(Y13)
	VMASKMOVPS (SI), Y13, Y0
	VSUBPS     Y15, Y0, Y0
	EXP
	VMASKMOVPS Y0, Y13, (DI)
	VANDPS     Y13, Y0, Y0
	VADDPS     Y0, Y14, Y14
done:
	ACROSS(VADDPS, Y14, X14, X0)
	VMOVSS     X14, ret+32(FP)
	VZEROUPPER
	RET

// func maxAVX2(src *float32, n int) float32
TEXT ·maxAVX2(SB), NOSPLIT, $0-20
	MOVQ    src+0(FP), SI
	MOVQ    n+8(FP), CX
	VMOVUPS lowest<>(SB), Y14
	VMOVAPS Y14, Y15
	SUBQ    $16, CX
	JLT     few
loop:
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	VMAXPS  Y14, Y0, Y14
	VMAXPS  Y15, Y1, Y15
	ADDQ    $64, SI
	SUBQ    $16, CX
	JGE     loop
few:
	ADDQ    $16, CX
	CMPQ    CX, $8
	JLT     rest
	VMOVUPS (SI), Y0
	VMAXPS  Y14, Y0, Y14
	ADDQ    $32, SI
	SUBQ    $8, CX
rest:
	TESTQ      CX, CX
	JEQ        done
	MASK(Y13)
	VMASKMOVPS (SI), Y13, Y0
	VMOVUPS    lowest<>(SB), Y1
	VBLENDVPS  Y13, Y0, Y1, Y0
	VMAXPS     Y14, Y0, Y14
done:
	VMAXPS Y14, Y15, Y14
	ACROSS(VMAXPS, Y14, X14, X0)
	VMOVSS X14, ret+16(FP)
	VZEROUPPER
	RET

// func dotAVX2(a, b *float32, n int) float32
TEXT ·dotAVX2(SB), NOSPLIT, $0-28
	MOVQ   a+0(FP), SI
	MOVQ   b+8(FP), DX
	MOVQ   n+16(FP), CX
	VXORPS Y10, Y10, Y10
	VXORPS Y11, Y11, Y11
	VXORPS Y12, Y12, Y12
	VXORPS Y14, Y14, Y14
	SUBQ   $32, CX
	JLT    few
loop:
	VMOVUPS     (SI), Y0
	VMOVUPS     32(SI), Y1
	VMOVUPS     64(SI), Y2
	VMOVUPS     96(SI), Y3
	VFMADD231PS (DX), Y0, Y10
	VFMADD231PS 32(DX), Y1, Y11
	VFMADD231PS 64(DX), Y2, Y12
	VFMADD231PS 96(DX), Y3, Y14
	ADDQ        $128, SI
	ADDQ        $128, DX
	SUBQ        $32, CX
	JGE         loop
few:
	ADDQ $32, CX
eight:
	CMPQ        CX, $8
	JLT         rest
	VMOVUPS     (SI), Y0
	VFMADD231PS (DX), Y0, Y10
	ADDQ        $32, SI
	ADDQ        $32, DX
	SUBQ        $8, CX
	JMP         eight
rest:
	TESTQ       CX, CX
	JEQ         done
	MASK(Y13)
	VMASKMOVPS  (SI), Y13, Y0
	VMASKMOVPS  (DX), Y13, Y1
	VFMADD231PS Y1, Y0, Y11
done:
	VADDPS Y11, Y10, Y10
	VADDPS Y14, Y12, Y12
	VADDPS Y12, Y10, Y10
	ACROSS(VADDPS, Y10, X10, X0)
	VMOVSS X10, ret+24(FP)
	VZEROUPPER
	RET

// func scaleAVX2(dst, a *float32, n int, s float32)
TEXT ·scaleAVX2(SB), NOSPLIT, $0-28
	MOVQ         dst+0(FP), DI
	MOVQ         a+8(FP), SI
	MOVQ         n+16(FP), CX
	VBROADCASTSS s+24(FP), Y15
	SUBQ         $8, CX
	JLT          rest
loop:
	VMULPS  (SI), Y15, Y0
	VMOVUPS Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DI
	SUBQ    $8, CX
	JGE     loop
rest:
	ADDQ       $8, CX
	JEQ        done
	MASK(Y13)
	VMASKMOVPS (SI), Y13, Y0
	VMULPS     Y0, Y15, Y0
	VMASKMOVPS Y0, Y13, (DI)
done:
	VZEROUPPER
	RET

// func scaleMulAVX2(dst, a *float32, n int, s float32, b *float32)
TEXT ·scaleMulAVX2(SB), NOSPLIT, $0-40
	MOVQ         dst+0(FP), DI
	MOVQ         a+8(FP), SI
	MOVQ         n+16(FP), CX
	VBROADCASTSS s+24(FP), Y15
	MOVQ         b+32(FP), DX
	SUBQ         $8, CX
	JLT          rest
loop:
	VMULPS  (SI), Y15, Y0
	VMULPS  (DX), Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DX
	ADDQ    $32, DI
	SUBQ    $8, CX
	JGE     loop
rest:
	ADDQ       $8, CX
	JEQ        done
	MASK(Y13)
	VMASKMOVPS (SI), Y13, Y0
	VMASKMOVPS (DX), Y13, Y1
	VMULPS     Y0, Y15, Y0
	VMULPS     Y1, Y0, Y0
	VMASKMOVPS Y0, Y13, (DI)
done:
	VZEROUPPER
	RET

// func blendAVX2(dst *float32, s float32, x *float32, t float32, n int)
TEXT ·blendAVX2(SB), NOSPLIT, $0-40
	MOVQ         dst+0(FP), DI
	VBROADCASTSS s+8(FP), Y15
	MOVQ         x+16(FP), SI
	VBROADCASTSS t+24(FP), Y14
	MOVQ         n+32(FP), CX
	SUBQ         $8, CX
	JLT          rest
loop:
	VMULPS      (SI), Y14, Y0
	VMOVUPS     (DI), Y1
	VFMADD231PS Y1, Y15, Y0
	VMOVUPS     Y0, (DI)
	ADDQ        $32, SI
	ADDQ        $32, DI
	SUBQ        $8, CX
	JGE         loop
rest:
	ADDQ        $8, CX
	JEQ         done
	MASK(Y13)
	VMASKMOVPS  (SI), Y13, Y0
	VMASKMOVPS  (DI), Y13, Y1
	VMULPS      Y0, Y14, Y0
	VFMADD231PS Y1, Y15, Y0
	VMASKMOVPS  Y0, Y13, (DI)
done:
	VZEROUPPER
	RET

// SWIGLU makes Y0 of the gate Y9 and the result of the up projection Y10.
#define SWIGLU \
	VXORPS sign<>(SB), Y9, Y0; \
	EXP; \
	VADDPS Y7, Y0, Y0; \
	VDIVPS Y0, Y9, Y0; \
	VMULPS Y10, Y0, Y0

// func swigluAVX2(h, gate, up *float32, n int)
TEXT ·swigluAVX2(SB), NOSPLIT, $0-32
	MOVQ h+0(FP), DI
	MOVQ gate+8(FP), SI
	MOVQ up+16(FP), DX
	MOVQ n+24(FP), CX
	EXPCONSTANTS
	SUBQ $8, CX
	JLT  rest
loop:
	VMOVUPS (SI), Y9
	VMOVUPS (DX), Y10
	SWIGLU
	VMOVUPS Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DX
	ADDQ    $32, DI
	SUBQ    $8, CX
	JGE     loop
rest:
	ADDQ       $8, CX
	JEQ        done
	MASK(Y13)
	VMASKMOVPS (SI), Y13, Y9
	VMASKMOVPS (DX), Y13, Y10
	SWIGLU
	VMASKMOVPS Y0, Y13, (DI)
done:
	VZEROUPPER
	RET

// SWIGLUGRAD makes dgate Y0 and dup Y1 of the gate Y9, up Y10 and dh Y11.
#define SWIGLUGRAD \
	VXORPS      sign<>(SB), Y9, Y0; \
	EXP; \
	VADDPS      Y7, Y0, Y0; \
	VDIVPS      Y0, Y7, Y0; \
	VMULPS      Y0, Y11, Y11; \
	VSUBPS      Y0, Y7, Y2; \
	VFMADD213PS Y7, Y9, Y2; \
	VMULPS      Y11, Y9, Y1; \
	VMULPS      Y11, Y10, Y0; \
	VMULPS      Y2, Y0, Y0

// func swigluGradAVX2(dgate, dup, gate, up, dh *float32, n int)
TEXT ·swigluGradAVX2(SB), NOSPLIT, $0-48
	MOVQ dgate+0(FP), DI
	MOVQ dup+8(FP), R8
	MOVQ gate+16(FP), SI
	MOVQ up+24(FP), DX
	MOVQ dh+32(FP), R9
	MOVQ n+40(FP), CX
	EXPCONSTANTS
	SUBQ $8, CX
	JLT  rest
loop:
	VMOVUPS (SI), Y9
	VMOVUPS (DX), Y10
	VMOVUPS (R9), Y11
	SWIGLUGRAD
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, (R8)
	ADDQ    $32, SI
	ADDQ    $32, DX
	ADDQ    $32, R9
	ADDQ    $32, DI
	ADDQ    $32, R8
	SUBQ    $8, CX
	JGE     loop
rest:
	ADDQ       $8, CX
	JEQ        done
	MASK(Y13)
	VMASKMOVPS (SI), Y13, Y9
	VMASKMOVPS (DX), Y13, Y10
	VMASKMOVPS (R9), Y13, Y11
	SWIGLUGRAD
	VMASKMOVPS Y0, Y13, (DI)
	VMASKMOVPS Y1, Y13, (R8)
done:
	VZEROUPPER
	RET

// func scoreGradAVX2(ds, p, dp *float32, n int, delta float32)
TEXT ·scoreGradAVX2(SB), NOSPLIT, $0-36
	MOVQ         ds+0(FP), DI
	MOVQ         p+8(FP), SI
	MOVQ         dp+16(FP), DX
	MOVQ         n+24(FP), CX
	VBROADCASTSS delta+32(FP), Y15
	SUBQ         $8, CX
	JLT          rest
loop:
	VMOVUPS (DX), Y0
	VSUBPS  Y15, Y0, Y0
	VMULPS  (SI), Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DX
	ADDQ    $32, DI
	SUBQ    $8, CX
	JGE     loop
rest:
	ADDQ       $8, CX
	JEQ        done
	MASK(Y13)
	VMASKMOVPS (DX), Y13, Y0
	VMASKMOVPS (SI), Y13, Y1
	VSUBPS     Y15, Y0, Y0
	VMULPS     Y1, Y0, Y0
	VMASKMOVPS Y0, Y13, (DI)
done:
	VZEROUPPER
	RET

// func rotateAVX2(y0, y1, x0, x1, cos, sin *float32, n int, sign float32)
TEXT ·rotateAVX2(SB), NOSPLIT, $0-60
	MOVQ         y0+0(FP), DI
	MOVQ         y1+8(FP), R8
	MOVQ         x0+16(FP), SI
	MOVQ         x1+24(FP), DX
	MOVQ         cos+32(FP), R9
	MOVQ         sin+40(FP), R10
	MOVQ         n+48(FP), CX
	VBROADCASTSS sign+56(FP), Y15
	SUBQ         $8, CX
	JLT          rest
loop:
	VMOVUPS      (SI), Y0
	VMOVUPS      (DX), Y1
	VMOVUPS      (R9), Y2
	VMULPS       (R10), Y15, Y3
	VMULPS       Y2, Y0, Y4
	VMULPS       Y2, Y1, Y5
	VFNMADD231PS Y3, Y1, Y4
	VFMADD231PS  Y3, Y0, Y5
	VMOVUPS      Y4, (DI)
	VMOVUPS      Y5, (R8)
	ADDQ         $32, SI
	ADDQ         $32, DX
	ADDQ         $32, R9
	ADDQ         $32, R10
	ADDQ         $32, DI
	ADDQ         $32, R8
	SUBQ         $8, CX
	JGE          loop
rest:
	ADDQ         $8, CX
	JEQ          done
	MASK(Y13)
	VMASKMOVPS   (SI), Y13, Y0
	VMASKMOVPS   (DX), Y13, Y1
	VMASKMOVPS   (R9), Y13, Y2
	VMASKMOVPS   (R10), Y13, Y3
	VMULPS       Y3, Y15, Y3
	VMULPS       Y2, Y0, Y4
	VMULPS       Y2, Y1, Y5
	VFNMADD231PS Y3, Y1, Y4
	VFMADD231PS  Y3, Y0, Y5
	VMASKMOVPS   Y4, Y13, (DI)
	VMASKMOVPS   Y5, Y13, (R8)
done:
	VZEROUPPER
	RET

// func rotateEightsAVX2(y, x, cos, sin *float32, n int, sign float32)
TEXT ·rotateEightsAVX2(SB), NOSPLIT, $0-44
	MOVQ         y+0(FP), DI
	MOVQ         x+8(FP), SI
	MOVQ         cos+16(FP), R9
	MOVQ         sin+24(FP), R10
	MOVQ         n+32(FP), CX
	VBROADCASTSS sign+40(FP), X3
	VMOVUPS      (R9), X2
	VMULPS       (R10), X3, X3
	TESTQ        CX, CX
	JEQ          done
loop:
	VMOVUPS      (SI), X0
	VMOVUPS      16(SI), X1
	VMULPS       X2, X0, X4
	VMULPS       X2, X1, X5
	VFNMADD231PS X3, X1, X4
	VFMADD231PS  X3, X0, X5
	VMOVUPS      X4, (DI)
	VMOVUPS      X5, 16(DI)
	ADDQ         $32, SI
	ADDQ         $32, DI
	DECQ         CX
	JNE          loop
done:
	VZEROUPPER
	RET
