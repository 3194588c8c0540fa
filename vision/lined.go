package vision

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Lined is the image processor of Mistral 3 (PixtralImageProcessor of transformers): an image that is larger than a
// square is made smaller, and its sides become whole numbers of tokens, which are squares of Patch x Merge pixels. A
// token ends each line of them.
type Lined struct {
	Height, Width int // pixels of the largest image
	Patch, Merge  int // as Patched's
	Filter        Filter
	Rescale       float64
	Mean, Std     [3]float64 // as Tiled's
}

// Tokens of Mistral's images: imageToken is their mark.
const (
	imageToken = "[IMG]"
	imageBreak = "[IMG_BREAK]"
	imageLast  = "[IMG_END]"
)

// patchSize is the side of a patch in a processor's file: a number, or an object of height and width.
type patchSize int

// UnmarshalJSON reads either form.
func (p *patchSize) UnmarshalJSON(data []byte) error {
	var both struct{ Height, Width int }
	if json.Unmarshal(data, (*int)(p)) == nil {
		return nil
	}
	if err := json.Unmarshal(data, &both); err != nil || both.Height != both.Width {
		return fmt.Errorf("patch_size = %s: supported are a number, and height and width, equal", data)
	}
	*p = patchSize(both.Height)
	return nil
}

func (f processorFile) lined() (*Lined, error) {
	p := &Lined{Height: 1024, Width: 1024, Patch: 16, Merge: 1, Filter: Bicubic, Rescale: 1 / 255., Mean: clipMean,
		Std: clipStd}
	if f.DoResize != nil && !*f.DoResize {
		return nil, errors.New("do_resize = false: supported is true")
	}
	if edge, ok := f.Size["longest_edge"]; ok && len(f.Size) == 1 {
		p.Height, p.Width = edge, edge
	} else if f.Size != nil {
		p.Height, p.Width = f.Size["height"], f.Size["width"]
		if len(f.Size) != 2 {
			return nil, fmt.Errorf("size = %v: supported are longest_edge, or height and width", f.Size)
		}
	}
	take(&p.Patch, (*int)(f.Patch))
	take(&p.Merge, f.SpatialMerge)
	take((*int)(&p.Filter), f.Resample)
	take(&p.Rescale, f.Rescale)
	return p, errors.Join(channels("image_mean", f.Mean, &p.Mean), channels("image_std", f.Std, &p.Std), p.check())
}

func (p *Lined) check() error {
	switch {
	case min(p.Height, p.Width) < 1 || max(p.Height, p.Width) > maxEdge:
		return fmt.Errorf("size: %d x %d: must be 1 to %d", p.Height, p.Width, maxEdge)
	case min(p.Patch, p.Merge) < 1 || max(p.Patch, p.Merge) > 256:
		return fmt.Errorf("patch_size = %d, spatial_merge_size = %d: must be 1 to 256", p.Patch, p.Merge)
	}
	if g, most := p.grid(p.Width, p.Height), maxPatched; g.Rows*g.Cols > most {
		return fmt.Errorf("size: %d x %d makes more than %d tokens of %d x %d pixels", p.Height, p.Width, most,
			p.Patch*p.Merge, p.Patch*p.Merge)
	}
	return checkPixels(p.Filter, p.Mean, p.Std)
}

// Mark returns [IMG].
func (*Lined) Mark() string { return imageToken }

// Written returns nothing: templates write [IMG].
func (*Lined) Written() (inTemplate, read string) { return "", "" }

// Grid returns the tokens of an image in rows and columns. No size is refused.
func (p *Lined) Grid(width, height int) (Grid, error) { return p.grid(width, height), nil }

func (p *Lined) grid(width, height int) Grid {
	if ratio := max(float64(height)/float64(p.Height), float64(width)/float64(p.Width)); ratio > 1 {
		height = max(1, int(math.Floor(float64(height)/ratio)))
		width = max(1, int(math.Floor(float64(width)/ratio)))
	}
	side := p.Patch * p.Merge
	return Grid{(height-1)/side + 1, (width-1)/side + 1}
}

// Text returns the lines of a grid, as PixtralProcessor of transformers writes them.
func (*Lined) Text(g Grid) string {
	line := strings.Repeat(imageToken, g.Cols)
	return strings.Repeat(line+imageBreak, g.Rows-1) + line + imageLast
}

// Tiles returns the resized image as the only tile.
func (p *Lined) Tiles(m *RGB) ([]*RGB, Grid, error) {
	g, side := p.grid(m.Width, m.Height), p.Patch*p.Merge
	resized, err := m.Resize(g.Cols*side, g.Rows*side, p.Filter)
	return []*RGB{resized}, g, err
}

// Levels returns the normalised number of each value of a channel, which the tower reads.
func (p *Lined) Levels(channel int) [256]float32 {
	return levels(p.Rescale, p.Mean[channel], p.Std[channel])
}
