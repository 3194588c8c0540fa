package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
)

// cacheVersion is part of every key. TestCacheVersion fails when a change of the rows calls for a new version.
const cacheVersion = 5

// cacheKey hashes everything that decides the rows and the report. Settings that take effect later are not in the key;
// keyless lists them.
func cacheKey(cfg Config, path, data, tokenizer string) string {
	h := sha256.New()
	put := func(what string, value any) { fmt.Fprintf(h, "%s %q\n", what, fmt.Sprint(value)) }
	put("version", cacheVersion)
	put("data", data)
	put("tokenizer", tokenizer)
	_, ending, _ := strings.Cut(filepath.Base(path), ".")
	put("ending", strings.ToLower(ending)) // the ending decides how the bytes are read
	put("format", strings.TrimPrefix(cfg.Format, FormatAuto))
	put("max_length", cfg.MaxLength)
	put("train_on_prompt", cfg.TrainOnPrompt)
	put("separator", cfg.Separator)
	put("on_truncated", cfg.OnTruncated)
	put("rows", cfg.span)
	put("text_by", cfg.TextBy)
	put("chat", []string{cfg.ChatTemplate, cfg.TrainOn, fmt.Sprintf("%q", cfg.RolesToTrain), cfg.SplitTurns,
		fmt.Sprintf("%q", cfg.AllowSpecial)})
	put("train_reasoning", cfg.TrainReasoning)
	put("train_tool_calls", cfg.TrainToolCalls)
	put("templates", cfg.chat.print())
	if cfg.AsChat != "" || cfg.System != "" { // so that the keys of older configurations stay valid
		put("as_chat", []string{cfg.AsChat, cfg.System})
	}
	if cfg.Weights {
		put("weights", true)
	}
	if cfg.Preferences {
		put("preferences", true)
	}
	if cfg.Unpaired {
		put("unpaired", true)
	}
	if cfg.Mismatched > 0 {
		put("whole answers", true)
	}
	if cfg.Aim.Kind != "" {
		put("aim", []string{string(cfg.Aim.Kind), fmt.Sprintf("%q", cfg.Aim.Names), fmt.Sprint(cfg.Aim.Count)})
	}
	for _, role := range cfg.fieldRoles() {
		put("field "+role, cfg.Fields[role])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// keyless lists the fields of Config that are not in the key, each with the reason why it decides no row of a file.
var keyless = map[string]string{
	"Path":    "the data's hash stands for it; the places in the report are given the path when they are read",
	"ValPath": "a file of its own",
	"Sources": "files of their own; format and fields of a source stand in the configuration that they are " +
		"read with",
	"ValSources":    "files of their own",
	"PathFolder":    "where the files lie",
	"ValPathFolder": "where the files lie",
	"Prompts":       "such rows are not kept in the cache",
	"Images":        "such rows are not kept in the cache",
	"ValSplit":      "parts the rows",
	"Shuffle":       "orders the rows",
	"Packing":       "puts rows together",
	"PadTo":         "shapes batches",
	"CacheDir":      "where the entry lies",
	"Streaming":     "reads without a cache",
	"EndOfEpoch":    "shows totals",
	"Seed":          "parts and orders the rows",
	"Workers":       "how fast",
	"Progress":      "shows how far",
	"Chat":          "the hash of what it finds is in the key",
	"chat":          "made of other fields",
	"look":          "shows rows to a person, past the cache",
}

// probe is tokenised as part of the fingerprint, so that most changes of the tokenizer's own code change the key.
const probe = " The  tokens of 3,141.59 naïve ﬁancées' 東京 \U0001f469\u200d\U0001f4bb\n\n\tdon't I'LL </s><|im_end|>"

func fingerprint(tok Tokenizer) (string, bool) {
	f, ok := tok.(filed)
	if !ok {
		return "", false
	}
	files := f.Files()
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%q %d\n", name, len(files[name]))
		h.Write(files[name])
	}
	bos, _ := tok.BOS()
	eos, _ := tok.EOS()
	fmt.Fprintln(h, tok.AddsBOS(), bos, eos, tok.IDs(probe, false))
	return hex.EncodeToString(h.Sum(nil)), true
}

// hashReader hashes the bytes that are read through it.
type hashReader struct {
	r io.Reader
	h hash.Hash
}

func newHashReader(r io.Reader) *hashReader { return &hashReader{r, sha256.New()} }

func (h *hashReader) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	h.h.Write(p[:n])
	return n, err
}

func (h *hashReader) sum() string { return hex.EncodeToString(h.h.Sum(nil)) }

// identity distinguishes a file from others at the same path and from its own earlier versions.
type identity struct {
	Path     string
	Size     int64
	Device   uint64
	Inode    uint64
	Modified int64 // modification time in nanoseconds
	Changed  int64 // inode change time in nanoseconds, which no program can set
}

// knownHash is a file of the cache folder that records the hash of a large data file, so that the data file need not be
// read at every start.
type knownHash struct {
	File   identity
	SHA256 string
}

// restTime is how long a file must be unmodified before its hash is recorded. A second change within this time could
// leave the file times as they are, because file systems have coarse clocks (2 s on FAT).
const restTime = 3 * time.Second

// hashFile returns the SHA-256 of a data file. For a file on disk the hash is recorded in dir and reused while the
// file's size, device, inode, modification time and change time stay the same.
func hashFile(ctx context.Context, path, dir string, open opener, m *meter) (string, error) {
	f, err := open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	begin := time.Now()
	id, known := identityOf(f)
	var name string
	if known {
		sum := sha256.Sum256([]byte(id.Path))
		name = filepath.Join(dir, hex.EncodeToString(sum[:16])+".hash")
		var k knownHash
		if text, err := regular.ReadFile(name); err == nil && json.Unmarshal(text, &k) == nil && k.File == id {
			return k.SHA256, nil
		}
	}
	m.begin("hashing", path, sizeOf(f))
	h := newHashReader(contextReader{ctx, m.reader(f)})
	if _, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{h}, make([]byte, 1<<20)); err != nil {
		return "", err
	}
	if after, ok := identityOf(f); known && ok && after == id &&
		begin.Sub(time.Unix(0, max(id.Modified, id.Changed))) > restTime {
		if text, err := json.Marshal(knownHash{id, h.sum()}); err == nil && os.MkdirAll(dir, 0o755) == nil {
			_ = atomicfile.Write(name, text) // without this record the file is hashed again
		}
	}
	return h.sum(), nil
}

// identityOf returns false for readers that are not files on disk.
func identityOf(f io.Reader) (identity, bool) {
	file, ok := f.(*os.File)
	if !ok {
		return identity{}, false
	}
	id, ok := identify(file)
	if !ok {
		return identity{}, false
	}
	path, err := filepath.Abs(file.Name())
	id.Path = path
	return id, err == nil
}

// sizeOf returns the size of an open file in bytes, 0 if it is unknown.
func sizeOf(f io.Reader) int64 {
	if s, ok := f.(interface{ Stat() (os.FileInfo, error) }); ok {
		if info, err := s.Stat(); err == nil {
			return info.Size()
		}
	}
	return 0
}
