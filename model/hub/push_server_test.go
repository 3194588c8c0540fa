package hub

import (
	"bufio"
	"bytes"
	"crypto/sha1" //nolint:gosec // git's blob ids are SHA-1
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// pushHub is a hub that takes uploads, as strict as the real one in what it asks of a request: huggingface_hub's own
// client pushes to it in a test. Files of over large bytes, and .safetensors, go to the large file storage, in parts
// where part is above 0.
type pushHub struct {
	t         testing.TB
	token     string
	part      int64
	exists    bool
	forbidden bool                                                     // to make repositories
	before    func(w http.ResponseWriter, r *http.Request) (done bool) // sees every request first

	mu       sync.Mutex
	log      []string
	private  any
	files    map[string][]byte // of main
	stored   map[string][]byte // by SHA-256
	parts    map[string][]byte // by SHA-256 and number
	sizes    map[string]int64
	verified map[string]bool
	commits  int

	hub, storage *httptest.Server
}

func (h *pushHub) start(t testing.TB) *pushHub {
	t.Helper()
	h.t, h.token = t, "hf_writes"
	h.files, h.stored, h.parts, h.sizes, h.verified = map[string][]byte{}, map[string][]byte{}, map[string][]byte{},
		map[string]int64{}, map[string]bool{}
	// Both are known before either serves: a client that is another process orders nothing for the race detector.
	h.hub, h.storage = httptest.NewUnstartedServer(http.HandlerFunc(h.serve)), httptest.NewUnstartedServer(
		http.HandlerFunc(h.store))
	h.storage.Start()
	h.hub.Start()
	t.Cleanup(h.hub.Close)
	t.Cleanup(h.storage.Close)
	return h
}

func (h *pushHub) bad(w http.ResponseWriter, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	h.t.Errorf("the hub was sent what it does not take: %s", text)
	w.WriteHeader(http.StatusBadRequest)
	json.NewEncoder(w).Encode(map[string]string{"error": text}) //nolint:errcheck // of a test
}

func (h *pushHub) answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	json.NewEncoder(w).Encode(v) //nolint:errcheck // of a test
}

