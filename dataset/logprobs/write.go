package logprobs

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/model/weights"
)

// subjectKey is the metadata of a shard that identifies the subject.
const subjectKey = "subject"

// Row is what a teacher says of a row's trained tokens.
type Row struct {
	Key      uint64
	Tokens   int       // trained tokens N
	IDs      []int32   // [N,K]
	Logprobs []float32 // [N,K]
	Rest     []float32 // [N]
}

// Writer writes a folder shard by shard. A Writer of the same subject continues a folder that was not completed, and
// writes the same bytes.
type Writer struct {
	dir     string
	subject Subject
	shards  []shardInfo
}

// ErrOtherFiles is wrapped by the error of a folder with files that are no log-probabilities.
var ErrOtherFiles = errors.New("other files")

// NewWriter opens a folder for writing; it makes the folder if there is none. A folder with files that do not belong to
// one of these folders is refused, and one that was made from something else too.
func NewWriter(dir string, s Subject) (*Writer, error) {
	if s.TopK < 1 || s.TopK > MaxTopK {
		return nil, fmt.Errorf("top-k is %d, want 1 to %d", s.TopK, MaxTopK)
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("write log-probabilities: %w", err)
	}
	for _, e := range entries {
		if name := e.Name(); name != IndexFile && !strings.HasPrefix(name, "logprobs-") &&
			!strings.HasPrefix(name, "."+"logprobs") {
			return nil, fmt.Errorf("write log-probabilities: %s has %w, such as %s: name an empty folder", dir,
				ErrOtherFiles, name)
		}
	}
	if have, err := readIndex(dir); err == nil && have.Subject != s {
		return nil, fmt.Errorf("write log-probabilities: %s is complete and was made from something else (%s): "+
			"name another folder, or remove it", dir, have.difference(s))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("write log-probabilities: %w", err)
	}
	return &Writer{dir: dir, subject: s}, nil
}

// difference says in what two subjects differ.
func (s Subject) difference(o Subject) string {
	for _, d := range []struct {
		what       string
		have, want any
	}{
		{"teacher", s.Teacher, o.Teacher}, {"adapter", s.Adapter, o.Adapter}, {"tokenizer", s.Tokenizer, o.Tokenizer},
		{"top-k", s.TopK, o.TopK}, {"temperature", s.Temperature, o.Temperature}, {"precision", s.Precision,
			o.Precision},
		{"rows", s.Data, o.Data},
	} {
		if d.have != d.want {
			return fmt.Sprintf("its %s: %.40s, now %.40s", d.what, fmt.Sprint(d.have), fmt.Sprint(d.want))
		}
	}
	return "its weights"
}

// Has reports whether the next shard, of rows with these keys, was written by an earlier Writer of the subject. It then
// continues with the shard behind it.
func (w *Writer) Has(keys []uint64) (bool, error) {
	name := shardName(len(w.shards))
	path := filepath.Join(w.dir, name)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	s, err := openShard(path, w.subject.TopK)
	if err != nil {
		return false, fmt.Errorf("continue %s: %w: remove the file to have it written again", w.dir, err)
	}
	defer s.file.Close() //nolint:errcheck // read only
	if s.file.Metadata()[subjectKey] != w.subject.hash() || !slices.Equal(s.keys, keys) {
		return false, fmt.Errorf("continue %s: %s was made from something else: name another folder, or remove it",
			w.dir,
			name)
	}
	data, err := regular.ReadFile(path)
	if err != nil {
		return false, err
	}
	w.shards = append(w.shards, shardInfo{name, len(keys), s.tokens, digest(string(data))})
	return true, nil
}

// Write writes the next shard.
func (w *Writer) Write(rows []Row) error {
	k := w.subject.TopK
	var keys, counts, ids, logprobs, rest []byte
	tokens := 0
	for _, r := range rows {
		if len(r.IDs) != r.Tokens*k || len(r.Logprobs) != r.Tokens*k || len(r.Rest) != r.Tokens {
			return fmt.Errorf("write log-probabilities: a row of %d tokens has %d ids, %d log-probabilities and %d "+
				"rests, "+
				"top-k is %d", r.Tokens, len(r.IDs), len(r.Logprobs), len(r.Rest), k)
		}
		tokens += r.Tokens
		keys = binary.LittleEndian.AppendUint64(keys, r.Key)
		counts = binary.LittleEndian.AppendUint32(counts, uint32(r.Tokens))
		for _, id := range r.IDs {
			ids = binary.LittleEndian.AppendUint32(ids, uint32(id))
		}
		logprobs, rest = appendFloats(logprobs, r.Logprobs), appendFloats(rest, r.Rest)
	}
	data, err := weights.Encode([]weights.Tensor{
		{Name: "rows", DType: weights.I64, Shape: []int{len(rows)}, Data: keys},
		{Name: "counts", DType: weights.I32, Shape: []int{len(rows)}, Data: counts},
		{Name: "ids", DType: weights.I32, Shape: []int{tokens, k}, Data: ids},
		{Name: "logprobs", DType: weights.F32, Shape: []int{tokens, k}, Data: logprobs},
		{Name: "rest", DType: weights.F32, Shape: []int{tokens}, Data: rest},
	}, map[string]string{subjectKey: w.subject.hash()})
	if err != nil {
		return fmt.Errorf("write log-probabilities: %w", err)
	}
	name := shardName(len(w.shards))
	if err := atomicfile.Write(filepath.Join(w.dir, name), data); err != nil {
		return fmt.Errorf("write log-probabilities: %w", err)
	}
	w.shards = append(w.shards, shardInfo{name, len(rows), tokens, digest(string(data))})
	return nil
}

func appendFloats(to []byte, v []float32) []byte {
	for _, x := range v {
		to = binary.LittleEndian.AppendUint32(to, math.Float32bits(x))
	}
	return to
}

// Finish writes the index, which completes the folder.
func (w *Writer) Finish() error {
	rows, tokens := 0, int64(0)
	for _, s := range w.shards {
		rows, tokens = rows+s.Rows, tokens+int64(s.Tokens)
	}
	if rows != w.subject.Rows || tokens != w.subject.Tokens {
		return fmt.Errorf("finish log-probabilities: %d rows with %d tokens were written, want %d with %d", rows,
			tokens,
			w.subject.Rows, w.subject.Tokens)
	}
	data, err := json.MarshalIndent(index{formatVersion, w.subject, w.shards}, "", "  ")
	if err != nil {
		return fmt.Errorf("finish log-probabilities: %w", err)
	}
	if err := atomicfile.Write(filepath.Join(w.dir, IndexFile), append(data, '\n')); err != nil {
		return fmt.Errorf("finish log-probabilities: %w", err)
	}
	return nil
}
