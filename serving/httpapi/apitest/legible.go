package apitest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// faultsOf is what is wrong with a page as it is shown: a layout for another screen, text that runs out of it, or that
// hardly differs from what is behind it (WCAG AA: 4.5 to 1), and a background that is not of the scheme.
const faultsOf = `((dark, width) => {
	const faults = [], probe = document.createElement("div");
	probe.style.backgroundColor = "Canvas";
	document.body.append(probe);
	const canvas = getComputedStyle(probe).backgroundColor;
	probe.remove();
	const rgb = c => c.match(/[\d.]+/g).map(Number);
	const light = c => { const [r, g, b] = rgb(c).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor, v = rgb(c); if (v.length < 4 || v[3] === 1) return c; } return canvas; };
	const wide = document.documentElement.scrollWidth - innerWidth;
	if (innerWidth !== width) faults.push("it is laid out for " + innerWidth + " pixels, not " + width);
	if (wide > 0) faults.push("it is " + wide + " pixels too wide");
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	let words = 0;
	for (let n; n = walk.nextNode();) {
		if (!n.data.trim()) continue;
		words++;
		const style = getComputedStyle(n.parentElement), back = behind(n.parentElement);
		const a = light(style.color), b = light(back), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) faults.push(n.data.trim() + ": " + style.color + " on " + back + " is " + ratio.toFixed(2) + " to 1");
		if ((b < 0.2) !== dark) faults.push(n.data.trim() + ": behind it is " + back);
		if (parseFloat(style.fontSize) < 12) faults.push(n.data.trim() + ": " + style.fontSize);
		const range = document.createRange(); range.selectNodeContents(n);
		for (const r of range.getClientRects()) if (r.left < 0 || r.right > innerWidth) faults.push(n.data.trim() + ": out of sight");
	}
	if (!words) faults.push("it says nothing");
	return faults;
})`

// Legible opens a page as on a telephone and as on a desk, in light and in dark, and fails the test where it is hard to
// read there. LIENSTREAM_SHOTS names a folder for pictures of it.
func Legible(t *testing.T, browser context.Context, page, url string) {
	t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{320, 900} {
			name := fmt.Sprintf("%s-%s-%d", page, scheme, width)
			var faults []string
			var shot []byte
			Drive(t, browser, name,
				emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
				emulation.SetDeviceMetricsOverride(width, 600, 1, width < 500),
				chromedp.Navigate(url),
				chromedp.Evaluate(fmt.Sprintf("%s(%v, %d)", faultsOf, scheme == "dark", width), &faults),
				chromedp.ActionFunc(func(ctx context.Context) (err error) {
					if os.Getenv("LIENSTREAM_SHOTS") != "" {
						err = chromedp.FullScreenshot(&shot, 100).Do(ctx)
					}
					return err
				}))
			for _, fault := range faults {
				t.Errorf("%s: %s", name, fault)
			}
			if dir := os.Getenv("LIENSTREAM_SHOTS"); dir != "" {
				if err := os.WriteFile(filepath.Join(dir, name+".png"), shot, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
