package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/internal/safetext"
)

// AboutFile is the name of the file in a run's folder that holds what a person wrote about the run.
const AboutFile = "about.json"

// Bounds of what a person writes about a run, in characters, and of the file, in bytes.
const (
	MostTitle = 100
	MostNote  = 4000
	mostAbout = 64 << 10
)

// About is what a person wrote about a run. An empty text was not written.
type About struct {
	Format int    `json:"format"` // version of the format: 1
	Title  string `json:"title,omitempty"`
	Group  string `json:"group,omitempty"` // runs of one group stand together in a list; "" = the folder decides
	Note   string `json:"note,omitempty"`
}

// Clean returns the texts without control characters and without blanks around them. The error names a text that is too
// long.
func (a About) Clean() (About, error) {
	a.Format = 1
	for _, t := range []struct {
		name string
		text *string
		most int
	}{{"title", &a.Title, MostTitle}, {"group", &a.Group, MostTitle}, {"note", &a.Note, MostNote}} {
		clean := safetext.Plain(strings.TrimSpace(*t.text))
		if t.name != "note" {
			clean = strings.Join(strings.Fields(clean), " ")
		}
		if n := utf8.RuneCountInString(clean); n > t.most {
			return a, fmt.Errorf("the %s has %d characters: at most %d are kept", t.name, n, t.most)
		}
		*t.text = clean
	}
	return a, nil
}

// readAbout reads what a person wrote about a run; ok is false if the folder has no such file of this program.
func readAbout(dir string) (a About, ok bool) {
	path := filepath.Join(dir, AboutFile)
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > mostAbout {
		return About{}, false
	}
	text, err := regular.ReadFile(path)
	if err != nil || json.Unmarshal(text, &a) != nil || a.Format != 1 {
		return About{}, false
	}
	a, err = a.Clean()
	return a, err == nil
}

// WriteAbout saves what a person wrote about the run in a folder. If all texts are empty, it removes the file. If
// another program wrote a file of that name, the file stays and WriteAbout returns an error.
func WriteAbout(dir string, a About) error {
	a, err := a.Clean()
	if err != nil {
		return err
	}
	path := filepath.Join(dir, AboutFile)
	if _, err := os.Lstat(path); err == nil {
		if _, ours := readAbout(dir); !ours {
			return fmt.Errorf("%s was not written by this program: move it away to write about the run", path)
		}
	}
	if a.Title == "" && a.Group == "" && a.Note == "" {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what was written about the run: %w", err)
		}
		return nil
	}
	text, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(text, '\n'))
}
