//go:build linux && amd64

package steps

import (
	"cmp"
	"debug/elf"
	"debug/gosym"
	"fmt"
	"slices"
)

// Profile has the number of executions of each instruction, by address.
type Profile map[uint64]int

// Steps is how many instructions were executed.
func (p Profile) Steps() (sum int) {
	for _, n := range p {
		sum += n
	}
	return sum
}

// Share is what one function has executed. Inlined calls belong to the function that they are inlined into.
type Share struct {
	Function string
	Steps    int
}

// Functions returns the functions of a program by what they have executed, the most first.
func (p Profile) Functions(path string) ([]Share, error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("steps: %w", err)
	}
	defer file.Close()
	text, lines := file.Section(".text"), file.Section(".gopclntab")
	if text == nil || lines == nil {
		return nil, fmt.Errorf("steps: %s has no table of functions", path)
	}
	data, err := lines.Data()
	if err != nil {
		return nil, fmt.Errorf("steps: %w", err)
	}
	table, err := gosym.NewTable(nil, gosym.NewLineTable(data, text.Addr))
	if err != nil {
		return nil, fmt.Errorf("steps: %w", err)
	}
	sums := map[string]int{}
	for at, n := range p {
		name := "?"
		if f := table.PCToFunc(at); f != nil {
			name = f.Name
		}
		sums[name] += n
	}
	var all []Share
	for name, n := range sums {
		all = append(all, Share{name, n})
	}
	slices.SortFunc(all, func(a, b Share) int { return cmp.Or(b.Steps-a.Steps, cmp.Compare(a.Function, b.Function)) })
	return all, nil
}
