import { CloudlessError } from '@cloudless/base';
import { isLoopbackAddress } from './loopback.js';

/** Who acts, for audit fields and events. */
export type Principal = AnonymousPrincipal;

/** Somebody on this machine. Which user or program it was, nobody can tell without identities. */
export interface AnonymousPrincipal {
  readonly kind: 'anonymous-loopback';
  /** What audit lines show. */
  readonly name: 'anonymous@loopback';
  /** The address the call came from. */
  readonly address: string;
}

/**
 * Who is at the other end of a connection.
 * @param connection - The remote address as the socket gives it; IPv4 may come in its IPv6 form.
 * @throws CloudlessError `unauthenticated` when it comes from elsewhere: a listener on loopback
 *   never sees that, so something is wrong.
 */
export function principalOf(connection: { readonly remoteAddress: string }): Principal {
  const { remoteAddress } = connection;
  if (!isLoopbackAddress(remoteAddress)) {
    throw new CloudlessError(
      'unauthenticated',
      `a call from ${remoteAddress || 'an unknown address'} carries no identity`,
    );
  }
  return { kind: 'anonymous-loopback', name: 'anonymous@loopback', address: remoteAddress };
}
