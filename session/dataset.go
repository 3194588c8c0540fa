package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/dataset/source"
	"github.com/tierlora/tierlora/model/hub"
)

// FindData finds the hub's data sets that a configuration names, and records the paths of their files: in the Hugging
// Face cache, downloaded if the options say so. A name that exists as a path is no data set of the hub.
func FindData(ctx context.Context, c dataset.Config, opts hub.Options) (dataset.Config, error) {
	err := c.EachSource(func(key string, s *dataset.Source) error {
		if err := findSource(ctx, s, opts); err != nil {
			return fmt.Errorf("%s: %w", key, dataset.Missing(err))
		}
		return nil
	})
	return c, err
}

// findSource records the paths of a source's files if it is a data set of the hub.
func findSource(ctx context.Context, s *dataset.Source, opts hub.Options) error {
	named := withRevision(*s)
	if !isHubData(named.Path) {
		if s.Revision != "" {
			return fmt.Errorf("%s is no data set of the hub, so it has no revision %q", s.Path, s.Revision)
		}
		return nil
	}
	terms, err := source.ParseSplit(s.Split)
	if s.Split == "" {
		terms, err = []source.Slice{{Split: source.DefaultSplit}}, nil
	}
	if err != nil {
		return fmt.Errorf("split %w", err)
	}
	s.Folder, err = findDataset(ctx, &named, terms, opts)
	return err
}

// CheckData lists the data of a configuration that is missing, each with its key. It reads no row and sends no request
// to the hub. absent are the data sets of the hub that the cache lacks and that --download would fetch.
func CheckData(ctx context.Context, c dataset.Config, opts hub.Options) (problems, absent []error) {
	opts.Download = false
	_ = c.EachSource(func(key string, s *dataset.Source) error { // it never fails
		if strings.HasPrefix(s.Path, EmbeddedPrefix) {
			return nil
		}
		err, found := findSource(ctx, s, opts), &problems
		if from := withRevision(*s).Path; err != nil && isHubData(from) && !hub.IsMissingFile(from) {
			found = &absent
		} else if err == nil {
			err = s.Check()
		}
		if err != nil {
			*found = append(*found, fmt.Errorf("%s: %w", key, err))
		}
		return nil
	})
	return problems, absent
}

// withRevision separates the revision from a source's path of the form org/name@v1.
func withRevision(s dataset.Source) dataset.Source {
	if _, err := os.Lstat(s.Path); err == nil || s.Revision != "" {
		return s
	}
	if name, revision := hub.SplitRevision(s.Path); revision != "" {
		s.Path, s.Revision = name, revision
	}
	return s
}

func isHubData(path string) bool {
	if strings.HasPrefix(path, EmbeddedPrefix) || source.IsPattern(path) || source.IsDataName(path) || !hub.IsDatasetName(path) {
		return false
	}
	_, err := os.Lstat(path)
	return err != nil
}

// findDataset looks at the revision. Without a revision, if main has no files that can be read, it looks at the Parquet
// copies that the hub makes.
func findDataset(ctx context.Context, s *dataset.Source, terms []source.Slice, opts hub.Options) (string, error) {
	choose := func(names []string, card []byte) ([]string, error) {
		files, err := source.Subset(names, card, s.Name)
		if err != nil {
			return nil, err
		}
		var wanted []string
		for _, t := range terms {
			picked, err := source.Pick(files, t.Split)
			if err != nil {
				return nil, fmt.Errorf("lacks a split: %w", err)
			}
			for _, f := range picked {
				wanted = append(wanted, f.Path)
			}
		}
		return wanted, nil
	}
	opts.Revision = s.Revision
	dir, err := hub.Dataset(ctx, s.Path, opts, choose)
	if err == nil || s.Revision != "" {
		return dir, err
	}
	var unreadable *source.NoDataError
	opts.Revision = source.ParquetRevision
	if !errors.As(err, &unreadable) {
		opts.Download = false // the files in the cache suffice
	}
	if dir, copyErr := hub.Dataset(ctx, s.Path, opts, choose); copyErr == nil {
		return dir, nil
	} else if opts.Download {
		err = errors.Join(err, copyErr)
	}
	return "", err
}
