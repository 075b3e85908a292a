package petgate

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// APIError is a response with an error status. errors.Is(err, petgate.ErrorCodePetNotFound)
// compares its code.
type APIError struct {
	Status     int
	Code       ErrorCode // empty if the body is not the API's. New codes may come: treat an unknown one by its status
	Message    string    // for people
	Details    Details   // empty if there are none
	RetryAfter time.Duration
	RequestID  string // of the request in the service's logs

	at time.Time // when the response had arrived
}

// Error returns status, code, message and request.
func (e *APIError) Error() string {
	text := fmt.Sprintf("petgate: %d %s: %s", e.Status, e.Code, e.Message)
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	return text
}

// Unwrap returns the code.
func (e *APIError) Unwrap() error { return e.Code }

// Error returns the code. It makes a code a target of errors.Is.
func (c ErrorCode) Error() string { return string(c) }

func newAPIError(response *http.Response, text []byte) *APIError {
	e := &APIError{
		Status: response.StatusCode, Message: http.StatusText(response.StatusCode),
		RequestID: response.Header.Get("X-Request-Id"), at: time.Now(),
	}
	var body Error
	if json.Unmarshal(text, &body) == nil && body.Code != "" {
		e.Code, e.Message = body.Code, body.Message
		if body.Details != nil {
			e.Details = *body.Details
		}
	}
	// The API sends seconds. A proxy between may send a date (RFC 9110, section 10.2.3).
	field := response.Header.Get("Retry-After")
	if seconds, err := strconv.ParseInt(field, 10, 32); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	} else if date, err := http.ParseTime(field); err == nil {
		e.RetryAfter = max(0, time.Until(date))
	}
	return e
}
