// Written by gen.go (go generate); do not edit.

package gemm

// tile512 calls the tile of its size.
func tile512(t *tile, rows, cols int) {
	switch rows*2 + cols {
	case 1*2 + 1:
		tile512x1x1(t)
	case 1*2 + 2:
		tile512x1x2(t)
	case 2*2 + 1:
		tile512x2x1(t)
	case 2*2 + 2:
		tile512x2x2(t)
	case 3*2 + 1:
		tile512x3x1(t)
	case 3*2 + 2:
		tile512x3x2(t)
	case 4*2 + 1:
		tile512x4x1(t)
	case 4*2 + 2:
		tile512x4x2(t)
	case 5*2 + 1:
		tile512x5x1(t)
	case 5*2 + 2:
		tile512x5x2(t)
	case 6*2 + 1:
		tile512x6x1(t)
	case 6*2 + 2:
		tile512x6x2(t)
	case 7*2 + 1:
		tile512x7x1(t)
	case 7*2 + 2:
		tile512x7x2(t)
	case 8*2 + 1:
		tile512x8x1(t)
	case 8*2 + 2:
		tile512x8x2(t)
	case 9*2 + 1:
		tile512x9x1(t)
	case 9*2 + 2:
		tile512x9x2(t)
	case 10*2 + 1:
		tile512x10x1(t)
	case 10*2 + 2:
		tile512x10x2(t)
	case 11*2 + 1:
		tile512x11x1(t)
	case 11*2 + 2:
		tile512x11x2(t)
	case 12*2 + 1:
		tile512x12x1(t)
	case 12*2 + 2:
		tile512x12x2(t)
	}
}

//go:noescape
func tile512x1x1(t *tile)

//go:noescape
func tile512x1x2(t *tile)

//go:noescape
func tile512x2x1(t *tile)

//go:noescape
func tile512x2x2(t *tile)

//go:noescape
func tile512x3x1(t *tile)

//go:noescape
func tile512x3x2(t *tile)

//go:noescape
func tile512x4x1(t *tile)

//go:noescape
func tile512x4x2(t *tile)

//go:noescape
func tile512x5x1(t *tile)

//go:noescape
func tile512x5x2(t *tile)

//go:noescape
func tile512x6x1(t *tile)

//go:noescape
func tile512x6x2(t *tile)

//go:noescape
func tile512x7x1(t *tile)

//go:noescape
func tile512x7x2(t *tile)

//go:noescape
func tile512x8x1(t *tile)

//go:noescape
func tile512x8x2(t *tile)

//go:noescape
func tile512x9x1(t *tile)

//go:noescape
func tile512x9x2(t *tile)

//go:noescape
func tile512x10x1(t *tile)

//go:noescape
func tile512x10x2(t *tile)

//go:noescape
func tile512x11x1(t *tile)

//go:noescape
func tile512x11x2(t *tile)

//go:noescape
func tile512x12x1(t *tile)

//go:noescape
func tile512x12x2(t *tile)

// tile256 calls the tile of its size.
func tile256(t *tile, rows, cols int) {
	switch rows*2 + cols {
	case 1*2 + 1:
		tile256x1x1(t)
	case 1*2 + 2:
		tile256x1x2(t)
	case 2*2 + 1:
		tile256x2x1(t)
	case 2*2 + 2:
		tile256x2x2(t)
	case 3*2 + 1:
		tile256x3x1(t)
	case 3*2 + 2:
		tile256x3x2(t)
	case 4*2 + 1:
		tile256x4x1(t)
	case 4*2 + 2:
		tile256x4x2(t)
	case 5*2 + 1:
		tile256x5x1(t)
	case 5*2 + 2:
		tile256x5x2(t)
	case 6*2 + 1:
		tile256x6x1(t)
	case 6*2 + 2:
		tile256x6x2(t)
	}
}

//go:noescape
func tile256x1x1(t *tile)

//go:noescape
func tile256x1x2(t *tile)

//go:noescape
func tile256x2x1(t *tile)

//go:noescape
func tile256x2x2(t *tile)

//go:noescape
func tile256x3x1(t *tile)

//go:noescape
func tile256x3x2(t *tile)

//go:noescape
func tile256x4x1(t *tile)

//go:noescape
func tile256x4x2(t *tile)

//go:noescape
func tile256x5x1(t *tile)

//go:noescape
func tile256x5x2(t *tile)

//go:noescape
func tile256x6x1(t *tile)

//go:noescape
func tile256x6x2(t *tile)

// tileDouble calls the tile of its size.
func tileDouble(t *tile, rows, cols int) {
	switch rows*2 + cols {
	case 1*2 + 1:
		tileDoublex1x1(t)
	case 1*2 + 2:
		tileDoublex1x2(t)
	case 2*2 + 1:
		tileDoublex2x1(t)
	case 2*2 + 2:
		tileDoublex2x2(t)
	case 3*2 + 1:
		tileDoublex3x1(t)
	case 3*2 + 2:
		tileDoublex3x2(t)
	case 4*2 + 1:
		tileDoublex4x1(t)
	case 4*2 + 2:
		tileDoublex4x2(t)
	}
}

//go:noescape
func tileDoublex1x1(t *tile)

//go:noescape
func tileDoublex1x2(t *tile)

//go:noescape
func tileDoublex2x1(t *tile)

//go:noescape
func tileDoublex2x2(t *tile)

//go:noescape
func tileDoublex3x1(t *tile)

//go:noescape
func tileDoublex3x2(t *tile)

//go:noescape
func tileDoublex4x1(t *tile)

//go:noescape
func tileDoublex4x2(t *tile)
