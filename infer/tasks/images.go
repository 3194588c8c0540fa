package tasks

import (
	"strings"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/text/chat"
)

// marked returns the prompt with a mark for each image of the question: its own marks, or else marks before it.
func (q question) marked() string {
	if strings.Contains(q.prompt, chat.ImageMark) {
		return q.prompt
	}
	return strings.Repeat(chat.ImageMark, len(q.images)) + q.prompt
}

// imagesOf returns the images of the examples and of the question, in the order in which the conversation shows them.
func imagesOf(q question, shots []question) (all []dataset.ImageFile) {
	for _, s := range shots {
		all = append(all, s.images...)
	}
	return append(all, q.images...)
}

// show reads images and puts them into a prompt. Their embeddings are kept where those of a training run are.
func (t *Task) show(g *infer.Generator, p infer.Prompt, images []dataset.ImageFile) (infer.Prompt, error) {
	var files [][]byte
	for _, m := range images {
		file, err := m.Read()
		if err != nil {
			return p, err
		}
		files = append(files, file)
	}
	return g.ShowImages(p, files, t.dataConfig(t.Data, t.Split).Folder())
}
