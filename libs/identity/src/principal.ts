import { CloudlessError } from '@cloudless/base';
import { isLoopbackAddress } from './loopback.js';

/** The actor in audit records and events. */
export type Principal = AnonymousPrincipal;

/** A client on this machine whose user and program are unknown, because there are no identities. */
export interface AnonymousPrincipal {
  readonly kind: 'anonymous-loopback';
  /** Name in audit records. */
  readonly name: 'anonymous@loopback';
  /** Remote address of the connection. */
  readonly address: string;
}

/**
 * Returns the principal of a connection.
 * @param connection - The remote address as the socket reports it; IPv4 may be in its IPv6 form.
 * @throws kind `unauthenticated` when the address is not on loopback. A listener on loopback never
 *   accepts such a connection.
 */
export function getPrincipal(connection: { readonly remoteAddress: string }): Principal {
  const { remoteAddress } = connection;
  if (!isLoopbackAddress(remoteAddress)) {
    throw new CloudlessError(
      'unauthenticated',
      `a call from ${remoteAddress || 'an unknown address'} carries no identity`,
    );
  }
  return { kind: 'anonymous-loopback', name: 'anonymous@loopback', address: remoteAddress };
}
