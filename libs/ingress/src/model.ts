/** A service by its name, in the namespace of the route. */
export interface IngressService {
  readonly namespace: string;
  readonly name: string;
}

/** Requests below one path prefix, and the service that answers them. */
export interface IngressRule {
  /** Begins with "/". Matched by whole segments: "/shop" covers "/shop" and "/shop/cart". */
  readonly pathPrefix: string;
  readonly service: IngressService;
  /** A TCP port of the service, by number, 1 to 65535. */
  readonly port: number;
  /** Longest time until the response begins, milliseconds, 1,000 to 3,600,000. */
  readonly timeoutMs: number;
  /** Further attempts for a request without a body that no endpoint received, 0 to 3. */
  readonly retries: number;
}

/** Absolute paths of PEM files on the nodes that serve the route. */
export interface IngressTlsFiles {
  /** The certificate of the route's hosts, followed by its intermediates. */
  readonly certificateFile: string;
  readonly keyFile: string;
}

/** A secret with the certificate of the route's hosts, its intermediates and its private key. */
export interface IngressTlsSecret {
  /** "namespace/name". */
  readonly secret: string;
}

/** Where the certificate of a route is. */
export type IngressTls = IngressTlsFiles | IngressTlsSecret;

/** A certificate with its private key, in PEM. Secret because of the key. */
export interface IngressCertificate {
  /** The certificate, followed by its intermediates. */
  readonly certificate: string;
  /** Not encrypted. */
  readonly key: string;
}

/** A route with its defaults filled in, as a node serves it. */
export interface IngressRoute {
  readonly namespace: string;
  readonly name: string;
  /** Exact names or names with one leading wildcard label ("*.example.com"). None: every host. */
  readonly hosts: readonly string[];
  /** At least one. */
  readonly rules: readonly IngressRule[];
  /** Absent: the route is served without TLS. */
  readonly tls?: IngressTls;
  /** True when requests without TLS are answered with a redirect to https. */
  readonly redirectToHttps: boolean;
  /** Largest size of the headers of a request, bytes, 1 to 65,536. */
  readonly maxHeaderBytes: number;
  /** Largest body of a request, bytes. 0: no limit. */
  readonly maxBodyBytes: number;
}

/** Returns the key by which routes are told apart: "namespace/name". */
export function toRouteKey(route: Pick<IngressRoute, 'namespace' | 'name'>): string {
  return `${route.namespace}/${route.name}`;
}

/** Returns the routes in the order of their keys: the first of conflicting routes is served. */
export function sortByRouteKey(routes: Iterable<IngressRoute>): IngressRoute[] {
  return [...routes].sort((a, b) => (toRouteKey(a) < toRouteKey(b) ? -1 : 1));
}
