// Package vision turns image files into what the image tower of a model reads: it decodes them, turns them as their
// EXIF orientation says, resizes and divides them as a model's processor does, and writes the tokens that stand for
// them.
//
//	file -> Decode -> RGB -> Processor.Tiles, the pixels of the image
//	                   \---> Processor.Grid -> Processor.Text, its tokens
//
// Files are untrusted: their sizes are checked before memory is allocated for them.
package vision

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"slices"
	"strings"

	"golang.org/x/image/webp"
)

// Bounds of image files.
const (
	MaxFile   = 64 << 20 // bytes of a file
	MaxSide   = 16384    // pixels of a side
	MaxPixels = 1 << 25  // pixels of an image: 8192 x 4096
	maxScans  = 200      // scans of a JPEG; progressive ones have about ten
)

// Format is the format of an image file, detected from its first bytes.
type Format string

// The formats that Decode reads.
const (
	PNG  Format = "PNG"
	JPEG Format = "JPEG"
	WebP Format = "WebP"
	GIF  Format = "GIF"
)

// Info describes an image file.
type Info struct {
	Format Format
	// Width and Height are the size in pixels as the image is looked at, after its orientation.
	Width, Height int
	// Orientation is the EXIF orientation of the file, 1 to 8; 1 = the file has none.
	Orientation int
}

// decoder reads one format.
type decoder struct {
	config func(data []byte) (image.Config, error)
	decode func(data []byte) (*RGB, error)
	exif   func(data []byte) []byte // the TIFF structure of the file's EXIF; nil = it has none
}

var decoders = map[Format]decoder{
	PNG:  {configBy(png.DecodeConfig), decodePNG, pngEXIF},
	JPEG: {configBy(jpeg.DecodeConfig), decodeJPEG, jpegEXIF},
	WebP: {configBy(webp.DecodeConfig), decodeWebP, webpEXIF},
	GIF:  {configBy(gif.DecodeConfig), decodeGIF, func([]byte) []byte { return nil }},
}

// detect returns the format of a file, and an error that names what its first bytes are instead.
func detect(data []byte) (Format, error) {
	starts := func(s string) bool { return bytes.HasPrefix(data, []byte(s)) }
	switch {
	case len(data) == 0:
		return "", errors.New("the image file is empty")
	case starts("\x89PNG\r\n\x1a\n"):
		return PNG, nil
	case starts("\xff\xd8\xff"):
		return JPEG, nil
	case starts("RIFF") && len(data) >= 12 && string(data[8:12]) == "WEBP":
		return WebP, nil
	case starts("GIF87a"), starts("GIF89a"):
		return GIF, nil
	}
	return "", fmt.Errorf("begins with %q, which is no PNG, JPEG, WebP or GIF", data[:min(8, len(data))])
}

// Look returns what an image file's headers say, without decoding it. It refuses files that Decode refuses for their
// size.
func Look(data []byte) (Info, error) {
	format, err := detect(data)
	if err != nil {
		return Info{}, err
	}
	if len(data) > MaxFile {
		return Info{}, fmt.Errorf("%s: the file has %d bytes, more than %d", format, len(data), MaxFile)
	}
	if format == WebP && animated(data) {
		return Info{}, errors.New("WebP: the file is an animation: save its first frame as an image of its own")
	}
	c, err := decoders[format].config(data)
	if err != nil {
		return Info{}, fmt.Errorf("%s: %w", format, cut(err))
	}
	if err := checkSize(c.Width, c.Height); err != nil {
		return Info{}, fmt.Errorf("%s: %w", format, err)
	}
	if n := scans(data); format == JPEG && n > maxScans {
		return Info{}, fmt.Errorf("JPEG: the file has %d scans, more than %d", n, maxScans)
	}
	i := Info{format, c.Width, c.Height, orientation(decoders[format].exif(data))}
	if i.Orientation >= 5 {
		i.Width, i.Height = i.Height, i.Width
	}
	return i, nil
}

// checkSize refuses images without pixels and those with too many.
func checkSize(width, height int) error {
	if width < 1 || height < 1 {
		return fmt.Errorf("%d x %d pixels: the image is empty", width, height)
	}
	if width > MaxSide || height > MaxSide || width*height > MaxPixels {
		return fmt.Errorf("%d x %d pixels: an image may have %d on a side and %d in all", width, height, MaxSide,
			MaxPixels)
	}
	return nil
}

// ends are parts of the decoders' errors for a file that ends early.
var ends = []string{"EOF", "not enough pixel data", "not enough image data", "short Huffman data", "short chunk data"}

