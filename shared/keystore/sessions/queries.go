package sessions

const (
	// $1: ID, $2: secret, $3: actor, $4: read only, $5: address of the admin port, $6: ms that the
	// session lasts, $7: ms that the code is valid.
	insertInvitation = `INSERT INTO console_sessions (id, secret, opened, actor, read_only, address, lasts, ends_at)
		VALUES ($1, $2, false, $3, $4, $5, $6, {now} + $7)`

	// $1: secret, $2: address of the admin port.
	invitationBySecret = `SELECT id, actor, read_only, {now} + lasts AS ends_at FROM console_sessions
		WHERE secret = $1 AND address = $2 AND NOT opened AND ends_at > {now}`

	// $1: the code's secret, $2: the token's.
	openInvitation = `UPDATE console_sessions SET secret = $2, opened = true, ends_at = {now} + lasts
		WHERE secret = $1 AND NOT opened AND ends_at > {now}`

	// $1: secret.
	sessionBySecret = `SELECT id, actor, read_only, ends_at FROM console_sessions
		WHERE secret = $1 AND opened AND ends_at > {now}`

	// $1: ID.
	deleteSession = `DELETE FROM console_sessions WHERE id = $1`

	// DeleteAll ends all sessions and invitations.
	DeleteAll = `DELETE FROM console_sessions`

	deleteEndedSessions = `DELETE FROM console_sessions WHERE ends_at <= {now}`
)

const (
	// $1: name, $2: role, $3: secret, $4: now, $5: expiry.
	insertOperator = `INSERT INTO operators (name, role, secret, created_at, expires_at) VALUES ($1, $2, $3, $4, $5)`

	selectOperators = `SELECT name, role, created_at, expires_at FROM operators`

	operatorsByName = selectOperators + ` ORDER BY name`

	// $1: name.
	operatorByName = selectOperators + ` WHERE name = $1`

	// $1: secret, $2: now.
	operatorBySecret = selectOperators + ` WHERE secret = $1 AND (expires_at = 0 OR expires_at > $2)`

	// $1: name.
	deleteOperator = `DELETE FROM operators WHERE name = $1`
)
