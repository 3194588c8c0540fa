package vision

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
)

// Processor turns an image into what an image tower reads, and into the tokens that stand for it.
type Processor interface {
	// Mark returns the text of the token in whose places embeddings of an image stand.
	Mark() string
	// Written returns what a model's template writes for an image, where that is no mark, and the text with one mark
	// that a processor reads in its place; "" = templates write the mark.
	Written() (inTemplate, read string)
	// Grid returns how an image of a size in pixels is divided.
	Grid(width, height int) (Grid, error)
	// Text returns the text that stands for an image of a grid, with the marks.
	Text(g Grid) string
	// Tiles returns the pictures that the tower reads of an image.
	Tiles(m *RGB) ([]*RGB, Grid, error)
	// Levels returns the normalised number of each value of a channel, which the tower reads.
	Levels(channel int) [256]float32
}

// Tiled is the image processor of SmolVLM and Idefics3 (Idefics3ImageProcessor of transformers): an image is resized,
// divided into square tiles, and followed by all of it as one more tile.
type Tiled struct {
	Size    int  // pixels of the longer side after the first resize, at most maxEdge
	Tile    int  // S, pixels of a side of a tile
	Split   bool // whether images are divided; otherwise the whole image is the only tile
	Resize  bool // whether images are resized to Size before
	Filter  Filter
	Tokens  int // tokens that stand for a tile
	Rescale float64
	// Mean and Std normalise the channels: (value * Rescale - Mean) / Std.
	Mean, Std [3]float64
}

// Grid is how an image is divided. Tiled divides it into Rows x Cols tiles and one more of the whole image, or, where
// both are 0, into the whole image alone. For Patched it has Rows x Cols tokens.
type Grid struct{ Rows, Cols int }

// Tiles returns the number of tiles of Tiled.
func (g Grid) Tiles() int { return g.Rows*g.Cols + 1 }

// maxEdge is the most pixels of a side after the first resize, whatever Size is.
const maxEdge = 4096

// processorFile is what a processor's file says; a pointer is nil where a key is missing.
type processorFile struct {
	Type      string         `json:"image_processor_type"`
	DoResize  *bool          `json:"do_resize"`
	Size      map[string]int `json:"size"`
	Resample  *int           `json:"resample"`
	DoSplit   *bool          `json:"do_image_splitting"`
	Max       map[string]int `json:"max_image_size"`
	DoRescale *bool          `json:"do_rescale"`
	Rescale   *float64       `json:"rescale_factor"`
	DoNorm    *bool          `json:"do_normalize"`
	Mean      []float64      `json:"image_mean"`
	Std       []float64      `json:"image_std"`
	Seq       *int           `json:"image_seq_len"`
	SeqLength *int           `json:"image_seq_length"`
	MinPixels *int           `json:"min_pixels"`
	MaxPixels *int           `json:"max_pixels"`
	Patch     *patchSize     `json:"patch_size"`
	Merge     *int           `json:"merge_size"`
	Temporal  *int           `json:"temporal_patch_size"`
	// SpatialMerge is of the file of Mistral's processor, whose patch_size comes before that of image_processor.
	SpatialMerge *int            `json:"spatial_merge_size"`
	Image        json.RawMessage `json:"image_processor"`
}

// ProcessorFiles are the files that describe a model's processor of images; the second replaces the first in folders
// that transformers 5 writes.
var ProcessorFiles = []string{"preprocessor_config.json", "processor_config.json"}

// ErrNoProcessor is the error of a folder without the files of an image processor.
var ErrNoProcessor = errors.New("the model's folder has no " + ProcessorFiles[0] + ": it describes no images")

// ReadProcessor reads the image processor of a model's folder.
func ReadProcessor(folder fs.FS) (Processor, error) {
	f, from, err := readProcessorFiles(folder)
	if err != nil {
		return nil, err
	}
	p, err := f.processor()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return p, nil
}

// readProcessorFiles returns what the files say, and which of them describes the images.
func readProcessorFiles(folder fs.FS) (f processorFile, from string, err error) {
	for _, name := range ProcessorFiles {
		data, err := fs.ReadFile(folder, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return f, name, err
		}
		if err := json.Unmarshal(data, &f); err != nil {
			return f, name, fmt.Errorf("%s: %w", name, err)
		}
		if f.Image != nil {
			var own processorFile
			if err := errors.Join(json.Unmarshal(data, &own), json.Unmarshal(f.Image, &f)); err != nil {
				return f, name, fmt.Errorf("%s: image_processor: %w", name, err)
			}
			if own.Patch != nil {
				f.Patch = own.Patch
			}
		}
		if from == "" || f.Image != nil {
			from = name
		}
	}
	if from == "" {
		return f, "", ErrNoProcessor
	}
	return f, from, nil
}

