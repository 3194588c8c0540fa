package dataset

import (
	"path/filepath"

	"github.com/tierlora/tierlora/text/chat"
)

// ShownImage is an image of a row in the form that a person inspects.
type ShownImage struct {
	Name string `json:"image"` // its path, or the beginning of its data: URI
	// From and To are the half-open range of the tokens that stand for the image, with those around them.
	From int `json:"from"`
	To   int `json:"to"`
	// File is the image file.
	File []byte `json:"-"`
}

// expand puts the tokens of images in the places of their marks, and moves parts and boundaries with them.
func (e *explained) expand(token int32, images []Image) error {
	marks := e.ids
	ids, at, err := ExpandImages(marks, token, images)
	if err != nil || len(images) == 0 {
		return err
	}
	for i, p := range e.parts {
		e.parts[i].From, e.parts[i].To = at[p.From], at[p.To]
	}
	across := make([]bool, len(ids))
	for t, is := range e.across {
		across[at[t]] = is
	}
	for t, id := range marks {
		if id == token {
			e.images = append(e.images, ShownImage{From: at[t], To: at[t+1]})
		}
	}
	e.ids, e.across = ids, across
	return nil
}

// showImages adds the images of a row, which are the first ones of its conversation, with their files.
func (in *Inspected) showImages(images []ShownImage, conv *chat.Conversation, source string, with Images) error {
	for i, m := range images {
		file, err := imageFile(conv.Images[i], filepath.Dir(source))
		if err != nil {
			return err
		}
		m.Name, m.File = shownReference(conv.Images[i]), file
		in.Images = append(in.Images, m)
		for t := m.From; t < min(m.To, len(in.Tokens)); t++ {
			if in.Tokens[t].ID == with.Token() {
				in.Tokens[t].Image = i + 1
			}
		}
	}
	return nil
}
