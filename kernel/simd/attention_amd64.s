#include "textflag.h"

// The inner loops of attention_amd64.go for AVX-512. Sixteen queries of a head stand side by side, one in
// each lane of a vector: a tile of scores is [keys,16], a head's elements are [D,16]. Keys and values are
// read where they lie, one element for all lanes. Strides are bytes; D is a multiple of eight.

DATA softmax<>+0(SB)/4, $0xc2d00000  // -104: e^x is below half the smallest float32
DATA softmax<>+4(SB)/4, $0x42b20000  // 89: e^x is above the largest
DATA softmax<>+8(SB)/4, $0x3fb8aa3b  // log2(e)
DATA softmax<>+12(SB)/4, $0x3f318000 // ln2 in two parts, the first of nine bits
DATA softmax<>+16(SB)/4, $0xb95e8083
DATA softmax<>+20(SB)/4, $0x3ab511e7 // minimax of (e^r-1-r)/r^2 on [-ln2/2, ln2/2], 3e-9 of e^r
DATA softmax<>+24(SB)/4, $0x3c091d10
DATA softmax<>+28(SB)/4, $0x3d2aac79
DATA softmax<>+32(SB)/4, $0x3e2aaa49
DATA softmax<>+36(SB)/4, $0x3efffffe
DATA softmax<>+40(SB)/4, $0x3f800000
GLOBL softmax<>(SB), RODATA|NOPTR, $44

#define EXPCONSTANTS \
	VBROADCASTSS softmax<>+0(SB), Z20; \
	VBROADCASTSS softmax<>+4(SB), Z21; \
	VBROADCASTSS softmax<>+8(SB), Z22; \
	VBROADCASTSS softmax<>+12(SB), Z23; \
	VBROADCASTSS softmax<>+16(SB), Z24; \
	VBROADCASTSS softmax<>+20(SB), Z25; \
	VBROADCASTSS softmax<>+24(SB), Z26; \
	VBROADCASTSS softmax<>+28(SB), Z27; \
	VBROADCASTSS softmax<>+32(SB), Z28; \
	VBROADCASTSS softmax<>+36(SB), Z29; \
	VBROADCASTSS softmax<>+40(SB), Z30

// EXP turns Z0 into e^Z0 and spends Z1 and Z2.
#define EXP \
	VMAXPS       Z0, Z20, Z0; \
	VMINPS       Z0, Z21, Z0; \
	VMULPS       Z22, Z0, Z1; \
	VRNDSCALEPS  $8, Z1, Z1; \
	VFNMADD231PS Z23, Z1, Z0; \
	VFNMADD231PS Z24, Z1, Z0; \
	VMOVAPS      Z25, Z2; \
	VFMADD213PS  Z26, Z0, Z2; \
	VFMADD213PS  Z27, Z0, Z2; \
	VFMADD213PS  Z28, Z0, Z2; \
	VFMADD213PS  Z29, Z0, Z2; \
	VFMADD213PS  Z30, Z0, Z2; \
	VFMADD213PS  Z30, Z0, Z2; \
	VSCALEFPS    Z1, Z2, Z0

// DEPTH adds element i of eight keys, times the queries' element i, to Z0 to Z7.
#define DEPTH(i) \
	VMOVUPS          (i*64)(R12), Z16; \
	VFMADD231PS.BCST (i*4)(AX), Z16, Z0; \
	VFMADD231PS.BCST (i*4)(AX)(R9*1), Z16, Z1; \
	VFMADD231PS.BCST (i*4)(AX)(R9*2), Z16, Z2; \
	VFMADD231PS.BCST (i*4)(AX)(R10*1), Z16, Z3; \
	VFMADD231PS.BCST (i*4)(BX), Z16, Z4; \
	VFMADD231PS.BCST (i*4)(BX)(R9*1), Z16, Z5; \
	VFMADD231PS.BCST (i*4)(BX)(R9*2), Z16, Z6; \
	VFMADD231PS.BCST (i*4)(BX)(R10*1), Z16, Z7

