package live

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tierlora/tierlora/session"
)

// shownRows is the number of rows of a data set that a page shows at a time.
const shownRows = 3

// mostFirst is the largest index of the first row that is shown.
const mostFirst = 1 << 40

// preview shows rows as the model sees them, token by token, with the trained and masked tokens. The rows belong to a
// configuration, or to a run.
func (s *Server) preview(r *http.Request, q request) (any, error) {
	config := q.Config
	if q.ID != "" {
		run, err := s.run(q.ID)
		if err != nil {
			return nil, err
		}
		if run.Config == nil || len(run.Config) > mostBody {
			return nil, refuse(http.StatusConflict, "%s has no configuration that can be read", run.Name)
		}
		config = string(run.Config)
	}
	if c := s.o.Check([]byte(config)); len(c.Problems) > 0 {
		return nil, refuse(http.StatusUnprocessableEntity, "%s", c.Problems[0].Message)
	}
	first, err := strconv.ParseInt(q.Value, 10, 64)
	if q.Value != "" && (err != nil || first < 0 || first > mostFirst) {
		return nil, refuse(http.StatusBadRequest, "the first row is a number from 0, not %q", short(q.Value))
	}
	if !s.planning.TryLock() {
		return nil, refuse(http.StatusTooManyRequests, "another plan or preview is being made: try again when it is there")
	}
	defer s.planning.Unlock()
	file, err := os.CreateTemp("", "rows-*.yaml")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name()) //nolint:errcheck // a temporary file
	_, err = file.WriteString(config)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), planTime)
	defer cancel()
	var out, said tail
	cmd := exec.CommandContext(ctx, s.o.Program, "inspect", "data", file.Name(), "--rows", fmt.Sprint(shownRows), "--first", fmt.Sprint(first), "--json")
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil && r.Context().Err() == nil {
			return nil, refuse(http.StatusGatewayTimeout, "the rows were not there after %s", planTime)
		}
		return nil, refuse(http.StatusUnprocessableEntity, "%s", strings.ReplaceAll(lastLine(said.String()), file.Name(), "the configuration"))
	}
	if !json.Valid(out.Bytes()) {
		return nil, refuse(http.StatusUnprocessableEntity, "the rows have more than %s together: trainer inspect data shows them in a terminal", session.FormatBytes(planBytes))
	}
	return struct {
		First int64           `json:"first"`
		Rows  json.RawMessage `json:"rows"`
	}{first, out.Bytes()}, nil
}

// dataName matches the name of a data file that may be uploaded: no folder, no hidden name.
var dataName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._ -]{0,99}\.(json|jsonl|csv|tsv|txt|parquet|arrow)(\.gz|\.zst)?$`)

// uploadPause is the longest time in which the sender of a file may send nothing.
const uploadPause = 30 * time.Second

// upload saves a data file in the folder that the server was given. It replaces nothing and cannot write elsewhere: it
// opens the file below that folder, under a name that it has validated.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) (any, error) {
	name := r.URL.Query().Get("name")
	switch {
	case s.o.Data == "":
		return nil, refuse(http.StatusConflict, "this server takes no files: start trainer ui with --data FOLDER")
	case !dataName.MatchString(name):
		return nil, refuse(http.StatusBadRequest, "%q is no name of a data file: letters, digits, dots and dashes, and one of .json .jsonl .csv .tsv .txt .parquet .arrow, or one of these with .gz or .zst", short(name))
	case r.ContentLength > s.o.MostData:
		return nil, refuse(http.StatusRequestEntityTooLarge, "the file has %s: at most %s are taken", session.FormatBytes(r.ContentLength), session.FormatBytes(s.o.MostData))
	}
	select {
	case s.uploads <- struct{}{}:
		defer func() { <-s.uploads }()
	default:
		return nil, refuse(http.StatusTooManyRequests, "another file is on its way: try again when it is there")
	}
	root, err := os.OpenRoot(s.o.Data)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // a folder that was read
	if _, err := root.Lstat(name); err == nil {
		return nil, refuse(http.StatusConflict, "%s is there already: give the file another name", name)
	}
	mark := make([]byte, 6)
	rand.Read(mark) //nolint:errcheck // it never fails
	part := ".upload-" + hex.EncodeToString(mark)
	n, err := s.receive(w, r, root, part)
	if err == nil {
		err = root.Link(part, name) // fails if another upload has taken the name
		if errors.Is(err, fs.ErrExist) {
			err = refuse(http.StatusConflict, "%s is there already: give the file another name", name)
		}
	}
	root.Remove(part) //nolint:errcheck // hidden, and the next upload has another name
	if err != nil {
		return nil, err
	}
	return struct {
		Path  string `json:"path"`
		Bytes int64  `json:"bytes"`
	}{filepath.Join(s.o.Data, name), n}, nil
}

// receive writes the request's body into a new file.
func (s *Server) receive(w http.ResponseWriter, r *http.Request, root *os.Root, name string) (n int64, err error) {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	control := http.NewResponseController(w)
	body, piece := http.MaxBytesReader(w, r.Body, s.o.MostData), make([]byte, 1<<20)
	for {
		_ = control.SetReadDeadline(time.Now().Add(uploadPause)) // not known to a recorder of a test
		_ = control.SetWriteDeadline(time.Now().Add(2 * uploadPause))
		k, err := body.Read(piece)
		if k > 0 {
			if _, werr := file.Write(piece[:k]); werr != nil {
				return n, werr
			}
			n += int64(k)
		}
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case errors.As(err, new(*http.MaxBytesError)):
			return n, refuse(http.StatusRequestEntityTooLarge, "the file has more than the %s that are taken", session.FormatBytes(s.o.MostData))
		case err != nil:
			return n, refuse(http.StatusBadRequest, "the file did not arrive: %v", err)
		}
	}
}
