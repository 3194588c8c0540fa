package vision

import "image"

// plane is a channel at its own resolution.
type plane struct {
	pix                   []byte
	stride, width, height int
}

func (p plane) row(y int) []byte { return p.pix[min(max(y, 0), p.height-1)*p.stride:][:p.width] }

// chromaPlanes returns Cb and Cr of an image whose width and height they divide by h and v, rounded up.
func chromaPlanes(m *image.YCbCr, h, v int) (cb, cr plane) {
	width, height := (m.Rect.Dx()+h-1)/h, (m.Rect.Dy()+v-1)/v
	at := m.COffset(m.Rect.Min.X, m.Rect.Min.Y)
	return plane{m.Cb[at:], m.CStride, width, height}, plane{m.Cr[at:], m.CStride, width, height}
}

// factors returns by how much the chroma planes of a ratio are narrower and lower than the image.
func factors(r image.YCbCrSubsampleRatio) (h, v int) {
	switch r {
	case image.YCbCrSubsampleRatio422:
		return 2, 1
	case image.YCbCrSubsampleRatio420:
		return 2, 2
	case image.YCbCrSubsampleRatio440:
		return 1, 2
	case image.YCbCrSubsampleRatio411:
		return 4, 1
	case image.YCbCrSubsampleRatio410:
		return 4, 2
	}
	return 1, 1
}

// fromJPEG converts a decoded JPEG as libjpeg does by default: chroma is interpolated with weights 3/4 and 1/4 in each
// direction where its resolution is half, and repeated where it is another part.
func fromJPEG(m *image.YCbCr) *RGB {
	h, v := factors(m.SubsampleRatio)
	cb, cr := chromaPlanes(m, h, v)
	to := NewRGB(m.Rect.Dx(), m.Rect.Dy())
	blue, red := make([]byte, to.Width+2*h), make([]byte, to.Width+2*h)
	sums := make([]int, cb.width)
	for y := range to.Height {
		jpegRow(blue, sums, cb, y, h, v)
		jpegRow(red, sums, cr, y, h, v)
		line := m.Y[m.YOffset(m.Rect.Min.X, m.Rect.Min.Y+y):]
		for x := range to.Width {
			l, b, r := int32(line[x]), int32(blue[x])-128, int32(red[x])-128
			at := 3 * (y*to.Width + x)
			to.Pix[at] = clip(l + (91881*r+1<<15)>>16)
			to.Pix[at+1] = clip(l + (-22554*b-46802*r+1<<15)>>16)
			to.Pix[at+2] = clip(l + (116130*b+1<<15)>>16)
		}
	}
	return to
}

// jpegRow writes line y of a chroma plane at the image's width. sums is scratch of the plane's width.
func jpegRow(to []byte, sums []int, p plane, y, h, v int) {
	smooth := h == 2 && p.width > 2
	switch {
	case smooth && v == 1:
		stretch(to, p.row(y), func(near, far int, right bool) int {
			if right {
				return (3*near + far + 2) >> 2
			}
			return (3*near + far + 1) >> 2
		})
	case smooth && v == 2:
		near, far := p.row(y/2), p.row(y/2-1+y%2*2)
		for i := range sums {
			sums[i] = 3*int(near[i]) + int(far[i])
		}
		stretch(to, sums, func(near, far int, right bool) int {
			if right {
				return (3*near + far + 7) >> 4
			}
			return (3*near + far + 8) >> 4
		})
	case h == 1 && v == 2:
		near, far := p.row(y/2), p.row(y/2-1+y%2*2)
		for i := range near {
			to[i] = byte((3*int(near[i]) + int(far[i]) + 1 + y%2) >> 2)
		}
	default:
		row := p.row(y / v)
		for i := range to {
			to[i] = row[min(i/h, len(row)-1)]
		}
	}
}

// stretch writes two results for each value of a line, the left one between it and the value before, the right one
// between it and the next. A value at an end stands for its missing neighbour.
func stretch[T byte | int](to []byte, line []T, between func(near, far int, right bool) int) {
	last := len(line) - 1
	for i, value := range line {
		to[2*i] = byte(between(int(value), int(line[max(i-1, 0)]), false))
		to[2*i+1] = byte(between(int(value), int(line[min(i+1, last)]), true))
	}
}

// fromWebP converts a decoded lossy WebP as libwebp does: video range, and chroma interpolated with weights 9, 3, 3 and
// 1 of 16.
func fromWebP(m *image.YCbCr) *RGB {
	cb, cr := chromaPlanes(m, 2, 2)
	to := NewRGB(m.Rect.Dx(), m.Rect.Dy())
	blue, red := make([]byte, to.Width+2), make([]byte, to.Width+2)
	for y := range to.Height {
		webpRow(blue, cb, y)
		webpRow(red, cr, y)
		line := m.Y[m.YOffset(m.Rect.Min.X, m.Rect.Min.Y+y):]
		for x := range to.Width {
			l, u, v := int32(line[x])*19077>>8, int32(blue[x]), int32(red[x])
			at := 3 * (y*to.Width + x)
			to.Pix[at] = clip((l + v*26149>>8 - 14234) >> 6)
			to.Pix[at+1] = clip((l - u*6419>>8 - v*13320>>8 + 8708) >> 6)
			to.Pix[at+2] = clip((l + u*33050>>8 - 17685) >> 6)
		}
	}
	return to
}

// webpRow writes line y of a chroma plane at the image's width.
func webpRow(to []byte, p plane, y int) {
	near, far := p.row(y/2), p.row(y/2-1+y%2*2)
	to[0] = byte((3*int(near[0]) + int(far[0]) + 2) >> 2)
	last := p.width - 1
	for i := range last {
		a, b, c, d := int(near[i]), int(near[i+1]), int(far[i]), int(far[i+1])
		all := a + b + c + d + 8
		to[2*i+1] = byte((a + (all+2*(b+c))>>3) >> 1)
		to[2*i+2] = byte((b + (all+2*(a+d))>>3) >> 1)
	}
	to[2*last+1] = byte((3*int(near[last]) + int(far[last]) + 2) >> 2)
}