// The types of processors in transformers, without "Fast" and "Pil" at their ends.
var (
	tiledTypes   = []string{"Idefics3ImageProcessor", "SmolVLMImageProcessor"}
	patchedTypes = []string{"Qwen2VLImageProcessor"}
	squareTypes  = []string{"Gemma3ImageProcessor"}
	linedTypes   = []string{"PixtralImageProcessor"}
)

// processor checks the file's values; absent ones have transformers' defaults.
func (f processorFile) processor() (Processor, error) {
	kind := strings.TrimSuffix(strings.TrimSuffix(f.Type, "Fast"), "Pil")
	known := slices.Concat(tiledTypes, patchedTypes, squareTypes, linedTypes)
	if !slices.Contains(known, kind) {
		return nil, fmt.Errorf("image_processor_type = %q: supported are %s and %s", f.Type,
			strings.Join(known[:len(known)-1], ", "), known[len(known)-1])
	}
	for key, set := range map[string]*bool{"do_rescale": f.DoRescale, "do_normalize": f.DoNorm} {
		if set != nil && !*set {
			return nil, fmt.Errorf("%s = false: supported is true", key)
		}
	}
	switch {
	case slices.Contains(patchedTypes, kind):
		return f.patched()
	case slices.Contains(squareTypes, kind):
		return f.square()
	case slices.Contains(linedTypes, kind):
		return f.lined()
	}
	return f.tiled()
}

func (f processorFile) tiled() (*Tiled, error) {
	p := &Tiled{Size: 4 * 364, Tile: 364, Split: true, Resize: true, Filter: Lanczos, Tokens: 169,
		Rescale: 1 / 255., Mean: [3]float64{.5, .5, .5}, Std: [3]float64{.5, .5, .5}}
	take(&p.Resize, f.DoResize)
	take(&p.Split, f.DoSplit)
	take((*int)(&p.Filter), f.Resample)
	take(&p.Rescale, f.Rescale)
	take(&p.Tokens, f.Seq)
	return p, errors.Join(longest("size", f.Size, &p.Size), longest("max_image_size", f.Max, &p.Tile),
		channels("image_mean", f.Mean, &p.Mean), channels("image_std", f.Std, &p.Std), p.check())
}

