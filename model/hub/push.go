package hub

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // git's blob ids are SHA-1
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/regular"
)

// File is a file to push, from the disk or from memory.
type File struct {
	Name string // path in the repository, with slashes
	Path string // file with the content; "" = Data
	Data []byte
}

// PushOptions configures Push.
type PushOptions struct {
	Options
	Public  bool   // make a new repository public
	Message string // commit message
	Files   []File
	// Card reports whether the README.md among Files may replace the repository's, whose content is nil if it has none.
	Card func(theirs []byte) bool
}

// Pushed is the result of a push.
type Pushed struct {
	Repo    string   `json:"repo"`
	Created bool     `json:"created"`
	Private bool     `json:"private"` // of a new repository
	Commit  string   `json:"commit,omitempty"`
	URL     string   `json:"url,omitempty"`
	Files   []string `json:"files"`             // files in the commit
	Same    []string `json:"same,omitempty"`    // files that the repository already had
	Ignored []string `json:"ignored,omitempty"` // files that the repository's .gitignore excludes
	Kept    []string `json:"kept,omitempty"`    // files of the repository that were not replaced
}

const (
	sampleSize = 512 // bytes of a file by which the hub distinguishes text from binary
	batchFiles = 256 // files in one request
)

// Push creates the repository if it does not exist and commits files to its main branch. It uploads large files to the
// large file storage first, so that an interrupted push leaves the repository unchanged.
func Push(ctx context.Context, name string, o PushOptions) (p Pushed, err error) {
	fail := func(err error) (Pushed, error) { return Pushed{}, fmt.Errorf("push to %s: %w", name, err) }
	if strings.Count(name, "/") != 1 || checkRepo(name) != nil {
		return Pushed{},
			fmt.Errorf("push: %q is no repository's name: the form is OWNER/NAME with letters, digits, and '-', '_', "+
				"'.' inside", name)
	}
	env, err := environment(o.Options)
	switch {
	case err != nil:
		return fail(err)
	case env.offline:
		return fail(errors.New("HF_HUB_OFFLINE is set: unset it"))
	case env.token == "":
		return fail(errors.New("there is no token: set HF_TOKEN, or log in with `hf auth login`"))
	case o.Revision != "" && o.Revision != "main":
		return fail(fmt.Errorf("revision %q: a push goes to main", o.Revision))
	}
	u := &upload{client: newClient(modelRepo, env, o.Options), name: name, o: o}
	u.what = "repository"
	for _, f := range o.Files {
		entry, err := read(f)
		if err != nil {
			return fail(err)
		}
		u.files = append(u.files, entry)
	}
	p.Repo = name
	if p.Created, err = u.create(ctx); err != nil {
		return fail(err)
	}
	p.Private = p.Created && !o.Public
	for _, step := range []func(context.Context, *Pushed) error{u.keepCard, u.checkCard, u.modes,
		u.storeLarge, u.commit} {
		if err := step(ctx, &p); err != nil {
			return fail(err)
		}
	}
	return p, nil
}

// upload is an active push.
type upload struct {
	*client
	name  string
	o     PushOptions
	files []*entry
}

// entry is a file with the properties that the hub asks for.
type entry struct {
	File
	size   int64
	sha256 string
	git    string // git's blob id
	sample []byte
	large  bool
}

func (f File) open() (io.ReadCloser, error) {
	if f.Path == "" {
		return io.NopCloser(bytes.NewReader(f.Data)), nil
	}
	return regular.Open(f.Path)
}

// read hashes a file.
func read(f File) (*entry, error) {
	if !fs.ValidPath(f.Name) || f.Name == "." || strings.ContainsAny(f.Name, "\\\x00") {
		return nil, fmt.Errorf("the file name %q can't be one of a repository", f.Name)
	}
	e := &entry{File: f, size: int64(len(f.Data))}
	if f.Path != "" {
		info, err := os.Stat(f.Path)
		if err != nil {
			return nil, err
		}
		e.size = info.Size()
	}
	in, err := f.open()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	big, small := sha256.New(), sha1.New() //nolint:gosec // see the import
	fmt.Fprintf(small, "blob %d\x00", e.size)
	n, err := io.Copy(io.MultiWriter(big, small, (*head)(&e.sample)), in)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name, err)
	}
	if n != e.size {
		return nil, fmt.Errorf("read %s: it has %d bytes, then %d: it changes while it is read", f.Name, e.size, n)
	}
	e.sha256, e.git = hex.EncodeToString(big.Sum(nil)), hex.EncodeToString(small.Sum(nil))
	return e, nil
}

// head keeps the first bytes that are written to it.
type head []byte

func (h *head) Write(p []byte) (int, error) {
	*h = append(*h, p[:min(len(p), sampleSize-min(sampleSize, len(*h)))]...)
	return len(p), nil
}

// post sends JSON and decodes the response into answer. again reports whether the request may be repeated.
func (u *upload) post(ctx context.Context, to *url.URL, kind string, body []byte, again bool, answer any) error {
	raw, err := u.exchange(ctx, http.MethodPost, to, http.Header{"Content-Type": {kind}}, body, again)
	if err != nil || answer == nil {
		return err
	}
	if err := jsonerr.Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("%s: the answer is not the hub's: %w", place(to), err)
	}
	return nil
}