// noPixels is a part of the PNG decoder's error for an image without pixels.
const noPixels = "non-positive dimension"

// cut says in plain words that a file ends early, or has no pixels.
func cut(err error) error {
	if slices.ContainsFunc(ends, func(part string) bool { return strings.Contains(err.Error(), part) }) {
		return errors.New("the file ends before the image does")
	}
	if strings.Contains(err.Error(), noPixels) {
		return errors.New("the image has no pixels: its width or its height is 0")
	}
	return err
}

// Decode reads an image file as PIL does: transparency is dropped, of a GIF the first frame is taken, and the image is
// turned as its EXIF orientation says.
func Decode(data []byte) (*RGB, Info, error) {
	info, err := Look(data)
	if err != nil {
		return nil, info, err
	}
	m, err := decoders[info.Format].decode(data)
	if err != nil {
		return nil, info, fmt.Errorf("%s: %w", info.Format, cut(err))
	}
	if m.Width*m.Height != info.Width*info.Height {
		return nil, info, fmt.Errorf("%s: the image has %d x %d pixels, its header says %d x %d", info.Format, m.Width,
			m.Height, info.Width, info.Height)
	}
	return m.oriented(info.Orientation), info, nil
}

func configBy(read func(r io.Reader) (image.Config, error)) func(data []byte) (image.Config, error) {
	return func(data []byte) (image.Config, error) { return read(bytes.NewReader(data)) }
}

func decodePNG(data []byte) (*RGB, error) {
	m, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return fromPixels(m)
}

func decodeJPEG(data []byte) (*RGB, error) {
	m, err := jpeg.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if m, ok := m.(*image.YCbCr); ok {
		return fromJPEG(m), nil
	}
	return fromPixels(m)
}

func decodeWebP(data []byte) (*RGB, error) {
	m, err := webp.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	switch m := m.(type) {
	case *image.YCbCr:
		return fromWebP(m), nil
	case *image.NYCbCrA:
		return fromWebP(&m.YCbCr), nil
	}
	return fromPixels(m)
}

// decodeGIF places the first frame on the screen of the file. The rest of the screen has the transparent colour, or the
// first if there is none.
func decodeGIF(data []byte) (*RGB, error) {
	opaque, transparent := withoutTransparency(data)
	c, err := gif.DecodeConfig(bytes.NewReader(opaque))
	if err != nil {
		return nil, err
	}
	m, err := gif.Decode(bytes.NewReader(opaque))
	if err != nil {
		return nil, err
	}
	frame, ok := m.(*image.Paletted)
	if !ok {
		return nil, fmt.Errorf("a frame of type %T is not supported", m)
	}
	to, palette := NewRGB(c.Width, c.Height), colours(frame.Palette)
	if frame.Rect != image.Rect(0, 0, c.Width, c.Height) {
		for i := range c.Width * c.Height {
			copy(to.Pix[3*i:], palette[transparent][:])
		}
	}
	for y := frame.Rect.Min.Y; y < frame.Rect.Max.Y; y++ {
		for x := frame.Rect.Min.X; x < frame.Rect.Max.X; x++ {
			copy(to.Pix[3*(y*c.Width+x):], palette[frame.ColorIndexAt(x, y)][:])
		}
	}
	return to, nil
}

// withoutTransparency returns the file with a first frame without transparency, so that its palette keeps the colour
// behind transparent pixels, and the index of that colour.
func withoutTransparency(data []byte) (opaque []byte, index byte) {
	at := 13
	if len(data) > 10 && data[10]&0x80 != 0 {
		at += 3 << (data[10]&7 + 1)
	}
	for at+7 < len(data) && data[at] == 0x21 {
		if data[at+1] == 0xf9 && data[at+3]&1 != 0 {
			opaque, index = slices.Clone(data), data[at+6]
			opaque[at+3] &^= 1
			data = opaque
		}
		for at += 2; at < len(data) && data[at] != 0; at += int(data[at]) + 1 {
		}
		at++
	}
	return data, index
}

// colours returns the colours of a palette, without their transparency. Indices beyond it are black.
func colours(p color.Palette) (all [256][3]byte) {
	for i, c := range p[:min(len(p), 256)] {
		n := color.NRGBAModel.Convert(c).(color.NRGBA)
		if straight, ok := c.(color.NRGBA); ok {
			n = straight // the conversion loses the colour of what is transparent
		}
		all[i] = [3]byte{n.R, n.G, n.B}
	}
	return all
}

