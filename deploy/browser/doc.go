// Package browser has the tests that look at the pages of the built programs in Chromium. They need
// the build tag e2e.
package browser
