#include "textflag.h"

DATA philoxMul<>+0(SB)/8, $0xd2511f53
DATA philoxMul<>+8(SB)/8, $0xcd9e8d57
DATA philoxMul<>+16(SB)/8, $4
GLOBL philoxMul<>(SB), RODATA|NOPTR, $24

// One round for the counters (a, b, c, d) in the low halves of four lanes each; what lies in the high halves
// is never read. The new b and d are the products themselves, so they come out in p1 and p0.
#define ROUND(k, a, b, c, d, p0, p1) \
	VPMULUDQ Y14, a, p0 \
	VPMULUDQ Y15, c, p1 \
	VPSRLQ $32, p1, a \
	VPSRLQ $32, p0, c \
	VPXOR b, a, a \
	VPXOR d, c, c \
	VPXOR (k)(DX), a, a \
	VPXOR (k+32)(DX), c, c

// The same for eight counters, in two sets whose chains overlap.
#define ROUND2(k, b, d, p0, p1, f, h, q0, q1) \
	ROUND(k, Y0, b, Y1, d, p0, p1) \
	ROUND(k, Y2, f, Y3, h, q0, q1)

// Sixteen elements: the words of four counters in order, compared with the threshold, chosen as factors.
// The maximum of word and threshold is the word itself where it is not below.
#define MASK(a, b, c, d, t, at) \
	VPSLLQ $32, b, b \
	VPSLLQ $32, d, d \
	VPBLENDD $0xaa, b, a, a \
	VPBLENDD $0xaa, d, c, c \
	VPUNPCKLQDQ c, a, b \
	VPUNPCKHQDQ c, a, d \
	VPERM2I128 $0x20, d, b, a \
	VPERM2I128 $0x31, d, b, c \
	VPMAXUD 704(DX), a, t \
	VPCMPEQD t, a, t \
	VPAND 736(DX), t, t \
	VMULPS at(SI), t, t \
	VMOVUPS t, at(DI) \
	VPMAXUD 704(DX), c, t \
	VPCMPEQD t, c, t \
	VPAND 736(DX), t, t \
	VMULPS (at+32)(SI), t, t \
	VMOVUPS t, (at+32)(DI)

// func dropoutAVX2(y, x unsafe.Pointer, blocks int, args *dropoutArgs)
// Philox4x32-10 of eight counters a turn: a and c in Y0, Y1 and Y2, Y3; b and d change registers every round.
TEXT ·dropoutAVX2(SB), NOSPLIT, $0-32
	MOVQ y+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ blocks+16(FP), CX
	MOVQ args+24(FP), DX
	VPBROADCASTQ philoxMul<>+0(SB), Y14
	VPBROADCASTQ philoxMul<>+8(SB), Y15
	VPBROADCASTQ philoxMul<>+16(SB), Y13
	VMOVDQU 640(DX), Y12

loop:
	VMOVDQA Y12, Y0
	VPADDQ Y13, Y12, Y2
	VPADDQ Y13, Y2, Y12
	VMOVDQU 672(DX), Y1
	VMOVDQA Y1, Y3
	VPSRLQ $32, Y0, Y5
	VPXOR Y4, Y4, Y4
	VPSRLQ $32, Y2, Y9
	VPXOR Y8, Y8, Y8
	ROUND2(0, Y5, Y4, Y6, Y7, Y9, Y8, Y10, Y11)
	ROUND2(64, Y7, Y6, Y4, Y5, Y11, Y10, Y8, Y9)
	ROUND2(128, Y5, Y4, Y6, Y7, Y9, Y8, Y10, Y11)
	ROUND2(192, Y7, Y6, Y4, Y5, Y11, Y10, Y8, Y9)
	ROUND2(256, Y5, Y4, Y6, Y7, Y9, Y8, Y10, Y11)
	ROUND2(320, Y7, Y6, Y4, Y5, Y11, Y10, Y8, Y9)
	ROUND2(384, Y5, Y4, Y6, Y7, Y9, Y8, Y10, Y11)
	ROUND2(448, Y7, Y6, Y4, Y5, Y11, Y10, Y8, Y9)
	ROUND2(512, Y5, Y4, Y6, Y7, Y9, Y8, Y10, Y11)
	ROUND2(576, Y7, Y6, Y4, Y5, Y11, Y10, Y8, Y9)
	MASK(Y0, Y5, Y1, Y4, Y6, 0)
	MASK(Y2, Y9, Y3, Y8, Y6, 64)
	ADDQ $128, SI
	ADDQ $128, DI
	DECQ CX
	JNZ  loop
	VZEROUPPER
	RET
