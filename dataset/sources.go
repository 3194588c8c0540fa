package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/dataset/source"
	"github.com/tierlora/tierlora/internal/keys"
	"github.com/tierlora/tierlora/internal/words"
)

// Source is one entry of dataset.sources.
type Source struct {
	// Path of the rows, as dataset.path.
	Path string `yaml:"path" form:"path" resume:"compared"`
	// Name of the subset of a hub data set, which datasets calls its configuration.
	Name string `yaml:"name,omitempty" resume:"compared"`
	// Revision of a hub data set: a branch, tag or commit. Empty means main.
	Revision string `yaml:"revision,omitempty" resume:"compared"`
	// Split and slice of the rows, as datasets writes them: train, train[:5%], train[10:200], train+test. Empty means
	// train.
	Split string `yaml:"split,omitempty" resume:"compared"`
	// Format of the rows. Empty means dataset.format.
	Format string `yaml:"format,omitempty" resume:"compared"`
	// Fields maps the format's fields to the keys of the files. Empty means dataset.fields.
	Fields map[string]string `yaml:"fields,omitempty" resume:"compared"`
	// Weight is how many times an epoch takes the rows: 2 takes each twice, 0.5 half of them, chosen by the seed.
	Weight float64 `yaml:"weight" default:"1" range:"(0,1000]" resume:"compared"`

	// Folder is the folder with the files of a hub data set, set by the caller. Path is the name of the data set then.
	Folder string `yaml:"-"`
}

// Choices returns the valid values of keys that name an entry of a table.
func (Source) Choices() map[string][]string { return map[string][]string{"format": formatChoices()} }

func (s Source) split() string {
	if s.Split == "" {
		return source.DefaultSplit
	}
	return s.Split
}

// Title returns the display name of a source: "org/name (socratic), train[:5%]".
func (s Source) Title() string {
	title := s.Path
	if s.Name != "" {
		title += " (" + s.Name + ")"
	}
	if s.Split != "" {
		title += ", " + s.Split
	}
	return title
}

// Title returns the display name of the data: the path, or the number of sources.
func (c Config) Title() string {
	if len(c.Sources) > 0 {
		return words.Counted(len(c.Sources), "source")
	}
	return c.Path
}

// training returns the sources of training rows. A path alone is a single source.
func (c Config) training() []Source {
	if len(c.Sources) > 0 {
		return c.Sources
	}
	return []Source{{Path: c.Path, Weight: 1, Folder: c.PathFolder}}
}

// validation returns the sources of validation rows, if they are separate from the training rows.
func (c Config) validation() []Source {
	if len(c.ValSources) == 0 && c.ValPath != "" {
		return []Source{{Path: c.ValPath, Weight: 1, Folder: c.ValPathFolder}}
	}
	return c.ValSources
}

