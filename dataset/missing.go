package dataset

import (
	"errors"
	"io/fs"
)

// ErrMissing marks errors about data that is not on this machine: a file, a folder, or a hub data set that is not in
// the cache.
var ErrMissing = errors.New("the data is not here")

// missing is an error that wraps err and ErrMissing.
type missing struct{ err error }

func (m *missing) Error() string   { return m.err.Error() }
func (m *missing) Unwrap() []error { return []error{m.err, ErrMissing} }

// Missing returns err, wrapped with ErrMissing if it means that something does not exist.
func Missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrMissing) {
		return &missing{err}
	}
	return err
}
