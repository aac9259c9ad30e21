/** Returns the DNS name of a service, such as `web.default.svc.cloudless.internal`. */
export function serviceDnsName(namespace: string, name: string, clusterDomain: string): string {
  return `${name}.${namespace}.svc.${clusterDomain}`;
}

/**
 * Returns the search domains of the replicas of a namespace, so that `web` finds a service of the
 * same namespace, and `web.shop` one of namespace `shop`.
 */
export function searchDomains(namespace: string, clusterDomain: string): readonly string[] {
  return [`${namespace}.svc.${clusterDomain}`, `svc.${clusterDomain}`, clusterDomain];
}

/**
 * Number of dots from which a resolver asks for a name as it is before it adds search domains. As
 * in Kubernetes, so that `_http._tcp.web.shop.svc` is found and no such name leaves the cluster.
 */
export const RESOLVER_NDOTS = 5;