// func scores512(dst, q, x *float32, stride, n, d int)
// dst [n,16] = x [n,D] times q [D,16].
TEXT ·Scores(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ q+8(FP), SI
	MOVQ x+16(FP), R8
	MOVQ stride+24(FP), R9
	MOVQ n+32(FP), CX
	MOVQ d+40(FP), DX
	LEAQ (R9)(R9*2), R10
	SUBQ $8, CX
	JLT  rest
eight:
	MOVQ   R8, AX
	LEAQ   (R8)(R9*4), BX
	MOVQ   SI, R12
	MOVQ   DX, R13
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	VPXORD Z2, Z2, Z2
	VPXORD Z3, Z3, Z3
	VPXORD Z4, Z4, Z4
	VPXORD Z5, Z5, Z5
	VPXORD Z6, Z6, Z6
	VPXORD Z7, Z7, Z7
depth:
	DEPTH(0)
	DEPTH(1)
	DEPTH(2)
	DEPTH(3)
	DEPTH(4)
	DEPTH(5)
	DEPTH(6)
	DEPTH(7)
	ADDQ    $32, AX
	ADDQ    $32, BX
	ADDQ    $512, R12
	SUBQ    $8, R13
	JNE     depth
	VMOVUPS Z0, (DI)
	VMOVUPS Z1, 64(DI)
	VMOVUPS Z2, 128(DI)
	VMOVUPS Z3, 192(DI)
	VMOVUPS Z4, 256(DI)
	VMOVUPS Z5, 320(DI)
	VMOVUPS Z6, 384(DI)
	VMOVUPS Z7, 448(DI)
	ADDQ    $512, DI
	LEAQ    (R8)(R9*8), R8
	SUBQ    $8, CX
	JGE     eight
rest:
	ADDQ $8, CX
	JEQ  done
one:
	MOVQ   R8, AX
	MOVQ   SI, R12
	MOVQ   DX, R13
	VPXORD Z0, Z0, Z0
element:
	VMOVUPS          (R12), Z16
	VFMADD231PS.BCST (AX), Z16, Z0
	ADDQ             $4, AX
	ADDQ             $64, R12
	DECQ             R13
	JNE              element
	VMOVUPS          Z0, (DI)
	ADDQ             $64, DI
	ADDQ             R9, R8
	DECQ             CX
	JNE              one
done:
	VZEROUPPER
	RET

// func softmax512(p *float32, n int, stat *float32)
// p [n,16] becomes exp(p - top). stat holds, sixteen each, top, the largest score so far; the sum of
// exponentials so far; and what sums so far were multiplied by because top rose.
TEXT ·Softmax(SB), NOSPLIT, $0-24
	MOVQ    p+0(FP), SI
	MOVQ    n+8(FP), CX
	MOVQ    stat+16(FP), DX
	VMOVUPS (DX), Z16
	VMOVAPS Z16, Z3
	VMOVAPS Z16, Z4
	VMOVAPS Z16, Z5
	VMOVAPS Z16, Z6
	MOVQ    SI, AX
	MOVQ    CX, BX
	SUBQ    $4, BX
	JLT     few
largest:
	VMOVUPS (AX), Z0
	VMOVUPS 64(AX), Z1
	VMOVUPS 128(AX), Z2
	VMOVUPS 192(AX), Z7
	VMAXPS  Z3, Z0, Z3
	VMAXPS  Z4, Z1, Z4
	VMAXPS  Z5, Z2, Z5
	VMAXPS  Z6, Z7, Z6
	ADDQ    $256, AX
	SUBQ    $4, BX
	JGE     largest
few:
	ADDQ $4, BX
	JEQ  found
one:
	VMOVUPS (AX), Z0
	VMAXPS  Z3, Z0, Z3
	ADDQ    $64, AX
	DECQ    BX
	JNE     one
found:
	VMAXPS Z4, Z3, Z3
	VMAXPS Z6, Z5, Z5
	VMAXPS Z5, Z3, Z15
	EXPCONSTANTS
	VPXORD Z14, Z14, Z14
exponentials:
	VMOVUPS     (SI), Z0
	VSUBPS      Z15, Z0, Z0
	EXP
	VMOVUPS     Z0, (SI)
	VADDPS      Z0, Z14, Z14
	ADDQ        $64, SI
	DECQ        CX
	JNE         exponentials
	VSUBPS      Z15, Z16, Z0
	EXP
	VMOVUPS     64(DX), Z1
	VFMADD231PS Z1, Z0, Z14
	VMOVUPS     Z15, (DX)
	VMOVUPS     Z14, 64(DX)
	VMOVUPS     Z0, 128(DX)
	VZEROUPPER
	RET

// func softmaxGrad512(s, dp *float32, n int, stat *float32, scale float32)
// s [n,16] becomes p = exp(s - lse), dp [n,16] scale*p*(dp - delta). stat holds lse and delta, sixteen each.
TEXT ·SoftmaxGrad(SB), NOSPLIT, $0-36
	MOVQ         s+0(FP), SI
	MOVQ         dp+8(FP), DI
	MOVQ         n+16(FP), CX
	MOVQ         stat+24(FP), DX
	VBROADCASTSS scale+32(FP), Z17
	VMOVUPS      (DX), Z15
	VMOVUPS      64(DX), Z16
	EXPCONSTANTS
loop:
	VMOVUPS (SI), Z0
	VSUBPS  Z15, Z0, Z0
	EXP
	VMOVUPS Z0, (SI)
	VMOVUPS (DI), Z1
	VSUBPS  Z16, Z1, Z1
	VMULPS  Z17, Z0, Z0
	VMULPS  Z0, Z1, Z1
	VMOVUPS Z1, (DI)
	ADDQ    $64, SI
	ADDQ    $64, DI
	DECQ    CX
	JNE     loop
	VZEROUPPER
	RET

// func gather512(acc, fix, p, x *float32, stride, n, d int)
// acc [D,16] = acc*fix + xT p, x [n,D] and p [n,16].
TEXT ·Gather(SB), NOSPLIT, $0-56
	MOVQ    acc+0(FP), DI
	MOVQ    fix+8(FP), AX
	MOVQ    x+24(FP), R8
	MOVQ    stride+32(FP), R9
	MOVQ    d+48(FP), DX
	VMOVUPS (AX), Z17
block:
	MOVQ   p+16(FP), SI
	MOVQ   R8, BX
	MOVQ   n+40(FP), CX
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	VPXORD Z2, Z2, Z2
	VPXORD Z3, Z3, Z3
	VPXORD Z4, Z4, Z4
	VPXORD Z5, Z5, Z5
	VPXORD Z6, Z6, Z6
	VPXORD Z7, Z7, Z7
key:
	VMOVUPS          (SI), Z16
	VFMADD231PS.BCST (BX), Z16, Z0
	VFMADD231PS.BCST 4(BX), Z16, Z1
	VFMADD231PS.BCST 8(BX), Z16, Z2
	VFMADD231PS.BCST 12(BX), Z16, Z3
	VFMADD231PS.BCST 16(BX), Z16, Z4
	VFMADD231PS.BCST 20(BX), Z16, Z5
	VFMADD231PS.BCST 24(BX), Z16, Z6
	VFMADD231PS.BCST 28(BX), Z16, Z7
	ADDQ             $64, SI
	ADDQ             R9, BX
	DECQ             CX
	JNE              key
	VFMADD231PS      (DI), Z17, Z0
	VFMADD231PS      64(DI), Z17, Z1
	VFMADD231PS      128(DI), Z17, Z2
	VFMADD231PS      192(DI), Z17, Z3
	VFMADD231PS      256(DI), Z17, Z4
	VFMADD231PS      320(DI), Z17, Z5
	VFMADD231PS      384(DI), Z17, Z6
	VFMADD231PS      448(DI), Z17, Z7
	VMOVUPS          Z0, (DI)
	VMOVUPS          Z1, 64(DI)
	VMOVUPS          Z2, 128(DI)
	VMOVUPS          Z3, 192(DI)
	VMOVUPS          Z4, 256(DI)
	VMOVUPS          Z5, 320(DI)
	VMOVUPS          Z6, 384(DI)
	VMOVUPS          Z7, 448(DI)
	ADDQ             $512, DI
	ADDQ             $32, R8
	SUBQ             $8, DX
	JNE              block
	VZEROUPPER
	RET

// QUERY adds what query i, its row in Y, gives to four keys: even queries to Y0 to Y3, odd ones to Y4 to Y7.
#define QUERY(i, Y, A, B, C, D) \
	VFMADD231PS.BCST (i*4)(SI), Y, A; \
	VFMADD231PS.BCST (i*4+64)(SI), Y, B; \
	VFMADD231PS.BCST (i*4+128)(SI), Y, C; \
	VFMADD231PS.BCST (i*4+192)(SI), Y, D

#define QUERIES(i, Y, Z) \
	QUERY(i, Y, Y0, Y1, Y2, Y3); \
	QUERY((i+1), Z, Y4, Y5, Y6, Y7)

#define PAIR(i, Y, Z) \
	VFMADD231PS.BCST (i*4)(SI), Y, Y0; \
	VFMADD231PS.BCST (i*4+4)(SI), Z, Y4

#define ROWS(Y, Z) \
	VMOVUPS (AX), Y; \
	VMOVUPS (AX)(R11*1), Z; \
	LEAQ    (AX)(R11*2), AX

// func spread512(dst, p, x *float32, dstStride, xStride, n, d int)
// dst [n,D] += p x, p [n,16] and x [16,D].
TEXT ·Spread(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), R8
	MOVQ x+16(FP), R12
	MOVQ dstStride+24(FP), R9
	MOVQ xStride+32(FP), R11
	MOVQ d+48(FP), DX
	LEAQ (R9)(R9*2), R10
block:
	MOVQ R12, AX
	ROWS(Y16, Y17)
	ROWS(Y18, Y19)
	ROWS(Y20, Y21)
	ROWS(Y22, Y23)
	ROWS(Y24, Y25)
	ROWS(Y26, Y27)
	ROWS(Y28, Y29)
	ROWS(Y30, Y31)
	MOVQ R8, DI
	MOVQ p+8(FP), SI
	MOVQ n+40(FP), CX
	SUBQ $4, CX
	JLT  rest
four:
	VPXORD  Y0, Y0, Y0
	VPXORD  Y1, Y1, Y1
	VPXORD  Y2, Y2, Y2
	VPXORD  Y3, Y3, Y3
	VPXORD  Y4, Y4, Y4
	VPXORD  Y5, Y5, Y5
	VPXORD  Y6, Y6, Y6
	VPXORD  Y7, Y7, Y7
	QUERIES(0, Y16, Y17)
	QUERIES(2, Y18, Y19)
	QUERIES(4, Y20, Y21)
	QUERIES(6, Y22, Y23)
	QUERIES(8, Y24, Y25)
	QUERIES(10, Y26, Y27)
	QUERIES(12, Y28, Y29)
	QUERIES(14, Y30, Y31)
	VADDPS  Y4, Y0, Y0
	VADDPS  Y5, Y1, Y1
	VADDPS  Y6, Y2, Y2
	VADDPS  Y7, Y3, Y3
	VADDPS  (DI), Y0, Y0
	VADDPS  (DI)(R9*1), Y1, Y1
	VADDPS  (DI)(R9*2), Y2, Y2
	VADDPS  (DI)(R10*1), Y3, Y3
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, (DI)(R9*1)
	VMOVUPS Y2, (DI)(R9*2)
	VMOVUPS Y3, (DI)(R10*1)
	LEAQ    (DI)(R9*4), DI
	ADDQ    $256, SI
	SUBQ    $4, CX
	JGE     four
rest:
	ADDQ $4, CX
	JEQ  next
one:
	VPXORD  Y0, Y0, Y0
	VPXORD  Y4, Y4, Y4
	PAIR(0, Y16, Y17)
	PAIR(2, Y18, Y19)
	PAIR(4, Y20, Y21)
	PAIR(6, Y22, Y23)
	PAIR(8, Y24, Y25)
	PAIR(10, Y26, Y27)
	PAIR(12, Y28, Y29)
	PAIR(14, Y30, Y31)
	VADDPS  Y4, Y0, Y0
	VADDPS  (DI), Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ    R9, DI
	ADDQ    $64, SI
	DECQ    CX
	JNE     one
next:
	ADDQ $32, R8
	ADDQ $32, R12
	SUBQ $8, DX
	JNE  block
	VZEROUPPER
	RET

// TURN transposes the four by four numbers in each quarter of Z0 to Z3.
#define TURN \
	VUNPCKLPS Z1, Z0, Z4; \
	VUNPCKHPS Z1, Z0, Z5; \
	VUNPCKLPS Z3, Z2, Z6; \
	VUNPCKHPS Z3, Z2, Z7; \
	VUNPCKLPD Z6, Z4, Z0; \
	VUNPCKHPD Z6, Z4, Z1; \
	VUNPCKLPD Z7, Z5, Z2; \
	VUNPCKHPD Z7, Z5, Z3

// func columns512(dst, src *float32, stride, d int, scale float32)
// dst [D,16] = scale * srcT, src [16,D].
TEXT ·Columns(SB), NOSPLIT, $0-36
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), R8
	MOVQ         stride+16(FP), R9
	MOVQ         d+24(FP), DX
	VBROADCASTSS scale+32(FP), Z8
	LEAQ         (R9)(R9*2), R10
	LEAQ         (R8)(R9*4), R11
	LEAQ         (R8)(R9*8), R12
	LEAQ         (R11)(R9*8), R13
