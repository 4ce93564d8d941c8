// Package policy holds the rules of this module as tests: which package may
// import which, that nothing writes to a volume, and what no file may contain.
//
// It knows source text and nothing of what the code does. It has no code but
// tests, so nothing imports it. docs/architecture.md holds the tiers, and
// CONTRIBUTING.md the reasons.
package policy
