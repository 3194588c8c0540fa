package vision

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// Patched is the image processor of Qwen3-VL (Qwen2VLImageProcessor of transformers): an image is resized so that its
// sides are whole numbers of tokens, which are squares of Patch x Merge pixels, and its area lies within bounds.
type Patched struct {
	MinPixels, MaxPixels int // of the resized image
	Patch                int // pixels of a side of a patch
	Merge                int // patches of a side of a token
	Temporal             int // times that a patch of an image is repeated
	Filter               Filter
	Rescale              float64
	Mean, Std            [3]float64 // as Tiled's
}

// ImagePad is the mark of an image in the texts of Qwen's templates.
const ImagePad = "<|image_pad|>"

// maxAspect is the most times that a side of an image may be longer than the other, and maxPatched the most tokens of
// one.
const maxAspect, maxPatched = 200, 1 << 16

// clipMean and clipStd are the means and deviations of CLIP's processor.
var clipMean, clipStd = [3]float64{0.48145466, 0.4578275, 0.40821073},
	[3]float64{0.26862954, 0.26130258, 0.27577711}

func (f processorFile) patched() (*Patched, error) {
	p := &Patched{MinPixels: 56 * 56, MaxPixels: 28 * 28 * 1280, Patch: 14, Merge: 2, Temporal: 2, Filter: Bicubic,
		Rescale: 1 / 255., Mean: clipMean, Std: clipStd}
	if f.DoResize != nil && !*f.DoResize {
		return nil, errors.New("do_resize = false: supported is true")
	}
	for key, n := range f.Size {
		switch key {
		case "shortest_edge":
			p.MinPixels = n
		case "longest_edge":
			p.MaxPixels = n
		default:
			return nil, fmt.Errorf("size = %v: supported are shortest_edge and longest_edge, in pixels of the area",
				f.Size)
		}
	}
	take(&p.MinPixels, f.MinPixels)
	take(&p.MaxPixels, f.MaxPixels)
	take(&p.Patch, (*int)(f.Patch))
	take(&p.Merge, f.Merge)
	take(&p.Temporal, f.Temporal)
	take((*int)(&p.Filter), f.Resample)
	take(&p.Rescale, f.Rescale)
	return p, errors.Join(channels("image_mean", f.Mean, &p.Mean), channels("image_std", f.Std, &p.Std), p.check())
}

func (p *Patched) check() error {
	for _, n := range []int{p.Patch, p.Merge, p.Temporal} {
		if n < 1 || n > 256 {
			return fmt.Errorf("patch_size = %d, merge_size = %d, temporal_patch_size = %d: must be 1 to 256", p.Patch,
				p.Merge, p.Temporal)
		}
	}
	side := p.Patch * p.Merge
	switch {
	case p.MinPixels < 1 || p.MaxPixels < p.MinPixels || p.MaxPixels > MaxPixels:
		return fmt.Errorf("size: shortest_edge = %d, longest_edge = %d: must be 1 to %d pixels, the first not above "+
			"the second", p.MinPixels, p.MaxPixels, MaxPixels)
	case p.MaxPixels < side*side:
		return fmt.Errorf("size: longest_edge = %d: a token has %d x %d pixels", p.MaxPixels, side, side)
	case p.MaxPixels/(side*side) > maxPatched:
		return fmt.Errorf("size: longest_edge = %d makes more than %d tokens of %d x %d pixels", p.MaxPixels,
			maxPatched, side, side)
	}
	return checkPixels(p.Filter, p.Mean, p.Std)
}

// Mark returns ImagePad.
func (*Patched) Mark() string { return ImagePad }

// Written returns nothing: templates write ImagePad.
func (*Patched) Written() (inTemplate, read string) { return "", "" }

// Grid returns the tokens of an image in rows and columns, as smart_resize of transformers finds them. It refuses an
// image that is much longer in one direction than in the other.
func (p *Patched) Grid(width, height int) (Grid, error) {
	if max(width, height) > maxAspect*min(width, height) {
		return Grid{}, fmt.Errorf("%d x %d pixels: one side may be %d times as long as the other", width, height,
			maxAspect)
	}
	side, w, h := float64(p.Patch*p.Merge), float64(width), float64(height)
	rows, cols := math.RoundToEven(h/side), math.RoundToEven(w/side)
	if area := rows * cols * side * side; area > float64(p.MaxPixels) {
		by := math.Sqrt(h * w / float64(p.MaxPixels))
		rows, cols = max(1, math.Floor(h/by/side)), max(1, math.Floor(w/by/side))
	} else if area < float64(p.MinPixels) {
		by := math.Sqrt(float64(p.MinPixels) / (h * w))
		rows, cols = math.Ceil(h*by/side), math.Ceil(w*by/side)
	}
	return Grid{int(rows), int(cols)}, nil
}

// Text returns a mark for each token of the grid.
func (*Patched) Text(g Grid) string { return strings.Repeat(ImagePad, g.Rows*g.Cols) }

// Tiles returns the resized image as the only tile.
func (p *Patched) Tiles(m *RGB) ([]*RGB, Grid, error) {
	g, err := p.Grid(m.Width, m.Height)
	if err != nil {
		return nil, g, err
	}
	resized, err := m.Resize(g.Cols*p.Patch*p.Merge, g.Rows*p.Patch*p.Merge, p.Filter)
	return []*RGB{resized}, g, err
}

// Levels returns the normalised number of each value of a channel, which the tower reads.
func (p *Patched) Levels(channel int) [256]float32 {
	return levels(p.Rescale, p.Mean[channel], p.Std[channel])
}
