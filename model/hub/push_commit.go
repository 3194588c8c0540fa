package hub

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// upMode is the hub's decision about a file to upload.
type upMode struct {
	Path   string `json:"path"`
	Mode   string `json:"uploadMode"`
	Ignore bool   `json:"shouldIgnore"`
	OID    string `json:"oid"` // blob id of the repository's version
}

// modes asks which files go to the large file storage, and drops files that need no upload.
func (u *upload) modes(ctx context.Context, p *Pushed) error {
	type asked struct {
		Path   string `json:"path"`
		Sample string `json:"sample"`
		Size   int64  `json:"size"`
	}
	var keep []*entry
	for part := range slices.Chunk(u.files, batchFiles) {
		var question struct {
			Files []asked `json:"files"`
		}
		for _, e := range part {
			question.Files = append(question.Files, asked{e.Name, base64.StdEncoding.EncodeToString(e.sample), e.size})
		}
		body, err := json.Marshal(question)
		if err != nil {
			return err
		}
		var answer struct {
			Files []upMode `json:"files"`
		}
		to := u.url("api", "models", u.name, "preupload", "main")
		if err := u.post(ctx, to, asJSON, body, true, &answer); err != nil {
			return err
		}
		for _, e := range part {
			i := slices.IndexFunc(answer.Files, func(f upMode) bool { return f.Path == e.Name })
			if i < 0 {
				return fmt.Errorf("%s: the answer says nothing of %s", place(to), e.Name)
			}
			f := answer.Files[i]
			if f.Mode != "regular" && f.Mode != "lfs" {
				return fmt.Errorf("%s: %s is to be uploaded as %q, which is neither regular nor lfs", place(to), e.Name,
					plainText(f.Mode))
			}
			e.large = f.Mode == "lfs"
			own := e.git
			if e.large {
				own = e.sha256
			}
			switch {
			case f.Ignore:
				p.Ignored = append(p.Ignored, e.Name)
			case f.OID != "" && f.OID == own:
				p.Same = append(p.Same, e.Name)
			default:
				keep = append(keep, e)
			}
		}
	}
	u.files = keep
	return nil
}

// commit adds all files to the repository in one commit.
func (u *upload) commit(ctx context.Context, p *Pushed) error {
	if len(u.files) == 0 {
		return nil
	}
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	lines.SetEscapeHTML(false)
	put := func(key string, value any) error { return lines.Encode(map[string]any{"key": key, "value": value}) }
	if err := put("header", map[string]string{"summary": u.o.Message, "description": ""}); err != nil {
		return err
	}
	for _, e := range u.files {
		p.Files = append(p.Files, e.Name)
		if e.large {
			if err := put("lfsFile", map[string]any{"path": e.Name, "algo": "sha256", "oid": e.sha256,
				"size": e.size}); err != nil {
				return err
			}
			continue
		}
		in, err := e.open()
		if err != nil {
			return err
		}
		data, err := io.ReadAll(in)
		if err = errors.Join(err, in.Close()); err != nil {
			return err
		}
		if err := put("file", map[string]any{"content": base64.StdEncoding.EncodeToString(data), "path": e.Name,
			"encoding": "base64"}); err != nil {
			return err
		}
	}
	var answer struct {
		URL string `json:"commitUrl"`
		OID string `json:"commitOid"`
	}
	to := u.url("api", "models", u.name, "commit", "main")
	if err := u.post(ctx, to, "application/x-ndjson", body.Bytes(), false, &answer); err != nil {
		return err
	}
	if !plainName.MatchString(answer.OID) {
		return fmt.Errorf("%s: the answer names the commit %q", place(to), plainText(answer.OID))
	}
	p.Commit, p.URL = answer.OID, plainText(answer.URL)
	return nil
}
