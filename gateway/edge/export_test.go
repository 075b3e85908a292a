package edge

// Codes lists the codes of all refusals.
func Codes() (codes []string) {
	for _, row := range table[none+1:] {
		codes = append(codes, row.code)
	}
	return codes
}
