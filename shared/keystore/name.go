package keystore

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"petgate/shared/core/id"
)

const (
	NameRunesMax   = 100 // of a tenant's or a key's name, and of the reason of a ban
	NoticeRunesMax = 300 // of a text for a tenant
)

// CheckText checks a new text, which is printed on one line. A stored text may break these rules,
// because another version of the program checked it.
func CheckText(text string, runesMax int) error {
	switch {
	case strings.TrimSpace(text) != text || text == "":
		return fmt.Errorf("%q must not be empty and must not begin or end with a space", text)
	case utf8.RuneCountInString(text) > runesMax:
		return fmt.Errorf("it has more than %d characters", runesMax)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, isControl):
		return fmt.Errorf("%q must not have control characters", text)
	}
	return nil
}

func isControl(r rune) bool { return unicode.IsControl(r) || !unicode.IsGraphic(r) }

// CheckTenantName checks a new tenant's name. A name that looks like an ID would be ambiguous.
func CheckTenantName(name string) error {
	for _, prefix := range []string{id.TenantPrefix, id.KeyPrefix} {
		if strings.HasPrefix(name, prefix) {
			return fmt.Errorf("%q: a name may not begin with %s, the prefix of IDs", name, prefix)
		}
	}
	return CheckText(name, NameRunesMax)
}
