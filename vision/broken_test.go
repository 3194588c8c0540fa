package vision

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tierlora/tierlora/internal/golden"
)

// pngOf is a PNG whose header says a size, with the data of a small one.
func pngOf(t *testing.T, width, height uint32) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 2, 2))); err != nil {
		t.Fatal(err)
	}
	data := b.Bytes()
	binary.BigEndian.PutUint32(data[16:], width)
	binary.BigEndian.PutUint32(data[20:], height)
	binary.BigEndian.PutUint32(data[29:], crc32.ChecksumIEEE(data[12:29]))
	return data
}

func TestBrokenImages(t *testing.T) {
	file := func(name string) []byte { return golden.ReadFile(t, golden.Path(t, "images/"+name)) }
	animation := append([]byte("RIFF\x1a\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x02\x00\x00\x00"), make([]byte, 20)...)
	progressive := file("progressive.jpg")
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "the image file is empty"},
		{"text", []byte("hello, world"), `begins with "hello, w", which is no PNG, JPEG, WebP or GIF`},
		{"wide", pngOf(t, 100000, 100000),
			"PNG: 100000 x 100000 pixels: an image may have 16384 on a side and 33554432 in all"},
		{"large", pngOf(t, 8192, 8192),
			"PNG: 8192 x 8192 pixels: an image may have 16384 on a side and 33554432 in all"},
		{"no width", pngOf(t, 0, 5), "PNG: the image has no pixels: its width or its height is 0"},
		{"a short PNG", file("rgb.png")[:300], "PNG: the file ends before the image does"},
		{"a short JPEG", file("odd_420.jpg")[:900], "JPEG: the file ends before the image does"},
		{"a short WebP", file("lossy.webp")[:300], "WebP: the file ends before the image does"},
		{"a short GIF", file("plain.gif")[:200], "GIF: the file ends before the image does"},
		{"a head alone", file("rgb.png")[:10], "PNG: the file ends before the image does"},
		{"animation", animation,
			"WebP: the file is an animation: save its first frame as an image of its own"},
		{"scans", append(progressive, bytes.Repeat([]byte{0xff, 0xda}, maxScans)...),
			"JPEG: the file has 210 scans, more than 200"},
		{"long", append(file("rgb.png"), make([]byte, MaxFile)...),
			"PNG: the file has 67109963 bytes, more than 67108864"},
	} {
		_, _, err := Decode(c.data)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

func TestBrokenProcessors(t *testing.T) {
	const ok, patched, square = `"image_processor_type":"Idefics3ImageProcessor"`,
		`"image_processor_type":"Qwen2VLImageProcessorFast"`, `"image_processor_type":"Gemma3ImageProcessor"`
	const lined = `"image_processor_type":"PixtralImageProcessor"`
	for _, c := range []struct{ file, want string }{
		{`{`, "preprocessor_config.json: unexpected end of JSON input"},
		{`{}`, `image_processor_type = "": supported are Idefics3ImageProcessor, SmolVLMImageProcessor, ` +
			"Qwen2VLImageProcessor, Gemma3ImageProcessor and PixtralImageProcessor"},
		{`{"image_processor_type":"CLIPImageProcessor"}`,
			`image_processor_type = "CLIPImageProcessor": supported are`},
		{`{` + ok + `,"do_rescale":false}`, "do_rescale = false: supported is true"},
		{`{` + ok + `,"size":{"height":3,"width":3}}`,
			"size = map[height:3 width:3]: supported is longest_edge alone"},
		{`{` + ok + `,"size":{"longest_edge":0}}`, "size: longest_edge = 0: must be 1 to 16384"},
		{`{` + ok + `,"max_image_size":{"longest_edge":9999}}`,
			"max_image_size: longest_edge = 9999: must be 1 to 4096"},
		{`{` + ok + `,"size":{"longest_edge":4096},"max_image_size":{"longest_edge":8}}`,
			"makes more than 32 tiles of 8 in a row"},
		{`{` + ok + `,"resample":5}`,
			"resample = 5: supported are 1 (Lanczos), 2 (bilinear) and 3 (bicubic)"},
		{`{` + ok + `,"image_seq_len":-1}`, "image_seq_len = -1: must be 1 to 65536"},
		{`{` + ok + `,"image_mean":[1]}`, "image_mean has 1 numbers, want one for each of 3 channels"},
		{`{` + ok + `,"image_std":[1,0,1]}`, "image_std = [1 0 1]: must be finite, and image_std not zero"},
		{`{` + patched + `,"do_resize":false}`, "do_resize = false: supported is true"},
		{`{` + patched + `,"size":{"height":3}}`,
			"size = map[height:3]: supported are shortest_edge and longest_edge, in pixels of the area"},
		{`{` + patched + `,"merge_size":0}`,
			"patch_size = 14, merge_size = 0, temporal_patch_size = 2: must be 1 to 256"},
		{`{` + patched + `,"min_pixels":9,"max_pixels":8}`,
			"size: shortest_edge = 9, longest_edge = 8: must be 1 to 33554432 pixels, the first not above the second"},
		{`{` + patched + `,"min_pixels":9,"max_pixels":99}`, "size: longest_edge = 99: a token has 28 x 28 pixels"},
		{`{` + patched + `,"max_pixels":1000000,"patch_size":1}`,
			"size: longest_edge = 1000000 makes more than 65536 tokens of 2 x 2 pixels"},
		{`{` + square + `,"do_resize":false}`, "do_resize = false: supported is true"},
		{`{` + square + `,"size":{"height":3,"width":4}}`,
			"size = map[height:3 width:4]: supported are height and width, equal"},
		{`{` + square + `,"size":{"height":9999,"width":9999}}`, "size: height = 9999: must be 1 to 4096"},
		{`{` + square + `,"image_seq_length":0}`, "image_seq_length = 0: must be 1 to 65536"},
		{`{` + lined + `,"size":{"height":3}}`, "size = map[height:3]: supported are longest_edge, or height and width"},
		{`{` + lined + `,"size":{"longest_edge":0}}`, "size: 0 x 0: must be 1 to 4096"},
		{`{` + lined + `,"patch_size":{"height":3,"width":4}}`, "supported are a number, and height and width, equal"},
		{`{` + lined + `,"patch_size":0}`, "patch_size = 0, spatial_merge_size = 1: must be 1 to 256"},
		{`{` + lined + `,"patch_size":1}`, "size: 1024 x 1024 makes more than 65536 tokens of 1 x 1 pixels"},
		{`{` + patched + `,"resample":0}`, "resample = 0: supported are 1 (Lanczos), 2 (bilinear) and 3 (bicubic)"},
	} {
		_, err := ReadProcessor(fstest.MapFS{ProcessorFiles[0]: {Data: []byte(c.file)}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.file, err, c.want)
		}
	}
	if _, err := ReadProcessor(fstest.MapFS{}); err != ErrNoProcessor {
		t.Error(err)
	}
}

// TestNestedProcessor reads the files that transformers 5 writes: one with the image processor within it.
func TestNestedProcessor(t *testing.T) {
	read, err := ReadProcessor(fstest.MapFS{ProcessorFiles[1]: {Data: []byte(`{"image_seq_len":4,"image_processor":{
		"image_processor_type":"SmolVLMImageProcessorFast","size":{"longest_edge":64},
		"max_image_size":{"longest_edge":16}}}`)}})
	p, _ := read.(*Tiled)
	if err != nil || p.Tokens != 4 || p.Tile != 16 || p.Size != 64 {
		t.Fatal(p, err)
	}
	if got, want := p.Text(Grid{1, 2}), around+"<row_1_col_1><image><image><image><image>"+around+
		"<row_1_col_2><image><image><image><image>\n\n"+around+whole+"<image><image><image><image>"+
		around; got != want {
		t.Error(got)
	}
}

func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("../internal/golden/testdata/images/*")
	if err != nil || len(files) < 20 {
		f.Fatal(files, err)
	}
	for _, path := range files {
		if data, err := os.ReadFile(path); err == nil && !strings.Contains(path, ".json") {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if i, err := Look(data); err == nil && i.Width*i.Height > 1<<20 {
			t.Skip()
		}
		m, info, err := Decode(data)
		if err == nil && (m.Width != info.Width || m.Height != info.Height || len(m.Pix) != 3*m.Width*m.Height) {
			t.Fatal(m.Width, m.Height, info)
		}
	})
}

