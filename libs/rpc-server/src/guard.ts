import type { IncomingHttpHeaders } from 'node:http';
import { checkHostHeader, checkOrigin } from '@cloudless/identity';
import { cors } from '@connectrpc/connect';
import { RETRY_AFTER_HEADER } from './refusal.js';

/** What the guard needs to know of a request, in either version of HTTP. */
export interface GuardedRequest {
  readonly method?: string | undefined;
  readonly headers: IncomingHttpHeaders;
}

/**
 * What to do with a request: go on (with headers for the response), answer a browser's preflight,
 * or refuse.
 */
export type GuardDecision =
  | { readonly kind: 'pass'; readonly headers: Readonly<Record<string, string>> }
  | { readonly kind: 'preflight'; readonly headers: Readonly<Record<string, string>> }
  | { readonly kind: 'refuse'; readonly reason: string };

/**
 * Keeps pages of other sites out of a plaintext server on loopback: the host must be this machine
 * by name (`:authority` and `Host` both, when both are sent), and an origin must be on loopback or
 * in the list. Pure.
 */
export function guardRequest(
  request: GuardedRequest,
  allowedOrigins: readonly string[],
): GuardDecision {
  const { headers } = request;
  const authority = headers[':authority'];
  const hosts =
    typeof authority === 'string' && headers.host !== undefined
      ? [authority, headers.host]
      : [authority ?? headers.host];
  for (const host of hosts) {
    const check = checkHostHeader(Array.isArray(host) ? host.join() : host);
    if (!check.allowed) return { kind: 'refuse', reason: check.reason };
  }
  const origin = headers.origin;
  const check = checkOrigin(origin, allowedOrigins);
  if (!check.allowed) return { kind: 'refuse', reason: check.reason };
  if (origin === undefined) return { kind: 'pass', headers: {} };
  const shared = { 'Access-Control-Allow-Origin': origin, Vary: 'Origin' };
  if (request.method !== 'OPTIONS' || headers['access-control-request-method'] === undefined) {
    return {
      kind: 'pass',
      headers: {
        ...shared,
        'Access-Control-Expose-Headers': [
          ...cors.exposedHeaders,
          'Retry-After',
          RETRY_AFTER_HEADER,
        ].join(', '),
      },
    };
  }
  return {
    kind: 'preflight',
    headers: {
      ...shared,
      'Access-Control-Allow-Methods': cors.allowedMethods.join(', '),
      'Access-Control-Allow-Headers': cors.allowedHeaders.join(', '),
      'Access-Control-Max-Age': String(PREFLIGHT_MAX_AGE_SECONDS),
    },
  };
}

/** Two hours: the longest that Chromium remembers a preflight. */
const PREFLIGHT_MAX_AGE_SECONDS = 7_200;
