package serve

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tierlora/tierlora/infer"
)

// post sends JSON and returns the status and the body.
func (w *site) post(t testing.TB, path, body string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, w.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	return do(t, r)
}

func (w *site) get(t testing.TB, path string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, w.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return do(t, r)
}

func do(t testing.TB, r *http.Request) (int, string) {
	t.Helper()
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Error(err)
	}
	return a.StatusCode, string(text)
}

func decode[T any](t testing.TB, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

func TestChatCompletion(t *testing.T) {
	w := open(t, library(t, talkTemplate), newFake(t, 2), Options{})
	status, text := w.post(t, "/v1/chat/completions",
		`{"model":"one","messages":[{"role":"user","content":"hi"}],"seed":3,"n":2,"max_tokens":4,"logprobs":true,"top_logprobs":2}`)
	got := decode[chatReply](t, text)
	if status != 200 || got.Object != "chat.completion" || !strings.HasPrefix(got.ID, "chatcmpl-") ||
		got.Model != "one" || len(got.Choices) != 2 {
		t.Fatalf("%d %s", status, text)
	}
	for i, c := range got.Choices {
		if c.Index != i || c.Message.Role != "assistant" || c.Message.Content == nil || len(c.Logprobs.Content) == 0 ||
			len(c.Logprobs.Content[0].Top) != 2 {
			t.Errorf("choice %d: %s", i, text)
		}
	}
	if a, b := *got.Choices[0].Message.Content, *got.Choices[1].Message.Content; a == b {
		t.Errorf("two answers are the same: %q", a)
	}
	if u := got.Usage; u.PromptTokens < 5 || u.TotalTokens != u.PromptTokens+u.CompletionTokens ||
		u.CompletionTokens < 2 {
		t.Errorf("usage %+v", u)
	}
}

// streamOf returns the data of a stream's events and checks its end.
func streamOf(t testing.TB, text string) (events []string) {
	t.Helper()
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		if data, ok := strings.CutPrefix(s.Text(), "data: "); ok {
			events = append(events, data)
		}
	}
	if len(events) == 0 || events[len(events)-1] != "[DONE]" {
		t.Fatalf("the stream does not end with [DONE]: %s", text)
	}
	return events[:len(events)-1]
}

// TestStreamEqualsWhole: pieces of a stream are the answer that comes whole.
func TestStreamEqualsWhole(t *testing.T) {
	w := open(t, library(t, talkTemplate), newFake(t, 3), Options{})
	const chatBody = `"model":"two","messages":[{"role":"user","content":"tell me"}],"seed":5,"n":3,"logprobs":true`
	_, text := w.post(t, "/v1/chat/completions", "{"+chatBody+"}")
	whole := decode[chatReply](t, text)
	_, text = w.post(t, "/v1/chat/completions", "{"+chatBody+`,"stream":true,"stream_options":{"include_usage":true}}`)
	texts, finish, tokens := map[int]string{}, map[int]string{}, map[int]int{}
	var use *usage
	for _, e := range streamOf(t, text) {
		c := decode[chatChunk](t, e)
		if c.Object != "chat.completion.chunk" {
			t.Fatal(e)
		}
		if c.Usage != nil {
			use = c.Usage
		}
		for _, d := range c.Choices {
			if d.Delta.Content != nil {
				texts[d.Index] += *d.Delta.Content
			}
			if d.Finish != nil {
				finish[d.Index] = *d.Finish
			}
			if d.Logprobs != nil {
				tokens[d.Index] += len(d.Logprobs.Content)
			}
		}
	}
	for i, c := range whole.Choices {
		if texts[i] != *c.Message.Content || finish[i] != c.Finish || tokens[i] != len(c.Logprobs.Content) {
			t.Errorf("choice %d: streamed %q, %s, %d tokens; whole %q, %s, %d", i, texts[i], finish[i], tokens[i],
				*c.Message.Content, c.Finish, len(c.Logprobs.Content))
		}
	}
	if use == nil || *use != whole.Usage {
		t.Errorf("usage %+v, %+v", use, whole.Usage)
	}

	const textBody = `"model":"base","prompt":["One day","Once"],"seed":5,"echo":true,"logprobs":1,"max_tokens":30`
	_, text = w.post(t, "/v1/completions", "{"+textBody+"}")
	plain := decode[textReply](t, text)
	_, text = w.post(t, "/v1/completions", "{"+textBody+`,"stream":true}`)
	texts, finish = map[int]string{}, map[int]string{}
	probs := map[int]*textLogprobs{0: {}, 1: {}}
	for _, e := range streamOf(t, text) {
		for _, c := range decode[textChunk](t, e).Choices {
			texts[c.Index] += c.Text
			if c.Finish != nil {
				finish[c.Index] = *c.Finish
			}
			if c.Logprobs != nil {
				p := probs[c.Index]
				p.Tokens = append(p.Tokens, c.Logprobs.Tokens...)
				p.TextOffset = append(p.TextOffset, c.Logprobs.TextOffset...)
			}
		}
	}
	for i, c := range plain.Choices {
		if texts[i] != c.Text || finish[i] != *c.Finish || fmt.Sprint(probs[i].Tokens,
			probs[i].TextOffset) != fmt.Sprint(c.Logprobs.Tokens, c.Logprobs.TextOffset) {
			t.Errorf("completion %d: streamed %q, %s, %v; whole %q, %s, %v", i, texts[i], finish[i], probs[i], c.Text,
				*c.Finish, c.Logprobs)
		}
	}
}

