package main

import (
	"bufio"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/vision"
)

// imageJSON is the output of inspect image --json.
type imageJSON struct {
	File        string        `json:"file"`
	Format      vision.Format `json:"format"`
	Width       int           `json:"width"` // as the image is looked at
	Height      int           `json:"height"`
	Orientation int           `json:"orientation"` // EXIF, 1 to 8
	Rows        int           `json:"rows"`        // of tiles; 0 = the whole image is the only tile
	Columns     int           `json:"columns"`
	Tiles       int           `json:"tiles"`
	Tile        int           `json:"tile_pixels"` // of a side
	// Resized is the width and height of an image that is one tile of any size, whose Rows and Columns are of tokens.
	Resized []int `json:"resized,omitempty"`
	mark    string
	// ImageTokens is the number of tokens for the image itself, whose embeddings the image replaces. Tokens counts
	// those around them too, and IDs are all of them.
	ImageTokens int     `json:"image_tokens"`
	Tokens      int     `json:"tokens"`
	IDs         []int32 `json:"ids"`
}

func newInspectImage(c *console) *cobra.Command {
	var dir string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "image FILE --model DIR",
		Short: "Print how a model's processor divides an image, and its tokens",
		Long: `Decode an image (PNG, JPEG, WebP, or the first frame of a GIF), divide it as the model's processor does, and
count the tokens that stand for it. The model needs no weights: preprocessor_config.json and a tokenizer are enough.`,
		Example: `  trainer inspect image photo.jpg --model ./SmolVLM-256M-Instruct
  trainer inspect image photo.jpg --model ./SmolVLM-256M-Instruct --json`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || dir == "" {
				return usage(errors.New("name one image and a model: trainer inspect image FILE --model DIR"))
			}
			tok, folder, err := openTokenizer(cmd.Context(), dir, environment(c, 0))
			if err != nil {
				return err
			}
			p, err := vision.ReadProcessor(folder)
			if err != nil {
				return usage(fmt.Errorf("model %s: %w", dir, err))
			}
			answer, err := inspectImage(args[0], p, func(text string) []int32 { return tok.IDs(text, false) })
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, answer)
			}
			return answer.write(bufio.NewWriter(c.out))
		},
	}
	pathVar(cmd, &dir, "model", "", "model `DIR` with an image processor and a tokenizer, or hub name")
	c.downloadFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

// inspectImage reads a file and processes it.
func inspectImage(file string, p vision.Processor, encode func(text string) []int32) (imageJSON, error) {
	data, err := dataset.ReadImage(file)
	var a imageJSON
	var grid vision.Grid
	if err == nil {
		a, _, grid, err = divideImage(data, p)
	}
	if err != nil {
		return imageJSON{}, usage(fmt.Errorf("image %s: %w", file, err))
	}
	a.File = file
	mark := encode(a.mark)
	if len(mark) != 1 {
		return a, usage(fmt.Errorf("the tokenizer has no token %s: it makes %d of it", a.mark, len(mark)))
	}
	a.IDs = encode(p.Text(grid))
	a.Tokens = len(a.IDs)
	for _, id := range a.IDs {
		if id == mark[0] {
			a.ImageTokens++
		}
	}
	return a, nil
}

// divideImage decodes an image and divides it as a processor does. The answer has no name and no tokens.
func divideImage(file []byte, p vision.Processor) (a imageJSON, m *vision.RGB, grid vision.Grid, err error) {
	m, info, err := vision.Decode(file)
	if err != nil {
		return a, nil, grid, err
	}
	tiles, grid, err := p.Tiles(m)
	if err != nil {
		return a, nil, grid, err
	}
	a = imageJSON{Format: info.Format, Width: info.Width, Height: info.Height, Orientation: info.Orientation,
		Rows: grid.Rows, Columns: grid.Cols, Tiles: len(tiles), mark: p.Mark()}
	if tiled, ok := p.(*vision.Tiled); ok {
		a.Tile = tiled.Tile
	} else {
		a.Resized = []int{tiles[0].Width, tiles[0].Height}
	}
	return a, m, grid, nil
}

// division describes in words how the image is divided, and term is the word for it.
func (a imageJSON) division() (term, text string) {
	switch {
	case a.Resized != nil:
		return "resized", fmt.Sprintf("%d x %d pixels: %d rows x %d columns of tokens", a.Resized[0], a.Resized[1],
			a.Rows, a.Columns)
	case a.Rows > 0:
		return "tiles", fmt.Sprintf("%d rows x %d columns, and the whole image: %d tiles of %d x %d pixels", a.Rows,
			a.Columns, a.Tiles, a.Tile, a.Tile)
	}
	return "tiles", fmt.Sprintf("the whole image: %d x %d pixels", a.Tile, a.Tile)
}

// size describes the file's format and the size of its image.
func (a imageJSON) size() string {
	s := fmt.Sprintf("%s, %d x %d pixels", a.Format, a.Width, a.Height)
	if a.Orientation > 1 {
		s += fmt.Sprintf(", EXIF orientation %d", a.Orientation)
	}
	return s
}

func (a imageJSON) write(w *bufio.Writer) error {
	term, text := a.division()
	fmt.Fprintf(w, "image       %s: %s\n%-12s%s\n", a.File, a.size(), term, text)
	fmt.Fprintf(w, "tokens      %d, of which %d are %s\n", a.Tokens, a.ImageTokens, a.mark)
	return w.Flush()
}
