package simulator

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	kubernetesMaps = "/api/v1/namespaces/{namespace}/configmaps"
	// kubernetesHome is the namespace whose uid names the cluster.
	kubernetesHome = "kube-system"
)

// kubernetes speaks as the Kubernetes API, for config maps.
//
// Sources (kubernetes/community
// api-conventions.md): the chosen name of up to 253 characters, 409 with reason
// AlreadyExists and no comparison of the content, the name that is free again
// after a deletion, the read by name, the Status object, Audit-Id, the uid of
// kube-system as the cluster's id. Chosen: the texts of the messages.
func kubernetes() dialect {
	return dialect{
		name: "kubernetes", about: "Kubernetes config maps: the client chooses the name, 409 AlreadyExists (K2)",
		settings:  Settings{UniqueID: UniqueStrict, UniqueIDReuse: true, PageSize: 500},
		auth:      inScheme("Bearer"),
		label:     []string{"/metadata/labels/opledger", "/metadata/annotations/opledger"},
		newID:     func(st *state, _ *exchange, _ string) string { return strings.ToLower(wordID("sim-", st.next(), 5)) },
		requestID: "Audit-Id",
		errors: []shape{
			{trouble: badToken, status: 401, code: "Unauthorized"},
			{trouble: noPath, status: 404, code: "NotFound"},
			{trouble: noMethod, status: 405, code: "MethodNotAllowed"},
			{trouble: noObject, status: 404, code: "NotFound"},
			{trouble: badBody, status: 400, code: "BadRequest"},
			{trouble: badContent, status: 422, code: "Invalid"},
			{trouble: badLimit, status: 400, code: "BadRequest"},
			{trouble: badCursor, status: 410, code: "Expired"},
			{trouble: longBody, status: 413, code: "RequestEntityTooLarge"},
			{trouble: keyInUse, status: 409, code: "Conflict"},
			{trouble: idTaken, status: 409, code: "AlreadyExists"},
			{trouble: rateLimited, status: 429, code: "TooManyRequests"},
			{trouble: unavailable, status: 503, code: "ServiceUnavailable"},
			{trouble: searchDown, status: 503, code: "ServiceUnavailable"},
			{trouble: internal, status: 500, code: "InternalError"},
		},
		errorBody: kubernetesStatus,
		routes: []route{
			{method: http.MethodPost, pattern: kubernetesMaps, op: opCreate, chosen: inBody("/metadata/name"), run: kubernetesCreate},
			{method: http.MethodGet, pattern: kubernetesMaps, op: opList, run: kubernetesList},
			{method: http.MethodGet, pattern: kubernetesMaps + "/{name}", op: opRead, run: kubernetesRead},
			{method: http.MethodGet, pattern: "/api/v1/namespaces/{namespace}", op: opAccount, run: kubernetesNamespace},
			{method: http.MethodPost, pattern: "/apis/authentication.k8s.io/v1/selfsubjectreviews", op: opAccount, run: kubernetesReview},
		},
	}
}

func kubernetesStatus(f failure) any {
	e := map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure",
		"message": f.message, "reason": f.code, "code": f.status,
	}
	if f.id != "" {
		e["message"] = fmt.Sprintf("configmaps %q already exists", f.id)
		e["details"] = map[string]any{"name": f.id, "kind": "configmaps"}
	}
	return e
}

func (x *exchange) kubernetesCollection() string {
	return strings.ReplaceAll(kubernetesMaps, "{namespace}", x.vars["namespace"])
}

func kubernetesCreate(st *state, x *exchange, now time.Time) answer {
	name := textAt(x.args, "/metadata/name")
	if name == "" && textAt(x.args, "/metadata/generateName") == "" {
		return x.fail(badContent, "ConfigMap is invalid: metadata.name: Required value: name or generateName is required")
	}
	if len(name) > 253 {
		return x.fail(badContent, "ConfigMap is invalid: metadata.name: must be no more than 253 characters")
	}
	o := x.make(x.kubernetesCollection(), name, x.args)
	o.ID = name
	namespace := x.vars["namespace"]
	return st.create(x, o, now, func(o *object) answer {
		return jsonAnswer(http.StatusCreated, kubernetesMap(o, namespace))
	})
}

func kubernetesMap(o *object, namespace string) map[string]any {
	meta := map[string]any{
		"name": o.ID, "namespace": namespace, "uid": uuidID(o.Row), "resourceVersion": strconv.FormatInt(o.Row, 10),
		"creationTimestamp": second(o.ShownAt),
	}
	for _, name := range []string{"labels", "annotations"} {
		if v := valueAt(o.args, "/metadata/"+name); v != nil {
			meta[name] = v
		}
	}
	v := map[string]any{"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta}
	if data := o.args["data"]; data != nil {
		v["data"] = data
	}
	return v
}

func kubernetesRead(st *state, x *exchange, now time.Time) answer {
	if o := st.read(x, x.kubernetesCollection(), x.vars["name"], now); o != nil {
		return jsonAnswer(http.StatusOK, kubernetesMap(o, x.vars["namespace"]))
	}
	return x.fail(noObject, fmt.Sprintf("configmaps %q not found", x.vars["name"]))
}

// kubernetesList knows equality in the label selector, and goes on by the last
// name.
func kubernetesList(st *state, x *exchange, now time.Time) answer {
	found, wrong := st.visible(x, x.kubernetesCollection(), inList, now, func(o *object) bool {
		for part := range strings.SplitSeq(x.query.Get("labelSelector"), ",") {
			name, value, ok := strings.Cut(strings.ReplaceAll(part, "==", "="), "=")
			if ok && mapAt(o.args, "/metadata/labels")[name] != value {
				return false
			}
		}
		return true
	})
	if wrong != nil {
		return *wrong
	}
	limit, wrong := x.limit("limit", x.settings.PageSize)
	if wrong != nil {
		return *wrong
	}
	page, more, ok := pageAfter(found, x.query.Get("continue"), limit)
	if !ok {
		return x.fail(badCursor, "the continue token is not from this list")
	}
	meta := map[string]any{"resourceVersion": strconv.Itoa(len(st.objects))}
	if more {
		meta["continue"] = page[len(page)-1].ID
	}
	items := views(page, func(o *object) any { return kubernetesMap(o, x.vars["namespace"]) })
	return jsonAnswer(http.StatusOK, map[string]any{"kind": "ConfigMapList", "apiVersion": "v1", "metadata": meta, "items": items})
}

// kubernetesNamespace shows namespaces; the uid of kube-system is the account.
func kubernetesNamespace(_ *state, x *exchange, _ time.Time) answer {
	name := x.vars["namespace"]
	uid := uuidID(accountNumber(x.account + "/" + name))
	if name == kubernetesHome {
		uid = x.account
	}
	return jsonAnswer(http.StatusOK, map[string]any{
		"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": name, "uid": uid}, "status": map[string]any{"phase": "Active"},
	})
}

func kubernetesReview(_ *state, x *exchange, _ time.Time) answer {
	return jsonAnswer(http.StatusCreated, map[string]any{
		"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1", "metadata": map[string]any{},
		"status": map[string]any{"userInfo": map[string]any{"username": x.account, "groups": []string{"system:authenticated"}}},
	})
}