func FuzzProcessor(f *testing.F) {
	f.Add([]byte(`{"image_processor_type":"Idefics3ImageProcessor","size":{"longest_edge":64}}`), 30, 20)
	f.Add([]byte(`{"image_processor_type":"Qwen2VLImageProcessor","patch_size":4,"max_pixels":4000}`), 30, 20)
	f.Fuzz(func(t *testing.T, data []byte, width, height int) {
		read, err := ReadProcessor(fstest.MapFS{ProcessorFiles[0]: {Data: data}})
		if err != nil || checkSize(width, height) != nil {
			return
		}
		g, err := read.Grid(width, height)
		if p, ok := read.(*Patched); ok {
			if err == nil && (g.Rows < 1 || g.Cols < 1 || g.Rows*g.Cols > 4*maxPatched) {
				t.Fatal(g)
			}
			if p.MaxPixels < 4096 && width*height < 4096 {
				if tiles, of, err := p.Tiles(NewRGB(width, height)); err == nil && (len(tiles) != 1 || of != g) {
					t.Fatal(len(tiles), g)
				}
			}
			return
		}
		if g.Rows < 0 || g.Cols < 0 || (g.Rows == 0) != (g.Cols == 0) || g.Rows > maxGrid || g.Cols > maxGrid {
			t.Fatal(g)
		}
		p := read.(*Tiled)
		if p.Size <= 64 && p.Tile <= 64 && width*height < 4096 && (p.Resize || !p.Split) {
			if tiles, of, err := p.Tiles(NewRGB(width, height)); err == nil && (len(tiles) != g.Tiles() || of != g) {
				t.Fatal(len(tiles), g)
			}
		}
	})
}