func take[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// longest takes a size that is given by its longest edge.
func longest(key string, size map[string]int, to *int) error {
	if size == nil {
		return nil
	}
	edge, ok := size["longest_edge"]
	if !ok || len(size) != 1 {
		return fmt.Errorf("%s = %v: supported is longest_edge alone", key, size)
	}
	*to = edge
	return nil
}

func channels(key string, from []float64, to *[3]float64) error {
	if from == nil {
		return nil
	}
	if len(from) != len(to) {
		return fmt.Errorf("%s has %d numbers, want one for each of 3 channels", key, len(from))
	}
	copy(to[:], from)
	return nil
}

func (p *Tiled) check() error {
	switch {
	case p.Size < 1 || p.Size > MaxSide:
		return fmt.Errorf("size: longest_edge = %d: must be 1 to %d", p.Size, MaxSide)
	case p.Tile < 1 || p.Tile > maxEdge:
		return fmt.Errorf("max_image_size: longest_edge = %d: must be 1 to %d", p.Tile, maxEdge)
	case p.Split && (min(p.Size, maxEdge)+p.Tile-1)/p.Tile > maxGrid:
		return fmt.Errorf("size: longest_edge = %d makes more than %d tiles of %d in a row", p.Size, maxGrid, p.Tile)
	case p.Tokens < 1 || p.Tokens > 1<<16:
		return fmt.Errorf("image_seq_len = %d: must be 1 to %d", p.Tokens, 1<<16)
	}
	return checkPixels(p.Filter, p.Mean, p.Std)
}

// checkPixels refuses a filter that is not known, and numbers that no channel can be normalised with.
func checkPixels(f Filter, mean, std [3]float64) error {
	if filters[f].at == nil {
		return fmt.Errorf("resample = %d: supported are 1 (Lanczos), 2 (bilinear) and 3 (bicubic)", f)
	}
	for i := range std {
		if std[i] == 0 || math.IsNaN(mean[i]/std[i]) || math.IsInf(mean[i]/std[i], 0) {
			return fmt.Errorf("image_mean = %v, image_std = %v: must be finite, and image_std not zero", mean, std)
		}
	}
	return nil
}

// maxGrid is the most tiles in a row or a column.
const maxGrid = 32

// resized returns the size of an image after the first resize. Its shorter side is made even, as transformers does it.
func (p *Tiled) resized(width, height int) (int, int) {
	if !p.Resize {
		return width, height
	}
	ratio := float64(width) / float64(height)
	if width >= height {
		width, height = p.Size, even(int(float64(p.Size)/ratio))
	} else {
		width, height = even(int(float64(p.Size)*ratio)), p.Size
	}
	width, height = max(width, 1), max(height, 1)
	ratio = float64(width) / float64(height)
	if width >= height && width > maxEdge {
		width, height = maxEdge, int(maxEdge/ratio)
	} else if height > width && height > maxEdge {
		width, height = int(maxEdge*ratio), maxEdge
	}
	return max(width, 1), max(height, 1)
}

func even(n int) int { return n + n%2 }

// divided returns the size of an image whose sides are whole numbers of tiles.
func (p *Tiled) divided(width, height int) (int, int) {
	whole := func(n int) int { return (n + p.Tile - 1) / p.Tile * p.Tile }
	ratio := float64(width) / float64(height)
	if width >= height {
		width = whole(width)
		return width, whole(int(float64(width) / ratio))
	}
	height = whole(height)
	return whole(int(float64(height) * ratio)), height
}

// Mark returns Image.
func (*Tiled) Mark() string { return Image }

// Written returns nothing: templates write Image.
func (*Tiled) Written() (inTemplate, read string) { return "", "" }

// Grid returns how an image of a size is divided. No size is refused.
func (p *Tiled) Grid(width, height int) (Grid, error) { return p.grid(width, height), nil }

func (p *Tiled) grid(width, height int) Grid {
	if !p.Split {
		return Grid{}
	}
	if width, height = p.divided(p.resized(width, height)); width <= p.Tile && height <= p.Tile {
		return Grid{}
	}
	return Grid{height / p.Tile, width / p.Tile}
}

// Tiles returns the tiles of an image, each of Tile x Tile pixels: row by row, then the whole image.
func (p *Tiled) Tiles(m *RGB) ([]*RGB, Grid, error) {
	g := p.grid(m.Width, m.Height)
	resize := func(width, height int) (err error) {
		m, err = m.Resize(width, height, p.Filter)
		return err
	}
	if p.Resize {
		if err := resize(p.resized(m.Width, m.Height)); err != nil {
			return nil, g, err
		}
	}
	if p.Split {
		if err := resize(p.divided(m.Width, m.Height)); err != nil {
			return nil, g, err
		}
	}
	tiles := make([]*RGB, 0, g.Tiles())
	for r := range g.Rows {
		for c := range g.Cols {
			tiles = append(tiles, m.crop(c*p.Tile, r*p.Tile, p.Tile, p.Tile))
		}
	}
	err := resize(p.Tile, p.Tile)
	return append(tiles, m), g, err
}

// Levels returns the normalised number of each value of a channel, which the tower reads.
func (p *Tiled) Levels(channel int) [256]float32 {
	return levels(p.Rescale, p.Mean[channel], p.Std[channel])
}

// levels returns the normalised number of each value of a channel.
func levels(rescale, mean, std float64) (all [256]float32) {
	for i := range all {
		all[i] = (float32(float64(i)*rescale) - float32(mean)) / float32(std)
	}
	return all
}

// Names of tokens around and in place of images. Image is the mark of an image in a text too: as it stands in a
// conversation, a template writes it, and Text takes its place.
const (
	Image  = "<image>"
	around = "<fake_token_around_image>"
	whole  = "<global-img>"
)

// Text returns the text that stands for an image of a grid, as Idefics3Processor of transformers writes it.
func (p *Tiled) Text(g Grid) string {
	var b strings.Builder
	tile := strings.Repeat(Image, p.Tokens)
	for r := range g.Rows {
		for c := range g.Cols {
			fmt.Fprintf(&b, "%s<row_%d_col_%d>%s", around, r+1, c+1, tile)
		}
		b.WriteByte('\n')
	}
	if g.Rows > 0 {
		b.WriteByte('\n')
	}
	b.WriteString(around + whole + tile + around)
	return b.String()
}
