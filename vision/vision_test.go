package vision

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"testing"
	"testing/fstest"

	"github.com/tierlora/tierlora/internal/golden"
)

// references are what PIL and transformers make of images, by internal/golden/make_images.py.
type references struct {
	Decoded map[string]struct {
		Width, Height int
		SHA256        string
		Pixels        string
	}
	Resized []struct {
		Filter, Width, Height int
		SHA256                string
	}
	Processed []struct {
		Config                           json.RawMessage
		Width, Height, Rows, Cols, Tiles int
		SHA256                           string
	}
}

func readReferences(t *testing.T) (r references) {
	t.Helper()
	golden.JSON(t, golden.Path(t, "images/images.json"), &r)
	return r
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// formula is the picture that make_images.py makes by the same name.
func formula(width, height int) *RGB {
	m := NewRGB(width, height)
	for y := range height {
		for x := range width {
			copy(m.Pix[3*(y*width+x):], []byte{byte(7*x + 3*y), byte(x * y), byte(11*x) ^ byte(5*y)})
		}
	}
	return m
}

func TestDecodeEqualsPIL(t *testing.T) {
	for name, want := range readReferences(t).Decoded {
		m, info, err := Decode(golden.ReadFile(t, golden.Path(t, "images/"+name)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if m.Width != want.Width || m.Height != want.Height || info.Width != want.Width || info.Height != want.Height {
			t.Errorf("%s: %d x %d, want %d x %d", name, m.Width, m.Height, want.Width, want.Height)
			continue
		}
		if digest(m.Pix) == want.SHA256 {
			continue
		}
		pixels, _ := hex.DecodeString(want.Pixels)
		most, sum := 0, 0
		for i, p := range pixels {
			d := int(math.Abs(float64(p) - float64(m.Pix[i])))
			most, sum = max(most, d), sum+d
		}
		// The reverse cosine transforms of libjpeg and of image/jpeg round differently.
		if mean := float64(sum) / float64(max(len(pixels), 1)); want.Pixels == "" || most > 3 || mean > 0.06 {
			t.Errorf("%s: differs by at most %d, %.4f in the mean", name, most, mean)
		}
	}
}

func TestResizeEqualsPIL(t *testing.T) {
	for _, want := range readReferences(t).Resized {
		m, err := formula(38, 26).Resize(want.Width, want.Height, Filter(want.Filter))
		if err != nil {
			t.Fatal(err)
		}
		if digest(m.Pix) != want.SHA256 {
			t.Errorf("filter %d, %d x %d: other pixels than PIL's", want.Filter, want.Width, want.Height)
		}
	}
}

func TestTilesEqualTransformers(t *testing.T) {
	for i, want := range readReferences(t).Processed {
		p, err := ReadProcessor(fstest.MapFS{ProcessorFiles[0]: {Data: want.Config}})
		if err != nil {
			t.Fatal(err)
		}
		tiles, grid, err := p.Tiles(formula(want.Width, want.Height))
		if err != nil {
			t.Fatal(err)
		}
		if grid != (Grid{want.Rows, want.Cols}) || len(tiles) != want.Tiles || grid.Tiles() != want.Tiles {
			t.Errorf("%d: %d x %d: grid %v of %d tiles, want %d x %d of %d", i, want.Width, want.Height, grid,
				len(tiles), want.Rows, want.Cols, want.Tiles)
			continue
		}
		var values []byte
		for _, m := range tiles {
			for c := range 3 {
				levels := p.Levels(c)
				for at := c; at < len(m.Pix); at += 3 {
					values = binary.LittleEndian.AppendUint32(values, math.Float32bits(levels[m.Pix[at]]))
				}
			}
		}
		if digest(values) != want.SHA256 {
			t.Errorf("%d: %d x %d: other pixel values than transformers'", i, want.Width, want.Height)
		}
	}
}

// TestPatchedEqualsTransformers compares sizes with smart_resize.
func TestPatchedEqualsTransformers(t *testing.T) {
	var want struct {
		Sizes [][4]int // height and width, and those of the resized image
	}
	golden.JSON(t, golden.Path(t, "qwen3_vl_images/rows.json"), &want)
	const side = 32
	release := Patched{MinPixels: 65536, MaxPixels: 1048576, Patch: 16, Merge: 2, Temporal: 2, Filter: Bicubic}
	for _, s := range want.Sizes {
		g, err := release.Grid(s[1], s[0])
		if err != nil || g != (Grid{s[2] / side, s[3] / side}) {
			t.Errorf("%d x %d: %v (%v), want %d x %d pixels", s[1], s[0], g, err, s[3], s[2])
		}
	}
	if _, err := release.Grid(2001, 10); err == nil ||
		err.Error() != "2001 x 10 pixels: one side may be 200 times as long as the other" {
		t.Error(err)
	}
	if len(want.Sizes) < 60 {
		t.Errorf("%d sizes are compared", len(want.Sizes))
	}
}

// TestPixelsOfRowsEqualTransformers compares the resized pixels of drawn models' rows with those of their processors.
func TestPixelsOfRowsEqualTransformers(t *testing.T) {
	for _, folder := range []string{"qwen2_5_vl_images", "qwen3_vl_images", "gemma3_images", "mistral3_images"} {
		var want struct {
			Rows []struct {
				Messages []struct {
					Content []struct{ Image string }
				}
				Pixels []string // SHA-256
			}
		}
		golden.JSON(t, golden.Path(t, folder+"/rows.json"), &want)
		p, err := ReadProcessor(os.DirFS(golden.Path(t, folder+"/model")))
		if err != nil {
			t.Fatal(err)
		}
		compared := 0
		for _, row := range want.Rows {
			for _, message := range row.Messages {
				for _, part := range message.Content {
					if part.Image == "" {
						continue
					}
					m, _, err := Decode(golden.ReadFile(t, golden.Path(t, "images/"+part.Image)))
					if err != nil {
						t.Fatal(err)
					}
					tiles, _, err := p.Tiles(m)
					if err != nil {
						t.Fatal(err)
					}
					if digest(tiles[0].Pix) != row.Pixels[0] {
						t.Errorf("%s, %s: other pixels than transformers'", folder, part.Image)
					}
					row.Pixels, compared = row.Pixels[1:], compared+1
				}
			}
		}
		if compared != 4 {
			t.Errorf("%s: %d pictures are compared", folder, compared)
		}
	}
}
