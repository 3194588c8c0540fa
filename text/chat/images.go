package chat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/text/jinja"
)

// ImageMark is the mark of an image in a text, as LLaVA, ShareGPT4V and LLaMA-Factory write it.
const ImageMark = "<image>"

// ImageText replaces what templates write for an image: a string of a template that is Written becomes Read. Texts of
// messages stay. The zero value replaces nothing.
type ImageText struct{ Written, Read string }

// in returns a template's source with the replacement.
func (t ImageText) in(source string) string {
	if t.Written == "" {
		return source
	}
	for _, quote := range []string{"'", `"`} {
		source = strings.ReplaceAll(source, quote+t.Written+quote, quote+strings.ReplaceAll(t.Read, "\n", `\n`)+quote)
	}
	return source
}

// MaxImages is the most images of a conversation.
const MaxImages = 256

// imageTypes are the types that content parts with an image have.
var imageTypes = []string{"image", "image_url", "input_image"}

// imageKeys are the keys under which such a part refers to its image.
var imageKeys = []string{"image", "image_url", "url", "path", "base64"}

// noImages follows the reason why rows may not have images.
const noImages = " (docs/IMAGES.md lists the models and formats that read images)"

// CheckUnread refuses a conversation whose texts have marks for images of a column that nothing reads: they would be
// trained on as text.
func (c *Conversation) CheckUnread() error {
	for i, m := range c.Messages {
		content, _ := m.Fields.Get("content")
		if text, ok := content.(jinja.Str); ok && strings.Contains(string(text), ImageMark) {
			return fmt.Errorf("%s has the mark %s of an image: only text is trained on%s", c.name(i), ImageMark,
				noImages)
		}
	}
	return nil
}

// takeParts returns a message whose parts with an image are {type: image}, as templates take them. The references of
// the images, or those of column for parts that have none, are added to the conversation.
func (c *Conversation) takeParts(d *jinja.Dict, column *[]string) (*jinja.Dict, error) {
	content, _ := d.Get("content")
	list, ok := content.(*jinja.List)
	if !ok {
		return d, nil
	}
	parts := slices.Clone(list.Items)
	for i, item := range parts {
		part, ok := item.(*jinja.Dict)
		if !ok {
			continue
		}
		kind, _ := part.Get("type")
		name, _ := kind.(jinja.Str)
		if !slices.Contains(imageTypes, string(name)) {
			continue
		}
		ref, err := referenceOf(part)
		if err != nil {
			return nil, fmt.Errorf(".content[%d]%w", i, err)
		}
		c.addImage(ref, column)
		parts[i] = imagePart()
	}
	d = d.Copy()
	d.Set("content", jinja.NewList(parts...))
	return d, nil
}

// addImage adds an image by its reference, or by the next of the row's column if ref is empty.
func (c *Conversation) addImage(ref string, column *[]string) {
	c.marks++
	if ref == "" && len(*column) > 0 {
		ref, *column = (*column)[0], (*column)[1:]
	}
	if ref != "" {
		c.Images = append(c.Images, ref)
	}
}

// imagePart returns the content part of an image.
func imagePart() *jinja.Dict {
	d := jinja.NewDict()
	d.Set("type", jinja.Str("image"))
	return d
}

// isImagePart reports whether a part is one of imagePart.
func isImagePart(part *jinja.Dict) bool {
	kind, _ := part.Get("type")
	return part.Len() == 1 && kind == jinja.Value(jinja.Str("image"))
}

// referenceOf returns what a part with an image refers to: a path or a data: URI; "" if the part names none.
func referenceOf(part *jinja.Dict) (string, error) {
	for _, key := range imageKeys {
		v, ok := part.Get(key)
		if !ok {
			continue
		}
		if inner, is := v.(*jinja.Dict); is { // OpenAI's {"image_url": {"url": …}}
			key += ".url"
			v, _ = inner.Get("url")
		}
		ref, ok := v.(jinja.Str)
		if !ok || ref == "" {
			return "", fmt.Errorf(".%s is %s, want a path or a data: URI", key, typeOf(v))
		}
		return string(ref), nil
	}
	return "", nil
}

// takeMarks returns a message in whose text each ImageMark became a part with an image of the row's column.
func (c *Conversation) takeMarks(m Message, column *[]string) Message {
	content, _ := m.Fields.Get("content")
	text, ok := content.(jinja.Str)
	if !ok || !strings.Contains(string(text), ImageMark) {
		return m
	}
	var parts []jinja.Value
	for i, piece := range strings.Split(string(text), ImageMark) {
		if i > 0 {
			c.addImage("", column)
			parts = append(parts, imagePart())
		}
		if piece != "" {
			parts = append(parts, asParts(piece).(*jinja.List).Items[0])
		}
	}
	m.Fields = m.Fields.Copy()
	m.Fields.Set("content", jinja.NewList(parts...))
	return m
}

// checkImages refuses a conversation whose marks and images differ in number. given is the number of images in the
// row's column, left those that no mark took.
func (c *Conversation) checkImages(given, left int) error {
	switch {
	case c.marks > MaxImages:
		return fmt.Errorf("the conversation has %d images, more than %d", c.marks, MaxImages)
	case left > 0 || len(c.Images) < c.marks:
		return fmt.Errorf("the row has %s in its column and %s without a reference of its own in its messages (%s, "+
			"or a part of type image): they must be as many", words.Counted(given, "image"),
			words.Counted(c.marks-len(c.Images)+given-left, "mark"), ImageMark)
	}
	return nil
}
