package tower

import (
	"math"

	"github.com/tierlora/tierlora/vision"
)

// place is a patch's row and column.
type place struct{ row, col int }

// patchesOf returns the patches of a grid token by token: those of a square of merge x merge lie together.
func patchesOf(rows, cols, merge int) (all []place) {
	for r := 0; r < rows; r += merge {
		for c := 0; c < cols; c += merge {
			for y := r; y < r+merge; y++ {
				for x := c; x < c+merge; x++ {
					all = append(all, place{y, x})
				}
			}
		}
	}
	return all
}

// levelsOf returns the normalised numbers of each channel's values.
func levelsOf(p vision.Processor) [3][256]float32 {
	return [3][256]float32{p.Levels(0), p.Levels(1), p.Levels(2)}
}

// pixelsOf returns the normalised values of each patch [patches, 3 * times * patch * patch], channel by channel. An
// image fills all times of a patch.
func pixelsOf(m *vision.RGB, order []place, patch, times int, levels [3][256]float32) []float32 {
	out := make([]float32, 0, len(order)*3*times*patch*patch)
	for _, at := range order {
		for c := range levels {
			for range times {
				for y := at.row * patch; y < (at.row+1)*patch; y++ {
					for x := at.col * patch; x < (at.col+1)*patch; x++ {
						out = append(out, levels[c][m.Pix[3*(y*m.Width+x)+c]])
					}
				}
			}
		}
	}
	return out
}

// anglesOf returns the cosines and sines of each patch [patches, frequencies]: of its row by the first frequencies,
// then
// of its column by the second.
func anglesOf(order []place, frequencies [2][]float32) (both [2][]float32) {
	for _, at := range order {
		for i, position := range []int{at.row, at.col} {
			for _, f := range frequencies[i] {
				sin, cos := math.Sincos(float64(float32(position) * f))
				both[0], both[1] = append(both[0], float32(cos)), append(both[1], float32(sin))
			}
		}
	}
	return both
}

// turn rotates the heads of a row.
func turn(row []float32, heads int, cos, sin []float32) {
	half := len(cos)
	for h := range heads {
		a, b := row[2*half*h:][:half], row[2*half*h+half:][:half]
		for j, x := range a {
			a[j], b[j] = x*cos[j]-b[j]*sin[j], b[j]*cos[j]+x*sin[j]
		}
	}
}
