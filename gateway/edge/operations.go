package edge

import (
	"errors"
	"fmt"

	"petgate/gateway/answers"
	"petgate/gateway/routing"
	"petgate/gateway/upstream"
	"petgate/shared/api"
)

// route is an operation with what its requests need.
type route struct {
	*routing.Route
	needsScope string         // the message for a key without the scope
	pool       *upstream.Pool // nil: the gateway answers itself
	metrics    *routeMetrics
}

// routes are the operations of one document.
type routes struct {
	table     *routing.Table
	all       []*route // by routing.Route.Index
	report    *route   // the operation that the gateway answers itself; nil: none
	cors      *answers.CORS
	hasPublic bool // some operations need no key
}

// SetOperations replaces the operations. Requests that have begun end as they were understood.
func (e *Edge) SetOperations(operations []api.Operation) error {
	table, err := routing.New(operations)
	if err != nil {
		return err
	}
	r := &routes{table: table, cors: answers.NewCORS(e.cfg.CORSOrigins, table.Methods)}
	var wrong []error
	for _, one := range table.Routes {
		added := &route{
			Route: one, metrics: e.metrics.of(one.ID),
			needsScope: "the API key needs the scope " + one.Scope + " for this operation",
		}
		if !one.ByGateway {
			var err error
			if added.pool, err = e.upstreams.Of(one.Upstream); err != nil {
				wrong = append(wrong, fmt.Errorf("operation %s: %w", one.ID, err))
			}
		}
		if one.IsReport() {
			r.report = added
		}
		r.all, r.hasPublic = append(r.all, added), r.hasPublic || one.IsPublic
	}
	if wrong == nil {
		e.routes.Store(r)
	}
	return errors.Join(wrong...)
}

// find returns the operation of a request, or nil.
func (e *Edge) find(x *exchange) *route {
	r := e.routes.Load()
	if found := r.table.Find(x.Request.Method, x.Request.Path); found != nil {
		return r.all[found.Index]
	}
	return nil
}
