package logprobs

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/model/weights"
)

// Limits of an index. They keep a damaged file from taking memory or time without bound.
const (
	maxIndexBytes = 64 << 20
	maxShards     = 99999
)

// Folder is a complete folder, opened for reading. Its numbers are mapped, not read. It is safe for concurrent use.
type Folder struct {
	Subject
	dir    string
	infos  []shardInfo
	shards []*shard
	places []place // ascending by key
}

// place says where a row's tokens are.
type place struct {
	key    uint64
	shard  int32
	first  int32 // the row's first token in the shard
	tokens int32
}

// shard is an open shard.
type shard struct {
	file     *weights.File
	keys     []uint64
	counts   []int32
	tokens   int
	ids      []byte // I32 [N,K], as stored
	logprobs []byte // F32 [N,K]
	rest     []byte // F32 [N]
}

// ReadSubject returns what a complete folder was made from.
func ReadSubject(dir string) (Subject, error) {
	x, err := readIndex(dir)
	return x.Subject, err
}

// readIndex reads and checks the index of a folder.
func readIndex(dir string) (x index, err error) {
	path := filepath.Join(dir, IndexFile)
	data, err := regular.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return x, missing(dir)
	case err != nil:
		if info, serr := os.Stat(dir); serr == nil && !info.IsDir() {
			return x, missing(dir)
		}
		return x, fmt.Errorf("open log-probabilities: %w", err)
	case len(data) > maxIndexBytes:
		return x, fmt.Errorf("open log-probabilities: %s has %d bytes, more than an index has", path, len(data))
	}
	if err := jsonerr.Unmarshal(data, &x); err != nil {
		return x, fmt.Errorf("open log-probabilities: %s: %w", path, jsonerr.Unplaced(err))
	}
	if err := x.check(); err != nil {
		return x, fmt.Errorf("open log-probabilities: %s: %w", path, err)
	}
	return x, nil
}

// missing says what is wrong with a folder without an index.
func missing(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("open log-probabilities: %w: trainer logprobs writes such a folder", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("open log-probabilities: %s is a file, want the folder that trainer logprobs wrote", dir)
	}
	if _, err := os.Stat(filepath.Join(dir, shardName(0))); err == nil {
		return fmt.Errorf("open log-probabilities: %s is not complete: run trainer logprobs again with the same "+
			"flags, "+
			"which continues it", dir)
	}
	return fmt.Errorf("open log-probabilities: %s has no %s: want the folder that trainer logprobs wrote", dir,
		IndexFile)
}

func (x index) check() error {
	rows, tokens := 0, int64(0)
	for i, s := range x.Shards {
		if s.File != shardName(i) || s.Rows < 1 || s.Tokens < 0 || s.Tokens > math.MaxInt32 {
			return fmt.Errorf("shard %d is %q with %d rows and %d tokens", i+1, s.File, s.Rows, s.Tokens)
		}
		rows, tokens = rows+s.Rows, tokens+int64(s.Tokens)
	}
	switch {
	case x.Format != formatVersion:
		return fmt.Errorf("its format is %d, this program reads %d", x.Format, formatVersion)
	case len(x.Shards) < 1 || len(x.Shards) > maxShards:
		return fmt.Errorf("it lists %d shards, want 1 to %d", len(x.Shards), maxShards)
	case x.TopK < 1 || x.TopK > MaxTopK:
		return fmt.Errorf("top_k is %d, want 1 to %d", x.TopK, MaxTopK)
	case x.Vocabulary <= x.TopK || x.Vocabulary > math.MaxInt32:
		return fmt.Errorf("vocabulary is %d, with top_k %d", x.Vocabulary, x.TopK)
	case !(x.Temperature > 0) || math.IsInf(x.Temperature, 1):
		return fmt.Errorf("temperature is %v, want a number above 0", x.Temperature)
	case rows != x.Rows || tokens != x.Tokens:
		return fmt.Errorf("its shards have %d rows and %d tokens, it says %d and %d", rows, tokens, x.Rows, x.Tokens)
	}
	return nil
}

