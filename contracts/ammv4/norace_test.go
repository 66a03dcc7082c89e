//go:build !race

package ammv4

const slowdown = 1
