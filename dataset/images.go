package dataset

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/text/chat"
)

// Images reads the images of rows for a model. It is safe for concurrent use.
type Images interface {
	// Read returns the image in a file.
	Read(file []byte) (Image, error)
	// Token is the id in whose places embeddings of an image stand.
	Token() int32
}

// Image is an image as a model sees it.
type Image interface {
	// IDs are the tokens that stand for the image, of which those with the id Images.Token get its embeddings.
	IDs() []int32
	// Embeddings returns the embeddings of those tokens, one after another.
	Embeddings() ([]float32, error)
	// Key identifies the image's embeddings: equal keys mean equal embeddings.
	Key() [sha256.Size]byte
}

// streamedImages refuses the images of a stream: their rows are written to files, which hold tokens alone.
type streamedImages struct{ Images }

// Read refuses the image.
func (streamedImages) Read([]byte) (Image, error) {
	return nil, errors.New("rows with images need dataset.streaming: false")
}

// RowImages are the images of a row.
type RowImages struct {
	Token int32 // the row's tokens with this id get the images' embeddings, in order
	List  []Image
}

// PlacedImages are the images of a row of a batch.
type PlacedImages struct {
	Row int // index into Batch.Rows
	*RowImages
}

// maxImageFile is the largest image file in bytes.
const maxImageFile = 64 << 20

// dropCutImages is the reason to drop a row with images that is too long: an image is never cut.
const dropCutImages = "longer than max_length, and it has images, which are not cut"

// imageColumn returns the references in a row's column of images; nil if the row has no such column.
func imageColumn(f Fields) ([]string, error) {
	if f.Key("images") == "" {
		return nil, nil
	}
	raw, err := f.JSON("images")
	if raw == nil || err != nil {
		return nil, err
	}
	return references(raw, f.Key("images"))
}

// references returns what a value of the field key refers to: an image, or a list of them.
func references(raw json.RawMessage, key string) ([]string, error) {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		items = []json.RawMessage{raw}
	}
	refs := make([]string, len(items))
	for i, item := range items {
		var one struct{ Path, URL, Bytes string }
		if json.Unmarshal(item, &refs[i]) == nil && refs[i] != "" {
			continue
		}
		if err := json.Unmarshal(item, &one); err != nil {
			return nil, fmt.Errorf("field %q: image %d: %w", key, i+1,
				jsonerr.Unplaced(jsonerr.Explain(item, err)))
		}
		switch refs[i] = one.Path + one.URL; {
		case one.Bytes != "":
			refs[i] = "data:;base64," + one.Bytes
		case refs[i] == "":
			return nil, fmt.Errorf("field %q: image %d is %s, want a path, a data: URI or an object with path or bytes",
				key, i+1, kindOf(item))
		}
	}
	return refs, nil
}

// readImages reads the images of a conversation, whose paths are relative to the folder of the data file.
func readImages(conv *chat.Conversation, with Images, path string) ([]Image, error) {
	var all []Image
	for i, ref := range conv.Images {
		file, err := imageFile(ref, filepath.Dir(path))
		var m Image
		if err == nil {
			m, err = with.Read(file)
		}
		if err != nil {
			return nil, fmt.Errorf("image %d (%s): %w", i+1, shownReference(ref), err)
		}
		all = append(all, m)
	}
	return all, nil
}

// shownReference is a reference for an error: of a data: URI its beginning.
func shownReference(ref string) string {
	if len(ref) > 80 {
		return ref[:60] + "…"
	}
	return ref
}

// ImageFile is an image to which a row refers.
type ImageFile struct{ ref, folder string }

// Read returns the file.
func (f ImageFile) Read() ([]byte, error) {
	file, err := imageFile(f.ref, f.folder)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", shownReference(f.ref), err)
	}
	return file, nil
}

// Images returns the images to which a field of the row refers, as rows of conversations do in their column images.
func (i Item) Images(key string) (all []ImageFile, err error) {
	raw, err := i.JSON(key)
	if err != nil {
		return nil, err
	}
	refs, err := references(raw, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", i.Where(), err)
	}
	for _, ref := range refs {
		all = append(all, ImageFile{ref, filepath.Dir(i.Source)})
	}
	return all, nil
}

// ReadImage returns the file that a person names: a path, or a data: URI.
func ReadImage(ref string) ([]byte, error) {
	if strings.HasPrefix(ref, "data:") {
		return decodeURI(ref)
	}
	if err := regular.CheckPath(ref); err != nil {
		return nil, err
	}
	f, err := os.Open(ref)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f)
}

