package notifier

import "testing"

// TestPushKeys: accepted keys can be read by the code that encrypts for them.
func TestPushKeys(t *testing.T) {
	const point = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
	const auth = "BTBZMqHH6r4Tts7J_aSIgg"
	for name, c := range map[string]struct {
		p256dh, auth string
		good         bool
	}{
		"as browsers write them": {point, auth, true}, "padded": {point + "=", auth + "==", true},
		"padded twice": {point, auth + "====", false}, "half padded": {point, auth + "=", false},
		"a line break": {point, auth[:4] + "\n" + auth[4:], false}, "a line break in the point": {"\r" + point, auth, false},
		"bits to spare": {point, auth[:21] + "h", false}, "of 15 bytes": {point, "BTBZMqHH6r4Tts7J_aSI", false},
		"no point of the curve": {"BA" + point[2:], auth, false}, "none": {"", "", false},
	} {
		if GoodPushKeys(c.p256dh, c.auth) != c.good {
			t.Errorf("%s: good is %v", name, !c.good)
		}
	}
}
