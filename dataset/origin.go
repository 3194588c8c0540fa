package dataset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"

	"github.com/tierlora/tierlora/dataset/source"
	"github.com/tierlora/tierlora/internal/words"
)

// ValSource returns the title of a validation row's source, as the configuration has it.
func (s *Set) ValSource(i int) string {
	at := beneath(s.Val, i)
	for _, p := range s.origin {
		if at < p.rows.Len() {
			return p.source.Title()
		}
		at -= p.rows.Len()
	}
	return ""
}

// beneath returns the index that row i has in the rows underneath a view.
func beneath(rows Rows, i int) int {
	switch r := rows.(type) {
	case selected:
		return beneath(r.rows, int(r.indices[i]))
	case subset:
		return beneath(r.rows, r.at(i))
	case mismatched:
		return beneath(r.rows, i)
	}
	return i
}

// Held returns the configuration whose training rows are the validation rows of c. If those are held out of the
// training rows, it returns the configuration of all training rows.
func (c Config) Held() Config {
	if len(c.ValSources) > 0 {
		c.Path, c.Sources = "", c.ValSources
	} else if c.ValPath != "" {
		c.Path, c.PathFolder, c.Sources = c.ValPath, c.ValPathFolder, nil
	}
	c.ValPath, c.ValSources, c.ValSplit = "", nil, 0
	return c
}

// Item is a row of a file as the file has it.
type Item struct {
	Source string // path of the file
	Index  int    // number of the row in the file, from 0
	Line   int    // line, from 1; 0 in a file without lines
	Data   []byte // Data is the row as a JSON object; valid until see returns.

	object Object
}

// Where names the row's place formatted as by Row.Where.
func (i Item) Where() string { return place(i.Source, i.Line, i.Index) }

// JSON returns the value of a field, or of a path such as meta.topic. The value is valid until see returns.
func (i Item) JSON(key string) (json.RawMessage, error) {
	v, ok := i.object.lookup(key)
	if !ok {
		return nil, fmt.Errorf("%s: the row has no field %q, it has %s", i.Where(), key, i.object.keyList())
	}
	if string(v) == "null" {
		return nil, fmt.Errorf("%s: field %q is null", i.Where(), key)
	}
	return v, nil
}

// Text returns the value of a field as text: a string as it is, any other value as JSON.
func (i Item) Text(key string) (string, error) {
	v, err := i.JSON(key)
	if err != nil || len(v) == 0 || v[0] != '"' {
		return string(v), err
	}
	return textOf(v), nil
}

// TextItem returns a row {"text": text} that lies in no file, with the number index from 0. source names it in errors.
func TextItem(source string, index int, text string) Item {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string always is JSON
	}
	return Item{Source: source, Index: index, object: Object{keys: []string{"text"}, values: []json.RawMessage{data}}}
}

// ErrRowsDone is returned by see to end EachRow early without an error.
var ErrRowsDone = errors.New("enough rows")

// EachRow calls see with the rows of the training sources in order, not tokenised and not repeated by weights. A
// malformed row is an error that names its place. fsys nil means the disk.
func EachRow(ctx context.Context, fsys fs.FS, c Config, see func(Item) error) error {
	if fsys == nil {
		fsys = disk{}
	}
	for _, s := range c.training() {
		pieces, err := c.pieces(ctx, s, fsys)
		if err != nil {
			return err
		}
		for _, p := range pieces {
			own := c
			own.span = p.span
			if err := own.eachOf(ctx, p.path, openIn(fsys), see); errors.Is(err, ErrRowsDone) {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
	return nil
}

func (c Config) eachOf(ctx context.Context, path string, open opener, see func(Item) error) error {
	f, err := open(path)
	if err != nil {
		return fmt.Errorf("read data: %w", Missing(err))
	}
	defer f.Close()
	o := c.reading(ctx, path, f)
	o.Leave = true
	r := source.NewReader(contextReader{ctx, f}, o)
	defer r.Close()
	for index := c.span.From; ; index++ {
		raw, err := r.Next()
		if errors.Is(err, io.EOF) {
			if index == c.span.From {
				return fmt.Errorf("%s: the file holds no row", path)
			}
			return nil
		}
		item := Item{Source: path, Index: index, Line: raw.Line, Data: raw.Data}
		var row *source.RowError
		var file *source.FileError
		switch {
		case errors.As(err, &row):
			return fmt.Errorf("%s: %w", place(path, row.Line, index), err)
		case errors.As(err, &file) && file.Line > 0:
			return fmt.Errorf("%s:%d: %w", path, file.Line, err)
		case err != nil:
			return fmt.Errorf("%s: %w", path, err)
		}
		if item.object, err = parseRow(raw.Data); err != nil {
			return fmt.Errorf("%s: %w", item.Where(), err)
		}
		if err := see(item); err != nil {
			return err
		}
	}
}

// ValGroups returns for each validation row the value of a field of its source row. each reads the rows of Config.Held.
func (s *Set) ValGroups(key string, each func(see func(Item) error) error) ([]string, error) {
	rows := map[string][]int{}
	for i := range s.Val.Len() {
		r := s.Val.Row(i)
		at := r.Source + "\x00" + strconv.Itoa(r.Index)
		rows[at] = append(rows[at], i)
	}
	groups, missing := make([]string, s.Val.Len()), len(rows)
	err := each(func(item Item) error {
		of, ok := rows[item.Source+"\x00"+strconv.Itoa(item.Index)]
		if !ok {
			return nil
		}
		text, err := item.Text(key)
		if err != nil {
			return err
		}
		for _, i := range of {
			groups[i] = words.Clip(text, maxGroup)
		}
		if missing--; missing == 0 {
			return ErrRowsDone
		}
		return nil
	})
	if err == nil && missing > 0 {
		err = errors.New("the data files changed while they were read: run it again")
	}
	return slices.Clip(groups), err
}

// maxGroup bounds the name of a group in bytes.
const maxGroup = 80
