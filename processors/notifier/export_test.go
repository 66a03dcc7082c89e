package notifier

// FireAtMost bounds the deals that a tick of an application may go through.
func FireAtMost(a *App, most int) { a.most = most }