func (h *pushHub) serve(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, r.Method+" "+r.URL.Path)
	if h.before != nil && h.before(w, r) {
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+h.token && !strings.HasPrefix(r.URL.Path, "/lfs/") {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	const repo = "org/name"
	switch r.Method + " " + r.URL.Path {
	case "POST /api/repos/create":
		h.create(w, body)
	case "GET /api/models/" + repo, "GET /api/models/" + repo + "/revision/main":
		if !h.exists {
			http.NotFound(w, r)
			return
		}
		h.answer(w, map[string]any{"id": repo, "sha": commit, "siblings": []any{}})
	case "POST /api/validate-yaml":
		h.validate(w, body)
	case "GET /" + repo + "/resolve/main/README.md":
		if card, ok := h.files["README.md"]; ok {
			w.Write(card) //nolint:errcheck // of a test
			return
		}
		http.NotFound(w, r)
	case "POST /api/models/" + repo + "/preupload/main":
		h.preupload(w, body)
	case "POST /" + repo + ".git/info/lfs/objects/batch":
		h.batch(w, r, body)
	case "POST /api/models/" + repo + "/commit/main":
		h.commit(w, r, body)
	default:
		if oid, ok := strings.CutPrefix(r.URL.Path, "/lfs/verify/"); ok && r.Method == http.MethodPost {
			h.verify(w, oid, body)
			return
		}
		if oid, ok := strings.CutPrefix(r.URL.Path, "/lfs/complete/"); ok && r.Method == http.MethodPost {
			h.complete(w, oid, body)
			return
		}
		http.NotFound(w, r)
	}
}

func (h *pushHub) create(w http.ResponseWriter, body []byte) {
	var q struct {
		Name, Organization, Type string
		Private                  any
	}
	if err := json.Unmarshal(body, &q); err != nil || q.Name != "name" || q.Organization != "org" || q.Type != "" &&
		q.Type != "model" {
		h.bad(w, "create %s", body)
		return
	}
	switch {
	case h.forbidden:
		w.WriteHeader(http.StatusForbidden)
	case h.exists:
		w.WriteHeader(http.StatusConflict)
		h.answer(w, map[string]string{"error": "You already created this model repo", "url": h.hub.URL + "/org/name"})
	default:
		h.exists, h.private = true, q.Private
		h.answer(w, map[string]string{"url": h.hub.URL + "/org/name"})
	}
}

func (h *pushHub) validate(w http.ResponseWriter, body []byte) {
	var q struct{ Content, RepoType string }
	if err := json.Unmarshal(body, &q); err != nil || q.RepoType != "model" || q.Content == "" {
		h.bad(w, "validate-yaml %s", body)
		return
	}
	if strings.Contains(q.Content, "license: [") {
		w.WriteHeader(http.StatusBadRequest)
		h.answer(w, map[string]any{"errors": []map[string]string{{"message": `"license" must be a string`}},
			"warnings": []any{}})
		return
	}
	h.answer(w, map[string]any{"errors": []any{}, "warnings": []any{}})
}

func (h *pushHub) preupload(w http.ResponseWriter, body []byte) {
	var q struct {
		Files []struct {
			Path, Sample string
			Size         int64
		}
	}
	if err := json.Unmarshal(body, &q); err != nil || len(q.Files) == 0 {
		h.bad(w, "preupload %s", body)
		return
	}
	var files []map[string]any
	for _, f := range q.Files {
		sample, err := base64.StdEncoding.DecodeString(f.Sample)
		if err != nil || int64(len(sample)) != min(f.Size, 512) {
			h.bad(w, "preupload: a sample of %d bytes of %s, which has %d", len(sample), f.Path, f.Size)
			return
		}
		a := map[string]any{"path": f.Path, "uploadMode": "regular", "shouldIgnore": f.Path == "ignored.txt"}
		old, there := h.files[f.Path]
		if strings.HasSuffix(f.Path, ".safetensors") {
			a["uploadMode"] = "lfs"
			if there {
				a["oid"] = sum256(old)
			}
		} else if there {
			a["oid"] = gitID(old)
		}
		files = append(files, a)
	}
	h.answer(w, map[string]any{"files": files})
}

func sum256(data []byte) string { s := sha256.Sum256(data); return hex.EncodeToString(s[:]) }

func gitID(data []byte) string {
	s := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(data), data)) //nolint:gosec // as above
	return hex.EncodeToString(s[:])
}

func (h *pushHub) batch(w http.ResponseWriter, r *http.Request, body []byte) {
	var q struct {
		Operation string
		Transfers []string
		Objects   []struct {
			OID  string
			Size int64
		}
		HashAlgo string `json:"hash_algo"`
		Ref      struct{ Name string }
	}
	if err := json.Unmarshal(body, &q); err != nil || q.Operation != "upload" || q.HashAlgo != "sha256" ||
		len(q.Objects) == 0 ||
		r.Header.Get("Accept") != lfsJSON || r.Header.Get("Content-Type") != lfsJSON {
		h.bad(w, "batch %s of %v", body, r.Header)
		return
	}
	var objects []map[string]any
	for _, o := range q.Objects {
		a := map[string]any{"oid": o.OID, "size": o.Size}
		h.sizes[o.OID] = o.Size
		if _, there := h.stored[o.OID]; !there {
			up := map[string]any{"href": h.storage.URL + "/put/" + o.OID + "?signature=secret"}
			if h.part > 0 && o.Size > h.part {
				header := map[string]any{"chunk_size": strconv.FormatInt(h.part, 10)}
				for n := int64(1); (n-1)*h.part < o.Size; n++ {
					header[fmt.Sprintf("%05d", n)] = fmt.Sprintf("%s/part/%s-%d?signature=secret",
						h.storage.URL, o.OID, n)
				}
				up["href"], up["header"] = h.hub.URL+"/lfs/complete/"+o.OID, header
			}
			a["actions"] = map[string]any{"upload": up, "verify": map[string]any{"href": h.hub.URL + "/lfs/verify/" +
				o.OID, "header": map[string]any{}}}
		}
		objects = append(objects, a)
	}
	h.answer(w, map[string]any{"objects": objects, "transfer": "basic"})
}

