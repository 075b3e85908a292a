package keystore

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

	// Of the last event. $1: ID, $2: body, $3: salt, $4: now.
	insertRequest = `INSERT INTO operator_requests (id, body, salt, event, at) VALUES ($1, $2, $3, (SELECT MAX(id) FROM events), $4)`

	// $1: ID, $2: instant in ms. Older ones do not count.
	hasRequest = `SELECT EXISTS (SELECT 1 FROM operator_requests WHERE id = $1 AND at >= $2)`

	// $1: ID.
	requestByID = `SELECT id, body, salt, event FROM operator_requests WHERE id = $1`

	// $1: instant in ms.
	pruneRequests = `DELETE FROM operator_requests WHERE at < $1`
)
