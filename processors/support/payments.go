package support

// reserve records a payment before it can be charged.
func (t *execution) reserve() (Outcome, error) {
	r := t.cmd.Reservation
	if r.Authorization.From != t.key {
		return Malformed, nil
	}
	before, err := t.payment(t.cmd.Nonce)
	if err != nil {
		return "", err
	}
	switch {
	case before != nil && before.Status != StatusVoid && (before.BodyDigest != r.BodyDigest || !before.Authorization.sameAs(&r.Authorization)):
		return Conflict, nil // another authorization of the same nonce may end later, but only the recorded one is followed
	case before != nil && before.Status != StatusReleased && before.Status != StatusVoid:
		return Exists, nil
	}
	day := dayAt(t.at, t.desk.Day)
	holder, err := t.payment(t.desk.Nonce)
	if err != nil {
		return "", err
	}
	if !t.desk.Free(t.cmd.Nonce, day, holder) {
		return Limited, nil
	}
	t.desk.Day, t.desk.Nonce = day, t.cmd.Nonce
	t.w.Put(reports, paymentKey(t.key, t.cmd.Nonce), r.Report)
	p := &Payment{
		Status: StatusReserved, Authorization: r.Authorization, Asset: r.Asset, BodyDigest: r.BodyDigest, FromBlock: r.FromBlock,
		Day: day, Reserved: 1, ReservedAt: t.at.Unix(),
	}
	if before != nil { // it was paid once and reverted by a reorg: its ticket comes back with it, with all replies
		p.Reserved, p.Ticket = before.Reserved+1, before.Ticket
	}
	return Done, t.save(p)
}

// settle updates a payment's status from the chain.
func (t *execution) settle() (Outcome, error) {
	p, err := t.payment(t.cmd.Nonce)
	if err != nil {
		return "", err
	}
	if p == nil {
		return Unknown, nil
	}
	if p.Status == StatusVoid || p.Status == StatusFinal || t.cmd.Reserved != p.Reserved {
		return Refused, nil // for another reservation of the payment
	}
	switch t.cmd.Kind {
	case Sent:
		if p.Charged() || p.Status == StatusReleased || !t.cmd.Attempt.has(&p.Authorization) {
			return Refused, nil // from a slow process, for an earlier authorization of the same nonce
		}
		p.Status, p.Attempt, p.Reason = StatusSent, t.cmd.Attempt, ""
	case Paid:
		t.paid(p)
	case Reorganised:
		if p.Status != StatusPaid {
			return Refused, nil
		}
		p.Status, p.Proof = StatusSent, nil // the ticket is kept, and hidden until the payment is on the chain again
	case Released:
		if p.Charged() || !p.Attempt.is(t.cmd.Attempt) {
			return Refused, nil // from a slow process, about an earlier attempt, while this one is pending
		}
		if p.Status != StatusReleased {
			t.desk.refuse(DayOf(t.at))
		}
		p.Status, p.Reason = StatusReleased, t.cmd.Reason
	case Void:
		if p.Charged() || !p.Authorization.sameAs(t.cmd.Authorization) {
			return Refused, nil // from a slow process, about an earlier authorization of the same nonce
		}
		if t.cmd.ByPayer && p.Attempt != nil && p.Status == StatusSent {
			t.desk.refuse(DayOf(t.at))
		}
		p.Status, p.Reason, p.Ticket = StatusVoid, t.cmd.Reason, nil
		t.w.Delete(reports, paymentKey(t.key, t.cmd.Nonce)) // it was not paid for
	default:
	}
	return Done, t.save(p)
}

// paid opens the ticket, even of a payment that was released and then charged after all.
func (t *execution) paid(p *Payment) {
	p.Status, p.Proof, p.Reason = StatusPaid, t.cmd.Proof, ""
	if t.cmd.Proof.Final {
		p.Status = StatusFinal
	}
	if p.Ticket == nil {
		at := t.at.Unix()
		p.Ticket = &Ticket{Status: TicketOpen, Verdict: Pending, Refund: RefundStatusNone, CreatedAt: at, UpdatedAt: at}
	}
}
