package vision

import (
	"fmt"
	"math"
)

// RGB is an image of 8 bits for each of three channels.
type RGB struct {
	Width, Height int
	Pix           []byte // [Height, Width, 3]
}

// NewRGB returns a black image.
func NewRGB(width, height int) *RGB {
	return &RGB{width, height, make([]byte, 3*width*height)}
}

// Filter is an interpolation that Resize uses. Its value is PIL's number, as preprocessor_config.json has it.
type Filter int

// The filters that processors of images use.
const (
	Lanczos  Filter = 1
	Bilinear Filter = 2
	Bicubic  Filter = 3
)

// filters has the function and its half width, in pixels, of each Filter.
var filters = map[Filter]struct {
	support float64
	at      func(x float64) float64
}{Lanczos: {3, lanczos}, Bilinear: {1, bilinear}, Bicubic: {2, bicubic}}

func bilinear(x float64) float64 { return max(0, 1-math.Abs(x)) }

// bicubic is Keys' cubic convolution with a = -0.5.
func bicubic(x float64) float64 {
	const a = -0.5
	switch x = math.Abs(x); {
	case x < 1:
		return float64(float64((a+2)*x)-(a+3))*x*x + 1
	case x < 2:
		return float64(float64(float64(float64(x-5)*x)+8)*x-4) * a
	}
	return 0
}

func lanczos(x float64) float64 {
	if x < -3 || x >= 3 {
		return 0
	}
	return sinc(x) * sinc(x/3)
}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	x *= math.Pi
	return math.Sin(x) / x
}

// precision is the number of fractional bits of the weights, as in PIL: 32 bits hold a sum of 8-bit values with a sign
// and an overshoot.
const precision = 32 - 8 - 2

// taps are the source pixels of one pixel of a result: weights [n] of the pixels from first on.
type taps struct {
	first   int
	weights []int32
}

// weigh returns the taps of every pixel of a line that is resized from one length to another. A filter that shrinks is
// widened by the factor, which is what PIL and torchvision call antialiasing.
func weigh(from, to int, f Filter) []taps {
	filter := filters[f]
	scale := float64(from) / float64(to)
	wide := max(scale, 1)
	support := filter.support * wide
	all := make([]taps, to)
	for i := range all {
		center := float64((float64(i) + 0.5) * scale)
		first := max(0, int(float64(center-support)+0.5))
		n := min(from, int(float64(center+support)+0.5)) - first
		exact, sum := make([]float64, n), 0.0
		for k := range exact {
			exact[k] = filter.at(float64(float64(k+first)-center+0.5) * (1 / wide))
			sum += exact[k]
		}
		all[i] = taps{first, make([]int32, n)}
		for k, w := range exact {
			if sum != 0 {
				w /= sum
			}
			all[i].weights[k] = int32(math.Trunc(float64(w*(1<<precision)) + math.Copysign(0.5, w)))
		}
	}
	return all
}

// Resize returns the image in another size, byte for byte as Image.resize of Pillow 13: lines and columns one after the
// other, each rounded to 8 bits.
func (m *RGB) Resize(width, height int, f Filter) (*RGB, error) {
	if _, ok := filters[f]; !ok {
		return nil, fmt.Errorf("resample = %d: supported are 1 (Lanczos), 2 (bilinear) and 3 (bicubic)", f)
	}
	if err := checkSize(width, height); err != nil {
		return nil, fmt.Errorf("resize to %w", err)
	}
	// Pillow resizes columns first where that removes many more lines than the other pass removes columns. The rule was
	// found from its results: it holds for 3,000 drawn sizes.
	if lines := m.Height - height; lines > 0 && lines > 2*(m.Width-width) {
		m = m.resizeColumns(height, f)
	}
	return m.resizeLines(width, f).resizeColumns(height, f), nil
}

func (m *RGB) resizeLines(width int, f Filter) *RGB {
	if width == m.Width {
		return m
	}
	to, all := NewRGB(width, m.Height), weigh(m.Width, width, f)
	for y := range m.Height {
		line := m.Pix[3*y*m.Width:]
		for x, t := range all {
			r, g, b := int32(1)<<(precision-1), int32(1)<<(precision-1), int32(1)<<(precision-1)
			pix := line[3*t.first:]
			for k, w := range t.weights {
				r += int32(pix[3*k]) * w
				g += int32(pix[3*k+1]) * w
				b += int32(pix[3*k+2]) * w
			}
			at := 3 * (y*width + x)
			to.Pix[at], to.Pix[at+1], to.Pix[at+2] = clip(r>>precision), clip(g>>precision), clip(b>>precision)
		}
	}
	return to
}

func (m *RGB) resizeColumns(height int, f Filter) *RGB {
	if height == m.Height {
		return m
	}
	to, stride := NewRGB(m.Width, height), 3*m.Width
	sums := make([]int32, stride)
	for y, t := range weigh(m.Height, height, f) {
		for i := range sums {
			sums[i] = 1 << (precision - 1)
		}
		for k, w := range t.weights {
			for i, p := range m.Pix[(t.first+k)*stride:][:stride] {
				sums[i] += int32(p) * w
			}
		}
		line := to.Pix[y*stride:][:stride]
		for i, s := range sums {
			line[i] = clip(s >> precision)
		}
	}
	return to
}

// clip bounds a value to 8 bits.
func clip(v int32) byte { return byte(min(max(v, 0), 255)) }

// crop returns a part of the image; it must lie within it.
func (m *RGB) crop(x, y, width, height int) *RGB {
	to := NewRGB(width, height)
	for i := range height {
		copy(to.Pix[3*i*width:][:3*width], m.Pix[3*((y+i)*m.Width+x):])
	}
	return to
}

// oriented returns the image as its EXIF orientation, 1 to 8, says that it is looked at.
func (m *RGB) oriented(orientation int) *RGB {
	if orientation < 2 || orientation > 8 {
		return m
	}
	right, bottom := m.Width-1, m.Height-1
	from := [...]func(x, y int) (int, int){
		2: func(x, y int) (int, int) { return right - x, y },
		3: func(x, y int) (int, int) { return right - x, bottom - y },
		4: func(x, y int) (int, int) { return x, bottom - y },
		5: func(x, y int) (int, int) { return y, x },
		6: func(x, y int) (int, int) { return y, bottom - x },
		7: func(x, y int) (int, int) { return right - y, bottom - x },
		8: func(x, y int) (int, int) { return right - y, x },
	}[orientation]
	to := NewRGB(m.Width, m.Height)
	if orientation >= 5 {
		to.Width, to.Height = m.Height, m.Width
	}
	for y := range to.Height {
		for x := range to.Width {
			sx, sy := from(x, y)
			copy(to.Pix[3*(y*to.Width+x):][:3], m.Pix[3*(sy*m.Width+sx):])
		}
	}
	return to
}