// TestScoring: what lm-eval's local-completions asks for.
func TestScoring(t *testing.T) {
	w := open(t, library(t, talkTemplate), newFake(t, 2), Options{})
	for _, tokens := range []int{0, 1} {
		_, text := w.post(t, "/v1/completions",
			fmt.Sprintf(
				`{"model":"base","prompt":[[1,300,301],[1,400,401,402]],"temperature":0,"max_tokens":%d,"logprobs":1,"seed":1234,"echo":true}`, tokens))
		got := decode[textReply](t, text)
		if len(got.Choices) != 2 {
			t.Fatal(text)
		}
		for i, c := range got.Choices {
			p := c.Logprobs
			if n := 3 + i + tokens; len(p.Tokens) != n || len(p.TokenLogprobs) != n || len(p.TopLogprobs) != n ||
				len(p.TextOffset) != n || p.TokenLogprobs[0] != nil || *p.TokenLogprobs[1] != 0 ||
				*p.TokenLogprobs[2] != -1 || *c.Finish != "length" {
				t.Errorf("max_tokens %d, choice %d: %s", tokens, i, text)
			}
		}
	}
}

func TestModelsHealthMetrics(t *testing.T) {
	w := open(t, library(t, talkTemplate), newFake(t, 2), Options{APIKey: "k1"})
	if status, text := w.get(t, "/health"); status != 200 || text != `{"status":"ok"}`+"\n" {
		t.Errorf("%d %s", status, text)
	}
	for _, key := range []string{"", "k2", "k11", "K1"} {
		if status, _ := w.get(t, "/v1/models", "Authorization", "Bearer "+key); status != 401 {
			t.Errorf("key %q: %d", key, status)
		}
	}
	auth := []string{"Authorization", "Bearer k1"}
	_, text := w.get(t, "/v1/models", auth...)
	list := decode[struct{ Data []modelCard }](t, text)
	if len(list.Data) != 5 || list.Data[0].ID != "base" || list.Data[1].Parent != "base" || list.Data[1].MaxLen != 512 {
		t.Error(text)
	}
	if status, text := w.get(t, "/v1/models/two", auth...); status != 200 || decode[modelCard](t, text).ID != "two" {
		t.Errorf("%d %s", status, text)
	}
	if status, text := w.get(t, "/v1/models/three", auth...); status != 404 ||
		!strings.Contains(text, `"code":"model_not_found"`) {
		t.Errorf("%d %s", status, text)
	}
	w.post(t, "/v1/completions", `{"model":"base","prompt":"x","max_tokens":3,"temperature":0}`, auth...)
	_, text = w.get(t, "/metrics", auth...)
	for _, line := range []string{`trainer_requests_total{path="/v1/completions",status="200"} 1`,
		`trainer_requests_total{path="/v1/models",status="401"} 4`, "trainer_slots 2",
		"trainer_sequences_finished_total 1"} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
}

// TestLoad: 64 clients at once, none lost, none crossed: each answer is the one that its request gets alone.
func TestLoad(t *testing.T) {
	lib := library(t, talkTemplate)
	alone := func(model string, i int) string {
		m, _ := lib.find(model)
		p := infer.Prompt{IDs: lib.Tokenizer.IDs(fmt.Sprintf("story %d", i), true)}
		var b strings.Builder
		for n := 0; n < 20; n++ {
			word := hashWords(p, m.Adapter, Sampling{Seed: uint64(i)}, n)
			if word == "" {
				break
			}
			b.WriteString(word)
		}
		return b.String()
	}
	e := newFake(t, 7)
	e.fail = func(int) error { // no step is over before others wait, however busy the machine is
		time.Sleep(time.Millisecond)
		return nil
	}
	w := open(t, lib, e, Options{Waiting: 200})
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for round := range 3 {
				model := []string{"base", "one", "two"}[(i+round)%3]
				body := fmt.Sprintf(`{"model":%q,"prompt":"story %d","seed":%d,"temperature":0,"max_tokens":20`, model,
					i, i)
				var got string
				if i%2 == 0 {
					_, text := w.post(t, "/v1/completions", body+"}")
					got = decode[textReply](t, text).Choices[0].Text
				} else {
					_, text := w.post(t, "/v1/completions", body+`,"stream":true}`)
					for _, event := range streamOf(t, text) {
						got += decode[textChunk](t, event).Choices[0].Text
					}
				}
				if want := alone(model, i); got != want {
					t.Errorf("client %d, %s: %q, want %q", i, model, got, want)
				}
			}
		}()
	}
	wg.Wait()
	if s := w.scheduler.Stats(); s.Finished != 192 || s.Failed != 0 || s.Running != 0 || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
	if e.most.Load() < 2 {
		t.Error("never two sequences at once")
	}
}