// Open opens a complete folder. It reads the index and the rows' keys; Verify reads everything.
func Open(dir string) (*Folder, error) {
	x, err := readIndex(dir)
	if err != nil {
		return nil, err
	}
	f := &Folder{Subject: x.Subject, dir: dir, infos: x.Shards, places: make([]place, 0, min(x.Rows, 1<<20))}
	for i, info := range x.Shards {
		s, err := openShard(filepath.Join(dir, info.File), x.TopK)
		if err == nil && (len(s.keys) != info.Rows || s.tokens != info.Tokens) {
			f.shards = append(f.shards, s)
			err = fmt.Errorf("%s has %d rows and %d tokens, the index says %d and %d", info.File, len(s.keys), s.tokens,
				info.Rows, info.Tokens)
		}
		if err != nil {
			f.Close() //nolint:errcheck // the first error is what matters
			return nil, fmt.Errorf("open log-probabilities: %w", err)
		}
		f.shards = append(f.shards, s)
		first := int32(0)
		for r, key := range s.keys {
			f.places = append(f.places, place{key, int32(i), first, s.counts[r]})
			first += s.counts[r]
		}
	}
	slices.SortFunc(f.places, func(a, b place) int { return cmp.Compare(a.key, b.key) })
	return f, nil
}

// Close releases the folder's files.
func (f *Folder) Close() (err error) {
	for _, s := range f.shards {
		err = errors.Join(err, s.file.Close())
	}
	f.shards = nil
	return err
}

// openShard opens a shard and checks its tensors.
func openShard(path string, k int) (*shard, error) {
	file, err := weights.Open(path)
	if err != nil {
		return nil, err
	}
	s := &shard{file: file}
	if err := s.read(k); err != nil {
		file.Close() //nolint:errcheck // the first error is what matters
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return s, nil
}

func (s *shard) read(k int) error {
	find := func(name string, d weights.DType, dims int) (weights.Tensor, error) {
		t, ok := s.file.Tensor(name)
		if !ok || t.DType != d || len(t.Shape) != dims {
			return t, fmt.Errorf("it has no tensor %s of %d dimensions and type %v: it is no file of log-probabilities",
				name,
				dims, d)
		}
		return t, nil
	}
	rows, err1 := find("rows", weights.I64, 1)
	counts, err2 := find("counts", weights.I32, 1)
	ids, err3 := find("ids", weights.I32, 2)
	logprobs, err4 := find("logprobs", weights.F32, 2)
	rest, err5 := find("rest", weights.F32, 1)
	if err := cmp.Or(err1, err2, err3, err4, err5); err != nil {
		return err
	}
	n := rest.Shape[0]
	if !slices.Equal(ids.Shape, []int{n, k}) || !slices.Equal(logprobs.Shape, []int{n, k}) ||
		!slices.Equal(rows.Shape, counts.Shape) || n > math.MaxInt32 {
		return fmt.Errorf("its tensors are rows %v, counts %v, ids %v, logprobs %v and rest %v, with top_k %d",
			rows.Shape,
			counts.Shape, ids.Shape, logprobs.Shape, rest.Shape, k)
	}
	s.tokens, s.ids, s.logprobs, s.rest = n, ids.Data, logprobs.Data, rest.Data
	total := 0
	for i := range rows.Shape[0] {
		s.keys = append(s.keys, binary.LittleEndian.Uint64(rows.Data[8*i:]))
		count := int32(binary.LittleEndian.Uint32(counts.Data[4*i:]))
		if count < 0 || int(count) > n-total {
			return fmt.Errorf("row %d has %d tokens of %d", i+1, count, n)
		}
		s.counts, total = append(s.counts, count), total+int(count)
	}
	if total != n {
		return fmt.Errorf("its rows have %d tokens, its numbers %d", total, n)
	}
	return nil
}

// Verify reads every number and checks the hashes of the shards, that tokens are below vocabulary and each there once
// for a place, and that log-probabilities are such.
func (f *Folder) Verify(ctx context.Context, vocabulary int) error {
	seen := make([]int64, vocabulary)
	var token int64
	for i, s := range f.shards {
		if err := ctx.Err(); err != nil {
			return err
		}
		name := f.infos[i].File
		for t := range s.tokens {
			token++
			if err := f.verifyToken(s, t, token, seen); err != nil {
				return fmt.Errorf("%s: %s: place %d: %w: write the folder again", f.dir, name, t+1, err)
			}
		}
		data, err := regular.ReadFile(filepath.Join(f.dir, name))
		if err != nil {
			return err
		}
		if sum := digest(unsafe.String(unsafe.SliceData(data), len(data))); sum != f.infos[i].SHA256 {
			return fmt.Errorf("%s: the SHA-256 of %s is %.12s, the index says %.12s: the file has changed; write "+
				"the folder "+
				"again", f.dir, name, sum, f.infos[i].SHA256)
		}
	}
	return nil
}

// verifyToken checks the numbers of token t of a shard. seen has for each token of the vocabulary the last place where
// it was, counted by number.
func (f *Folder) verifyToken(s *shard, t int, number int64, seen []int64) error {
	last := math.Inf(1)
	for k := range f.TopK {
		id, l := s.id(t*f.TopK+k), float64(s.logprob(t*f.TopK+k))
		switch {
		case id < 0 || int(id) >= len(seen):
			return fmt.Errorf("token id %d, the base model's vocabulary has 0 to %d", id, len(seen)-1)
		case seen[id] == number:
			return fmt.Errorf("token id %d is there twice", id)
		case !(l <= maxLogprob) || math.IsInf(l, -1):
			return fmt.Errorf("the log-probability %v of token id %d is not a number of 0 or less", l, id)
		case l > last:
			return fmt.Errorf("the log-probability %v follows the smaller %v", l, last)
		}
		seen[id], last = number, l
	}
	if l := float64(s.restOf(t)); !(l <= maxLogprob) {
		return fmt.Errorf("the log-probability %v of the other tokens is not a number of 0 or less", l)
	}
	return nil
}

// maxLogprob is the largest log-probability: 0, and rounding.
const maxLogprob = 1e-3

func (s *shard) id(i int) int32 { return int32(binary.LittleEndian.Uint32(s.ids[4*i:])) }

func (s *shard) logprob(i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(s.logprobs[4*i:]))
}

