// Apishim is a reverse proxy in front of an embedded API server. It adds what upstream's end-to-end suites expect of a cluster and the embedded server does
// not have, so that a missing detail of the server does not hide what the operator does:
//
//   - ValidatingAdmissionPolicy is enforced (with cel-go) for requests that pass through here
//   - BOOKMARK events of PartialObjectMetadata watches are PartialObjectMetadata (-fix-bookmarks)
//   - pods/log, and pods/NAME:8080/proxy/metrics from the operator (-metrics http://127.0.0.1:8080)
//
// Each part that becomes unnecessary is taken out.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
)

var fixed, denied, evaluated atomic.Int64

func main() {
	kc := flag.String("kubeconfig", "", "of the API server behind")
	out := flag.String("out", "", "kubeconfig to write")
	listen := flag.String("listen", "127.0.0.1:0", "")
	fix := flag.Bool("fix-bookmarks", true, "")
	metrics := flag.String("metrics", "", "operator's metrics base URL")
	logfile := flag.String("access-log", "", "")
	flag.Parse()
	cfg, err := clientcmd.BuildConfigFromFlags("", *kc)
	must(err)
	target, err := url.Parse(cfg.Host)
	must(err)
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 200}
	auth := "Bearer " + cfg.BearerToken
	var al *bufio.Writer
	var alMu sync.Mutex
	if *logfile != "" {
		f, err := os.Create(*logfile)
		must(err)
		al = bufio.NewWriter(f)
	}
	get := func(path string) map[string]any {
		req, _ := http.NewRequest("GET", target.String()+path, nil)
		req.Header.Set("Authorization", auth)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			return nil
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			return nil
		}
		var m map[string]any
		if json.NewDecoder(resp.Body).Decode(&m) != nil {
			return nil
		}
		return m
	}
	rp := &httputil.ReverseProxy{
		FlushInterval: -1,
		Transport:     tr,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set("Authorization", auth)
		},
		ModifyResponse: func(resp *http.Response) error {
			r := resp.Request
			if *fix && r.URL.Query().Get("watch") != "" && r.URL.Query().Get("watch") != "0" && strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") && resp.StatusCode == 200 {
				resp.Body = fixBookmarks(resp.Body)
			}
			return nil
		},
	}
	proxyMetrics := regexp.MustCompile(`^/api/v1/namespaces/kube-system/pods/([^/]*:)?([^/:]+)(:\d+)?/proxy/metrics$`)
	podLog := regexp.MustCompile(`^/api/v1/namespaces/kube-system/pods/[^/]+/log$`)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if al != nil {
			alMu.Lock()
			fmt.Fprintf(al, "%s %s %s %s\n", time.Now().Format("15:04:05.000"), r.Method, r.URL.RequestURI(), r.UserAgent())
			al.Flush()
			alMu.Unlock()
		}
		if *metrics != "" && proxyMetrics.MatchString(r.URL.Path) {
			resp, err := http.Get(*metrics + "/metrics")
			if err != nil {
				http.Error(w, err.Error(), 502)
				return
			}
			defer resp.Body.Close()
			w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
			io.Copy(w, resp.Body)
			return
		}
		if podLog.MatchString(r.URL.Path) {
			fmt.Fprintln(w, "(logs of the operator are in a file of their own)")
			return
		}
		if r.Method == "POST" && strings.HasPrefix(r.URL.Path, "/apis/admissionregistration.k8s.io/") && strings.Contains(r.Header.Get("Content-Type"), "protobuf") {
			// the kind is served from a CRD here, so protobuf cannot be read: hand it on as JSON
			raw, _ := io.ReadAll(r.Body)
			o, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
			if err == nil {
				o.GetObjectKind().SetGroupVersionKind(*gvk)
				raw, _ = json.Marshal(o)
				r.Header.Set("Content-Type", "application/json")
			}
			r.Body = io.NopCloser(bytes.NewReader(raw))
			r.ContentLength = int64(len(raw))
			r.Header.Set("Content-Length", fmt.Sprint(len(raw)))
		}
		if r.Method == "POST" || r.Method == "PUT" || r.Method == "PATCH" {
			if msg := admit(r, get); msg != "" {
				denied.Add(1)
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(422)
				json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422, "message": msg})
				return
			}
		}
		rp.ServeHTTP(w, r)
	})
	srv := &http.Server{Addr: *listen, Handler: h}
	ln, err := net.Listen("tcp", *listen)
	must(err)
	kcfg := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: s, cluster: {server: 'http://%s'}}]\nusers: [{name: a, user: {token: '%s'}}]\ncontexts: [{name: s, context: {cluster: s, user: a}}]\ncurrent-context: s\n", ln.Addr(), cfg.BearerToken)
	must(os.WriteFile(*out, []byte(kcfg), 0600))
	log.Printf("apishim on %s before %s", ln.Addr(), target)
	must(srv.Serve(ln))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

type readCloser struct {
	io.Reader
	close func() error
}

func (r readCloser) Close() error { return r.close() }

