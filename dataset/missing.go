package dataset

import (
	"errors"
	"io/fs"
)

// ErrMissing is in the error of data that is not on this machine: a file, a folder, or a data set of the hub that the cache
// lacks.
var ErrMissing = errors.New("the data is not here")

// missing is an error that is also ErrMissing.
type missing struct{ err error }

func (m *missing) Error() string   { return m.err.Error() }
func (m *missing) Unwrap() []error { return []error{m.err, ErrMissing} }

// Missing returns err, as an ErrMissing where it says that something does not exist.
func Missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrMissing) {
		return &missing{err}
	}
	return err
}
