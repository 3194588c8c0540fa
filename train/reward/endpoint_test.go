package reward

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// judgeServer serves the reply of a function to the answers of a request, and counts requests.
func judgeServer(t *testing.T, reply func(n int, answers []Answer) (int, string)) (url string, requests func() []int) {
	t.Helper()
	var mu sync.Mutex
	var sizes []int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		var body struct{ Answers []Answer }
		if err != nil || json.Unmarshal(text, &body) != nil || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("the request %q: %v", text, err)
		}
		mu.Lock()
		sizes = append(sizes, len(body.Answers))
		n := len(sizes)
		mu.Unlock()
		code, answer := reply(n, body.Answers)
		w.WriteHeader(code)
		io.WriteString(w, answer) //nolint:errcheck // the client may have left
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []int {
		mu.Lock()
		defer mu.Unlock()
		return append([]int(nil), sizes...)
	}
}

// TestEndpoint checks that batches of answers are sent, that a passing error is repeated, and what null means.
func TestEndpoint(t *testing.T) {
	url, requests := judgeServer(t, func(n int, answers []Answer) (int, string) {
		if n == 1 {
			return http.StatusServiceUnavailable, "busy"
		}
		var numbers []string
		for _, a := range answers {
			number := fmt.Sprint(len(a.Completion))
			if a.Completion == "" {
				number = "null"
			}
			numbers = append(numbers, number)
		}
		return http.StatusOK, `{"rewards": [` + strings.Join(numbers, ", ") + `]}`
	})
	c := Config{Type: "http", URL: url, Batch: 2, Workers: 1, Retries: 1, Timeout: 10, OnError: "error"}
	got, r, err := judged(t, []Config{c}, answers(`{"n": 1}`, "a", "bb", "", "dddd", "e"))
	if err != nil || fmt.Sprint(got) != "[[1] [2] [NaN] [4] [1]]" || r.Zeros() != 0 {
		t.Errorf("%v (%v)", got, err)
	}
	if n := requests(); fmt.Sprint(n) != "[2 2 2 1]" {
		t.Errorf("batches of %v", n)
	}
}

// TestEndpointFails checks replies that are no rewards, errors that stay, and addresses that are refused.
func TestEndpointFails(t *testing.T) {
	for _, c := range []struct {
		code        int
		reply, want string
		requests    int
	}{
		{500, "oh", `it replied 500 Internal Server Error: "oh" (2 requests)`, 2},
		{404, "no", `it replied 404 Not Found: "no"`, 1},
		{200, "{}", "it replied 0 rewards to 2 answers", 1},
		{200, `{"rewards": [1, "a"]}`, `it replied "{\"rewards\": [1, \"a\"]}", want {"rewards": [...]} of numbers or null`, 1},
		{200, `{"rewards": [1, NaN]}`, `it replied "{\"rewards\": [1, NaN]}", want {"rewards": [...]} of numbers or null`, 1},
		{200, strings.Repeat(" ", mostReply+1000), "its reply has more than 1048704 bytes", 1},
	} {
		url, requests := judgeServer(t, func(int, []Answer) (int, string) { return c.code, c.reply })
		config := Config{Type: "http", URL: url, Batch: 8, Workers: 2, Retries: 1, Timeout: 10, OnError: "error"}
		_, _, err := judged(t, []Config{config}, answers("{}", "a", "b"))
		want := "rewards[0] (http): " + url + ": " + c.want + "; on_error: zero would count its answers and go on"
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
		if n := len(requests()); n != c.requests {
			t.Errorf("%s: %d requests, want %d", c.want, n, c.requests)
		}
		config.OnError = "zero"
		got, r, err := judged(t, []Config{config}, answers("{}", "a", "b"))
		if err != nil || fmt.Sprint(got) != "[[0] [0]]" || r.Zeros() != 2 {
			t.Errorf("%v, %d zeros (%v)", got, r.Zeros(), err)
		}
	}
	slow, _ := judgeServer(t, func(int, []Answer) (int, string) { time.Sleep(time.Second); return 200, "" })
	for url, want := range map[string]string{
		slow:                 "no reply came within 0.2 s (1 requests)",
		"http://127.0.0.1:1": "connection refused (1 requests)",
	} {
		c := Config{Type: "http", URL: url, Batch: 8, Workers: 1, Timeout: 0.2, OnError: "error"}
		if _, _, err := judged(t, []Config{c}, answers("{}", "a")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	away := httptest.NewServer(http.RedirectHandler("http://example.org/", http.StatusFound))
	defer away.Close()
	c := Config{Type: "http", URL: away.URL, Batch: 8, Workers: 1, Timeout: 5, OnError: "error"}
	if _, _, err := judged(t, []Config{c}, answers("{}", "a")); err == nil ||
		!strings.Contains(err.Error(), "it redirects to another address: write that address") {
		t.Errorf("a redirect: %v", err)
	}
	for url, want := range map[string]string{
		"": "url: is missing: write the address that judges answers, such as http://127.0.0.1:8000/reward",
		"http://example.org:80/x": "url: example.org:80 is another machine, and prompts, answers and columns would " +
			"be sent to it: set allow_remote: true to send them",
		"http://a:b@localhost/": "url: has a user's name or password, which logs and copies of the configuration " +
			"would show: remove it",
		"ftp://localhost/": `url: "ftp://localhost/" is no http or https address`,
	} {
		if got := (Config{Type: "http", URL: url}).Validate(); len(got) != 1 || got[0].Error() != want {
			t.Errorf("problems %v, want %s", got, want)
		}
	}
	if got := (Config{Type: "http", URL: "https://example.org/", AllowRemote: true}).Validate(); got != nil {
		t.Errorf("problems %v", got)
	}
}

// FuzzParseReply checks that any reply gives a number or NaN for each answer, or an error.
func FuzzParseReply(f *testing.F) {
	for _, s := range []string{`{"rewards": [1, null]}`, "[]", `{"rewards": {}}`, "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		numbers := make([]float64, 2)
		if parseReply(text, numbers) == nil && (math.IsInf(numbers[0], 0) || math.IsInf(numbers[1], 0)) {
			t.Error("a number that is infinite")
		}
	})
}