func (u *upload) exchange(ctx context.Context, method string, to *url.URL, header http.Header, body []byte,
	again bool) (raw []byte, err error) {
	what := &payload{func() (io.Reader, error) { return bytes.NewReader(body), nil }, int64(len(body))}
	err = u.retry(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, stallTimeout)
		defer cancel()
		resp, err := u.sendBody(ctx, method, to, header, what, nil)
		if err == nil {
			defer resp.Body.Close()
			if resp.StatusCode >= 300 {
				err = u.refusal(to, resp)
			} else {
				raw, err = readAnswer(to, resp)
			}
		}
		if status := (*statusError)(nil); err != nil && !again && (!errors.As(err, &status) ||
			status.code != http.StatusTooManyRequests) {
			err = permanentError{err} // the server may have carried it out
		}
		return err
	})
	return raw, err
}

// refusal returns the error of an unsuccessful response with the reasons that it gives.
func (u *upload) refusal(to *url.URL, resp *http.Response) error {
	err := u.statusError(to, resp)
	var status *statusError
	if !errors.As(err, &status) {
		return err
	}
	switch status.code {
	case http.StatusUnauthorized:
		status.text = fmt.Sprintf(
			"%s answers 401 %s: the token was refused; it needs the right to write (HF_TOKEN, or `hf auth login`)",
			place(to), http.StatusText(http.StatusUnauthorized))
	case http.StatusForbidden:
		status.text = fmt.Sprintf(
			"%s answers 403 %s: the token may not write to %s; use one with that right, or your own name as OWNER",
			place(to), http.StatusText(http.StatusForbidden), u.name)
	}
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16)) // other text of the response
	var said struct {
		Error  string `json:"error"`
		Errors []struct {
			Message string `json:"message"`
		} `json:"errors"`
	}
	if json.Unmarshal(raw, &said) == nil {
		for _, e := range said.Errors {
			said.Error += " " + e.Message
		}
		if text := plainText(said.Error); text != "" && !strings.Contains(status.text, text) {
			status.text += " (" + text + ")"
		}
	}
	return status
}

const asJSON = "application/json"

// create creates the repository, or uses an existing one.
func (u *upload) create(ctx context.Context) (made bool, err error) {
	owner, short, _ := strings.Cut(u.name, "/")
	body, err := json.Marshal(map[string]any{"name": short, "organization": owner, "private": !u.o.Public,
		"type": "model"})
	if err != nil {
		return false, err
	}
	err = u.post(ctx, u.url("api", "repos", "create"), asJSON, body, true, nil)
	var status *statusError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &status) && status.code == http.StatusConflict:
		return false, nil
	// the token may not create a repository, but perhaps write to this one
	case errors.As(err, &status) && status.code == http.StatusForbidden:
		if _, there := u.read(ctx, u.url("api", "models", u.name)); there == nil {
			return false, nil
		}
	}
	return false, err
}

// keepCard drops our card if the repository's own must stay.
func (u *upload) keepCard(ctx context.Context, p *Pushed) error {
	i := slices.IndexFunc(u.files, func(e *entry) bool { return e.Name == cardFile })
	if i < 0 || u.o.Card == nil || p.Created {
		return nil
	}
	theirs, err := u.text(ctx, u.url(u.name, "resolve", "main", cardFile))
	if err != nil {
		return fmt.Errorf("read the repository's %s: %w", cardFile, err)
	}
	if theirs != nil && !u.o.Card(theirs) {
		u.files = slices.Delete(u.files, i, i+1)
		p.Kept = append(p.Kept, cardFile)
	}
	return nil
}

// text returns a small file of the repository, or nil if there is none.
func (u *upload) text(ctx context.Context, from *url.URL) (text []byte, err error) {
	err = u.retry(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, stallTimeout)
		defer cancel()
		resp, err := u.send(ctx, http.MethodGet, from, nil, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		switch resp.StatusCode {
		case http.StatusNotFound:
			return nil
		case http.StatusOK:
			text, err = io.ReadAll(io.LimitReader(resp.Body, maxCard))
			if text == nil {
				text = []byte{}
			}
			return err
		}
		return u.statusError(from, resp)
	})
	return text, err
}

// checkCard asks the hub to validate a card's front matter before anything is uploaded.
func (u *upload) checkCard(ctx context.Context, _ *Pushed) error {
	i := slices.IndexFunc(u.files, func(e *entry) bool { return e.Name == cardFile })
	if i < 0 {
		return nil
	}
	in, err := u.files[i].open()
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(in, maxCard))
	if err = errors.Join(err, in.Close()); err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"content": string(text), "repoType": "model"})
	if err != nil {
		return err
	}
	if err := u.post(ctx, u.url("api", "validate-yaml"), asJSON, body, true, nil); err != nil {
		return fmt.Errorf("the hub refuses the front matter of %s: %w", cardFile, err)
	}
	return nil
}
