package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io/fs"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/vision"
)

// Bounds of images on a page.
const (
	pageImages   = 200  // pictures of all rows
	pictureSide  = 640  // pixels of the longer side of a picture
	pictureSmall = 256  // a picture whose longer side is shorter is enlarged to it
	pictureCells = 4096 // of a finer grid only the lines are drawn
)

// rowImages are the images of a row.
type rowImages []shownImage

// shownImage is an image of a row, divided as the model's processor does it.
type shownImage struct {
	imageJSON
	dataset.ShownImage
	number  int         // in the row, from 1
	marks   []int       // tokens in whose places its embeddings stand
	picture *vision.RGB // reduced to pictureSide; nil = the page has enough pictures
}

// lookAtImages divides the images of rows as the processor of a model's folder does.
func lookAtImages(rows []dataset.Inspected, folder fs.FS) ([]rowImages, error) {
	all := make([]rowImages, len(rows))
	var p vision.Processor
	count := 0
	for i, r := range rows {
		for k, m := range r.Images {
			if p == nil {
				var err error
				if p, err = vision.ReadProcessor(folder); err != nil {
					return nil, err
				}
			}
			a, picture, _, err := divideImage(m.File, p)
			if err != nil {
				return nil, fmt.Errorf("%s: image %d (%s): %w", r.Where, k+1, m.Name, err)
			}
			one := shownImage{imageJSON: a, ShownImage: m, number: k + 1}
			for t := m.From; t < m.To; t++ {
				if r.Tokens[t].Image == one.number {
					one.marks = append(one.marks, t)
				}
			}
			if count++; count <= pageImages {
				if one.picture, err = reduced(picture); err != nil {
					return nil, err
				}
			}
			all[i] = append(all[i], one)
		}
	}
	return all, nil
}

// reduced returns a picture that is at most pictureSide pixels long.
func reduced(m *vision.RGB) (*vision.RGB, error) {
	longer := max(m.Width, m.Height)
	if longer <= pictureSide {
		return m, nil
	}
	return m.Resize(max(1, m.Width*pictureSide/longer), max(1, m.Height*pictureSide/longer), vision.Bilinear)
}

// caption describes the image in words: its file, its division and its tokens.
func (m shownImage) caption() string {
	term, text := m.division()
	return fmt.Sprintf("image %d, %s: %s; %s: %s; tokens %d to %d, %d of them %s", m.number, m.Name, m.size(), term,
		text, m.From, m.To-1, len(m.marks), m.mark)
}

// write writes the images of row n for the page.
func (all rowImages) write(w *bufio.Writer, n int) {
	for _, m := range all {
		fmt.Fprintf(w, "<figure id=\"row%d-image%d\">\n", n, m.number)
		if m.picture != nil {
			m.draw(w)
		}
		fmt.Fprintf(w, "<figcaption>%s</figcaption></figure>\n", pageText(m.caption()))
	}
}

// draw writes the picture with the grid over it. A cell tells which tokens stand for it.
func (m shownImage) draw(w *bufio.Writer) {
	width, height := m.picture.Width, m.picture.Height
	class := ""
	if longer := max(width, height); longer < pictureSmall {
		class = " class=\"enlarged\""
		width, height = max(1, width*pictureSmall/longer), max(1, height*pictureSmall/longer)
	}
	fmt.Fprintf(w, "<svg viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" aria-label=\"image %d\">", width,
		height, width, height, m.number)
	fmt.Fprintf(w, "<image%s width=\"%d\" height=\"%d\" preserveAspectRatio=\"none\" href=\"%s\"/>", class, width,
		height, dataURI(m.picture))
	rows, columns := max(1, m.Rows), max(1, m.Columns)
	x := func(column int) float64 { return float64(width*column) / float64(columns) }
	y := func(row int) float64 { return float64(height*row) / float64(rows) }
	for _, class := range []string{"under", "over"} { // a dark line and a bright one are seen on every picture
		fmt.Fprintf(w, "<path class=\"%s\" d=\"", class)
		for r := range rows + 1 {
			fmt.Fprintf(w, "M0 %.6gH%d", y(r), width)
		}
		for c := range columns + 1 {
			fmt.Fprintf(w, "M%.6g 0V%d", x(c), height)
		}
		fmt.Fprint(w, "\"/>")
	}
	if rows*columns <= pictureCells {
		for r := range rows {
			for c := range columns {
				fmt.Fprintf(w, "<rect x=\"%.6g\" y=\"%.6g\" width=\"%.6g\" height=\"%.6g\">"+
					"<title>row %d, column %d%s</title></rect>", x(c), y(r), x(1), y(1), r+1, c+1,
					m.tokensOf(r*columns+c))
			}
		}
	}
	fmt.Fprint(w, "</svg>\n")
}

// tokensOf names the tokens that stand for a cell of the grid; "" = the tokens are not divided by its cells.
func (m shownImage) tokensOf(cell int) string {
	parts := max(1, m.Rows*m.Columns)
	if m.Tiles > 1 {
		parts = m.Tiles // the whole image is one more tile
	}
	n := len(m.marks) / parts
	if n == 0 || n*parts != len(m.marks) {
		return ""
	}
	if from, to := m.marks[cell*n], m.marks[cell*n+n-1]; from < to {
		return fmt.Sprintf(": tokens %d to %d", from, to)
	}
	return fmt.Sprintf(": token %d", m.marks[cell])
}

// dataURI returns a picture as an address of its own. What else the image file held is not in it.
func dataURI(m *vision.RGB) string {
	to := image.NewRGBA(image.Rect(0, 0, m.Width, m.Height))
	for i := range m.Width * m.Height {
		copy(to.Pix[4*i:], m.Pix[3*i:][:3])
		to.Pix[4*i+3] = 255
	}
	var b bytes.Buffer
	kind := "jpeg"
	if max(m.Width, m.Height) < pictureSmall { // small pictures are often drawings, which JPEG blurs
		kind = "png"
		png.Encode(&b, to)
	} else {
		jpeg.Encode(&b, to, &jpeg.Options{Quality: 85})
	}
	return "data:image/" + kind + ";base64," + base64.StdEncoding.EncodeToString(b.Bytes())
}

// imageRun returns how many tokens from the first on stand for the same image and are equal; 0 = the first is none.
func imageRun(tokens []dataset.Token) (n int) {
	for n < len(tokens) && tokens[n].Image > 0 && tokens[n].Image == tokens[0].Image && tokens[n].ID == tokens[0].ID {
		n++
	}
	return n
}

// timesMark follows a token that stands for n equal ones.
func timesMark(n int) string { return fmt.Sprintf("×%d", n) }