loop:
	VMOVUPS      (R8), X0
	VMOVUPS      (R8)(R9*1), X1
	VMOVUPS      (R8)(R9*2), X2
	VMOVUPS      (R8)(R10*1), X3
	VINSERTF32X4 $1, (R11), Z0, Z0
	VINSERTF32X4 $1, (R11)(R9*1), Z1, Z1
	VINSERTF32X4 $1, (R11)(R9*2), Z2, Z2
	VINSERTF32X4 $1, (R11)(R10*1), Z3, Z3
	VINSERTF32X4 $2, (R12), Z0, Z0
	VINSERTF32X4 $2, (R12)(R9*1), Z1, Z1
	VINSERTF32X4 $2, (R12)(R9*2), Z2, Z2
	VINSERTF32X4 $2, (R12)(R10*1), Z3, Z3
	VINSERTF32X4 $3, (R13), Z0, Z0
	VINSERTF32X4 $3, (R13)(R9*1), Z1, Z1
	VINSERTF32X4 $3, (R13)(R9*2), Z2, Z2
	VINSERTF32X4 $3, (R13)(R10*1), Z3, Z3
	TURN
	VMULPS       Z8, Z0, Z0
	VMULPS       Z8, Z1, Z1
	VMULPS       Z8, Z2, Z2
	VMULPS       Z8, Z3, Z3
	VMOVUPS      Z0, (DI)
	VMOVUPS      Z1, 64(DI)
	VMOVUPS      Z2, 128(DI)
	VMOVUPS      Z3, 192(DI)
	ADDQ         $16, R8
	ADDQ         $16, R11
	ADDQ         $16, R12
	ADDQ         $16, R13
	ADDQ         $256, DI
	SUBQ         $4, DX
	JNE          loop
	VZEROUPPER
	RET

