package serve

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/infer"
)

// fakePredictor gives numbers that say whose they are.
type fakePredictor struct {
	models []infer.PredictorModel
	gate   chan struct{} // each round waits for it; nil = none
	fail   func(passages []infer.Passage) error

	mu     sync.Mutex
	rounds []int // texts of each round
}

// headLibrary has a classifier of three labels, a reranker, a reward model, a token classifier and two embedders.
func headLibrary(t testing.TB) (*Library, *fakePredictor) {
	t.Helper()
	l := library(t, talkTemplate)
	p := &fakePredictor{models: []infer.PredictorModel{
		{Name: "class", Task: adapter.Task{Type: adapter.SequenceClassification, Labels: 3},
			Head: adapter.Head{Problem: adapter.SingleLabel, Labels: []string{"bad", "fair", "good"}}},
		{Name: "rank", Task: adapter.Task{Type: adapter.SequenceClassification, Labels: 1},
			Head: adapter.Head{Problem: adapter.MultiLabel}},
		{Name: "reward", Task: adapter.Task{Type: adapter.SequenceClassification, Labels: 1},
			Head: adapter.Head{Problem: adapter.Regression}},
		{Name: "token", Task: adapter.Task{Type: adapter.TokenClassification, Labels: 2},
			Head: adapter.Head{Problem: adapter.SingleLabel, Labels: []string{"O", "NAME"}}},
		{Name: "vector", Task: adapter.Task{Type: adapter.FeatureExtraction},
			Pooling: adapter.Pooling{Normalise: true}},
		{Name: "plain", Task: adapter.Task{Type: adapter.FeatureExtraction}},
	}}
	l.Models, l.Width = nil, 4
	for i := range p.models {
		m := &p.models[i]
		l.Models = append(l.Models, Model{Name: m.Name, Adapter: m.Name, Head: m, Index: i})
	}
	return l, p
}

func (f *fakePredictor) Predict(ctx context.Context, passages []infer.Passage) (out []infer.Prediction, err error) {
	if f.gate != nil {
		select {
		case <-f.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	f.mu.Lock()
	f.rounds = append(f.rounds, len(passages))
	f.mu.Unlock()
	if f.fail != nil {
		if err := f.fail(passages); err != nil {
			return nil, err
		}
	}
	for _, p := range passages {
		out = append(out, infer.Prediction{Numbers: f.numbers(p)})
	}
	return out, nil
}

// numbers are functions of the tokens.
func (f *fakePredictor) numbers(p infer.Passage) (all []float32) {
	sum := int32(0)
	for i, id := range p.IDs {
		sum += id * int32(i+1)
	}
	n, m := 4, f.models[p.Model]
	if m.Task.HasScores() {
		n = m.Task.Labels
	}
	if m.Task.Type == adapter.TokenClassification {
		n *= len(p.IDs)
	}
	for i := range n {
		all = append(all, float32((int(sum)*(i+3))%17)/8-1)
	}
	if m.Pooling.Normalise {
		infer.Normalise(all)
	}
	return all
}

func openHeads(t testing.TB, o Options) (*Library, *fakePredictor, *Server) {
	t.Helper()
	l, p := headLibrary(t)
	s, err := NewHeads(l, p, o)
	if err != nil {
		t.Fatal(err)
	}
	go s.Run()
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return l, p, s
}

// post sends a body and decodes the answer.
func post(t testing.TB, s *Server, path, body string, to any) int {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Host = "localhost"
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if err := json.Unmarshal(w.Body.Bytes(), to); err != nil {
		t.Errorf("%d %s: %v", w.Code, w.Body.Bytes(), err)
	}
	return w.Code
}

type embeddings struct {
	Object, Model string
	Data          []struct {
		Object    string
		Index     int
		Embedding json.RawMessage
	}
	Usage struct {
		Prompt int `json:"prompt_tokens"`
		Total  int `json:"total_tokens"`
	}
}

func TestEmbeddings(t *testing.T) {
	l, p, s := openHeads(t, Options{})
	ids := func(text string) []int32 { return l.Tokenizer.IDs(text, true) }
	for _, c := range []struct {
		input string
		texts [][]int32
	}{
		{`"a dog"`, [][]int32{ids("a dog")}},
		{`["a dog","a cat"]`, [][]int32{ids("a dog"), ids("a cat")}},
		{`[5,6,7]`, [][]int32{{5, 6, 7}}},
		{`[[5],[6,7]]`, [][]int32{{5}, {6, 7}}},
	} {
		var got embeddings
		if code := post(t, s, "/v1/embeddings", fmt.Sprintf(`{"model":"vector","input":%s,"user":"x"}`, c.input),
			&got); code != 200 || got.Object != "list" || got.Model != "vector" || len(got.Data) != len(c.texts) {
			t.Fatalf("%s: %d %+v", c.input, code, got)
		}
		tokens := 0
		for i, text := range c.texts {
			tokens += len(text)
			var vector []float32
			if err := json.Unmarshal(got.Data[i].Embedding, &vector); err != nil {
				t.Fatal(err)
			}
			want := p.numbers(infer.Passage{Model: 4, IDs: text})
			if !slices.Equal(vector, want) || got.Data[i].Index != i || got.Data[i].Object != "embedding" {
				t.Errorf("%s: %+v, want %v", c.input, got.Data[i], want)
			}
		}
		if got.Usage.Prompt != tokens || got.Usage.Total != tokens {
			t.Errorf("%s: usage %+v, want %d", c.input, got.Usage, tokens)
		}
	}
	for _, model := range []int{4, 5} {
		want := p.numbers(infer.Passage{Model: model, IDs: []int32{9, 8}})[:3]
		if model == 4 {
			infer.Normalise(want)
		}
		var got embeddings
		post(t, s, "/v1/embeddings", fmt.Sprintf(`{"model":%q,"input":[9,8],"dimensions":3,"encoding_format":"base64"}`,
			p.models[model].Name), &got)
		var text string
		if err := json.Unmarshal(got.Data[0].Embedding, &text); err != nil {
			t.Fatal(err)
		}
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(raw) != 12 {
			t.Fatal(err, len(raw))
		}
		for i := range want {
			if x := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])); x != want[i] {
				t.Errorf("model %d: number %d is %v, want %v", model, i, x, want[i])
			}
		}
	}
}

