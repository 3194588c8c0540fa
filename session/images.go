package session

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/vision"
	"github.com/tierlora/tierlora/vision/tower"
)

// Images reads images for a model, and computes their embeddings with its tower when they are first needed. Embeddings
// are kept in a folder, by a hash of the image file, the processor and the tower. It is safe for concurrent use.
type Images struct {
	model     string
	tokenizer dataset.Tokenizer
	weights   tower.Source // of the tower; nil = only tokens are read
	processor *vision.Processor
	config    []byte // config.json
	token     int32
	dir       string // of embeddings; "" = all are kept in memory
	full      bool   // dir takes no more
	log       func(format string, args ...any)

	mu       sync.Mutex
	tower    *tower.Tower // nil before the first image whose embeddings are not kept yet
	settings [sha256.Size]byte
	memory   map[[sha256.Size]byte][]float32
	expanded map[vision.Grid][]int32
	bytes    int64 // of dir; -1 = not counted yet
	seen     bool
}

// maxKept is the most bytes of embeddings that the folder may hold. Beyond it, embeddings are kept in memory.
const maxKept = 8 << 30

// NewImages returns the images of a base model; nil if its folder describes none.
func (b *Base) NewImages(cacheDir string, env Env) (*Images, error) {
	if b.Declared {
		return nil, nil
	}
	m, err := TokensOfImages(b.Name, b.Folder, b.Tokenizer)
	if m == nil || err != nil {
		return nil, err
	}
	m.weights, m.log = b.Weights, env.Logf
	if cacheDir != "" {
		m.dir = filepath.Join(cacheDir, "images")
	}
	m.settings = sha256.Sum256(fmt.Appendf(m.settings[:], "1 %+v\n%s\n%s", *m.processor, m.config, b.Fingerprint()))
	return m, nil
}

// TokensOfImages returns the images of a model whose folder needs no weights: their tokens are read, and they have no
// embeddings. nil = the folder describes no images.
func TokensOfImages(model string, folder fs.FS, tok dataset.Tokenizer) (*Images, error) {
	config, err := fs.ReadFile(folder, "config.json")
	if err != nil || !tower.Describes(config) {
		return nil, nil
	}
	p, err := vision.ReadProcessor(folder)
	if errors.Is(err, vision.ErrNoProcessor) {
		return nil, nil
	}
	m := &Images{model: model, tokenizer: tok, processor: p, config: config, memory: map[[sha256.Size]byte][]float32{},
		expanded: map[vision.Grid][]int32{}, bytes: -1}
	if err == nil {
		m.token, err = tower.ImageToken(config)
	}
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", model, err)
	}
	if mark := tok.IDs(vision.Image, false); len(mark) != 1 || mark[0] != m.token {
		return nil, fmt.Errorf("model %s: image_token_id is %d, its tokenizer makes %v of %s", model, m.token, mark,
			vision.Image)
	}
	return m, nil
}

// Token returns the id in whose places embeddings of an image stand.
func (m *Images) Token() int32 { return m.token }

// Read decodes an image file and finds its tokens.
func (m *Images) Read(file []byte) (dataset.Image, error) {
	picture, _, err := vision.Decode(file)
	if err != nil {
		return nil, err
	}
	one := &readImage{of: m, key: sha256.Sum256(append(slices.Clone(file), m.settings[:]...))}
	grid := m.processor.Grid(picture.Width, picture.Height)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = true
	if m.expanded[grid] == nil {
		m.expanded[grid] = m.tokenizer.IDs(m.processor.Text(grid), false)
	}
	one.ids = m.expanded[grid]
	return one, m.keep(one.key, picture)
}

// Seen reports whether an image was read.
func (m *Images) Seen() bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen
}

// readImage is an image of a row.
type readImage struct {
	of  *Images
	ids []int32
	key [sha256.Size]byte
}

func (r *readImage) IDs() []int32           { return r.ids }
func (r *readImage) Key() [sha256.Size]byte { return r.key }

// Embeddings returns the embeddings from memory or from the folder.
func (r *readImage) Embeddings() ([]float32, error) {
	r.of.mu.Lock()
	kept := r.of.memory[r.key]
	r.of.mu.Unlock()
	if kept != nil {
		return kept, nil
	}
	return readEmbeddings(r.of.path(r.key))
}

func (m *Images) path(key [sha256.Size]byte) string {
	return filepath.Join(m.dir, hex.EncodeToString(key[:])+".f32")
}

// keep computes an image's embeddings unless they are kept already.
func (m *Images) keep(key [sha256.Size]byte, picture *vision.RGB) error {
	if m.weights == nil || m.memory[key] != nil {
		return nil
	}
	if m.dir != "" {
		if _, err := readEmbeddings(m.path(key)); err == nil {
			return nil
		}
	}
	if m.tower == nil {
		var err error
		if m.tower, err = tower.Open(m.config, m.weights, m.processor); err != nil {
			return fmt.Errorf("model %s: %w", m.model, err)
		}
	}
	tiles, _, err := m.processor.Tiles(picture)
	if err != nil {
		return err
	}
	values, err := m.tower.Embed(context.Background(), tiles)
	if err != nil {
		return err
	}
	for _, v := range values {
		if v-v != 0 {
			return errors.New("the image tower gives numbers that are not finite")
		}
	}
	if m.dir == "" || m.full || !m.store(key, values) {
		m.memory[key] = values
	}
	return nil
}