// store is the storage behind the hub, another host.
func (h *pushHub) store(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		h.t.Error("the token reached another host")
	}
	data, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPut || r.URL.RawQuery != "signature=secret" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, "STORAGE "+r.URL.Path)
	if h.before != nil && h.before(w, r) {
		return
	}
	if key, ok := strings.CutPrefix(r.URL.Path, "/part/"); ok {
		h.parts[key] = data
		w.Header().Set("ETag", `"`+sum256(data)[:8]+`"`)
		return
	}
	oid := strings.TrimPrefix(r.URL.Path, "/put/")
	if sum256(data) != oid {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	h.stored[oid] = data
}

func (h *pushHub) complete(w http.ResponseWriter, oid string, body []byte) {
	var q struct {
		OID   string
		Parts []struct {
			PartNumber int
			ETag       string
		}
	}
	if err := json.Unmarshal(body, &q); err != nil || q.OID != oid {
		h.bad(w, "complete %s", body)
		return
	}
	var all []byte
	for i, p := range q.Parts {
		data, ok := h.parts[fmt.Sprintf("%s-%d", oid, p.PartNumber)]
		if !ok || p.PartNumber != i+1 || p.ETag != `"`+sum256(data)[:8]+`"` {
			h.bad(w, "part %d of %d with the etag %s", p.PartNumber, len(q.Parts), p.ETag)
			return
		}
		all = append(all, data...)
	}
	if sum256(all) != oid {
		h.bad(w, "parts of another file")
		return
	}
	h.stored[oid] = all
	h.answer(w, map[string]bool{"success": true})
}

func (h *pushHub) verify(w http.ResponseWriter, oid string, body []byte) {
	var q struct {
		OID  string
		Size int64
	}
	if err := json.Unmarshal(body, &q); err != nil || q.OID != oid || q.Size != int64(len(h.stored[oid])) {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	h.verified[oid] = true
	h.answer(w, map[string]any{})
}

func (h *pushHub) commit(w http.ResponseWriter, r *http.Request, body []byte) {
	if r.Header.Get("Content-Type") != "application/x-ndjson" {
		h.bad(w, "a commit of type %s", r.Header.Get("Content-Type"))
		return
	}
	header := false
	files := map[string][]byte{}
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var l struct {
			Key   string
			Value struct {
				Summary, Description, Content, Path, Encoding, Algo, OID string
				Size                                                     int64
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			h.bad(w, "the line %s", lines.Bytes())
			return
		}
		switch v := l.Value; l.Key {
		case "header":
			header = v.Summary != ""
		case "file":
			data, err := base64.StdEncoding.DecodeString(v.Content)
			if err != nil || v.Encoding != "base64" {
				h.bad(w, "the content of %s", v.Path)
				return
			}
			files[v.Path] = data
		case "lfsFile":
			if v.Algo != "sha256" || !h.verified[v.OID] || h.stored[v.OID] == nil ||
				int64(len(h.stored[v.OID])) != v.Size {
				h.bad(w, "%s of %s, which is not stored and verified", v.Path, v.OID)
				return
			}
			files[v.Path] = h.stored[v.OID]
		default:
			h.bad(w, "the key %s", l.Key)
			return
		}
	}
	if !header || len(files) == 0 {
		h.bad(w, "a commit without header or files")
		return
	}
	for name, data := range files {
		h.files[name] = data
	}
	h.commits++
	h.answer(w, map[string]any{"success": true, "commitOid": commit, "commitUrl": h.hub.URL +
		"/org/name/commit/" + commit})
}
