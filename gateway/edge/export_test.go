package edge

// Codes lists the codes of all refusals.
func Codes() (codes []string) {
	for _, row := range table[none+1:] {
		codes = append(codes, row.Name)
	}
	return codes
}

// StatusOf returns the status of a code, or 0 if the gateway never sends it.
func StatusOf(code string) int {
	for _, row := range table[none+1:] {
		if row.Name == code {
			return row.Status
		}
	}
	return 0
}

// StageOf returns the stage that refuses with a code, or an empty text if the gateway never sends it.
func StageOf(code string) string {
	for _, row := range table[none+1:] {
		if row.Name == code {
			return row.stage
		}
	}
	return ""
}