// store writes embeddings to the folder, and reports whether it did. A folder that is full or cannot be written keeps
// no more.
func (m *Images) store(key [sha256.Size]byte, values []float32) bool {
	if m.bytes < 0 {
		if err := os.MkdirAll(m.dir, 0o777); err != nil {
			return m.giveUp(err)
		}
		entries, _ := os.ReadDir(m.dir)
		for m.bytes = 0; len(entries) > 0; entries = entries[1:] {
			if info, err := entries[0].Info(); err == nil {
				m.bytes += info.Size()
			}
		}
	}
	data := make([]byte, 0, 4*len(values)+sha256.Size)
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	sum := sha256.Sum256(data)
	if m.bytes += int64(len(data) + len(sum)); m.bytes > maxKept {
		return m.giveUp(fmt.Errorf("%s has %d bytes, at most %d are kept", m.dir, m.bytes, int64(maxKept)))
	}
	if err := atomicfile.Write(m.path(key), append(data, sum[:]...)); err != nil {
		return m.giveUp(err)
	}
	return true
}

// giveUp says why embeddings are kept in memory from now on.
func (m *Images) giveUp(why error) bool {
	m.log("embeddings of images are kept in memory: %v", why)
	m.full = true
	return false
}

// readEmbeddings reads a file of embeddings, which ends with their SHA-256.
func readEmbeddings(path string) ([]float32, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	n := len(data) - sha256.Size
	if n < 0 || n%4 != 0 || sha256.Sum256(data[:n]) != [sha256.Size]byte(data[n:]) {
		return nil, fmt.Errorf("%s is damaged: remove it", path)
	}
	values := make([]float32, n/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return values, nil
}

// The batch's values of images: rows of embeddings, and for each token the row that replaces its own, -1 = none.
const (
	nameImageRows = "image_rows"
	nameImageFrom = "image_from"
)

// ImageRows is the memory of a batch's embeddings of images. nil = the plan has none.
type ImageRows struct {
	rows kernel.Tensor // [M,C], in the type of the machine's activations
	from []int32       // [M]
	used int           // rows
}

// bindImages finds the values of images in the memory of a plan.
func (b *Batch) bindImages() {
	var names []string
	b.images, names = ImageRowsOf(b.store, b.prefix)
	b.names = append(b.names, names...)
}

// ImageRowsOf finds the values of images in the memory of a plan, and the names that Put sends; nil = the plan has no
// images.
func ImageRowsOf(m graph.Store, prefix string) (*ImageRows, []string) {
	rows, err := m.Tensor(prefix + nameImageRows)
	if err != nil {
		return nil, nil
	}
	from, err := m.Tensor(prefix + nameImageFrom)
	if err != nil {
		return nil, nil
	}
	return &ImageRows{rows: rows, from: from.I32()}, []string{prefix + nameImageRows, prefix + nameImageFrom}
}

// Clear removes all embeddings.
func (r *ImageRows) Clear() {
	if r == nil {
		return
	}
	for i := range r.from {
		r.from[i] = -1
	}
	r.used = 0
}

// add writes a token's embedding as the next row.
func (r *ImageRows) add(token int, values []float32) {
	at := r.used * len(values)
	switch r.rows.DType {
	case kernel.BF16:
		for i, v := range values {
			r.rows.U16()[at+i] = kernel.ToBF16(v)
		}
	case kernel.F16:
		for i, v := range values {
			r.rows.U16()[at+i] = kernel.ToF16(v)
		}
	default:
		copy(r.rows.F32()[at:], values)
	}
	r.from[token] = int32(r.used)
	r.used++
}

// errNoImageRows is the error of rows with images in a plan without them.
var errNoImageRows = errors.New("rows have images, and this step was planned without them")

// Place writes the embeddings of images for a part of a row: ids, which begin at token at of the batch. The row has
// skip tokens of images before them.
func (r *ImageRows) Place(ids []int32, at, skip int, images *dataset.RowImages) error {
	if r == nil {
		return errNoImageRows
	}
	var values []float32
	list, width := images.List, r.rows.Shape[1]
	for t, id := range ids {
		if id != images.Token {
			continue
		}
		for len(values) == 0 {
			if len(list) == 0 {
				return errors.New("a row has more tokens of images than its images have embeddings")
			}
			var err error
			if values, err = list[0].Embeddings(); err != nil {
				return fmt.Errorf("embeddings of an image: %w", err)
			}
			list = list[1:]
			cut := min(skip, len(values)/width)
			values, skip = values[cut*width:], skip-cut
		}
		r.add(at+t, values[:width])
		values = values[width:]
	}
	return nil
}

// fillImages writes the embeddings of a micro-batch's images.
func (b *Batch) fillImages(from dataset.Batch) error {
	b.images.Clear()
	for _, images := range from.Images {
		ids, _ := from.Row(images.Row)
		if err := b.images.Place(ids, from.Starts[images.Row], 0, images.RowImages); err != nil {
			return err
		}
	}
	return nil
}