func TestRerank(t *testing.T) {
	l, p, s := openHeads(t, Options{})
	documents := []string{"a dog", "a cat", "the sun", "a tree"}
	for _, c := range []struct {
		model int
		score func(document string) float32
	}{
		{1, func(d string) float32 {
			return infer.Sigmoid(p.numbers(infer.Passage{Model: 1,
				IDs: append(l.Tokenizer.IDs("pets", true), l.Tokenizer.IDs(d, true)...)})[0])
		}},
		{2, func(d string) float32 {
			return p.numbers(infer.Passage{Model: 2,
				IDs: append(l.Tokenizer.IDs("pets", true), l.Tokenizer.IDs(d, true)...)})[0]
		}},
		{5, func(d string) float32 {
			return cosine(p.numbers(infer.Passage{Model: 5, IDs: l.Tokenizer.IDs("pets", true)}),
				p.numbers(infer.Passage{Model: 5, IDs: l.Tokenizer.IDs(d, true)}))
		}},
	} {
		for _, path := range []string{"/v1/rerank", "/rerank", "/v2/rerank"} {
			var got struct {
				Results []struct {
					Index    int
					Score    float32 `json:"relevance_score"`
					Document *struct{ Text string }
				}
			}
			if code := post(t, s, path, fmt.Sprintf(`{"model":%q,"query":"pets","documents":["a dog",{"text":"a cat"},`+
				`"the sun","a tree"],"top_n":3,"return_documents":%v}`, p.models[c.model].Name, path != "/rerank"),
				&got); code != 200 || len(got.Results) != 3 {
				t.Fatalf("%d %+v", code, got)
			}
			for i, r := range got.Results {
				if r.Score != c.score(documents[r.Index]) || i > 0 && r.Score > got.Results[i-1].Score {
					t.Errorf("model %d: result %d is %+v, want %v", c.model, i, r, c.score(documents[r.Index]))
				}
				if (r.Document != nil) != (path != "/rerank") ||
					r.Document != nil && r.Document.Text != documents[r.Index] {
					t.Errorf("result %d has the document %+v", i, r.Document)
				}
			}
		}
	}
}

