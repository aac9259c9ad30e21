import { CloudlessError } from '@cloudless/base';
import { isLoopbackAddress } from './loopback.js';

/** The actor in audit records and events. */
export type Principal = AnonymousPrincipal;

/** A client on this machine. Without identities the user or program is unknown. */
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
 * @throws CloudlessError `unauthenticated` when the address is not on loopback, which a loopback
 *   listener never sees.
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
