// Package logprobs holds what a teacher says of the trained tokens of a data set: the most likely tokens of each place
// with their log-probabilities, in a folder that distillation reads (training.objective: distill).
//
// A folder has an index, logprobs.json, and shards in the SafeTensors format, logprobs-00001.safetensors and so on.
// Each shard has whole rows of the data set, R rows with N trained tokens:
//
//	rows I64[R]          Key of each row
//	counts I32[R]        trained tokens of each row
//	ids I32[N,K]         the teacher's most likely tokens, by falling probability
//	logprobs F32[N,K]    their log-probabilities
//	rest F32[N]          the log-probability of all other tokens together
//
// Rows are found by their tokens and labels, so that neither their order nor how they are split, shuffled, weighted or
// packed matters. The index is written last: a folder without one is not complete.
package logprobs

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/tierlora/tierlora/dataset"
)

// IndexFile is the name of a folder's index.
const IndexFile = "logprobs.json"

// formatVersion is the version of the format that this package writes and reads.
const formatVersion = 1

// MaxTopK is the largest number of tokens for each place.
const MaxTopK = 512

// Subject is what a folder was made from. Everything that its numbers depend on is in it.
type Subject struct {
	Teacher string `json:"teacher"`           // name of the model
	Weights string `json:"weights"`           // fingerprint of its weights, and of how they are stored
	Adapter string `json:"adapter,omitempty"` // hash of the adapter; "" = the model alone
	// Tokenizer is a hash of the vocabulary (Vocabulary).
	Tokenizer string `json:"tokenizer"`
	// Vocabulary is the number of the teacher's logits.
	Vocabulary int    `json:"vocabulary"`
	TopK       int    `json:"top_k"`
	Precision  string `json:"precision"` // of the device that computed the numbers
	// Temperature divided the teacher's logits.
	Temperature float64 `json:"temperature"`
	Rows        int     `json:"rows"`   // number of different rows
	Tokens      int64   `json:"tokens"` // trained tokens of these rows
	Data        string  `json:"data"`   // hash of the rows' keys in their order
}

// hash identifies the subject.
func (s Subject) hash() string { return digest(fmt.Sprintf("%d %+v", formatVersion, s)) }

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Key identifies a row by its token ids and labels. A row's label is the token itself or dataset.Ignore for most
// formats, but rows of token ids may have others.
func Key(ids, labels []int32) uint64 {
	h := sha256.New()
	var buf [4096]byte
	for _, list := range [][]int32{ids, labels} {
		for len(list) > 0 {
			n := min(len(list), len(buf)/4)
			for i, v := range list[:n] {
				binary.LittleEndian.PutUint32(buf[4*i:], uint32(v))
			}
			h.Write(buf[:4*n])
			list = list[n:]
		}
	}
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

// Trained counts the trained tokens of a row with labels. Nothing predicts the first token.
func Trained(labels []int32) (n int) {
	for _, l := range labels[min(1, len(labels)):] {
		if l != dataset.Ignore {
			n++
		}
	}
	return n
}

// Vocabulary returns a hash of the tokens with the ids 0 to size-1. Two tokenizers with the same hash give every id the
// same text.
func Vocabulary(tok dataset.Tokenizer, size int) string {
	h := sha256.New()
	for id := range size {
		text, known := tok.Token(int32(id))
		if !known {
			continue // models have more embeddings than their tokenizers have tokens
		}
		fmt.Fprintf(h, "%d %q\n", id, text)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// shardName returns the file name of shard i, from 0.
func shardName(i int) string { return fmt.Sprintf("logprobs-%05d.safetensors", i+1) }

// index is the content of IndexFile.
type index struct {
	Format int `json:"format"`
	Subject
	Shards []shardInfo `json:"shards"`
}

// shardInfo describes a shard.
type shardInfo struct {
	File   string `json:"file"`
	Rows   int    `json:"rows"`
	Tokens int    `json:"tokens"`
	SHA256 string `json:"sha256"`
}