func TestClassify(t *testing.T) {
	l, p, s := openHeads(t, Options{})
	type item struct {
		Index int
		Label string
		Probs []float32
		Count int `json:"num_classes"`
		Words []wordLabel
	}
	ask := func(body string) []item {
		t.Helper()
		var got struct {
			Object string
			Data   []item
		}
		if code := post(t, s, "/v1/classify", body, &got); code != 200 || got.Object != "list" {
			t.Fatalf("%s: %d %+v", body, code, got)
		}
		return got.Data
	}
	pair := append(l.Tokenizer.IDs("a dog", true), l.Tokenizer.IDs("barks", true)...)
	one := ask(`{"model":"class","input":[["a dog","barks"]]}`)[0]
	scores := p.numbers(infer.Passage{Model: 0, IDs: pair})
	sum := 0.
	for _, x := range scores {
		sum += math.Exp(float64(x))
	}
	for i, x := range scores {
		if math.Abs(float64(one.Probs[i])-math.Exp(float64(x))/sum) > 1e-6 {
			t.Errorf("%+v, want the softmax of %v", one, scores)
		}
	}
	if best := slices.Index(scores, slices.Max(scores)); one.Label != p.models[0].Head.Labels[best] || one.Count != 3 {
		t.Errorf("%+v, want label %d of 3", one, best)
	}
	if raw := ask(`{"model":"class","input":[["a dog","barks"]],"use_activation":false}`)[0]; !slices.Equal(raw.Probs,
		scores) {
		t.Errorf("%+v, want %v", raw, scores)
	}
	same := func(x float32) float32 { return x }
	for name, want := range map[string]func(x float32) float32{"rank": infer.Sigmoid, "reward": same} {
		model := map[string]int{"rank": 1, "reward": 2}[name]
		x := p.numbers(infer.Passage{Model: model, IDs: []int32{4, 5}})[0]
		if got := ask(fmt.Sprintf(`{"model":%q,"input":[4,5]}`, name))[0]; got.Probs[0] != want(x) ||
			got.Label != "LABEL_0" {
			t.Errorf("%s: %+v, want %v", name, got, want(x))
		}
	}
	words := ask(`{"model":"token","input":"Tom  saw\nthe dog"}`)[0]
	if len(words.Words) != 4 || words.Words[0].Word != "Tom" || words.Words[3].Word != "dog" ||
		len(words.Words[1].Probs) != 2 {
		t.Errorf("%+v", words)
	}
	if tokens := ask(`{"model":"token","input":[[1,400,402]]}`)[0]; len(tokens.Words) != 3 {
		t.Errorf("%+v", tokens)
	}
}

