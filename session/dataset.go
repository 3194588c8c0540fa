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

// FindData looks up the data sets of the hub that a configuration names, and notes where their files lie: in the Hugging
// Face cache, downloaded if the options say so. Anything that is there under the name is no data set of the hub.
func FindData(ctx context.Context, c dataset.Config, opts hub.Options) (dataset.Config, error) {
	err := c.EachSource(func(key string, s *dataset.Source) error {
		if !isHubData(s.Path) {
			if s.Revision != "" {
				return fmt.Errorf("%s: %s is no data set of the hub, so it has no revision %q", key, s.Path, s.Revision)
			}
			return nil
		}
		terms, err := source.ParseSplit(s.Split)
		if s.Split == "" {
			terms, err = []source.Slice{{Split: source.DefaultSplit}}, nil
		}
		if err != nil {
			return fmt.Errorf("%s: split %w", key, err)
		}
		folder, err := findDataset(ctx, s, terms, opts)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		s.Folder = folder
		return nil
	})
	return c, err
}

func isHubData(path string) bool {
	if strings.HasPrefix(path, EmbeddedPrefix) || source.IsPattern(path) || source.IsDataName(path) || !hub.IsDatasetName(path) {
		return false
	}
	_, err := os.Lstat(path)
	return err != nil
}

// findDataset looks at the revision, and where none is given and main has no files that can be read, at the Parquet
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
		opts.Download = false // what is in the cache can be used
	}
	if dir, copyErr := hub.Dataset(ctx, s.Path, opts, choose); copyErr == nil {
		return dir, nil
	} else if opts.Download {
		err = errors.Join(err, copyErr)
	}
	return "", err
}
