package session

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/jsonedit"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/text/chat"
)

// LoadData reads data, embedded or from files, with the model's tokenizer, and checks that the model has an embedding
// for every token.
func (s *Session) LoadData(ctx context.Context, c dataset.Config, seed uint64) (*dataset.Set, *dataset.Report, error) {
	c.Seed, c.Workers, c.Progress = seed, s.Workers, s.Reading
	c.Chat = func() (*chat.Sources, error) { return ChatSources(s.Base.Folder, "") }
	s.ReadImages(c.Folder())
	if s.Images != nil {
		c.Images = s.Images
	}
	set, report, err := s.readData(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	if s.Images.Seen() {
		s.PlaceImages()
	}
	set.Positions = s.Base.Config.LongestRow()
	return set, report, checkIDs(set, s.Base.Config.VocabSize)
}

// ReadImages prepares reading images, if the model reads any. Their embeddings are kept in a folder within cacheDir; ""
// = in memory.
func (s *Session) ReadImages(cacheDir string) {
	if s.Images == nil {
		s.Images = s.Base.NewImages(cacheDir, s.Env)
		if s.Images == nil || !s.On.Capabilities().SeparateHost {
			return
		}
		switch {
		case s.Images.description.Spans:
			s.Images.refused = kernel.ErrSpansGPU
		case s.Images.description.Contiguous:
			s.Images.refused = kernel.ErrSectionsGPU
		}
	}
}

// PlaceImages makes the networks of the session hold embeddings of images, in the type of the machine's activations.
func (s *Session) PlaceImages() {
	s.Net.Images = &ImageValues{s.On.Precision().Stored(kernel.ComputeType), *s.Images.description}
}

func (s *Session) readData(ctx context.Context, c dataset.Config) (*dataset.Set, *dataset.Report, error) {
	c, fsys, err := s.located(ctx, c)
	switch {
	case err != nil:
		return nil, nil, err
	case fsys == nil:
		return dataset.Load(ctx, c, s.Base.Tokenizer)
	}
	return dataset.LoadFS(ctx, fsys, c, s.Base.Tokenizer)
}

// EachRow passes the rows of data to see as they are in their files.
func (s *Session) EachRow(ctx context.Context, c dataset.Config, see func(dataset.Item) error) error {
	c, fsys, err := s.located(ctx, c)
	if err != nil {
		return err
	}
	return dataset.EachRow(ctx, fsys, c, see)
}

// located returns the configuration with the paths of its data, and the file system of embedded data; a nil file system
// means the disk.
func (s *Session) located(ctx context.Context, c dataset.Config) (dataset.Config, fs.FS, error) {
	path := &c.Path
	if c.Path == "" && len(c.Sources) == 1 {
		c.Sources = slices.Clone(c.Sources)
		path = &c.Sources[0].Path
	}
	short, embedded := strings.CutPrefix(*path, EmbeddedPrefix)
	if !embedded {
		c, err := FindData(ctx, c, s.Hub)
		return c, nil, err
	}
	if s.Data == nil {
		return c, nil, fmt.Errorf("open data %q: this program carries no data", *path)
	}
	fsys, err := s.Data(short)
	if err != nil {
		return c, nil, fmt.Errorf("open data: %w", err)
	}
	*path, c.ValPath = short, strings.TrimPrefix(c.ValPath, EmbeddedPrefix)
	return c, fsys, nil
}

// PadID returns the token id of padding: the tokenizer's, or 0 if it has none that the model knows.
func (b *Base) PadID() int32 {
	if id, ok := b.Tokenizer.PAD(); ok && id >= 0 && int(id) < b.Config.VocabSize {
		return id
	}
	return 0
}

// NamePadding names the token of PadID as pad_token in tokenizer_config.json of a model's files if its tokenizer has no
// padding token: sentence-transformers and batches of transformers need one.
func NamePadding(b *Base, files map[string][]byte) error {
	const name = "tokenizer_config.json"
	if _, has := b.Tokenizer.PAD(); has {
		return nil
	}
	piece, ok := b.Tokenizer.Token(b.PadID())
	if !ok {
		return nil
	}
	text, err := json.Marshal(piece)
	if err != nil {
		return err
	}
	config := files[name]
	if config == nil {
		config = []byte("{}\n")
	}
	if files[name], err = jsonedit.Set(config, "pad_token", text); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// checkIDs refuses token ids that the model has no embedding for. Padding is computed and never trained, so any known
// token serves if the tokenizer's padding token was added to a vocabulary that the model was not made for.
func checkIDs(s *dataset.Set, vocab int) error {
	if s.PadID < 0 || int(s.PadID) >= vocab {
		s.PadID = 0
	}
	s.Vocab = vocab
	for _, rows := range []dataset.Rows{s.Train, s.Val} {
		if most, known := dataset.MaxID(rows); known && int(most) < vocab {
			continue // otherwise the loop below finds the first row with such an id
		}
		for i := range rows.Len() {
			r := rows.Row(i)
			for _, id := range r.IDs {
				if id < 0 || int(id) >= vocab {
					return fmt.Errorf("%s: token id %d, the model knows 0 to %d: tokenizer and model do not belong together", r.Where(), id, vocab-1)
				}
			}
			for _, l := range r.Labels {
				if l != dataset.Ignore && (l < 0 || int(l) >= vocab) {
					return fmt.Errorf("%s: label %d, the model knows 0 to %d: tokenizer and model do not belong together", r.Where(), l, vocab-1)
				}
			}
		}
	}
	return nil
}