// TestBrokenHeadRequests: what is wrong with a request for scores or vectors, with its status and whole words.
func TestBrokenHeadRequests(t *testing.T) {
	_, _, s := openHeads(t, Options{})
	long := strings.Repeat("word ", 600)
	many := `["a"` + strings.Repeat(`,"a"`, 2048) + `]`
	for _, c := range []struct {
		path, body string
		status     int
		message    string
	}{
		{"/v1/embeddings", `{"input":"a"}`, 400, `model: is missing; GET /v1/models lists the names`},
		{"/v1/embeddings", `{"model":"x","input":"a"}`, 404,
			`model: there is no model "x" here; GET /v1/models lists those that are`},
		{"/v1/embeddings", `{"model":"class","input":"a"}`, 400, `model: class has task_type SEQ_CLS, and this ` +
			`endpoint wants a model that gives vectors (task: embedding)`},
		{"/v1/embeddings", `{"model":"vector"}`, 400,
			`input: is missing: want a string, a list of strings, or token ids`},
		{"/v1/embeddings", `{"model":"vector","input":7.5}`, 400, `input: is 7.5, want ` + wantPrompt},
		{"/v1/embeddings", `{"model":"vector","input":[]}`, 400, `input: has 0 texts, want 1 to 2048`},
		{"/v1/embeddings", `{"model":"vector","input":[["a","b"]]}`, 400, `input: is a list, want ` + wantPrompt},
		{"/v1/embeddings", `{"model":"vector","input":` + many + `}`, 400, `input: has 2049 texts, want 1 to 2048`},
		{"/v1/embeddings", `{"model":"vector","input":[[]]}`, 400, `input: a text has no token`},
		{"/v1/embeddings", `{"model":"vector","input":[1,99999]}`, 400,
			`input: text 0 holds 99999, which is no token of this model: ids are 0 to 511`},
		{"/v1/embeddings", `{"model":"vector","input":"` + long + `"}`, 400,
			`input: the text has 1802 tokens, and a sequence may have 512`},
		{"/v1/embeddings", `{"model":"vector","input":"a","dimensions":5}`, 400, `dimensions: is 5, want 1 to 4`},
		{"/v1/embeddings", `{"model":"vector","input":"a","dimensions":0}`, 400, `dimensions: is 0, want 1 to 4`},
		{"/v1/embeddings", `{"model":"vector","input":"a","encoding_format":"hex"}`, 400,
			`encoding_format: is "hex", want float or base64`},
		{"/v1/embeddings", `{"model":"vector","input":"a","temperature":1}`, 400, `temperature: unknown parameter`},
		{"/v1/rerank", `{"model":"rank","documents":["a"]}`, 400,
			`query: is missing or empty: want the text that the documents are compared with`},
		{"/v1/rerank", `{"model":"rank","query":"a"}`, 400, `documents: is missing: want a list of strings`},
		{"/v1/rerank", `{"model":"rank","query":"a","documents":"b"}`, 400,
			`documents: is a string, want a list of strings`},
		{"/v1/rerank", `{"model":"rank","query":"a","documents":[{"title":"b"}]}`, 400,
			`documents: [0] is an object, want a string, or an object with text`},
		{"/v1/rerank", `{"model":"rank","query":"a","documents":["b"],"top_n":0}`, 400,
			`top_n: is 0, want 1 to 2147483647`},
		{"/v1/rerank", `{"model":"class","query":"a","documents":["b"]}`, 400, `model: class has task_type SEQ_CLS, ` +
			`and this endpoint wants a reranker: a model with one score, or one that gives vectors`},
		{"/v1/classify", `{"model":"vector","input":"a"}`, 400, `model: vector has task_type FEATURE_EXTRACTION, and ` +
			`this endpoint wants a classifier (task: sequence_classification or token_classification)`},
		{"/v1/classify", `{"model":"class","input":[["a","b","c"]]}`, 400, `input: is a list, want ` + wantPrompt +
			`, or a list of lists of one or two strings`},
		{"/v1/classify", `{"model":"class","input":"a","truncate_prompt_tokens":513}`, 400,
			`truncate_prompt_tokens: is 513, want -1 to 512`},
		{"/v1/chat/completions", `{"model":"class","messages":[{"role":"user","content":"a"}]}`, 400, `model: class ` +
			`gives scores or vectors of texts, and writes no text: ask it by /v1/classify`},
		{"/v1/completions", `{"model":"vector","prompt":"a"}`, 400, `model: vector gives scores or vectors of texts, ` +
			`and writes no text: ask it by /v1/embeddings or /v1/rerank`},
	} {
		var got struct {
			Error struct{ Message, Type string }
		}
		if code := post(t, s, c.path, c.body, &got); code != c.status || got.Error.Message != c.message {
			t.Errorf("%s %.80s: %d %s, want %d %s", c.path, c.body, code, got.Error.Message, c.status, c.message)
		}
	}
	var got embeddings
	if code := post(t, s, "/v1/embeddings", `{"model":"vector","truncate_prompt_tokens":-1,"input":"`+long+`"}`,
		&got); code != 200 || got.Usage.Prompt != 512 {
		t.Errorf("a text that is cut: %d %+v", code, got.Usage)
	}
	causal := open(t, library(t, talkTemplate), newFake(t, 1), Options{})
	var refused struct{ Error struct{ Message string } }
	if code := post(t, causal.Server, "/v1/embeddings", `{"model":"base","input":"a"}`, &refused); code != 400 ||
		refused.Error.Message != "model: base writes text, and this endpoint wants a model that gives vectors (task: "+
			"embedding): ask it by /v1/chat/completions or /v1/completions" {
		t.Errorf("a causal model: %d %s", code, refused.Error.Message)
	}
}

