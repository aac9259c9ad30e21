import { isLoopbackHost } from './loopback.js';

/** What a check of a request says; the reason is meant for whoever sent it. */
export type RequestCheck =
  { readonly allowed: true } | { readonly allowed: false; readonly reason: string };

const ALLOWED: RequestCheck = { allowed: true };

/** Longest part of a refused header that an answer repeats. */
const MAX_ECHO = 100;

/**
 * Checks the name a client used for us: the `Host` header, or `:authority` in HTTP/2. A page of
 * another site whose name was made to resolve to 127.0.0.1 (DNS rebinding) still says its own name
 * here, which is what gives it away.
 * @param host - Name or address with or without a port; absent is refused, since every client of
 *   HTTP/1.1 and newer sends it.
 */
export function checkHostHeader(host: string | undefined): RequestCheck {
  if (host === undefined || host === '')
    return refuse('the request names no host; send a Host header such as localhost:8080');
  const { name, port = '0' } = HOST.exec(host)?.groups ?? {};
  if (name !== undefined && Number(port) <= MAX_PORT && isLoopbackHost(name)) return ALLOWED;
  return refuse(
    `host ${quoted(host)} is not this machine; without TLS only localhost, 127.0.0.1 and [::1] are served`,
  );
}

/**
 * `name`, `name:port`, `[v6]` or `[v6]:port` (RFC 9110, section 7.2). A bare IPv6 address is not
 * one.
 */
const HOST = /^(?<name>\[[0-9a-fA-F:.]+\]|[^:[\]@/?#\s]+)(?::(?<port>\d{1,5}))?$/;
const MAX_PORT = 65_535;

/**
 * Checks which page a browser sends the request for. Other clients send no `Origin`.
 * @param origin - The header as sent; absent is allowed.
 * @param allowedOrigins - Origins beside the loopback ones, each as browsers write it:
 *   `https://console.example:8443`.
 */
export function checkOrigin(
  origin: string | undefined,
  allowedOrigins: readonly string[] = [],
): RequestCheck {
  if (origin === undefined || allowedOrigins.includes(origin) || isLoopbackOrigin(origin))
    return ALLOWED;
  return refuse(
    `origin ${quoted(origin)} may not call this server; only pages served from this machine may`,
  );
}

/** Only the exact form that browsers send: a scheme, a host, perhaps a port, nothing after it. */
function isLoopbackOrigin(origin: string): boolean {
  if (!/^https?:\/\//.test(origin) || !URL.canParse(origin)) return false;
  const url = new URL(origin);
  return url.origin === origin && isLoopbackHost(url.hostname);
}

function refuse(reason: string): RequestCheck {
  return { allowed: false, reason };
}

function quoted(text: string): string {
  return JSON.stringify(text.length > MAX_ECHO ? `${text.slice(0, MAX_ECHO)}...` : text);
}
