package serve

import (
	"encoding/base64"
	"encoding/binary"
	"math"

	"github.com/tierlora/tierlora/infer"
)

// embeddingsReply is OpenAI's response of /v1/embeddings.
type embeddingsReply struct {
	Object string         `json:"object"`
	Data   []embedding    `json:"data"`
	Model  string         `json:"model"`
	Usage  map[string]int `json:"usage"`
}

type embedding struct {
	Object string `json:"object"`
	Index  int    `json:"index"`
	Vector any    `json:"embedding"` // []float32, or its bytes in base64
}

// embeddingsRequest parses the body of /v1/embeddings.
func (l *Library) embeddingsRequest(body []byte) (*headRequest, *Error) {
	f, wrong := readFields(body, "input", maxTexts*l.MaxLen)
	if wrong != nil {
		return nil, wrong
	}
	r := &headRequest{}
	r.model = l.headed(f, embeds, "a model that gives vectors (task: embedding)")
	format, width := "float", l.Width
	if f.text("encoding_format", &format); format != "float" && format != "base64" {
		f.wrong("encoding_format", "is %q, want float or base64", clip(format))
	}
	cut := f.whole("dimensions", &width, 1, l.Width)
	t := l.reads(f, "input")
	if f.err == nil {
		r.passages = t.passages(r.model)
	}
	checkNumbers(f, "input", len(r.passages), width)
	f.unknown()
	if f.err != nil {
		return nil, f.err
	}
	r.reply = func(all [][]float32) any {
		out := embeddingsReply{Object: "list", Model: r.model.Name, Usage: r.usage()}
		for i, vector := range all {
			if vector = vector[:width]; cut && r.model.Head.Pooling.Normalise {
				infer.Normalise(vector)
			}
			e := embedding{"embedding", i, vector}
			if format == "base64" {
				e.Vector = base64.StdEncoding.EncodeToString(littleEndian(vector))
			}
			out.Data = append(out.Data, e)
		}
		return out
	}
	return r, nil
}

// littleEndian returns the bytes of float32 numbers.
func littleEndian(numbers []float32) (b []byte) {
	for _, x := range numbers {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// cosine returns the cosine of the angle of two vectors; 0 if one has no length.
func cosine(a, b []float32) float32 {
	var ab, aa, bb float64
	for i, x := range a {
		ab, aa, bb = ab+float64(x)*float64(b[i]), aa+float64(x)*float64(x), bb+float64(b[i])*float64(b[i])
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return float32(ab / math.Sqrt(aa*bb))
}
