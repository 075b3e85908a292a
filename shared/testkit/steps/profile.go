//go:build linux && amd64

package steps

import (
	"bytes"
	"cmp"
	"debug/elf"
	"debug/gosym"
	"errors"
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

// Cost is what a profile says about the program.
type Cost struct {
	Steps       int // instructions
	Allocations int // on the heap
	SystemCalls int
	Functions   []Share // the one with the most instructions is first
}

// Share is what one function has executed. Inlined calls belong to the function that they are
// inlined into.
type Share struct {
	Function string
	Steps    int
}

// allocator is the function that every allocation calls.
const allocator = "runtime.mallocgc"

// syscallInstruction is how programs for amd64 enter the kernel.
var syscallInstruction = []byte{0x0f, 0x05}

// Cost reads the functions of the profile's program from its file.
func (p Profile) Cost(path string) (c Cost, err error) {
	file, err := elf.Open(path)
	if err != nil {
		return c, fmt.Errorf("steps: %w", err)
	}
	defer file.Close()
	text, lines := file.Section(".text"), file.Section(".gopclntab")
	if text == nil || lines == nil {
		return c, fmt.Errorf("steps: %s has no table of functions", path)
	}
	code, codeErr := text.Data()
	data, dataErr := lines.Data()
	if err := errors.Join(codeErr, dataErr); err != nil {
		return c, fmt.Errorf("steps: %w", err)
	}
	table, err := gosym.NewTable(nil, gosym.NewLineTable(data, text.Addr))
	if err != nil {
		return c, fmt.Errorf("steps: %w", err)
	}
	allocate := table.LookupFunc(allocator)
	if allocate == nil {
		return c, fmt.Errorf("steps: %s has no %s", path, allocator)
	}
	c.Allocations = p[allocate.Entry]
	sums := map[string]int{}
	for at, n := range p {
		c.Steps += n
		name := "?"
		if f := table.PCToFunc(at); f != nil {
			name = f.Name
			if bytes.HasPrefix(code[at-text.Addr:], syscallInstruction) {
				c.SystemCalls += n
			}
		}
		sums[name] += n
	}
	for name, n := range sums {
		c.Functions = append(c.Functions, Share{name, n})
	}
	slices.SortFunc(c.Functions,
		func(a, b Share) int { return cmp.Or(b.Steps-a.Steps, cmp.Compare(a.Function, b.Function)) })
	return c, nil
}
