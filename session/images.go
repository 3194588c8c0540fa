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
	"strings"
	"sync"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/vision"
	"github.com/tierlora/tierlora/vision/tower"
)

// Images reads images for a model, and computes their embeddings with its tower when they are first needed. Embeddings
// are kept in a folder, by a hash of the image file, the processor and the tower. It is safe for concurrent use.
type Images struct {
	model     string
	tokenizer dataset.Tokenizer
	weights   tower.Source // of the tower; nil = only tokens are read
	processor vision.Processor
	config    []byte // config.json
	// description is what config.json says of images.
	description *tower.Description
	dir         string // of embeddings; "" = all are kept in memory
	full        bool   // dir takes no more
	log         func(format string, args ...any)

	refused error // why no image can be read, by this model or on its machine; nil = they can

	transient bool // an image holds its embeddings, and they go with it

	work     sync.Mutex  // held while an image is read
	mu       sync.Mutex  // of memory, expanded and seen
	tower    tower.Tower // nil before the first image whose embeddings are not kept yet
	settings [sha256.Size]byte
	memory   map[[sha256.Size]byte][]float32
	expanded map[vision.Grid][]int32
	bytes    int64 // of dir; -1 = not counted yet
	seen     bool
}

// maxKept is the most bytes of embeddings that the folder may hold. Beyond it, embeddings are kept in memory.
const maxKept = 8 << 30

// NewImages returns the images of a base model; nil if its folder describes none.
func (b *Base) NewImages(cacheDir string, env Env) *Images {
	if b.Declared {
		return nil
	}
	m := TokensOfImages(b.Name, b.Folder, b.Tokenizer)
	if m == nil || m.refused != nil {
		return m
	}
	m.weights, m.log = b.Weights, env.Logf
	if cacheDir != "" {
		m.dir = filepath.Join(cacheDir, "images")
	}
	m.settings = sha256.Sum256(fmt.Appendf(m.settings[:], "1 %s\n%s\n%s",
		strings.TrimPrefix(fmt.Sprintf("%+v", m.processor), "&"), m.config, b.Fingerprint()))
	return m
}

// TokensOfImages returns the images of a model whose folder needs no weights: their tokens are read, and they have no
// embeddings. nil = the folder describes no images. A model whose images cannot be read still reads text: reading an
// image then is an error, which says why.
func TokensOfImages(model string, folder fs.FS, tok dataset.Tokenizer) *Images {
	m, err := tokensOfImages(model, folder, tok)
	if err != nil {
		return &Images{refused: err, description: &tower.Description{Token: -1}}
	}
	return m
}

func tokensOfImages(model string, folder fs.FS, tok dataset.Tokenizer) (*Images, error) {
	config, err := fs.ReadFile(folder, "config.json")
	if err != nil {
		return nil, nil
	}
	description, err := tower.Describe(config)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", model, err)
	}
	if description == nil {
		return nil, nil
	}
	p, err := vision.ReadProcessor(folder)
	if errors.Is(err, vision.ErrNoProcessor) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", model, err)
	}
	if mark := tok.IDs(p.Mark(), false); len(mark) != 1 || mark[0] != description.Token {
		return nil, fmt.Errorf("model %s: image_token_id is %d, its tokenizer makes %v of %s", model, description.Token,
			mark, p.Mark())
	}
	return &Images{model: model, tokenizer: tok, processor: p, config: config, description: description,
		memory: map[[sha256.Size]byte][]float32{}, expanded: map[vision.Grid][]int32{}, bytes: -1}, nil
}

// ChatSources returns the chat templates saved beside an adapter, or else those of the model's folder; adapterDir "" =
// no adapter. They write images as the model's processor reads them.
func ChatSources(folder fs.FS, adapterDir string) (*chat.Sources, error) {
	sources, err := chat.FindFor(folder, adapterDir)
	if err != nil {
		return nil, err
	}
	if p, err := vision.ReadProcessor(folder); err == nil { // else no image is read
		sources.Image.Written, sources.Image.Read = p.Written()
	}
	return sources, nil
}

// ReadsImages reports whether models of a model_type read images.
func ReadsImages(modelType string) bool { return tower.Reads(modelType) }

// Token returns the id in whose places embeddings of an image stand.
func (m *Images) Token() int32 { return m.description.Token }

// Read decodes an image file and finds its tokens.
func (m *Images) Read(file []byte) (dataset.Image, error) {
	if m.refused != nil {
		return nil, m.refused
	}
	picture, _, err := vision.Decode(file)
	if err != nil {
		return nil, err
	}
	one := &readImage{of: m, key: sha256.Sum256(append(slices.Clone(file), m.settings[:]...))}
	if one.grid, err = m.processor.Grid(picture.Width, picture.Height); err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.seen = true
	if m.expanded[one.grid] == nil {
		m.expanded[one.grid] = m.tokenizer.IDs(m.processor.Text(one.grid), false)
	}
	one.ids = m.expanded[one.grid]
	m.mu.Unlock()
	m.work.Lock()
	defer m.work.Unlock()
	return one, m.keep(one, picture)
}

// KeepNone makes each image hold its own embeddings, on which no other image, folder or run draws: a server's memory
// then is bounded by the requests that wait.
func (m *Images) KeepNone() { m.transient, m.dir = true, "" }

// Refused returns why no image can be read; nil if they can.
func (m *Images) Refused() error { return m.refused }

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
	of   *Images
	ids  []int32
	grid vision.Grid
	key  [sha256.Size]byte
	own  []float32 // embeddings of a transient image; nil = they are kept
}

func (r *readImage) IDs() []int32           { return r.ids }
func (r *readImage) Key() [sha256.Size]byte { return r.key }

// Embeddings returns the embeddings from memory or from the folder.
func (r *readImage) Embeddings() ([]float32, error) {
	if r.own != nil {
		return r.own, nil
	}
	if kept := r.of.inMemory(r.key); kept != nil {
		return kept, nil
	}
	return readEmbeddings(r.of.path(r.key))
}

func (m *Images) path(key [sha256.Size]byte) string {
	return filepath.Join(m.dir, hex.EncodeToString(key[:])+".f32")
}

// inMemory returns the embeddings that are kept in memory; nil = they are not.
func (m *Images) inMemory(key [sha256.Size]byte) []float32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.memory[key]
}

// keep computes an image's embeddings unless they are kept already.
func (m *Images) keep(one *readImage, picture *vision.RGB) error {
	key := one.key
	if m.weights == nil || m.inMemory(key) != nil {
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
	switch {
	case m.transient:
		one.own = values
	case m.dir == "" || m.full || !m.store(key, values):
		m.mu.Lock()
		m.memory[key] = values
		m.mu.Unlock()
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