// TestRequestsTakeTurns: a request with many texts does not hold up another one, and rounds are bounded.
func TestRequestsTakeTurns(t *testing.T) {
	_, p := headLibrary(t)
	p.gate = make(chan struct{})
	b := NewBatcher(p, 2)
	go b.Run()
	large := make([]infer.Passage, 1000)
	for i := range large {
		large[i] = infer.Passage{Model: 0, IDs: make([]int32, 40)}
	}
	ended := make(chan string, 3)
	go func() {
		if out, err := b.Predict(t.Context(), large); err != nil || len(out) != 1000 {
			t.Error(err, len(out))
		}
		ended <- "large"
	}()
	for b.Stats().Waiting == 0 {
	}
	p.gate <- struct{}{} // the first round is the large request's alone
	go func() {
		out, err := b.Predict(t.Context(), large[:1])
		if err != nil || !slices.Equal(out[0], p.numbers(large[0])) {
			t.Error(err, out)
		}
		ended <- "small"
	}()
	for b.Stats().Waiting < 2 {
	}
	if _, err := b.Predict(t.Context(), large[:1]); !errors.Is(err, ErrBusy) {
		t.Errorf("a third request: %v, want %v", err, ErrBusy)
	}
	p.gate <- struct{}{} // this round may have been composed before the small request came
	p.gate <- struct{}{} // this one has it
	if first := <-ended; first != "small" {
		t.Errorf("%s ended first", first)
	}
	close(p.gate)
	<-ended
	if n := slices.Max(p.rounds); n > roundPassages {
		t.Errorf("a round has %d texts", n)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := b.Predict(t.Context(), large[:1]); !errors.Is(err, ErrClosing) {
		t.Errorf("after the end: %v", err)
	}
}

// TestBrokenTextFailsAlone: a text whose numbers are broken fails its own request, and a model that always fails ends
// the server.
func TestBrokenTextFailsAlone(t *testing.T) {
	_, p := headLibrary(t)
	broken := func(of infer.Passage) bool { return of.IDs[0] == 7 }
	p.fail = func(passages []infer.Passage) error {
		if slices.ContainsFunc(passages, broken) {
			return errors.New("not finite")
		}
		return nil
	}
	b := NewBatcher(p, 100)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			id := int32(i)
			_, err := b.Predict(t.Context(), []infer.Passage{{IDs: []int32{id}}, {IDs: []int32{id, 3}}})
			if (err != nil) != (i == 7) || i == 7 && !errors.Is(err, ErrEngine) {
				t.Errorf("request %d: %v", i, err)
			}
		}()
	}
	for b.Stats().Waiting < 20 {
	}
	go b.Run()
	wg.Wait()
	p.fail = func([]infer.Passage) error { return errors.New("the device is gone") }
	for range failuresToStop {
		_, _ = b.Predict(t.Context(), []infer.Passage{{IDs: []int32{1}}})
	}
	<-b.Done()
	if err := b.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "the device is gone") {
		t.Errorf("%v", err)
	}
}

// FuzzHeadRequests: whatever the body is, the answer is JSON with a status that fits, and nothing panics.
func FuzzHeadRequests(f *testing.F) {
	_, _, s := openHeads(f, Options{Log: func(line string) { f.Errorf("logged: %s", line) }})
	for _, body := range []string{
		`{"model":"vector","input":["a",""],"encoding_format":"base64","dimensions":2}`,
		`{"model":"class","input":[["a","b"],["c"]],"truncate_prompt_tokens":3}`, `{"model":"token","input":" a b "}`,
		`{"model":"rank","query":"a","documents":["b",{"text":"c"}],"top_n":1,"max_tokens_per_doc":2}`,
		`{"model":"plain","query":"a","documents":[null]}`, `{"model":"class","input":[[` + "\xff",
		`{"input":[["`, `[]`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{"/v1/embeddings", "/v1/rerank", "/v1/classify"} {
			var got any
			if code := post(t, s, path, body, &got); code != 200 && code != 400 && code != 404 {
				t.Errorf("%s %s: %d %v", path, body, code, got)
			}
		}
	})
}
