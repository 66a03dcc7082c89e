//go:build race

package ammv4

// slowdown is how many times longer the race detector lets arithmetic take.
const slowdown = 20
