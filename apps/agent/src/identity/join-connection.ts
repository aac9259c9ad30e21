import { CloudlessError } from '@cloudless/base';
import { parseToken } from '@cloudless/identity';
import {
  createCoordinatorTransport,
  fetchServerRoot,
  type CallInterceptors,
  type CoordinatorConnection,
} from '@cloudless/rpc-node/client';

/**
 * Opens a connection for EnrollNode to a coordinator of the cluster that a join token names. Nothing
 * is sent before the certificate of the coordinator is verified with the SHA-256 in the token.
 * @throws CERTIFICATE_INVALID when the server is of another cluster, and as
 *   {@link createCoordinatorTransport}.
 */
export async function connectToJoin(
  address: string,
  token: string,
  signal: AbortSignal,
  interceptors: CallInterceptors,
): Promise<CoordinatorConnection> {
  const { caSha256s } = parseToken(token) ?? {};
  if (caSha256s === undefined) throw new CloudlessError('invalid', 'the join token is malformed');
  const { bundlePem, serverId, trustDomain } = await fetchServerRoot(address, caSha256s, signal);
  const tls = { bundlePem, serverIds: [serverId], trustDomain };
  return createCoordinatorTransport({ interceptors, tls: () => tls }).connect(address, signal);
}
