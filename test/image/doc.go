// Package image holds the tests of the container image (build tag image; make
// test-image), which scripts/test-image has built for them: what is in it, what
// is not, and that it runs as Kubernetes would run it. They need root, or a user
// namespace, to mount its root.
package image
