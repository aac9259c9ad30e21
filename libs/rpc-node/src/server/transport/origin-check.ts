import type { IncomingHttpHeaders } from 'node:http';
import { cors } from '@connectrpc/connect';
import { checkHostHeader, checkOrigin, type RequestCheck } from '@cloudless/identity';
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

/** Rules of {@link checkRequestOrigin}. */
export interface OriginRules {
  /** Web origins that may call the server. */
  readonly allowedOrigins: readonly string[];
  /**
   * True when the request came over TLS. The certificate of the server then protects from DNS
   * rebinding: any host is allowed, and of the origins only the origin of the server itself and
   * `allowedOrigins`. False: the host must name this machine, and origins on loopback are allowed.
   */
  readonly tls: boolean;
  /** Methods for the answer to a preflight. Default: GET. */
  readonly allowedMethods?: readonly string[];
}

/**
 * Protects a server from web pages of other sites (DNS rebinding, cross-site requests). No origin
 * is allowed, unless the browser says that a page of another site embeds the response, for example
 * as an image.
 */
export function checkRequestOrigin(
  request: CheckedRequest,
  { allowedOrigins, tls, allowedMethods = ['GET'] }: OriginRules,
): OriginDecision {
  const { headers } = request;
  const origin = headers.origin;
  const check = tls
    ? checkSecureOrigin(origin, headers, allowedOrigins)
    : checkLoopbackRequest(headers, allowedOrigins);
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
      // A browser sends the token of a user in this header.
      'Access-Control-Allow-Headers': [...cors.allowedHeaders, 'Authorization'].join(', '),
      'Access-Control-Max-Age': String(PREFLIGHT_MAX_AGE_SECONDS),
    },
  };
}

/** Allows only hosts of this machine, and origins of this machine or in `allowedOrigins`. */
function checkLoopbackRequest(
  headers: IncomingHttpHeaders,
  allowedOrigins: readonly string[],
): RequestCheck {
  for (const host of listHosts(headers)) {
    const check = checkHostHeader(host);
    if (!check.allowed) return check;
  }
  return checkOrigin(headers.origin, allowedOrigins);
}

/** Allows no origin, the origin of the server as the client addresses it, and `allowedOrigins`. */
function checkSecureOrigin(
  origin: string | undefined,
  headers: IncomingHttpHeaders,
  allowedOrigins: readonly string[],
): RequestCheck {
  const hosts = listHosts(headers);
  const isSameOrigin =
    hosts.length > 0 && hosts.every((host) => origin === `https://${String(host).toLowerCase()}`);
  return origin === undefined || isSameOrigin || allowedOrigins.includes(origin)
    ? { allowed: true }
    : {
        allowed: false,
        reason: `origin ${JSON.stringify(origin.slice(0, MAX_SHOWN_ORIGIN))} may not call this server; only pages of this server and of its allowed origins may`,
      };
}

/** Characters of a refused origin that the reason repeats. */
const MAX_SHOWN_ORIGIN = 100;

/** The Host header, and `:authority` of HTTP/2. */
function listHosts(headers: IncomingHttpHeaders): readonly (string | undefined)[] {
  const authority = headers[':authority'];
  const hosts =
    typeof authority === 'string' && headers.host !== undefined
      ? [authority, headers.host]
      : [authority ?? headers.host];
  return hosts.map((host) => (Array.isArray(host) ? host.join() : host));
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
