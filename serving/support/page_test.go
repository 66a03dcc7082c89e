package support

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	desk "github.com/lienstream/lienstream/processors/support"
)

// visit is a tab of headless Chromium, and what it asked for and complained of.
type visit struct {
	run        func(actions ...chromedp.Action) error
	mu         sync.Mutex
	asked      []string
	complaints []string
}

func browse(t *testing.T) *visit {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("no chromium here")
	}
	allocator, stop := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(time.Minute))...)
	t.Cleanup(stop)
	ctx, leave := chromedp.NewContext(allocator)
	t.Cleanup(leave)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	v := &visit{run: func(actions ...chromedp.Action) error { return chromedp.Run(ctx, actions...) }}
	chromedp.ListenTarget(ctx, func(ev any) {
		v.mu.Lock()
		defer v.mu.Unlock()
		switch ev := ev.(type) {
		case *network.EventRequestWillBeSent:
			v.asked = append(v.asked, ev.Request.URL)
		case *runtime.EventExceptionThrown:
			v.complaints = append(v.complaints, ev.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			if ev.Entry.Level == log.LevelError && ev.Entry.Source != log.SourceNetwork {
				v.complaints = append(v.complaints, ev.Entry.Text)
			}
		}
	})
	check(t, chromedp.Run(ctx, network.Enable()))
	return v
}

func (v *visit) do(t *testing.T, what string, actions ...chromedp.Action) {
	t.Helper()
	if err := v.run(actions...); err != nil {
		var text string
		_ = v.run(chromedp.Evaluate(`document.body.innerText`, &text))
		t.Fatalf("%s: %v\n%s", what, err, text)
	}
}

// until waits for a condition, in JavaScript. A page that is being left answers nothing: it is asked again.
func until(condition string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		for end := time.Now().Add(time.Minute); ; {
			var holds bool
			err := chromedp.Evaluate(condition, &holds).Do(ctx)
			if err == nil && holds {
				return nil
			}
			if time.Now().After(end) || !sleep(ctx, 20*time.Millisecond) {
				return fmt.Errorf("not within a minute: %s: %w", condition, err)
			}
		}
	})
}

// The page works where a proxy serves it below a path of its own: what it loads lies beside it.
func TestThePageBelowAPath(t *testing.T) {
	w := newWorld(t)
	w.cfg.PublicURL = "https://example.com/support"
	w.mine()
	s := w.start(w.deps(w.relayer("relayer")))
	got := s.post(w.header(w.pay(w.chain.Key("payer"), "below")), body("Below"))
	id, _ := got.created(t)
	if at := got.header.Get("Location"); at != w.cfg.PublicURL+"/tickets/"+id {
		t.Errorf("the ticket is at %s", at)
	}
	base, err := url.Parse(w.cfg.PublicURL + "/t/" + id)
	check(t, err)
	loads := regexp.MustCompile(`(?:href|src)="([^"]*)"`).FindAllStringSubmatch(string(s.get("/t/"+id, "").body), -1)
	if len(loads) != 2 {
		t.Errorf("the page loads %q", loads)
	}
	for _, l := range loads {
		at, err := base.Parse(l[1])
		check(t, err)
		path, below := strings.CutPrefix(at.String(), w.cfg.PublicURL)
		if !below {
			t.Errorf("the page loads %s", at)
			continue
		}
		if got := s.get(path, ""); got.status != http.StatusOK {
			t.Errorf("%s: %d", at, got.status)
		}
	}
}

// The page shows replies and the outcome to the holder of the token, which reaches no log and no other host. No user
// text is executed.
func TestThePage(t *testing.T) {
	v := browse(t)
	w := newWorld(t)
	w.mine()
	s := w.start(w.deps(w.relayer("relayer")))
	hostile := strings.Replace(string(body("<img src=x onerror=alert(1)>")), "**It** drains.",
		`**It** drains. <script>document.title='run'</script> <img src='https://evil.example/x.png'> [x](javascript:document.title='run') ![y](https://evil.example/y.png)`, 1)
	id, token := s.post(w.header(w.pay(w.chain.Key("payer"), "page")), []byte(hostile)).created(t)
	staff := w.staff()
	check(t, staff.Reply(t.Context(), id, "Thank you, *ann*. <script>document.title='run'</script>"))
	check(t, staff.Decide(t.Context(), id, desk.Accepted, false))

	v.do(t, "the ticket", chromedp.Navigate(s.url+"/t/"+id+"#"+token),
		until(`document.getElementById("outcome")?.textContent === "ACCEPTED" && document.getElementById("refund").textContent === "OWED"`),
		until(`document.querySelector(".reply em")?.textContent === "ann"`),
		until(`document.querySelector("#ticket strong")?.textContent === "It"`),
		until(`document.querySelectorAll("#ticket img, #ticket script, #ticket [onerror], #ticket a[href^='javascript:']").length === 0`),
		until(`document.title !== "run" && document.querySelector("h1").textContent.includes("onerror")`))
	v.do(t, "a wrong token", chromedp.Evaluate(`location.hash = "#"+"wrong"`, nil), until(`document.getElementById("ticket").textContent.includes("opens no ticket")`))
	v.do(t, "no token", chromedp.Navigate("about:blank"), chromedp.Navigate(s.url+"/t/"+id), until(`document.getElementById("ticket").textContent.includes("lacks its end")`))

	v.mu.Lock()
	defer v.mu.Unlock()
	for _, url := range v.asked {
		if strings.Contains(strings.SplitN(url, "#", 2)[0], token) || url != "about:blank" && !strings.HasPrefix(url, s.url) {
			t.Errorf("the page asked for %s", url)
		}
	}
	for _, c := range v.complaints {
		t.Error("the page complains:", c)
	}
	frame := s.get("/t/"+id, "")
	if policy := frame.header.Get("Content-Security-Policy"); frame.status != http.StatusOK || policy != pagePolicy || strings.Contains(policy, "unsafe") {
		t.Errorf("%d, policy %q", frame.status, policy)
	}
	if strings.Contains(string(frame.body), "drains") || frame.header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("the frame without a token: %s", frame.body)
	}
}