// imageFile returns the file that a row names: a data: URI, or a path within a folder.
func imageFile(ref, folder string) ([]byte, error) {
	if strings.HasPrefix(ref, "data:") {
		return decodeURI(ref)
	}
	if strings.Contains(ref, "://") {
		return nil, errors.New("URLs are not fetched: download the image beside the data file and write its path")
	}
	if filepath.IsAbs(ref) { // an absolute path within the folder is one of its files
		if within, err := absoluteWithin(folder, ref); err == nil {
			ref = within
		}
	}
	if !filepath.IsLocal(ref) {
		return nil, fmt.Errorf("the path leaves the folder of the data file, %s: only images within it are read",
			folder)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	switch s, err := root.Stat(ref); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the folder of the data file, %s, has no such file", folder)
	case err != nil:
		return nil, err
	case !s.Mode().IsRegular():
		return nil, errors.New("is not a file")
	}
	f, err := root.Open(ref)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f)
}

// decodeURI returns the bytes of a data: URI.
func decodeURI(uri string) ([]byte, error) {
	head, body, ok := strings.Cut(uri, ",")
	if !ok || !strings.HasSuffix(head, ";base64") {
		return nil, errors.New("a data: URI must be data:image/png;base64,…")
	}
	file, err := base64.StdEncoding.DecodeString(body)
	if err != nil {
		return nil, fmt.Errorf("the data: URI: %w", err)
	}
	return file, nil
}

// readBounded reads a file of at most maxImageFile bytes.
func readBounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxImageFile+1))
	if err == nil && len(data) > maxImageFile {
		err = fmt.Errorf("the file has more than %d bytes", maxImageFile)
	}
	return data, err
}

// absoluteWithin returns an absolute path relative to a folder.
func absoluteWithin(folder, path string) (string, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	return filepath.Rel(folder, path)
}

// ExpandImages returns ids with each image token replaced by the tokens of the next image, and for each given id where
// its tokens begin, [len(ids)+1].
func ExpandImages(ids []int32, token int32, images []Image) (all []int32, at []int, err error) {
	n := 0
	for _, id := range ids {
		at = append(at, len(all))
		if id != token {
			all = append(all, id)
			continue
		}
		if n == len(images) {
			return nil, nil, fmt.Errorf("the text shows more images than the %d that there are", len(images))
		}
		all = append(all, images[n].IDs()...)
		n++
	}
	if n < len(images) {
		return nil, nil, fmt.Errorf("the chat template writes %d of %d images", n, len(images))
	}
	return all, append(at, len(all)), nil
}

// imagesOf returns those of a conversation's images that a row of it shows: a row of the conversation's beginning has
// the first ones.
func imagesOf(row chat.Row, with Images, images []Image) []Image {
	if !row.Split {
		return images
	}
	return images[:min(countOf(row.IDs, with.Token()), len(images))]
}

// countOf returns how often an id is among ids.
func countOf(ids []int32, id int32) (n int) {
	for _, x := range ids {
		if x == id {
			n++
		}
	}
	return n
}

// expandRow puts an image's tokens in place of each of its marks in a conversation's row.
func expandRow(row *chat.Row, with Images, images []Image) (*RowImages, error) {
	if !row.Split && countOf(row.IDs, with.Token()) == 0 && len(images) > 0 {
		return nil, fmt.Errorf("the chat template writes none of the row's %d images", len(images))
	}
	images = imagesOf(*row, with, images)
	ids, at, err := ExpandImages(row.IDs, with.Token(), images)
	if err != nil || len(images) == 0 {
		return nil, err
	}
	labels, weights := slices.Repeat([]int32{Ignore}, len(ids)), row.Weights
	if weights != nil {
		weights = slices.Repeat([]float32{1}, len(ids))
	}
	for t, label := range row.Labels {
		if row.IDs[t] == with.Token() {
			continue // an image is not trained
		}
		labels[at[t]] = label
		if weights != nil {
			weights[at[t]] = row.Weights[t]
		}
	}
	for i, end := range row.Ends {
		row.Ends[i] = at[end]
	}
	row.IDs, row.Labels, row.Weights = ids, labels, weights
	return &RowImages{with.Token(), images}, nil
}

// addImages hashes a row's images.
func (h *rowHash) addImages(images *RowImages) {
	if images == nil {
		return
	}
	for _, m := range images.List {
		for _, b := range m.Key() {
			h.add(-2 - int32(b))
		}
	}
}

// ImageReport is the part of a report about images of the kept rows.
type ImageReport struct {
	Count  int   `json:"count"`
	Rows   int   `json:"rows"`   // Rows counts the rows that have images.
	Tokens int64 `json:"tokens"` // Tokens counts the tokens in whose places embeddings of images stand.
}

func (r *ImageReport) count(images *RowImages) {
	if images == nil {
		return
	}
	r.Rows++
	for _, m := range images.List {
		r.Count++
		r.Tokens += int64(countOf(m.IDs(), images.Token))
	}
}

func (r *ImageReport) add(o ImageReport) {
	r.Count, r.Rows, r.Tokens = r.Count+o.Count, r.Rows+o.Rows, r.Tokens+o.Tokens
}