// EachSource calls see with every source of the configuration, path and val_path included, and the name of its key.
// Changes that see makes to a source are kept.
func (c *Config) EachSource(see func(key string, s *Source) error) error {
	for _, single := range []struct {
		key          string
		path, folder *string
	}{{"dataset.path", &c.Path, &c.PathFolder}, {"dataset.val_path", &c.ValPath, &c.ValPathFolder}} {
		if *single.path == "" {
			continue
		}
		s := Source{Path: *single.path, Weight: 1}
		if err := see(single.key, &s); err != nil {
			return err
		}
		*single.path, *single.folder = s.Path, s.Folder
	}
	c.Sources, c.ValSources = slices.Clone(c.Sources), slices.Clone(c.ValSources)
	for _, list := range []struct {
		key     string
		sources []Source
	}{{"dataset.sources", c.Sources}, {"dataset.val_sources", c.ValSources}} {
		for i := range list.sources {
			if err := see(fmt.Sprintf("%s[%d].path", list.key, i), &list.sources[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// of returns the configuration that reads the files of a source.
func (c Config) of(s Source) Config {
	if s.Format != "" {
		c.Format = s.Format
	}
	if len(s.Fields) > 0 {
		c.Fields = s.Fields
	}
	return c
}

func (c Config) validateSources() []error {
	var problems []error
	if c.Path != "" && len(c.Sources) > 0 {
		problems = append(problems, errors.New("dataset.sources: dataset.path is set too: keep one"))
	}
	if c.ValPath != "" && len(c.ValSources) > 0 {
		problems = append(problems, errors.New("dataset.val_sources: dataset.val_path is set too: keep one"))
	}
	problems = append(problems, c.validateList("dataset.sources", c.Sources)...)
	return append(problems, c.validateList("dataset.val_sources", c.ValSources)...)
}

func (c Config) validateList(key string, sources []Source) []error {
	var problems []error
	for i, s := range sources {
		at := fmt.Sprintf("%s[%d]", key, i)
		bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(at+format, args...)) }
		if s.Path == "" {
			bad(".path is missing: name a data file, a folder or a hub data set such as org/name")
		}
		if _, err := source.ParseSplit(s.split()); err != nil {
			bad(".split %w", err)
		}
		problems = append(problems, keys.Check(at+".", s)...)
		for j, other := range sources[:i] {
			if s.Path != "" && s.Path == other.Path && s.Name == other.Name && s.Revision == other.Revision &&
				s.split() == other.split() {
				bad(" has the rows of %s[%d]: raise its weight instead", key, j)
				break
			}
		}
		if s.Format == "" && len(s.Fields) == 0 || !slices.Contains(formatChoices(), s.Format) {
			continue
		}
		own := Default()
		own.Path, own.Format, own.Fields = "-", c.of(s).Format, c.of(s).Fields
		if slices.Contains(AsChatChoices, c.AsChat) {
			own.AsChat = c.AsChat
		}
		for _, err := range own.Validate() {
			if strings.HasPrefix(err.Error(), "dataset.as_chat ") { // the setting is common to all sources
				bad(": %w", err)
				continue
			}
			problems = append(problems, fmt.Errorf("%s.%s", at, strings.TrimPrefix(err.Error(), "dataset.")))
		}
	}
	return problems
}

// part holds the rows of one source.
type part struct {
	source Source
	rows   Rows
	report *Report
}

// joinParts returns the rows of all parts.
func joinParts(parts []part) Rows {
	var rows join
	for _, p := range parts {
		rows = append(rows, p.rows)
	}
	return rows.whole()
}

// loadSources reads every source, one file after the other.
func loadSources(ctx context.Context, cfg Config, sources []Source, tok Tokenizer,
	fsys fs.FS) ([]part, *Report, error) {
	var parts []part
	var reports []*Report
	for _, s := range sources {
		rows, report, err := loadOne(ctx, cfg, s, tok, fsys)
		if report != nil {
			reports = append(reports, report)
		}
		if err != nil {
			return nil, joinReports(reports, nil), err
		}
		parts = append(parts, part{s, rows, report})
	}
	if len(parts) == 1 {
		if w := sources[0].Weight; w != 1 {
			reports[0].Weight = w
		}
		return parts, reports[0], nil
	}
	return parts, joinReports(reports, parts), nil
}

// loadOne reads the files of a source, each up to the last row that its slices need.
func loadOne(ctx context.Context, cfg Config, s Source, tok Tokenizer, fsys fs.FS) (Rows, *Report, error) {
	pieces, err := cfg.pieces(ctx, s, fsys)
	if err != nil {
		return nil, nil, err
	}
	var all join
	var reports []*Report
	for _, p := range pieces {
		own := cfg.of(s)
		own.span = p.span
		rows, report, err := loadSource(ctx, own, p.path, tok, openIn(fsys))
		if report != nil {
			reports = append(reports, report)
		}
		if none := (*noRowError)(nil); errors.As(err, &none) && len(pieces) > 1 { // the report counts the dropped rows
			continue
		}
		if err != nil {
			return nil, joinReports(reports, nil), err
		}
		all = append(all, rows)
	}
	report := joinReports(reports, nil)
	if len(pieces) > 1 || s.Split != "" {
		report.Source = s.Title()
	}
	if len(all) == 0 {
		return nil, report, report.noRow()
	}
	report.countDuplicates(all.whole())
	return all.whole(), report, nil
}

// piece is a file, or a span of its rows.
type piece struct {
	path string
	span source.Span
}

// pieces resolves a source into files. The rows of a split are counted, in a separate pass, only for a slice.
func (c Config) pieces(ctx context.Context, s Source, fsys fs.FS) ([]piece, error) {
	terms, err := source.ParseSplit(s.split())
	if err != nil {
		return nil, fmt.Errorf("split %w", err)
	}
	path := slashed(fsys, s.Path)
	if s.Folder != "" {
		path = slashed(fsys, s.Folder)
	}
	files, err := findFiles(fsys, path, s)
	if err != nil {
		return nil, fmt.Errorf("read data: %w", Missing(err))
	}
	counts := map[string]int{}
	var pieces []piece
	for _, term := range terms {
		picked, err := source.Pick(files, term.Split)
		if err != nil {
			return nil, fmt.Errorf("read data: %s: %w", s.Path, err)
		}
		if term.Whole() {
			for _, f := range picked {
				pieces = append(pieces, piece{path: f.Path})
			}
			continue
		}
		total := 0
		for _, f := range picked {
			if _, done := counts[f.Path]; !done {
				if counts[f.Path], err = c.countRows(ctx, f.Path, openIn(fsys)); err != nil {
					return nil, err
				}
			}
			total += counts[f.Path]
		}
		span, err := term.Span(total)
		if err != nil {
			return nil, fmt.Errorf("read data: %s: %w", s.Path, err)
		}
		pieces = append(pieces, spread(picked, counts, span)...)
	}
	return pieces, nil
}

// findFiles lists the files of a source. A hub data set has its own list.
func findFiles(fsys fs.FS, path string, s Source) ([]source.File, error) {
	if s.Folder == "" {
		if s.Name != "" {
			return nil, fmt.Errorf("%s: only a data set of the hub has subsets, such as %q", s.Path, s.Name)
		}
		return source.Find(fsys, path)
	}
	return source.FindSubset(fsys, path, s.Name)
}

// Check reports files of a source that are missing or unreadable. It reads no row.
func (s Source) Check() error {
	terms, err := source.ParseSplit(s.split())
	if err != nil {
		return fmt.Errorf("split %w", err)
	}
	path := filepath.ToSlash(s.Path)
	if s.Folder != "" {
		path = filepath.ToSlash(s.Folder)
	}
	files, err := findFiles(disk{}, path, s)
	if err != nil {
		return err
	}
	for _, term := range terms {
		picked, err := source.Pick(files, term.Split)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Path, err)
		}
		for _, f := range picked {
			info, err := os.Stat(f.Path)
			if gone := (*fs.PathError)(nil); errors.As(err, &gone) {
				gone.Op = "open" // the wording of a run
			} else if err == nil {
				err = checkFile(f.Path, info, nil)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// spread divides a span of a split's rows at the boundaries of its files.
func spread(files []source.File, counts map[string]int, span source.Span) []piece {
	var pieces []piece
	first := 0
	for _, f := range files {
		n := counts[f.Path]
		from, to := max(span.From-first, 0), min(span.To-first, n)
		if from < to {
			own := source.Span{From: from, To: to}
			if from == 0 && to == n {
				own = source.Span{}
			}
			pieces = append(pieces, piece{f.Path, own})
		}
		first += n
	}
	return pieces
}

// countRows counts the rows of a file for a slice.
func (c Config) countRows(ctx context.Context, path string, open opener) (int, error) {
	return c.countUpTo(ctx, path, open, 0)
}

// countUpTo counts at most the given number of rows (0 = all) and reads no further.
func (c Config) countUpTo(ctx context.Context, path string, open opener, most int) (int, error) {
	f, err := open(path)
	if err != nil {
		return 0, fmt.Errorf("read data: %w", err)
	}
	defer f.Close()
	o := c.reading(ctx, path, f)
	o.Rows, o.Leave = source.Span{To: most}, most > 0
	n, err := source.Count(contextReader{ctx, f}, o)
	var broken *source.FileError
	switch {
	case errors.As(err, &broken) && broken.Line > 0:
		return 0, fmt.Errorf("%s:%d: %w", path, broken.Line, err)
	case errors.As(err, &broken):
		return 0, fmt.Errorf("%s: %w", path, err)
	case err != nil:
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	return n, nil
}

// joinReports adds up the reports of files, or those of parts that are sources.
func joinReports(reports []*Report, parts []part) *Report {
	if len(reports) == 0 {
		return nil
	}
	if len(reports) == 1 {
		return reports[0]
	}
	all := &Report{Source: words.Counted(len(reports), "file"), Files: len(reports)}
	if parts != nil {
		all.Source = words.Counted(len(reports), "source")
	}
	hashes := sha256.New()
	formats, fields := map[string]bool{}, map[string]bool{}
	for i, r := range reports {
		fmt.Fprintln(hashes, r.SHA256)
		formats[r.Format], fields[r.Fields] = true, true
		all.add(r)
		if parts != nil {
			r.Weight = parts[i].source.Weight
			all.Parts = append(all.Parts, r)
		}
	}
	delete(fields, "") // reports of files whose keys are the roles
	all.SHA256 = hex.EncodeToString(hashes.Sum(nil))
	all.Format, all.Fields = strings.Join(slices.Sorted(maps.Keys(formats)),
		", "), strings.Join(slices.Sorted(maps.Keys(fields)), "; ")
	all.sortDropped()
	all.TrainRows = all.Kept
	if parts != nil {
		all.countDuplicates(joinParts(parts))
	}
	return all
}
