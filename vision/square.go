package vision

import (
	"errors"
	"fmt"
	"strings"
)

// Square is the image processor of Gemma 3 (Gemma3ImageProcessor of transformers): an image is resized to a square,
// whatever its sides are.
type Square struct {
	Side      int // pixels
	Tokens    int // that stand for an image
	Filter    Filter
	Rescale   float64
	Mean, Std [3]float64 // as Tiled's
}

// Tokens of Gemma 3: SoftToken is the mark of an image. Its templates write imageStart alone for an image.
const (
	SoftToken  = "<image_soft_token>"
	imageStart = "<start_of_image>"
	imageEnd   = "<end_of_image>"
)

func (f processorFile) square() (*Square, error) {
	p := &Square{Side: 224, Tokens: 256, Filter: Bilinear, Rescale: 1 / 255., Mean: [3]float64{.5, .5, .5},
		Std: [3]float64{.5, .5, .5}}
	if f.DoResize != nil && !*f.DoResize {
		return nil, errors.New("do_resize = false: supported is true")
	}
	if f.Size != nil {
		height, width := f.Size["height"], f.Size["width"]
		if p.Side = height; height != width || len(f.Size) != 2 {
			return nil, fmt.Errorf("size = %v: supported are height and width, equal", f.Size)
		}
	}
	take((*int)(&p.Filter), f.Resample)
	take(&p.Rescale, f.Rescale)
	take(&p.Tokens, f.SeqLength)
	return p, errors.Join(channels("image_mean", f.Mean, &p.Mean), channels("image_std", f.Std, &p.Std), p.check())
}

func (p *Square) check() error {
	switch {
	case p.Side < 1 || p.Side > maxEdge:
		return fmt.Errorf("size: height = %d: must be 1 to %d", p.Side, maxEdge)
	case p.Tokens < 1 || p.Tokens > 1<<16:
		return fmt.Errorf("image_seq_length = %d: must be 1 to %d", p.Tokens, 1<<16)
	}
	return checkPixels(p.Filter, p.Mean, p.Std)
}

// Mark returns SoftToken.
func (*Square) Mark() string { return SoftToken }

// Written returns the token that begins an image, around which Gemma3Processor writes line breaks and the end.
func (*Square) Written() (inTemplate, read string) {
	return imageStart, "\n\n" + imageStart + SoftToken + imageEnd + "\n\n"
}

// Grid returns no tiles beside the whole image. No size is refused.
func (*Square) Grid(_, _ int) (Grid, error) { return Grid{}, nil }

// Text returns a mark for each token.
func (p *Square) Text(Grid) string { return strings.Repeat(SoftToken, p.Tokens) }

// Tiles returns the resized image as the only tile.
func (p *Square) Tiles(m *RGB) ([]*RGB, Grid, error) {
	resized, err := m.Resize(p.Side, p.Side, p.Filter)
	return []*RGB{resized}, Grid{}, err
}

// Levels returns the normalised number of each value of a channel, which the tower reads.
func (p *Square) Levels(channel int) [256]float32 {
	return levels(p.Rescale, p.Mean[channel], p.Std[channel])
}