func (s *shard) restOf(t int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(s.rest[4*t:]))
}

// Check refuses a folder that does not belong to a base model or lacks rows of a data set.
func (f *Folder) Check(set *dataset.Set, tok dataset.Tokenizer, vocabulary int) error {
	if set.Streaming() {
		return errors.New("dataset.streaming reads rows that are not known before; distill.logprobs needs rows that " +
			"are: " +
			"remove dataset.streaming")
	}
	if have := Vocabulary(tok, vocabulary); f.Tokenizer != have {
		return fmt.Errorf("%s was made with another tokenizer: the hash of its vocabulary is %.12s, the base "+
			"model's %.12s; "+
			"the teacher must have the base model's tokens", f.dir, f.Tokenizer, have)
	}
	lacking, first := 0, ""
	for _, rows := range []dataset.Rows{set.Train, set.Val} {
		for i := range rows.Len() {
			row := rows.Row(i)
			p, ok := f.find(row.IDs, row.Labels)
			if ok && int(p.tokens) == Trained(row.Labels) {
				continue
			}
			if lacking++; first == "" {
				first = row.Where()
			}
		}
	}
	if lacking > 0 {
		return fmt.Errorf("%s was made from other rows: it lacks %d of %d, the first is %s; write it again with "+
			"this data set, "+
			"format, chat template, max_length and choice of what is trained", f.dir, lacking,
			set.Train.Len()+set.Val.Len(),
			first)
	}
	return nil
}

// find returns where the tokens of a row are.
func (f *Folder) find(ids, labels []int32) (place, bool) {
	key := Key(ids, labels)
	i, ok := slices.BinarySearchFunc(f.places, key, func(p place, key uint64) int { return cmp.Compare(p.key, key) })
	if !ok {
		return place{}, false
	}
	return f.places[i], true
}

// Tokens yields, for each trained token of a row in their order, the teacher's tokens and log-probabilities. k is how
// many, at most TopK: each call gets ids [k] and logps [k+1], whose last number is the log-probability of all other
// tokens, in memory that the next call overwrites. ok is false where the folder has no such row.
func (f *Folder) Tokens(ids, labels []int32, k int, yield func(ids []int32, logps []float32)) (ok bool) {
	p, ok := f.find(ids, labels)
	if !ok {
		return false
	}
	s := f.shards[p.shard]
	own, logps := make([]int32, k), make([]float32, k+1)
	for t := int(p.first); t < int(p.first+p.tokens); t++ {
		for i := range k {
			own[i], logps[i] = s.id(t*f.TopK+i), s.logprob(t*f.TopK+i)
		}
		rest := math.Exp(float64(s.restOf(t)))
		for i := k; i < f.TopK; i++ {
			rest += math.Exp(float64(s.logprob(t*f.TopK + i)))
		}
		logps[k] = float32(math.Log(rest))
		if k == f.TopK {
			logps[k] = s.restOf(t)
		}
		yield(own, logps)
	}
	return true
}