// func rows512(dst *float32, stride int, src, factor *float32, d int)
// dst [16,D] = (src*factor)T, src [D,16].
TEXT ·Rows(SB), NOSPLIT, $0-40
	MOVQ    dst+0(FP), R8
	MOVQ    stride+8(FP), R9
	MOVQ    src+16(FP), SI
	MOVQ    factor+24(FP), AX
	MOVQ    d+32(FP), DX
	VMOVUPS (AX), Z8
	LEAQ    (R9)(R9*2), R10
	LEAQ    (R8)(R9*4), R11
	LEAQ    (R8)(R9*8), R12
	LEAQ    (R11)(R9*8), R13
loop:
	VMULPS        (SI), Z8, Z0
	VMULPS        64(SI), Z8, Z1
	VMULPS        128(SI), Z8, Z2
	VMULPS        192(SI), Z8, Z3
	TURN
	VMOVUPS       X0, (R8)
	VMOVUPS       X1, (R8)(R9*1)
	VMOVUPS       X2, (R8)(R9*2)
	VMOVUPS       X3, (R8)(R10*1)
	VEXTRACTF32X4 $1, Z0, (R11)
	VEXTRACTF32X4 $1, Z1, (R11)(R9*1)
	VEXTRACTF32X4 $1, Z2, (R11)(R9*2)
	VEXTRACTF32X4 $1, Z3, (R11)(R10*1)
	VEXTRACTF32X4 $2, Z0, (R12)
	VEXTRACTF32X4 $2, Z1, (R12)(R9*1)
	VEXTRACTF32X4 $2, Z2, (R12)(R9*2)
	VEXTRACTF32X4 $2, Z3, (R12)(R10*1)
	VEXTRACTF32X4 $3, Z0, (R13)
	VEXTRACTF32X4 $3, Z1, (R13)(R9*1)
	VEXTRACTF32X4 $3, Z2, (R13)(R9*2)
	VEXTRACTF32X4 $3, Z3, (R13)(R10*1)
	ADDQ          $16, R8
	ADDQ          $16, R11
	ADDQ          $16, R12
	ADDQ          $16, R13
	ADDQ          $256, SI
	SUBQ          $4, DX
	JNE           loop
	VZEROUPPER
	RET

// func dots512(dst, a, b *float32, d int)
// dst [16] = the sums of a*b [D,16] over D.
TEXT ·Dots(SB), NOSPLIT, $0-32
	MOVQ   dst+0(FP), DI
	MOVQ   a+8(FP), SI
	MOVQ   b+16(FP), R8
	MOVQ   d+24(FP), CX
	VPXORD Z0, Z0, Z0
loop:
	VMOVUPS     (SI), Z1
	VFMADD231PS (R8), Z1, Z0
	ADDQ        $64, SI
	ADDQ        $64, R8
	DECQ        CX
	JNE         loop
	VMOVUPS     Z0, (DI)
	VZEROUPPER
	RET
