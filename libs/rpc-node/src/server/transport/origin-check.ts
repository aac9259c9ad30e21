import type { IncomingHttpHeaders } from 'node:http';
import { cors } from '@connectrpc/connect';
import { checkHostHeader, checkOrigin } from '@cloudless/identity';
import { RETRY_AFTER_HEADER } from '../admission/retryable-error.js';

/** The part of an HTTP/1.1 or HTTP/2 request that {@link checkRequestOrigin} reads. */
export interface CheckedRequest {
  readonly method?: string | undefined;
  readonly headers: IncomingHttpHeaders;
}

/**
 * `pass`: serve the request, and add `headers` to the response. `preflight`: answer the CORS
 * preflight of a browser with `headers`. `refuse`: answer 403 with `reason`.
 */
export type OriginDecision =
  | { readonly kind: 'pass'; readonly headers: Readonly<Record<string, string>> }
  | { readonly kind: 'preflight'; readonly headers: Readonly<Record<string, string>> }
  | { readonly kind: 'refuse'; readonly reason: string };

/**
 * Protects a plaintext server on loopback from web pages of other sites (DNS rebinding, cross-site
 * requests). Host and `:authority` must name this machine; an origin must be on loopback or in
 * `allowedOrigins`; no origin is allowed, unless the browser says that a page of another site
 * embeds the response, for example as an image.
 * @param allowedMethods - Methods for the answer to a preflight. Default: GET.
 */
export function checkRequestOrigin(
  request: CheckedRequest,
  allowedOrigins: readonly string[],
  allowedMethods: readonly string[] = ['GET'],
): OriginDecision {
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
  if (origin === undefined) {
    return isForeignSubresource(headers)
      ? { kind: 'refuse', reason: 'a page of another site may not embed responses of this server' }
      : { kind: 'pass', headers: {} };
  }
  const originHeaders = { 'Access-Control-Allow-Origin': origin, Vary: 'Origin' };
  if (request.method !== 'OPTIONS' || headers['access-control-request-method'] === undefined) {
    return {
      kind: 'pass',
      headers: {
        ...originHeaders,
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
      ...originHeaders,
      'Access-Control-Allow-Methods': allowedMethods.join(', '),
      'Access-Control-Allow-Headers': cors.allowedHeaders.join(', '),
      'Access-Control-Max-Age': String(PREFLIGHT_MAX_AGE_SECONDS),
    },
  };
}

/**
 * Returns true for a request without an origin that a page of another site makes, other than by a
 * link. An `<iframe>` navigates like a link, but its destination is not a document.
 * @see W3C Fetch Metadata Request Headers, sections 2.1 to 2.3
 */
function isForeignSubresource(headers: IncomingHttpHeaders): boolean {
  const site = headers['sec-fetch-site'];
  const isLink =
    headers['sec-fetch-mode'] === 'navigate' && headers['sec-fetch-dest'] === 'document';
  return (site === 'cross-site' || site === 'same-site') && !isLink;
}

/** Two hours: the longest time that Chromium caches a preflight. */
const PREFLIGHT_MAX_AGE_SECONDS = 7_200;
