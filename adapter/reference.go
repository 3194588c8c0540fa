package adapter

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/model/nn"
)

// referencePrefix begins the names of a reference's tensors, so that they differ from those of the run's own adapter.
const referencePrefix = "reference: "

// Reference is the frozen adapter of the reference that an objective compares the model with.
type Reference struct{ saved *Saved }

// OpenReference reads the adapter folder of a reference.
func OpenReference(dir string) (*Reference, error) {
	saved, err := Open(dir)
	if err != nil {
		return nil, err
	}
	if beyond := Beyond(saved.Config); beyond != "" {
		return nil, errors.Join(fmt.Errorf("the adapter %s %s, which a reference cannot have beside the model that is "+
			"trained: merge it into the base model, or leave it out", dir, beyond), saved.Close())
	}
	saved.Config.Dropout = 0 // a reference is the same in every step
	return &Reference{saved}, nil
}

// Close releases the mapped weights.
func (r *Reference) Close() error { return r.saved.Close() }

// Wrapper returns the nn.Options.WrapReference of the reference, which declares its tensors in t.Reference.
func (r *Reference) Wrapper(t *Trained) func(n *nn.Net, path string, base nn.Linear) nn.Linear {
	t.Reference = &Trained{frozen: true}
	return r.saved.Method.Wrapper(t.Reference, r.saved.Config)
}

// Fill writes the tensors of the reference to memory. It returns a SHA-256 of the tensors and their scales, by which a
// resumed run finds that the folder holds another adapter.
func (r *Reference) Fill(t *Trained, m graph.Store) (sum string, err error) {
	params, err := t.Reference.Snapshot(m)
	if err != nil {
		return "", err
	}
	for i := range params {
		params[i].Name = strings.TrimPrefix(params[i].Name, referencePrefix)
	}
	if err := r.saved.Read(params); err != nil {
		return "", err
	}
	h := sha256.New()
	for _, layer := range t.Reference.Layers {
		fmt.Fprintf(h, "%q %v\n", layer, r.saved.Config.Scale(layer))
	}
	var buf []byte
	for i, p := range params {
		fmt.Fprintf(h, "%q %v\n", p.Name, p.Shape)
		buf = buf[:0]
		for _, x := range p.Data {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(x))
		}
		h.Write(buf)
		params[i].Name = referencePrefix + p.Name
	}
	return hex.EncodeToString(h.Sum(nil)), t.Reference.Restore(m, params)
}