func fixBookmarks(body io.ReadCloser) io.ReadCloser {
	pr, pw := io.Pipe()
	go func() {
		br := bufio.NewReaderSize(body, 1<<16)
		for {
			line, err := br.ReadBytes('\n')
			if len(line) > 0 {
				if bytes.Contains(line, []byte(`"type":"BOOKMARK"`)) {
					var m map[string]any
					if json.Unmarshal(line, &m) == nil {
						if o, ok := m["object"].(map[string]any); ok && o["kind"] != "PartialObjectMetadata" {
							o["apiVersion"], o["kind"] = "meta.k8s.io/v1", "PartialObjectMetadata"
							if b, e := json.Marshal(m); e == nil {
								line = append(b, '\n')
								fixed.Add(1)
							}
						}
					}
				}
				if _, e := pw.Write(line); e != nil {
					body.Close()
					return
				}
			}
			if err != nil {
				pw.CloseWithError(err)
				return
			}
		}
	}()
	return readCloser{pr, func() error { pr.Close(); return body.Close() }}
}

var pathRe = regexp.MustCompile(`^/(?:api/(v1)|apis/([^/]+)/([^/]+))/(?:namespaces/[^/]+/)?([^/]+)(?:/([^/]+))?(?:/([^/]+))?$`)

func admit(r *http.Request, get func(string) map[string]any) string {
	m := pathRe.FindStringSubmatch(r.URL.Path)
	if m == nil {
		return ""
	}
	group, version, resource, sub := m[2], m[1]+m[3], m[4], m[6]
	if !(resource == "nodes" && group == "") && !(group == "karpenter.kwok.sh") {
		return "" // nothing else is asked for by the suite
	}
	if sub != "" {
		resource += "/" + sub
	}
	op := "UPDATE"
	if r.Method == "POST" {
		op = "CREATE"
	}
	list := get("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies")
	items, _ := list["items"].([]any)
	if len(items) == 0 {
		return ""
	}
	bindings := get("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings")
	bound := map[string]bool{}
	bl, _ := bindings["items"].([]any)
	for _, b := range bl {
		bound[str(b, "spec", "policyName")] = true
	}
	raw, err := io.ReadAll(r.Body)
	r.Body.Close()
	r.Body = io.NopCloser(bytes.NewReader(raw))
	r.ContentLength = int64(len(raw))
	if err != nil {
		return ""
	}
	obj := decode(raw)
	if r.Method == "PATCH" {
		// merge patches (JSON merge, strategic, apply) on the stored object: enough for status conditions
		cur := get(strings.TrimSuffix(r.URL.Path, "/"+sub))
		if sub == "" {
			cur = get(r.URL.Path)
			if cur == nil && strings.Contains(r.Header.Get("Content-Type"), "apply-patch") {
				op = "CREATE"
			}
		}
		if cur == nil {
			cur = map[string]any{}
		}
		obj = merge(cur, obj).(map[string]any)
	}
	for _, it := range items {
		if !bound[str(it, "metadata", "name")] || !matches(it, op, group, version, resource) {
			continue
		}
		vals, _ := dig(it, "spec", "validations").([]any)
		for _, v := range vals {
			expr := str(v, "expression")
			evaluated.Add(1)
			ok, err := eval(expr, obj)
			log.Printf("policy %s on %s %s (%s): %v %v", str(it, "metadata", "name"), op, r.URL.Path, r.UserAgent(), ok, err)
			if err != nil || !ok {
				return fmt.Sprintf("ValidatingAdmissionPolicy '%s' denied request: failed expression: %s", str(it, "metadata", "name"), expr)
			}
		}
	}
	return ""
}

func decode(raw []byte) map[string]any {
	var obj map[string]any
	if bytes.HasPrefix(raw, []byte("k8s\x00")) {
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		if err != nil {
			log.Print(err)
			return nil
		}
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			log.Print(err)
		}
		return u
	}
	json.Unmarshal(raw, &obj)
	return obj
}

func merge(a, b any) any {
	am, ok1 := a.(map[string]any)
	bm, ok2 := b.(map[string]any)
	if !ok1 || !ok2 {
		return b
	}
	for k, v := range bm {
		if v == nil {
			delete(am, k)
		} else {
			am[k] = merge(am[k], v)
		}
	}
	return am
}

func matches(p any, op, group, version, resource string) bool {
	rules, _ := dig(p, "spec", "matchConstraints", "resourceRules").([]any)
	has := func(r any, f, v string) bool {
		l, _ := dig(r, f).([]any)
		for _, x := range l {
			if x == v || x == "*" {
				return true
			}
		}
		return false
	}
	for _, r := range rules {
		if has(r, "operations", op) && has(r, "apiGroups", group) && has(r, "apiVersions", version) && has(r, "resources", resource) {
			return true
		}
	}
	return false
}

func eval(expr string, obj map[string]any) (bool, error) {
	env, err := cel.NewEnv(cel.Variable("object", cel.DynType))
	if err != nil {
		return false, err
	}
	ast, iss := env.Compile(expr)
	if iss.Err() != nil {
		return false, iss.Err()
	}
	prg, err := env.Program(ast)
	if err != nil {
		return false, err
	}
	v, _, err := prg.Eval(map[string]any{"object": obj})
	if err != nil {
		return false, err
	}
	b, _ := v.Value().(bool)
	return b, nil
}

func dig(v any, path ...string) any {
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

func str(v any, path ...string) string { s, _ := dig(v, path...).(string); return s }
