import type { IngressRoute, IngressRule } from '../model.js';

/** A rule for every path. */
export function aRule(change: Partial<IngressRule> = {}): IngressRule {
  const service = { namespace: 'shop', name: 'web' };
  return { pathPrefix: '/', service, port: 80, timeoutMs: 60_000, retries: 1, ...change };
}

/** A route for every host and path, without TLS. */
export function aRoute(change: Partial<IngressRoute> = {}): IngressRoute {
  return {
    ...{ namespace: 'shop', name: 'web', hosts: [], rules: [aRule()] },
    ...{ redirectToHttps: false, maxHeaderBytes: 16_384, maxBodyBytes: 0 },
    ...change,
  };
}
