package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// Error is an error response in OpenAI's format.
type Error struct {
	Status     int    `json:"-"`
	RetryAfter int    `json:"-"` // seconds; 0 = header not sent
	Message    string `json:"message"`
	Type       string `json:"type"`
	Param      string `json:"-"`
	Code       string `json:"-"`
}

func (e *Error) Error() string { return e.Message }

// MarshalJSON writes empty param and code as null, as OpenAI does.
func (e *Error) MarshalJSON() ([]byte, error) {
	orNull := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	return json.Marshal(struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}{e.Message, e.Type, orNull(e.Param), orNull(e.Code)})
}

// invalid returns the error for a request with a mistake in the field param.
func invalid(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Param: param,
		Message: fmt.Sprintf(format, args...)}
}

// refused returns the error for a request that is rejected before it is read.
func refused(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Type: "invalid_request_error", Code: code, Message: fmt.Sprintf(format, args...)}
}

// asError returns the error that a client sees for err. For an internal failure it hides everything that does not
// concern the client.
func asError(err error) *Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, ErrBusy):
		return &Error{Status: http.StatusTooManyRequests, Type: "rate_limit_error", Code: "queue_full",
			Message: "the server is busy: " + ErrBusy.Error() + "; try again later"}
	case errors.Is(err, ErrClosing):
		return &Error{Status: http.StatusServiceUnavailable, Type: "server_error", Code: "shutting_down",
			Message: ErrClosing.Error()}
	case errors.Is(err, errTimeout):
		return &Error{Status: http.StatusGatewayTimeout, Type: "server_error", Code: "timeout", Message: err.Error()}
	}
	return &Error{Status: http.StatusInternalServerError, Type: "server_error", Code: "internal_error",
		Message: "the model failed on this request; the server's log says why"}
}

// write sends the error response.
func (e *Error) write(w http.ResponseWriter) {
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(e.RetryAfter))
	}
	if e.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeJSON(w, e.Status, map[string]*Error{"error": e})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":{"message":"the answer could not be written `+
			`as JSON","type":"server_error","param":null,"code":"internal_error"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client may have disconnected
}
