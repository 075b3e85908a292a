package ban

// IsStrike reports whether the request did not wait.
func (o Outcome) IsStrike() bool { return o.isStrike }