// fromPixels converts a decoded image whose colours need no interpolation.
func fromPixels(m image.Image) (*RGB, error) {
	b := m.Bounds()
	to := NewRGB(b.Dx(), b.Dy())
	var palette [256][3]byte
	if p, ok := m.(*image.Paletted); ok {
		palette = colours(p.Palette)
	}
	for y := range to.Height {
		line := to.Pix[3*y*to.Width:]
		x0, y := b.Min.X, b.Min.Y+y
		for x := range to.Width {
			px := line[3*x:][:3]
			switch m := m.(type) {
			case *image.Gray:
				v := m.Pix[m.PixOffset(x0+x, y)]
				px[0], px[1], px[2] = v, v, v
			case *image.Gray16: // PIL cuts values of 16 bits to 255
				v := byte(min(255, m.Gray16At(x0+x, y).Y))
				px[0], px[1], px[2] = v, v, v
			case *image.RGBA:
				copy(px, m.Pix[m.PixOffset(x0+x, y):])
			case *image.NRGBA:
				copy(px, m.Pix[m.PixOffset(x0+x, y):])
			case *image.RGBA64:
				p := m.Pix[m.PixOffset(x0+x, y):]
				px[0], px[1], px[2] = p[0], p[2], p[4]
			case *image.NRGBA64:
				p := m.Pix[m.PixOffset(x0+x, y):]
				px[0], px[1], px[2] = p[0], p[2], p[4]
			case *image.Paletted:
				copy(px, palette[m.ColorIndexAt(x0+x, y)][:])
			case *image.CMYK:
				cmyk(px, m.Pix[m.PixOffset(x0+x, y):])
			default:
				return nil, fmt.Errorf("pixels of type %T are not supported", m)
			}
		}
	}
	return to, nil
}

// cmyk converts a pixel as PIL does.
func cmyk(px, from []byte) {
	light := 255 - int32(from[3])
	for i := range px {
		v := int32(from[i])*light + 128
		px[i] = clip(light - (v>>8+v)>>8)
	}
}

// scans returns the number of scans of a JPEG.
func scans(data []byte) int { return bytes.Count(data, []byte{0xff, 0xda}) }

// animated reports whether a WebP file says that it is an animation.
func animated(data []byte) bool {
	return len(data) > 20 && string(data[12:16]) == "VP8X" && data[20]&2 != 0
}

// orientation returns the orientation that a TIFF structure has, 1 if it has none that is valid.
func orientation(tiff []byte) int {
	if len(tiff) < 8 {
		return 1
	}
	var order binary.ByteOrder = binary.LittleEndian
	switch string(tiff[:2]) {
	case "MM":
		order = binary.BigEndian
	case "II":
	default:
		return 1
	}
	at := int64(order.Uint32(tiff[4:]))
	if at+2 > int64(len(tiff)) {
		return 1
	}
	const entry, tag, short = 12, 0x0112, 3
	entries := int(order.Uint16(tiff[at:]))
	for rest := tiff[at+2:]; entries > 0 && len(rest) >= entry; entries, rest = entries-1, rest[entry:] {
		if order.Uint16(rest) != tag || order.Uint16(rest[2:]) != short {
			continue
		}
		if o := int(order.Uint16(rest[8:])); o >= 1 && o <= 8 {
			return o
		}
	}
	return 1
}

// exifHead begins the EXIF of JPEG files, and that of some WebP files.
var exifHead = []byte("Exif\x00\x00")

func jpegEXIF(data []byte) []byte {
	for at := 2; at+4 <= len(data) && data[at] == 0xff; {
		size := int(binary.BigEndian.Uint16(data[at+2:]))
		if data[at+1] == 0xda || size < 2 || at+2+size > len(data) {
			return nil
		}
		if body, ok := bytes.CutPrefix(data[at+4:at+2+size], exifHead); ok && data[at+1] == 0xe1 {
			return body
		}
		at += 2 + size
	}
	return nil
}

func pngEXIF(data []byte) []byte {
	for at := int64(8); at+8 <= int64(len(data)); {
		size := int64(binary.BigEndian.Uint32(data[at:]))
		if at+8+size > int64(len(data)) {
			return nil
		}
		if string(data[at+4:at+8]) == "eXIf" {
			return data[at+8 : at+8+size]
		}
		at += 12 + size
	}
	return nil
}

func webpEXIF(data []byte) []byte {
	for at := int64(12); at+8 <= int64(len(data)); {
		size := int64(binary.LittleEndian.Uint32(data[at+4:]))
		if at+8+size > int64(len(data)) {
			return nil
		}
		if string(data[at:at+4]) == "EXIF" {
			return bytes.TrimPrefix(data[at+8:at+8+size], exifHead)
		}
		at += 8 + size + size&1
	}
	return nil
}
