import { isLoopbackHost } from './loopback.js';
import { quote } from './quote.js';

/** Result of a check; the reason is meant for the client. */
export type RequestCheck =
  { readonly allowed: true } | { readonly allowed: false; readonly reason: string };

const ALLOWED: RequestCheck = { allowed: true };

/**
 * Checks the `Host` header, or `:authority` in HTTP/2, against DNS rebinding: a browser sends the
 * name of the site, also when the name of another site resolves to 127.0.0.1.
 * @param host - Name or address, with or without a port. Undefined is refused, because every client
 *   since HTTP/1.1 sends the header.
 */
export function checkHostHeader(host: string | undefined): RequestCheck {
  if (host === undefined || host === '')
    return refuse('the request names no host; send a Host header such as localhost:8080');
  const { name, port = '0' } = HOST.exec(host)?.groups ?? {};
  if (name !== undefined && Number(port) <= MAX_PORT && isLoopbackHost(name)) return ALLOWED;
  return refuse(
    `host ${quote(host)} is not this machine; without TLS only localhost, 127.0.0.1 and [::1] are served`,
  );
}

/**
 * Forms `name`, `name:port`, `[v6]` and `[v6]:port` (RFC 9110, section 7.2). A bare IPv6 address is
 * not valid.
 */
const HOST = /^(?<name>\[[0-9a-fA-F:.]+\]|[^:[\]@/?#\s]+)(?::(?<port>\d{1,5}))?$/;
const MAX_PORT = 65_535;

/**
 * Checks the `Origin` header: the site of the page for which a browser sends the request. Other
 * clients send no `Origin`.
 * @param origin - The header as sent; undefined is allowed.
 * @param allowedOrigins - Origins that are allowed in addition to loopback origins, as browsers
 *   write them: `https://console.example:8443`.
 */
export function checkOrigin(
  origin: string | undefined,
  allowedOrigins: readonly string[] = [],
): RequestCheck {
  if (origin === undefined || allowedOrigins.includes(origin) || isLoopbackOrigin(origin))
    return ALLOWED;
  return refuse(
    `origin ${quote(origin)} may not call this server; only pages served from this machine may`,
  );
}

/**
 * Accepts only the exact form that browsers send: scheme, host, optional port, and nothing else.
 */
function isLoopbackOrigin(origin: string): boolean {
  if (!/^https?:\/\//.test(origin) || !URL.canParse(origin)) return false;
  const url = new URL(origin);
  return url.origin === origin && isLoopbackHost(url.hostname);
}

function refuse(reason: string): RequestCheck {
  return { allowed: false, reason };
}
