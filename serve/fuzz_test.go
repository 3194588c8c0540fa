package serve

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzRequests: whatever the body is, the answer is JSON with a status that fits, and nothing panics.
func FuzzRequests(f *testing.F) {
	lib := library(f, talkTemplate)
	for _, body := range []string{
		`{"model":"base","messages":[{"role":"user","content":"hi"}],"max_tokens":2,"logprobs":true,"top_logprobs":1,"stop":["a"],"seed":1}`,
		`{"model":"base","prompt":[[1,2],[3]],"echo":true,"logprobs":1,"max_tokens":0,"n":2}`,
		`{"model":"base","prompt":"x","stream":true,"stream_options":{"include_usage":true},"max_tokens":2}`,
		`{"model":"base","messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":[{"type":"text","text":"x"}]}],"tools":[{}],"max_tokens":2}`,
		`{"model":"base","prompt":"x","logit_bias":{"5":1},"min_p":0.1,"top_k":-1,"temperature":0,"max_tokens":1}`,
		`{"messages":null,"prompt":[null],"model":{}}`, `[[`, "\xff", `{"model":"base","prompt":[1e9,-1,0.5]}`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		e := newFake(t, 2)
		s, err := New(lib, e, Options{Log: func(line string) { t.Errorf("logged: %s", line) }})
		if err != nil {
			t.Fatal(err)
		}
		go s.Run()
		defer func() { _ = s.Close(t.Context()) }()
		for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
			r.Host = "localhost"
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			switch out := w.Body.Bytes(); {
			case strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream"):
				if !bytes.HasSuffix(out, []byte("data: [DONE]\n\n")) {
					t.Errorf("a stream ends with %q", out[max(0, len(out)-80):])
				}
			case !json.Valid(out):
				t.Errorf("%d %s", w.Code, out)
			case w.Code != 200 && w.Code != 400 && w.Code != 404:
				t.Errorf("%s: %d %s", body, w.Code, out)
			}
		}
	})
}

// FuzzWire: whatever bytes come, the server answers or closes, and is there for the next.
func FuzzWire(f *testing.F) {
	w := open(f, library(f, talkTemplate), newFake(f, 2), Options{})
	const head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	for _, send := range []string{
		"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
		head + "Content-Length: 2\r\n\r\n{}" + head + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n\r\n",
		head + "Expect: 100-continue\r\nContent-Length: 40\r\n\r\n{\"model\":\"base\"",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\n\r\n",
		"\x00\r\n\r\n", "GET //../..\\ HTTP/1.0\r\n\r\n",
	} {
		f.Add([]byte(send))
	}
	f.Fuzz(func(t *testing.T, send []byte) {
		w.raw(t, string(send))
		if status, _ := w.get(t, "/health"); status != 200 {
			t.Errorf("the server is gone after %q: %d", send, status)
		}
	})
}
